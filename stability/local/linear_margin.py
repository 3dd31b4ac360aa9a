r"""What perturbations can take of a margin that is linear in them, from below, in integers over a power of two.

A ball takes the dual norm of ``g``. Where inputs are clipped, too, its condition gets a price, any of which is sound:

.. math:: g^T d \ge \sum_i \min_{l_i \le d_i \le u_i} (g_i d_i + \lambda d_i^2) - \lambda r^2 , \qquad |d| \le r .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.fixed import Fixed, Whole, root

Array = np.ndarray
_HALVINGS, _PLACES = 100, 200
"""Of ranges of prices, and binary places of one that is rounded."""


@dataclass(frozen=True, eq=False)
class Margin:
    """A margin as a function of perturbations, as integers over ``2**bits``.

    Attributes:
        bits: binary places.
        value: a lower bound of it where there is none.
        off: how far that may be from it.
        rows: for each step ``(1, p)`` by which it counts.
    """

    bits: int
    value: int
    off: int
    rows: list[Fixed]

    @property
    def scale(self) -> int:
        """The largest entry of the rows, at least one."""
        return max([1, *(abs(int(g)) for row in self.rows for g in row.ints[0])])

    def floats(self) -> Array:
        """The rows over their largest entry, ``(T, p)``, nearly."""
        scale = self.scale
        return np.array([[int(g) / scale for g in row.ints[0]] for row in self.rows]).reshape(len(self.rows), -1)

    def boxed(self, low: Array, high: Array, steps: range | None = None) -> int:
        """A lower bound of what perturbations in a box ``(T, p)`` add, of some steps."""
        out = 0
        for t in range(len(low)) if steps is None else steps:
            row, ends = (
                self.rows[t],
                Whole.of(np.where(self.rows[t].ints[0] > 0, low[t], high[t]).astype(float)[:, None]),
            )
            out += int((row @ ends).ints[0, 0]) - self._missed(t, low[t], high[t])
        return out

    def dual(self, free: Array, each: bool) -> int:
        """The dual norm from above: of the entries that are free ``(T, p)``, of all steps together or of each."""
        squares = [sum((abs(int(g)) + row.off) ** 2 for g in row.ints[0][own]) for row, own in zip(self.rows, free)]
        return sum(map(root, squares)) if each else root(sum(squares))

    def priced(self, low: Array, high: Array, steps: range, price: int) -> int:
        """A lower bound of ``g^T d + price |d|^2`` in a box ``(T, p)``, of some steps; ``price > 0`` as an integer."""
        out = 0
        for t in steps:
            G, ends = self.rows[t].ints[0], Whole.of(np.stack([low[t], high[t]]))
            first, last = ((G * end >> ends.places) + (price * end * end >> 2 * ends.places) for end in ends.ints)
            slopes = [(G << ends.places) + 2 * price * end for end in ends.ints]  # of the parabola at both ends
            inner = -(G * G) // (4 * price)
            worst = np.where((slopes[0] >= 0).astype(bool), first, np.where((slopes[1] <= 0).astype(bool), last, inner))
            out += int(worst.sum()) - self._missed(t, low[t], high[t])
        return out

    def _missed(self, t: int, low: Array, high: Array) -> int:
        far = Whole.of(np.maximum(np.abs(low), np.abs(high))[:, None])
        return (self.rows[t].off * far.size >> far.places) + 1

    def left(self, radius: float | None, box: tuple[Array, Array] | None, free: Array, each: bool) -> int:
        """A lower bound of the margin.

        Args:
            radius: of the ball in l2; ``None``: the box is all.
            box: ends ``(T, p)`` of the perturbations; ``None``: there are none.
            free: ``(T, p)`` true where there may be a perturbation.
            each: whether every step has a ball of its own.
        """
        if radius is None:
            assert box is not None
            return self.value + self.boxed(*box)
        length = Whole.of(np.array([[radius]]))
        if box is None:
            return self.value - (self.dual(free, each) * length.size >> length.places) - 1
        parts = groups(len(free), each)
        g, low, high = (by_group(part, each) for part in (self.floats(), *box))
        out = self.value
        for steps, price in zip(parts, priced(g, low, high, radius)[0]):
            whole = int(price * 2.0**_PLACES) * self.scale >> _PLACES
            if whole > 0:
                cost = (whole * length.size * length.size >> 2 * length.places) + 1
                out += self.priced(*box, steps, whole) - cost
            else:
                out += self.boxed(*box, steps)
        return out


def groups(steps: int, each: bool) -> list[range]:
    """The steps that share a ball."""
    return [range(t, t + 1) for t in range(steps)] if each else [range(steps)]


def by_group(x: Array, each: bool) -> Array:
    """A row for each group of ``groups``, of ``(T, p)``."""
    return x if each else x.reshape(1, -1)


def priced(g: Array, low: Array, high: Array, radius: float) -> tuple[Array, Array]:
    """The best prices, zero where a ball holds all that counts of its box, and what takes most, in floating point.

    Args:
        g: ``(m, q)`` by which the entries of each ball count.
        low: ``(m, q)`` ends of the box.
        high: ``(m, q)`` ends of the box.
        radius: of the balls.

    Example:
        >>> price, d = priced(np.array([[1.0, 2.0]]), np.full((1, 2), -0.5), np.full((1, 2), 0.5), 0.6)
        >>> d.round(6), np.linalg.norm(d, axis=1).round(6)
        (array([[-0.331662, -0.5     ]]), array([0.6]))
    """
    corner = np.where(g > 0, low, np.where(g < 0, high, 0.0))
    with np.errstate(all="ignore"):
        tight = np.linalg.norm(corner, axis=1) > radius
        most = np.where(tight, 0.5 * np.linalg.norm(g, axis=1) / radius, 0.0)
        least = most * 1e-60
        for _ in range(_HALVINGS):
            price = np.sqrt(least) * np.sqrt(most)
            d = np.clip(-g / (2.0 * price[:, None]), low, high)
            over = np.linalg.norm(d, axis=1) > radius
            least, most = np.where(over, price, least), np.where(over, most, price)
        d = np.where(tight[:, None], np.clip(-g / (2.0 * most[:, None]), low, high), corner)
    return np.where(tight, most, 0.0), d
