r"""Pathfinder: are two discs the ends of one dashed path? Drawn pixel by pixel, read one pixel a step.

Pixels of different paths keep a distance that is larger than the gaps within a path, so the label can be read off the
image, which ``solve_pathfinder`` does.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError

from .base import Pair, Task, check_size, generated_parts, register_task, task_of
from .dashed_paths import Painter

ALL_NEIGHBOURS = np.ones((3, 3), dtype=bool)


def solve_pathfinder(images: Tensor | np.ndarray, *, gap: int = 1) -> np.ndarray:
    """The labels, from the pixels alone.

    A disc is a lit square of 3 by 3 pixels; lit pixels with at most ``gap`` dark ones between them belong to one
    path. The label is 1 where both discs lie on one path.

    Args:
        images: ``(n, side, side)``, or sequences ``(n, side * side, 1)``; lit above 1/2.
        gap: dark pixels between two dashes.

    Returns:
        ``(n,)`` int64, 0 or 1.

    Raises:
        DimensionError: neither square images nor their sequences.
        ConfigurationError: an image without exactly two discs, or a bad ``gap``.

    Example:
        >>> image = np.zeros((1, 9, 9)); image[0, 1:4, 1:4] = image[0, 5:8, 5:8] = 1.0
        >>> solve_pathfinder(image), solve_pathfinder(image, gap=0)
        (array([1]), array([0]))
    """
    check_size("gap", gap, 0, 512)
    lit = np.asarray(images.cpu() if isinstance(images, Tensor) else images) > 0.5
    side = round(lit.shape[1] ** 0.5) if lit.ndim == 3 and lit.shape[2] == 1 else lit.shape[-1]
    if lit.ndim != 3 or lit.shape[1] * lit.shape[2] != side * side:
        raise DimensionError("images", "(n, side, side) or (n, side * side, 1)", tuple(lit.shape))
    reach = np.ones((gap + 1, gap + 1), dtype=bool)  # two of these touch exactly when <= gap pixels lie between
    labels = np.zeros(len(lit), dtype=np.int64)
    for i, image in enumerate(lit.reshape(-1, side, side)):
        discs = _components(ndimage.binary_erosion(image, ALL_NEIGHBOURS))
        if discs.max() != 2:
            raise ConfigurationError(f"image {i} must have two discs, 3 by 3 lit pixels each, got {discs.max()}")
        wide = ndimage.binary_dilation(np.pad(image, gap + 1), reach)
        paths = _components(wide)[gap + 1 : gap + 1 + side, gap + 1 : gap + 1 + side]
        labels[i] = paths[discs == 1][0] == paths[discs == 2][0]
    return labels


def _components(mask: np.ndarray) -> np.ndarray:
    """Numbers of the connected parts, diagonal neighbours included; 0 outside."""
    numbers = np.zeros(mask.shape, dtype=np.int32)
    ndimage.label(mask, ALL_NEIGHBOURS, output=numbers)
    return numbers


@register_task("pathfinder")
def pathfinder(
    *,
    seed: int = 0,
    side: int = 32,
    length: int = 12,
    distractors: int = 3,
    distractor_length: int = 4,
    dash: int | None = None,
    gap: int | None = None,
    turn: float | None = None,
    train: int = 2000,
    test: int = 500,
) -> Task:
    """Pathfinder: whether two discs mark the ends of one dashed path (1), or of two different ones (0).

    Two long paths and some short ones, none of which touch, in a picture of lit (1) and dark (0) pixels, read row by
    row: ``side ** 2`` steps with one feature. Half of the pictures of each part have label 1 (with an odd number one
    more has label 0). ``side=32`` has the 1,024 steps of the Long Range Arena's Pathfinder, ``side=128`` the 16,384 of
    its Path-X; the pictures are drawn anew, so accuracies cannot be compared with those on its files.

    Args:
        seed: of the pictures.
        side: pixels of a side, 16 to 512.
        length: dashes of a long path.
        distractors: number of short paths.
        distractor_length: dashes of a short path.
        dash: pixels of a dash; by default 2, and 5 at ``side=128``.
        gap: dark pixels between dashes; by default half of ``dash``.
        turn: largest change of direction from a dash to the next, in radians, up to ``(dash + gap) / 3`` (a radius of
            curvature of 3 pixels); by default 1 where that is allowed.
        train: how many training pictures.
        test: how many test pictures.

    Returns:
        The task: one class per sequence.

    Raises:
        ConfigurationError: a bad option, or more paths than there is room for.

    Source:
        D. Linsley, J. Kim, V. Veerabadran, C. Windolf, T. Serre, "Learning long-range spatial dependencies with
        horizontal gated recurrent units" (NeurIPS 2018), after R. Houtkamp, P. R. Roelfsema, "Parallel and serial
        grouping of image elements in visual perception" (2010); Y. Tay et al., "Long Range Arena" (2021).

    Example:
        >>> task = pathfinder(train=4, test=2)
        >>> x, y = task.train
        >>> tuple(x.shape), bool((solve_pathfinder(x) == y.numpy()).all())
        ((4, 1024, 1), True)
    """
    check_size("side", side, 16, 512)
    dash = check_size("dash", max(2, 5 * side // 128) if dash is None else dash, 1, side)
    gap = check_size("gap", max(1, dash // 2) if gap is None else gap, 1, side)
    check_size("distractors", distractors, 0, 1000)
    for name, value in (("length", length), ("distractor_length", distractor_length)):
        check_size(name, value, 1, 512)
        if (steps := value * (dash + gap) - gap) > 4 * side:
            raise ConfigurationError(
                f"{name} {value} makes paths of {steps} pixels; side {side} has room for {4 * side}"
            )
    if length * (dash + gap) - gap <= 2 * (gap + 2):
        raise ConfigurationError(f"length must be larger than {length}, or dash than {dash}: the two discs would touch")
    sharpest = min((dash + gap) / 3, np.pi)  # turning more sharply, a path would run along its own disc
    turn = min(1.0, sharpest) if turn is None else turn
    if isinstance(turn, bool) or not isinstance(turn, (int, float)) or not 0 <= turn <= sharpest:
        raise ConfigurationError(f"turn must be an angle from 0 to {sharpest:.3g} for these dashes, got {turn!r}")
    shape = {"side": side, "length": length, "distractors": distractors, "distractor_length": distractor_length}
    chosen = {"dash": dash, "gap": gap, "turn": turn}

    def make(n: int, rng: np.random.Generator) -> Pair:
        painter = Painter(rng, {**shape, **chosen})
        labels = rng.permutation(np.arange(n) % 2)
        images = np.stack([painter.picture(bool(label)) for label in labels])
        return torch.from_numpy(images).unsqueeze(2), torch.from_numpy(labels)

    parts = generated_parts(make, seed, train, test, numbers=side * side)
    return task_of(output_size=2, chance=(test + 1) // 2 / test, bounds=(0.0, 1.0), options=chosen, **parts)
