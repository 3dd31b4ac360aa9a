r"""Affine arithmetic over many boxes at once, to contract boxes of solutions of ``y = T(y)``.

Over each of ``N`` boxes every value is :math:`c + L e + \eta` with symbols :math:`|e_k| \le 1` and
:math:`|\eta| \le err`. The first ``d`` symbols are the unknowns, scaled to their boxes. Every nonlinear operation adds
one symbol a value: the remainder of its linear relaxation. All bounds include rounding errors.

Source: L. H. de Figueiredo, J. Stolfi, "Affine arithmetic: concepts and applications", Numerical Algorithms 37 (2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_values
from stability.kernel.arithmetic.activation_lines import relaxation
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.adjacent_floats import next_up
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.directed_functions import exponential
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine
from stability.kernel.reachability.affine_forms import error_of_sum

Array = np.ndarray
THINNEST = 1e-12  # least relative half-width of a form's box, so that Jacobians by the symbols are invertible


@dataclass(frozen=True, eq=False)
class Form:
    """Values ``c + L e + eta`` over ``N`` boxes, with known ranges.

    Attributes:
        c: ``(N, m)``.
        L: ``(N, m, s)``.
        err: ``(N, m)`` bounds of ``|eta|``.
        low: ``(N, m)`` lower bounds of the values.
        high: ``(N, m)`` upper bounds.
    """

    c: Array
    L: Array
    err: Array
    low: Array
    high: Array

    @property
    def spread(self) -> Array:
        """Return ``|c| + |L|`` summed over the symbols, ``(N, m)``, up to rounding."""
        return np.abs(self.c) + np.abs(self.L).sum(axis=-1)

    @property
    def magnitude(self) -> Array:
        """Return the largest absolute values ``(N, m)``."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def enclose_product(matrix: Ball, low: Array, high: Array, offset: Ball) -> tuple[Array, Array]:
    """Enclose ``matrix @ x + offset`` over boxes ``(N, b)``, for all matrices ``(a, b)`` and offsets in balls."""
    out = affine(matrix.mid, Interval(low.T, high.T))
    size = np.maximum(np.abs(low), np.abs(high)).T
    slack = ((matrix.rad @ size) * (1.0 + error_of_sum(len(size))) + offset.rad[:, None]) * (1 + 8 * EPS) + TINY
    moved = out + Interval.point(offset.mid[:, None]) + Interval(-slack, slack)
    return moved.low.T, moved.high.T


class AffineBoxes:
    """Affine forms over boxes of the unknowns.

    Attributes:
        y: the unknowns ``(N, d)``.
        empty: ``(N,)``, True for boxes that are proved to hold no solution.
    """

    def __init__(self, low: Array, high: Array) -> None:
        count, self.dimension = low.shape
        middle = 0.5 * low + 0.5 * high
        self.radius = next_up(np.maximum(high - middle, middle - low)) + THINNEST * (1.0 + np.abs(middle))
        self.symbols, self.empty = self.dimension, np.zeros(count, dtype=bool)
        self.y = Form(middle, self.radius[:, :, None] * np.eye(self.dimension), np.zeros(low.shape), low, high)
        self.shares: list[Array] = []  # of the unknowns in the arguments of each nonlinear operation, (N, m, d)

    def _form(self, c: Array, L: Array, err: Array, low: Array, high: Array) -> Form:
        """Return a form whose range is intersected with the given one; boxes without values are empty."""
        reach = (np.abs(L).sum(axis=-1) + err) * (1 + error_of_sum(L.shape[-1])) + 4 * EPS * np.abs(c) + TINY
        low, high = np.fmax(low, c - reach), np.fmin(high, c + reach)
        self.empty |= (low > high).any(axis=-1)
        return Form(c, L, err, np.minimum(low, high), np.maximum(low, high))

    def linear(self, matrix: Ball, x: Form, offset: Ball) -> Form:
        """Return ``matrix @ x + offset`` for matrices ``(a, m)`` and offsets ``(a,)`` in balls."""
        size, error = np.abs(matrix.mid).T, error_of_sum(matrix.shape[1])
        err = x.err @ size + x.magnitude @ matrix.rad.T + offset.rad + error * (x.spread @ size + np.abs(offset.mid))
        low, high = enclose_product(matrix, x.low, x.high, offset)
        c = x.c @ matrix.mid.T + offset.mid
        return self._form(c, matrix.mid @ x.L, err * (1 + error) + TINY, low, high)

    def activation(self, name: str, x: Form) -> Form:
        """Return an activation of the values: a chord and a new symbol for the remainder."""
        slope, offset, error = relaxation(activation(name), x.low, x.high)
        low = activation_values(name, Ball.exact(x.low)).endpoints()[0]
        high = activation_values(name, Ball.exact(x.high)).endpoints()[1]
        return self._nonlinear([(slope, x)], offset, error, low, high)

    def one_plus_exponential(self, x: Form) -> Form:
        """Return ``1 + exp`` of the values, which lies between a chord and the parallel tangent."""
        low, high = exponential(x.low, x.high)
        gap = x.high - x.low
        slope = np.where(gap > 1e-9, (high - low) / np.maximum(gap, 1e-9), low) + TINY
        bottom = slope * (1.0 - np.log(slope))
        top = np.maximum(high - slope * x.high, low - slope * x.low)  # the pad covers errors of exp, too
        pad = 256 * EPS * (1.0 + high + slope * (2.0 + x.magnitude + np.abs(np.log(slope))))
        low, high = (1.0 + low) * (1 - 4 * EPS), (1.0 + high) * (1 + 4 * EPS)
        return self._nonlinear([(slope, x)], 1.0 + 0.5 * (top + bottom), 0.5 * (top - bottom) + pad, low, high)

    @staticmethod
    def join(x: Form, y: Form) -> Form:
        """Return the values of two forms side by side; ``y`` has at most the symbols of ``x``."""
        L = np.concatenate([x.L, np.pad(y.L, ((0, 0), (0, 0), (0, x.L.shape[2] - y.L.shape[2])))], axis=1)
        parts = (np.concatenate([getattr(x, k), getattr(y, k)], axis=1) for k in ("c", "err", "low", "high"))
        c, *rest = parts
        return Form(c, L, *rest)

    def product(self, x: Form, y: Form) -> Form:
        """Return entrywise products, linear around the middles of the ranges."""
        a, b = (0.5 * form.low + 0.5 * form.high for form in (x, y))
        half = (np.maximum(form.high - m, m - form.low) * (1 + 4 * EPS) for form, m in ((x, a), (y, b)))
        bounds = Interval(x.low, x.high) * Interval(y.low, y.high)
        remainder = np.prod(list(half), axis=0) * (1 + 4 * EPS) + TINY
        return self._nonlinear([(b, x), (a, y)], -a * b, remainder, bounds.low, bounds.high)

    def _nonlinear(self, terms: list[tuple[Array, Form]], c: Array, error: Array, low: Array, high: Array) -> Form:
        """Return ``sum of slope times form + c`` with one new symbol a value, of radius ``error`` and the rest."""
        m, first = c.shape[1], self.symbols
        self.symbols += m
        L, sizes, rest = np.zeros((*c.shape, self.symbols)), np.abs(c), error
        for slope, x in terms:
            L[:, :, : x.L.shape[2]] += slope[:, :, None] * x.L
            sizes, rest = sizes + np.abs(slope) * x.spread, rest + np.abs(slope) * x.err
            c = c + slope * x.c
        share = np.abs(L[:, :, : self.dimension])
        self.shares.append(share / np.maximum(share.sum(axis=-1, keepdims=True), TINY))
        L[:, np.arange(m), first + np.arange(m)] = rest * (1 + 32 * EPS) + 32 * EPS * sizes + TINY
        return self._form(c, L, np.zeros(c.shape), low, high)

    def contract(self, image: Form) -> tuple[Array, Array, Array]:
        r"""Contract the boxes to the solutions of ``y = T(y)``.

        With ``T(y) - y = c + J e + S v + eta`` and any ``X``, :math:`e = -X c + (I - X J) e - X S v - X \eta`.

        Args:
            image: ``T(y)``.

        Returns:
            Lower and upper bounds ``(N, d)``; in ``empty`` boxes they have no meaning. The influence ``(N, d)`` of each
            unknown on the remainders tells the search which one to split.
        """
        d, y = self.dimension, self.y
        c, J, S = image.c - y.c, image.L[:, :, :d] - y.L, image.L[:, :, d:]
        try:
            X = np.linalg.inv(J)
        except np.linalg.LinAlgError:
            X = np.linalg.pinv(np.nan_to_num(J))
        X = np.where(np.isfinite(X).all(axis=(1, 2), keepdims=True), X, 0.0)
        size, error = np.abs(X), error_of_sum(2 * d + S.shape[2])
        remainders = np.abs(X @ S)
        scale = image.spread + y.spread + image.err
        spread = remainders.sum(axis=-1) + np.abs(np.eye(d) - X @ J).sum(axis=-1)
        spread = spread + (size @ (image.err + 2 * error * scale)[:, :, None])[..., 0] + error
        spread = spread * (1 + 2 * error)
        move = -(X @ c[:, :, None])[..., 0]
        low, high = (y.c + self.radius * end for end in (move - spread, move + spread))
        pad = 16 * EPS * (np.abs(y.c) + self.radius * (np.abs(move) + spread)) + TINY
        low = np.fmax(np.fmax(low - pad, y.low), image.low)
        high = np.fmin(np.fmin(high + pad, y.high), image.high)
        self.empty |= (low > high).any(axis=1)
        influence, first = np.zeros(low.shape), 0
        for share in self.shares:
            part = remainders[:, :, first : first + share.shape[1]].sum(axis=1)
            influence, first = influence + (part[:, None, :] @ share)[:, 0], first + share.shape[1]
        return low, high, influence
