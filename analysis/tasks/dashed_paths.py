"""Pictures of dashed paths that keep a distance, for the task ``pathfinder``: random walks with bounded curvature."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import ConfigurationError

CANDIDATES = 1024
TRIES = 128  # candidates for one place, before the picture is begun anew
PATIENCE = 60_000  # steps of long paths, in pictures begun in a row without one that is finished


class Canvas:
    """Flat indices of pixels; the mask of taken ones has a margin of ``gap + 1``, so that none wraps around."""

    def __init__(self, side: int, gap: int) -> None:
        self.side, self.margin = side, gap + 1
        self.width = side + 2 * self.margin
        around = np.arange(-self.margin, self.margin + 1)
        self.nearby = (around[:, None] * self.width + around).ravel()
        self.disc = (np.arange(-1, 2)[:, None] * side + np.arange(-1, 2)).ravel()

    def with_margin(self, pixels: np.ndarray) -> np.ndarray:
        """The same pixels, counted on the grid with its margin."""
        return (pixels // self.side + self.margin) * self.width + pixels % self.side + self.margin

    def untaken(self) -> np.ndarray:
        """A flag a pixel of the grid with its margin, none set."""
        return np.zeros(self.width * self.width, dtype=bool)


class Walks:
    """Dashed paths on the grid, drawn many at a time: each a row of flat indices of pixels, one a step.

    A walk takes steps of length 1, so neighbouring pixels touch. Its direction turns by up to ``turn`` over one
    dash and gap. Walks that leave the picture, or come back to where they have been, are left out.
    """

    def __init__(self, canvas: Canvas, dashes: int, options: dict[str, Any], discs: bool) -> None:
        self.canvas, self.dashes, self.discs = canvas, dashes, discs
        self.gap, self.turn, self.period = options["gap"], options["turn"], options["dash"] + options["gap"]
        self.steps = dashes * self.period - self.gap
        self.lit = np.arange(self.steps) % self.period < options["dash"]
        self.count = max(1, min(CANDIDATES, 2**24 // self.steps**2))
        self.paths = np.zeros((0, self.steps), dtype=np.int64)
        self.needed = self.paths
        self.next = 0

    def place(self, taken: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
        """The first of the next ``TRIES`` walks with room, ``(steps,)``, its surroundings then taken; ``None`` if none.

        Each walk is tried once, so that pictures share none.
        """
        if self.next >= len(self.paths):
            self._refill(rng)
        free = ~taken[self.needed[self.next : self.next + TRIES]].any(1)
        if not free.any():
            self.next += TRIES
            return None
        chosen = self.next + int(free.argmax())
        self.next = chosen + 1
        taken[(self.needed[chosen][:, None] + self.canvas.nearby).ravel()] = True
        return self.paths[chosen]

    def _refill(self, rng: np.random.Generator) -> None:
        bends = rng.uniform(-self.turn, self.turn, (self.dashes, self.count)) / self.period
        direction = np.cumsum(np.repeat(bends, self.period, axis=0)[: self.steps - 1], axis=0)
        direction += rng.uniform(0.0, 2 * np.pi, self.count)
        path = np.zeros((2, self.steps, self.count))
        np.cumsum([np.sin(direction), np.cos(direction)], axis=1, out=path[:, 1:])
        # a uniform place among those where walk and discs stay inside; some walks are too large for any
        low, high = path.min(1), path.max(1)
        room = self.canvas.side - 3 - (high - low)
        start = 1.0 - low + np.maximum(room, 0.0) * rng.random((2, self.count))
        pixels = np.rint(path + start[:, None]).astype(np.int32)[:, :, (room >= 0).all(0)]
        rows, columns = pixels[:, :, self._simple(*pixels)]
        self.paths = np.ascontiguousarray((rows * self.canvas.side + columns).T)
        needed = self.paths[:, self.lit]
        if self.discs:
            ends = (self.paths[:, [0, -1], None] + self.canvas.disc).reshape(-1, 2 * self.canvas.disc.size)
            needed = np.concatenate([needed, ends], axis=1)
        self.needed, self.next = self.canvas.with_margin(needed), 0

    def _simple(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Which walks keep a distance from their own past, ``gap + 2`` pixels from what is twice as many steps ago.

        Discs at their ends, 3 pixels wide, have dark pixels between them.
        """
        clear = self.gap + 2
        apart = np.maximum(np.abs(rows[-1] - rows[0]), np.abs(columns[-1] - columns[0]))
        good = apart >= (clear + 2 if self.discs else 0)
        for lag in range(2 * clear, self.steps):
            near = np.abs(rows[lag:] - rows[:-lag]) < clear
            near &= np.abs(columns[lag:] - columns[:-lag]) < clear
            good &= ~near.any(0)
        return good


class Painter:
    """Pictures with two long paths and some short ones; see ``pathfinder`` for the options."""

    def __init__(self, rng: np.random.Generator, options: dict[str, Any]) -> None:
        self.rng, self.side = rng, options["side"]
        self.canvas = Canvas(self.side, options["gap"])
        long = Walks(self.canvas, options["length"], options, discs=True)
        short = Walks(self.canvas, options["distractor_length"], options, discs=False)
        self.patience = min(max(PATIENCE // long.steps, 30), 1500)
        self.kinds = [long, long] + [short] * options["distractors"]

    def picture(self, connected: bool) -> np.ndarray:
        """``(side * side,)`` float32."""
        for _ in range(self.patience):
            paths = self._place()
            if paths is not None:
                break
        else:
            raise ConfigurationError(
                f"{self.patience} pictures of {self.side} by {self.side} pixels were begun and none had room for all "
                "paths: take a larger side, fewer distractors, or shorter paths"
            )
        image = np.zeros(self.side * self.side, dtype=np.float32)
        for path, walks in zip(paths, self.kinds):
            image[path[walks.lit]] = 1.0
        first = int(self.rng.integers(2))  # the second path had less room: either may be the one that counts
        for end in self._marked(paths[first], paths[1 - first], connected):
            image[end + self.canvas.disc] = 1.0
        return image

    def _place(self) -> list[np.ndarray] | None:
        """Paths that keep their distance, the two long ones first; ``None`` when no room was found."""
        taken = self.canvas.untaken()
        paths = []
        for walks in self.kinds:
            path = walks.place(taken, self.rng)
            if path is None:
                return None
            paths.append(path)
        return paths

    def _marked(self, a: np.ndarray, b: np.ndarray, connected: bool) -> tuple[int, int]:
        """The pixels that get a disc: both ends of one path, or one end of each.

        Of the four choices of one end of each, that whose distance is nearest to the distance of the ends of a
        path: the discs alone should tell as little as possible.
        """
        ends = np.array([a[0], a[-1], b[0], b[-1]])
        if connected:
            return int(ends[0]), int(ends[1])
        places = np.stack([ends // self.side, ends % self.side], axis=1)
        size = np.linalg.norm(places[0] - places[1])
        pairs = [(0, 2), (0, 3), (1, 2), (1, 3)]
        off = [abs(np.linalg.norm(places[i] - places[j]) - size) for i, j in pairs]
        i, j = pairs[int(np.argmin(off))]
        return int(ends[i]), int(ends[j])
