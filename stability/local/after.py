r"""What follows a step of an LSTM or GRU of one unit, as planes that lie below it.

After the last step the cost to go is zero for states of another class and infinite for the others: planes are prices
times how far the state is from its bound. Where moves cost nothing, it is the margin. Between steps it is what cells
say, see ``stability.local.cells``. Of a head on the mean each output adds a toll: with a price ``p``, a side ``sign``
and the bound ``c`` of the means that keep the class there,

.. math:: V_t(s) = \min_v |v|^2 - sign \, p \, h^+ / T + V_{t+1}(s^+), \quad V_T = sign \, p \, c

is nowhere above what the moves cost of a run whose mean is at the bound or beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stability.local.cells import Cells, Piece
from stability.local.parts import Part
from stability.rigor.constants import EPS, TINY

Array = np.ndarray


class After(Protocol):
    """Lower bounds of what follows a step.

    Attributes:
        bottom: what it is nowhere below, whatever the planes; minus infinity where nothing is known.
    """

    @property
    def bottom(self) -> float:
        """See above."""
        ...

    def pieces(self, low: Array, high: Array) -> list[Piece]:
        """Planes below it, for boxes ``(N, d)`` of states."""
        ...

    def below(self, low: Array, high: Array) -> list[Piece]:
        """Planes each of which is below it on all of a box; none where others do."""
        ...

    def bound(self, s: Array) -> Array:
        """The bound at states ``(N, d)``, nearly."""
        ...

    def slopes(self, s: Array) -> Array:
        """Its slope ``(N, d)``."""
        ...


@dataclass(frozen=True, eq=False)
class Ending:
    """What follows the last step: nothing, for states of another class.

    Attributes:
        low: states ``h``, or means of these, from here on surely have the class; minus infinity where there are no
            others below.
        high: up to here; infinity where there are no others above.
    """

    low: float
    high: float
    bottom: float = 0.0

    @property
    def sides(self) -> list[tuple[float, float]]:
        """A sign and a bound, for each side of states that may have another class."""
        return [(sign, at) for sign, at in ((1.0, self.high), (-1.0, self.low)) if np.isfinite(at)]

    def priced(self, low: Array, high: Array, v: Array, slope: Array, worth: Array) -> list[tuple[Piece, Piece]]:
        """Planes, for each side with two prices: any are sound.

        Args:
            low: ``(N, d)`` of the last states.
            high: ``(N, d)``.
            v: ``(N, q)`` moves.
            slope: ``(N, d + q)`` of ``h`` by states and moves: at the first price the cost is stationary nearly.
            worth: ``(N, d)`` how what is to be shown changes with the state: the second one is what makes it so.
        """
        out, zero, shape = list[tuple[Piece, Piece]](), np.zeros(len(low)), low.shape
        pairs = (2.0 * v, slope[:, shape[1] :]), (-worth, slope[:, : shape[1]])
        prices = [(a * b).sum(axis=1) / np.maximum((b * b).sum(axis=1), 1e-30) for a, b in pairs]
        for sign, at in self.sides:
            there = ~(high[:, 0] < at) if sign > 0.0 else ~(low[:, 0] > at)
            b, c = [np.zeros(shape), np.zeros(shape)], np.zeros(shape)
            c[:, 0] = at
            for own, price in zip(b, prices):
                own[:, 0] = -sign * np.clip(np.nan_to_num(sign * price), 0.0, 1e12)
            out.append((Piece(there, zero, zero, b[0], c), Piece(there, zero, zero, b[1], c)))
        return out

    def below(self, low: Array, high: Array) -> list[Piece]:
        """None: it is zero or infinite."""
        return []


@dataclass(frozen=True, eq=False)
class Margins:
    """What follows the last step: the least of numbers ``w h + b``, as margins are where moves cost nothing.

    Attributes:
        weight: ``(c,)`` of ``h``.
        bias: ``(c,)``.
        error: ``(c,)`` of the weights, and of the biases.
        low: of the states that are meant.
        high: of these.
    """

    weight: Array
    bias: Array
    error: Array
    low: float = -np.inf
    high: float = np.inf
    bottom: float = -np.inf

    def pieces(self, low: Array, high: Array) -> list[Piece]:
        """The margins, less what rounding makes of them; ``low``, ``high`` are ``(N, d)``."""
        out, size = list[Piece](), np.maximum(np.abs(low[:, 0]), np.abs(high[:, 0]))
        there = ~((low[:, 0] > self.high) | (high[:, 0] < self.low))
        for w, bias, error in zip(self.weight, self.bias, self.error):
            slope = np.zeros(low.shape)
            slope[:, 0] = w
            below = bias - error * (1.0 + size)
            out.append(Piece(there, below, np.full(len(low), -np.inf), slope, np.zeros(low.shape)))
        return out

    def below(self, low: Array, high: Array) -> list[Piece]:
        """None: the margins are planes."""
        return []

    def bound(self, s: Array) -> Array:
        """The least margin of states ``(N, d)``, nearly; infinite for those that are not meant."""
        meant = (s[:, 0] >= self.low - 16 * EPS) & (s[:, 0] <= self.high + 16 * EPS)
        return np.where(meant, (s[:, :1] * self.weight + self.bias).min(axis=1), np.inf)

    def slopes(self, s: Array) -> Array:
        """Its slope ``(N, d)``."""
        out = np.zeros(s.shape)
        out[:, 0] = self.weight[(s[:, :1] * self.weight + self.bias).argmin(axis=1)]
        return out

    @classmethod
    def tolled(cls, toll: float, at: float, part: Part) -> Margins:
        """Of a head on the mean: what the last output adds, with what runs of a part lack of a bound ``at``.

        Example:
            >>> end = Margins.tolled(-0.5, 0.25, Part.whole(1, 4).cut(4, 0.5)[0])
            >>> end.bound(np.array([[0.25], [1.0]])).tolist()
            [0.375, inf]
        """
        steps = len(part.low) - 1
        weight, bias = np.array([toll]), np.array([-toll * steps * at])
        ends = float(part.low[-1]), float(part.high[-1])
        return cls(weight, bias, 16 * EPS * (np.abs(weight) + np.abs(bias)) + TINY, *ends)


@dataclass(frozen=True, eq=False)
class Tolled:
    """What follows, and ``toll`` times the output ``h``.

    Attributes:
        after: cells.
        toll: known to its rounding.
    """

    after: Cells
    toll: float
    bottom: float = -np.inf

    def least(self, low: Array, high: Array) -> Array:
        """The least toll ``(N,)`` of states, nearly."""
        return np.minimum(self.toll * low[:, 0], self.toll * high[:, 0])

    def pieces(self, low: Array, high: Array) -> list[Piece]:
        """The cells' planes with the toll."""
        return self._tolled(self.after.pieces(low, high), low, high)

    def below(self, low: Array, high: Array) -> list[Piece]:
        """The same of planes below all of each box."""
        return self._tolled(self.after.below(low, high), low, high)

    def _tolled(self, planes: list[Piece], low: Array, high: Array) -> list[Piece]:
        out, size = list[Piece](), abs(self.toll) * np.maximum(np.abs(low[:, 0]), np.abs(high[:, 0]))
        for p in planes:
            there, paid = self.least(low, high), self.toll * p.at[:, 0]
            slope = p.slope.copy()
            slope[:, 0] += self.toll
            error = 16 * EPS * (size + np.abs(paid)) + TINY
            value = p.value + paid - error - 16 * EPS * np.abs(p.value)
            out.append(Piece(p.there, value, p.least + there - error - 16 * EPS * np.abs(p.least), slope, p.at))
        return out

    def bound(self, s: Array) -> Array:
        """The bound at states ``(N, d)``, nearly."""
        return self.after.bound(s) + self.toll * s[:, 0]

    def slopes(self, s: Array) -> Array:
        """Its slope ``(N, d)``."""
        out = self.after.slopes(s).copy()
        out[:, 0] += self.toll
        return out
