r"""Lower bound of one margin over affine forms by quadratic relaxation (Shor).

Let ``v`` be the tube's symbols, scaled to ``|v_k| <= 1``. A margin is affine in ``v``; the symbol of a unit is
replaced, from the last unit to the first, by the unit itself, which lies above a parabola in its arguments (below,
where the margin falls with it). The arguments are affine in ``v``, so that for all inputs of the box

.. math:: \text{margin} \ge F(v) = C + Q v + \sum_i S_i\text{-form of } (\delta + R v)_i .

The parabolas touch their units along the run of one input, chosen where the margin is small: there ``F`` is the margin
itself and has its gradient. What is left is the minimum of a quadratic function over a box, bounded by Lagrange's
multipliers ``D >= 0`` of ``v_k^2 <= 1``: where ``R^T S R + D`` is positive definite,
:math:`G = F + \sum_k D_k (v_k^2 - 1) \le F` is convex, and for any ``w``

.. math:: \min F \ge G(w) - \sum_k |\partial_k G(w)| (1 + |w_k|) .

``Quadratic.least`` proves it with every rounding error inside. For multipliers see ``quadratic_multipliers``.

Source: N. Z. Shor, Quadratic optimization problems, Soviet Journal of Computer and Systems Sciences 25 (1987), for the
bound by multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stability.kernel.arithmetic.definiteness import prove_positive_definite
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.reachability.affine_forms import AffineArithmetic, Form, Group, Term, error_of_sum
from stability.kernel.reachability.gate_units import Parabola, lower_bound

Array = np.ndarray
Met = Sequence[Sequence[tuple[Array, Array]]]
_GRID = {1: 129, 2: 17}
_NARROW = 1e-3


@dataclass(frozen=True)
class Quadratic:
    """Quadratic ``F(v) = constant + linear v + sum_i diagonal_i y_i^2 + 2 sum_j mixed_j y_first_j y_second_j``,
    ``y = offset + R v``.

    Attributes:
        constant: proved value, with rounding subtracted.
        linear: ``(n,)``.
        rows: ``R (r, n)``.
        offset: ``(r,)``.
        diagonal: ``(r,)``.
        first: ``(s,)`` row numbers.
        second: ``(s,)``.
        mixed: ``(s,)``.
        cut_rows: ``(k, n)`` of values that lie between two numbers, ``|cut_offset + cut_rows v| <= cut_half``.
        cut_offset: ``(k,)``.
        cut_half: ``(k,)``.
    """

    constant: float
    linear: Array
    rows: Array
    offset: Array
    diagonal: Array
    first: Array
    second: Array
    mixed: Array
    cut_rows: Array = field(default_factory=lambda: np.zeros((0, 0)))
    cut_offset: Array = field(default_factory=lambda: np.zeros(0))
    cut_half: Array = field(default_factory=lambda: np.zeros(0))

    def cut(self, weight: Array) -> Quadratic:
        """Return ``F + sum_j weight_j ((cut_offset + cut_rows v)_j^2 - cut_half_j^2)``, at most ``F`` within cuts."""
        if not len(self.cut_half):
            return self
        paid = float((weight * self.cut_half * self.cut_half).sum()) * (1 + error_of_sum(len(weight)))
        return replace(
            self,
            constant=self.constant - paid - error_of_sum(2) * (abs(self.constant) + paid),
            rows=np.concatenate([self.rows, self.cut_rows]),
            offset=np.concatenate([self.offset, self.cut_offset]),
            diagonal=np.concatenate([self.diagonal, weight]),
        )

    def form(self, y: Array, *, sizes: bool = False) -> Array:
        """Return ``S y`` for ``y (r,)`` or ``(r, k)``; with ``sizes`` for the absolute entries of ``S``."""
        diagonal, mixed = (np.abs(self.diagonal), np.abs(self.mixed)) if sizes else (self.diagonal, self.mixed)
        column = (slice(None),) + (None,) * (y.ndim - 1)
        out = diagonal[column] * y
        np.add.at(out, self.first, mixed[column] * y[self.second])
        np.add.at(out, self.second, mixed[column] * y[self.first])
        return out

    def hessian(self) -> Array:
        """Return ``R^T S R``, half the Hessian, symmetric to the last bit."""
        half = self.rows.T @ self.form(self.rows)
        return 0.5 * (half + half.T)

    def curvature(self) -> Array:
        """Return sums of the absolute entries of the rows of ``hessian``, in floating point."""
        return np.abs(self.hessian()).sum(axis=1)

    def slope(self) -> Array:
        """Return the gradient at ``v = 0``, ``(n,)``."""
        return self.linear + 2.0 * self.rows.T @ self.form(self.offset)

    def value(self, v: Array) -> float:
        """Return ``F(v)`` in floating point."""
        y = self.offset + self.rows @ v
        return float(self.constant + self.linear @ v + y @ self.form(y))

    def least(self, multipliers: Array) -> float:
        """Bound ``F`` below over the box where its cuts hold, by multipliers ``(n + k,)``; minus infinity if they prove
        none.
        """
        n = len(self.linear)
        fits = multipliers.shape == (n + len(self.cut_half),)
        if not (fits and np.isfinite(multipliers).all() and (multipliers >= 0).all()):
            return -np.inf
        return self.cut(multipliers[n:])._least(multipliers[:n])

    def _least(self, D: Array) -> float:
        R, n, r = self.rows, len(self.linear), len(self.offset)
        K = self.hessian()
        K[np.diag_indices(n)] += D
        size, eps = np.abs(R), error_of_sum(r + 8)

        def error(s: Array) -> Array:
            return eps * (size.T @ self.form(size @ s, sizes=True)) * (1 + error_of_sum(n)) + 4 * EPS * D * s + TINY

        if not prove_positive_definite(K, error).holds:
            return -np.inf
        w = np.linalg.solve(K, -0.5 * self.slope())
        y, reach = self.offset + R @ w, np.abs(self.offset) + size @ np.abs(w)
        off = error_of_sum(n) * reach + TINY  # how far y is from what it stands for
        Sy, bound = self.form(y), self.form(reach + off, sizes=True)
        value = self.constant + self.linear @ w + y @ Sy + D @ (w * w - 1.0)
        total = abs(self.constant) + np.abs(self.linear) @ np.abs(w) + (reach + off) @ bound + D @ (w * w + 1.0)
        wrong = error_of_sum(n + r + 8) * total + 2.0 * off @ bound
        slope = self.linear + 2.0 * (R.T @ Sy) + 2.0 * D * w
        rounding = error_of_sum(r + 8) * (np.abs(self.linear) + 2.0 * size.T @ bound + 2.0 * D * np.abs(w))
        rounding = rounding + 2.0 * size.T @ self.form(off, sizes=True) * (1 + error_of_sum(r))
        rest = (np.abs(slope) + rounding) @ (1.0 + np.abs(w)) * (1 + error_of_sum(n))
        return float(value - wrong * (1 + error_of_sum(n)) - rest * (1 + 8 * EPS))


def tangent_parabola(term: Term, sign: Array, a0: Array, b0: Array) -> Parabola:
    """Return a parabola tangent to ``sign f`` at ``(a0, b0)`` that stays (nearly) below it over the box.

    Without a gate its curvature is the largest possible one on a grid; with one it is the form nearest to what the
    plane leaves on the grid, less the same amount along both axes that brings it below.
    """
    unit, box, zero = term.unit, term.box, np.zeros_like(b0)
    (fa, fb), hessian = unit.gradient(a0, b0), unit.hessian(a0, b0)
    value = unit.value(a0, b0)
    points = np.linspace(-1.0, 1.0, _GRID[2 if unit.gated else 1])
    a, b = box.grid(points)
    s, y = sign[:, None, None], b - b0[:, None, None]
    if not unit.gated:
        rest = s * (unit.value(a, b) - value[:, None, None] - fb[:, None, None] * y)
        touching = np.abs(y) <= 1e-4 * np.abs(y).max(axis=(1, 2), keepdims=True)
        ratio = np.where(touching, np.inf, rest / np.where(touching, 1.0, y * y)).min(axis=(1, 2))
        curve = np.minimum(ratio, 0.5 * sign * hessian[2])
        return Parabola(zero, sign * fb, zero, b0, zero, zero, np.where(np.isfinite(curve), curve, 0.0))
    x = a - a0[:, None, None]
    rest = s * (unit.value(a, b) - (value[:, None, None] + fa[:, None, None] * x + fb[:, None, None] * y))
    wide_a = np.maximum(np.abs(x).max(axis=(1, 2)), 1e-9)
    wide_b = np.maximum(np.abs(y).max(axis=(1, 2)), 1e-9)
    x, y = np.broadcast_arrays(x / wide_a[:, None, None], y / wide_b[:, None, None])
    basis = np.stack([x * x, 2.0 * x * y, y * y], axis=-1).reshape(len(sign), -1, 3)
    flat, none = rest.reshape(len(sign), -1), box.outside(points, 1.0 / (len(points) - 1))
    met = np.ones_like(flat) if none is None else np.where(none, 0.0, 1.0).reshape(len(sign), -1)
    fitted = basis * met[..., None]
    normal = fitted.transpose(0, 2, 1) @ basis + 1e-9 * np.eye(3)
    M = np.linalg.solve(normal, (fitted * flat[..., None]).sum(axis=1)[..., None])[..., 0]
    weight = basis[..., 0] + basis[..., 2]
    above = (basis @ M[..., None])[..., 0] - flat
    touching = (weight <= 1e-6) | (met == 0.0)
    lower = np.where(touching, -np.inf, above / np.where(touching, 1.0, weight)).max(axis=1)
    curved = [0.5 * sign * h * w for h, w in zip(hessian, (wide_a**2, wide_a * wide_b, wide_b**2))]
    p, q, t = M[:, 0] - curved[0], M[:, 1] - curved[1], M[:, 2] - curved[2]
    lower = np.maximum(lower, 0.5 * (p + t) + np.sqrt((0.5 * (p - t)) ** 2 + q**2))
    narrow = np.maximum(wide_a, wide_b) < _NARROW  # there differences are mostly rounding, and the Hessian is as good
    M = np.where(narrow[:, None], np.stack(curved, axis=1), M)
    lower = np.where(narrow, (wide_a + wide_b) * np.maximum(wide_a, wide_b) ** 2, lower)
    return Parabola(
        sign * fa, sign * fb, a0, b0,
        (M[:, 0] - lower) / wide_a**2, M[:, 1] / (wide_a * wide_b), (M[:, 2] - lower) / wide_b**2,
    )  # fmt: skip


class _Sum:
    """Builder of the quadratic function, with its accumulated rounding error."""

    def __init__(self, symbols: int, margin: Form, row: int) -> None:
        self.linear = np.zeros(symbols)
        self.linear[: margin.L.shape[1]] = margin.L[row]
        self.sizes = np.abs(self.linear)
        self.constant = float(margin.c[row])
        self.size, self.slack, self.count = abs(self.constant), float(margin.err[row]), 16
        self.rows: list[tuple[Array, Array, Array]] = []  # matrix, offset, diagonal
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.height = 0

    def plus(self, weight: Array, y: Form) -> None:
        """Add ``weight . y``."""
        width, size = y.L.shape[1], np.abs(weight)
        self.linear[:width] += weight @ y.L
        self.sizes[:width] += size @ np.abs(y.L)
        self._constant(weight, y.c)
        self.slack += float(size @ y.err)

    def _constant(self, weight: Array, c: Array) -> None:
        self.constant += float(weight @ c)
        self.size += float(np.abs(weight) @ np.abs(c))
        self.count += len(c) + 4

    def replace(self, group: Group, arguments: Sequence[tuple[Array, Array]]) -> None:
        """Replace the symbols of a group by the parabolas under its units."""
        theta = self.linear[group.first : group.last].copy()
        self.linear[group.first : group.last] = 0.0
        sign, size = np.where(theta >= 0, 1.0, -1.0), np.abs(theta)
        zero = np.zeros_like(theta)
        self.plus(-theta, Form(group.c, group.plane, zero, zero, zero))
        for term, (a0, b0) in zip(group.terms, arguments):
            box = term.box
            a0, b0 = np.clip(a0, box.a_low, box.a_high), np.clip(b0, box.b_low, box.b_high)
            p = tangent_parabola(term, sign, a0, b0)
            self._constant(size, lower_bound(term.unit, sign, p, term.box))
            self.plus(size * p.beta, term.b)
            slack = self._row(term.b, b0, size * p.bb)
            if term.a is not None:
                self.plus(size * p.alpha, term.a)
                slack_a = self._row(term.a, a0, size * p.aa)
                m = len(theta)
                first = self.height - m + np.arange(m)
                self.pairs.append((first, first - m, size * p.ab))
                far_a, far_b = (
                    np.maximum(np.abs(y.low - at), np.abs(y.high - at)) for y, at in ((term.a, a0), (term.b, b0))
                )
                cross = slack * far_a + slack_a * far_b + slack * slack_a + 4 * EPS * far_a * far_b
                self.slack += 2.0 * float((size * np.abs(p.ab)) @ cross)

    def _row(self, y: Form, at: Array, weight: Array) -> Array:
        """Add the rows of one argument; return the bound of their error."""
        reach = np.maximum(np.abs(y.low - at), np.abs(y.high - at))
        wrong = y.err + 8 * EPS * (np.abs(y.c) + np.abs(at) + reach + y.size) + TINY
        self.rows.append((y.L, y.c - at, weight))
        self.slack += float(np.abs(weight) @ (2.0 * reach * wrong + wrong * wrong + 8 * EPS * reach * reach))
        self.height += len(at)
        return wrong

    def finished(self, radius: Array, cuts: Sequence[Form]) -> Quadratic:
        """Return the function in scaled symbols."""
        rows = np.zeros((self.height, len(radius)))
        at = 0
        for L, _, _ in self.rows:
            rows[at : at + len(L), : L.shape[1]] = L * radius[: L.shape[1]]
            at += len(L)
        whole = (
            self.slack + error_of_sum(self.count) * self.size + error_of_sum(self.count) * float(self.sizes @ radius)
        )
        index = np.zeros(0, dtype=int)
        first, second, mixed = (
            np.concatenate([part[k] for part in self.pairs] + [index if k < 2 else np.zeros(0)]) for k in range(3)
        )
        cut_rows, cut_offset, cut_half = np.zeros((len(cuts), len(radius))), np.zeros(len(cuts)), np.zeros(len(cuts))
        for k, y in enumerate(cuts):  # a value is a Form of one row
            middle = 0.5 * float(y.low[0]) + 0.5 * float(y.high[0])
            cut_rows[k, : y.L.shape[1]] = y.L[0] * radius[: y.L.shape[1]]
            cut_offset[k] = y.c[0] - middle
            half = max(float(y.high[0]) - middle, middle - float(y.low[0]))
            size = abs(float(y.c[0])) + abs(middle) + half + float(y.size[0]) + float(np.abs(cut_rows[k]).sum())
            cut_half[k] = (half + float(y.err[0]) + error_of_sum(len(radius)) * size) * (1 + 8 * EPS) + TINY
        return Quadratic(
            self.constant - whole * (1 + 1e-9),
            self.linear * radius,
            rows,
            np.concatenate([d for _, d, _ in self.rows] + [np.zeros(0)]),
            np.concatenate([s for _, _, s in self.rows] + [np.zeros(0)]),
            first,
            second,
            mixed,
            cut_rows,
            cut_offset,
            cut_half,
        )


def quadratic(tube: AffineArithmetic, margin: Form, row: int, met: Met) -> Quadratic:
    """Return the function ``F`` below one margin.

    Args:
        tube: the tube, with nothing merged.
        margin: its margins.
        row: index of the row.
        met: the arguments that the units meet along one run, from ``runs.Numbers``.

    Returns:
        ``F`` in symbols of radius 1.
    """
    total = _Sum(tube.symbols, margin, row)
    for group, arguments in zip(reversed(tube.groups), reversed(met)):
        if all(term.unit.is_smooth for term in group.terms):
            total.replace(group, arguments)
    return total.finished(tube.radius, [tube.met[number] for number in sorted(tube.met)])
