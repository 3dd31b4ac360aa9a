"""The worst perturbation of a ball of a small network, nearly: descents from many starts, in floating point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from stability.gated.cell import GatedCell
from stability.local.affine import Runs, limit, stationary
from stability.local.coordinates import Coordinates
from stability.local.hessians import expansion, weights
from stability.local.lagrangians import Touch
from stability.systems.activations import activation

Array = np.ndarray
_DRAWN, _STARTS, _STEPS = 600, 6, 150
"""Points drawn, the best of which descents start from, and steps of each."""
_BENDS = (0.0, 0.5, 2.0, 8.0, 32.0, 128.0)
"""Of ``kappa``, in units of what the ball bends for each squared slope."""
_PROGRAMS = 8
"""Convex programs of a descent where there are kinks."""
_FASTER, _FASTEST, _WIDE = 1.5, 64.0, 2.5
"""A radius that is looked at where a smaller one had no other class: twice it at first, then growing faster, up to so
many times; between two that are farther apart than the last number descents begin from many points."""
_CONVEX = 0.5
"""Of the convexity that the largest of them gives: enough."""


@dataclass(frozen=True, eq=False)
class Margin:
    """One margin of a ball, in floating point."""

    of: Coordinates
    label: int
    other: int

    def __post_init__(self) -> None:
        w, bias = weights(self.of, self.label, self.other)
        vars(self)["row"], vars(self)["bias"] = _middle(w), float(_middle(bias))

    def value(self, y: Array) -> Array:
        """Margins ``(N,)`` at points ``(N, k)``."""
        return self.values(y, 0)[0]

    def values(self, y: Array, which: int) -> tuple[Array, Array]:
        """Margins at ``(N, k)``, and the slope ``(k,)`` at one of them."""
        of, row, bias = self.of, vars(self)["row"], vars(self)["bias"]
        if self.cells:
            return self._gated(y, which)
        phi, A, B, C = activation(of.classifier.recurrent.activation), *map(_middle, (of.A, of.B, of.C))
        mean, h = of.classifier.reduction == "mean", np.tile(of.classifier.start, (len(y), 1))
        out, slopes, last = np.full(len(y), bias), list[Array](), len(of.steps) - 1
        for t, step in enumerate(of.steps):
            u = y[:, step.of]
            z = of.arguments(h @ C.T + _middle(step.e) + u @ _middle(step.E).T)
            h = h @ A.T + phi.function(z) @ B.T + _middle(step.f) + u @ _middle(step.F).T
            slopes.append(phi.derivative(z[which]))
            if mean or t == last:
                out = out + h @ row
        slope, worth = np.zeros(y.shape[1]), np.zeros(len(row))
        for t in range(last, -1, -1):
            worth = worth + row if mean or t == last else worth
            through, step = of.gained(worth @ B, slopes[t]) * slopes[t], of.steps[t]
            slope[step.of] = through @ _middle(step.E) + worth @ _middle(step.F)
            worth = worth @ A + through @ C
        return out, slope

    @cached_property
    def cells(self) -> list[GatedCell]:
        """Of a cell of gates one for each step, which reads the coordinates."""
        units = self.of.units
        return [replace(u.cell, w_ih=_middle(u.E), b_ih=_middle(u.e), input_low=None, input_high=None) for u in units]

    def _gated(self, y: Array, which: int) -> tuple[Array, Array]:
        of, row, mean = self.of, float(vars(self)["row"][0]), self.of.classifier.reduction == "mean"
        state, last = np.tile(of.classifier.start, (len(y), 1)), len(of.steps) - 1
        out, ways, own = np.full(len(y), vars(self)["bias"]), list[Array](), state[which]
        for t, (step, cell) in enumerate(zip(of.steps, self.cells)):
            ways.append(own)
            state = cell.advance(state, y[:, step.of])
            own = state[which]
            if mean or t == last:
                out = out + row * state[:, 0]
        slope, worth = np.zeros(y.shape[1]), np.zeros(of.classifier.states)
        for t in range(last, -1, -1):
            if mean or t == last:
                worth[0] += row
            u = y[which, of.steps[t].of]
            slope[of.steps[t].of] = worth @ self.cells[t].input_jacobian(ways[t], u)
            worth = worth @ self.cells[t].jacobian(ways[t], u)
        return out, slope

    def starts(self, rng: np.random.Generator, known: list[Array]) -> list[Array]:
        """Points of small margins, different ones, and those that are known."""
        of, slope = self.of, self.values(np.zeros((1, len(self.of.low))), 0)[1]
        y = rng.normal(size=(_DRAWN, len(of.low)))
        y[::3] = np.sign(y[::3]) * 1e6
        y = np.concatenate([[-1e9 * slope], y])
        for part in of.balls:
            y[:, part] *= of.radius / np.maximum(np.linalg.norm(y[:, part], axis=1, keepdims=True), 1e-300)
            y[:, part] /= np.sqrt(of.least[part])
        y = self.inside(y)
        order = np.argsort(self.value(y))
        return [*known, y[0], *y[order[: _STARTS - 1]]]

    def inside(self, y: Array) -> Array:
        """Points ``(N, k)``, moved into the ball."""
        of, y = self.of, np.clip(y, self.of.low, self.of.high)
        for part in of.balls:
            size = np.linalg.norm(y[:, part] * np.sqrt(of.least[part]), axis=1, keepdims=True)
            y[:, part] *= np.minimum(1.0, of.radius * (1.0 - 1e-15) / np.maximum(size, 1e-300))
            if any(part.start <= k < part.stop for k in of.clips):
                low, high, most = np.zeros((len(y), 1)), np.ones((len(y), 1)), of.radius**2 * (1.0 - 1e-15)
                for turn in range(50):
                    scale = high if not turn else 0.5 * (low + high)
                    fits = of.cost(scale * y)[0][:, part].sum(axis=1, keepdims=True) <= most
                    low, high = np.where(fits, scale, low), np.where(fits, high, scale)
                y[:, part] *= low
        return y

    def moved(self, points: list[Array], part: float = 1.0) -> list[Array]:
        """Points of another ball of this input, as points of this one: those of as many coordinates."""
        return [self.inside(part * p[None])[0] for p in points if len(p) == len(self.of.low)]

    def least(self, starts: list[Array]) -> tuple[float, Array]:
        """The least margin that descents from some points found, and where."""
        of, scale = self.of, max(self.of.radius, 1e-300)
        _, slope = self.values(np.zeros((1, len(of.low))), 0)
        size = max(float(np.abs(slope).sum()) * scale, 1e-12)
        limits = [limit(of, part, len(of.low)) for part in of.balls]
        best, where = np.inf, np.zeros(len(of.low))
        for start in starts:
            try:
                found = minimize(
                    self._scaled, start / scale, args=(scale, size), jac=True, method="SLSQP", constraints=limits,
                    bounds=list(zip(of.low / scale, of.high / scale)), options={"maxiter": _STEPS, "ftol": 1e-14},
                )  # fmt: skip
            except (ValueError, FloatingPointError):
                continue
            y = self.inside(np.stack([found.x * scale, start]))
            values = self.value(np.nan_to_num(y))
            k = int(np.argmin(values))
            if values[k] < best:
                best, where = float(values[k]), y[k]
        return (best, where) if self.runs is None else self._descent(best, where)

    def _descent(self, best: float, where: Array) -> tuple[float, Array]:
        """The same after convex programs, see ``affine``, for as long as they lead down."""
        assert self.runs is not None
        for _ in range(_PROGRAMS):
            steps = [self.runs.step(where, mixed) for mixed in (True, False)]
            steps += [stationary(self.runs, y)[0] for y in (where, *steps) if y is not None]
            points = self.inside(np.stack([np.nan_to_num(y) for y in steps if y is not None]))
            values = self.value(points)
            k = int(np.argmin(values))
            if not values[k] < best:
                break
            least = best - float(values[k]) < 1e-12 * max(abs(best), 1e-300)
            best, where = float(values[k]), points[k]
            if least:
                break
        return best, where

    @cached_property
    def runs(self) -> Runs | None:
        """Of an activation that has kinks."""
        return Runs(self.of, vars(self)["row"], vars(self)["bias"]) if self.of.kinks else None

    def _scaled(self, v: Array, scale: float, size: float) -> tuple[float, Array]:
        value, slope = self.values(scale * v[None], 0)
        return float(value[0]) / size, slope * (scale / size)

    def touch(self, y: Array) -> Touch:
        """What a proof is to name: the point, the prices of its balls, and the bend that makes it convex there."""
        of, (_, slope) = self.of, self.values(y[None], 0)
        if self.runs is not None:
            near, prices, slopes = stationary(self.runs, y)
            return Touch(np.clip(near, of.low, of.high), np.minimum(prices, 1e20), 0.0, slopes)
        wide = 1e-9 * (of.high - of.low)
        free = (y > of.low + wide) & (y < of.high - wide)
        prices = np.zeros(len(of.balls))
        for k, part in enumerate(of.balls):
            own = of.cost(y)[1][part] * free[part]
            prices[k] = max(0.0, -float(slope[part] @ own)) / max(float(own @ own), 1e-300)
        if not of.balls or not free.any():
            return Touch(y, prices, 0.0)
        found = expansion(of, weights(of, self.label, self.other), y[None], y[None]).hessian
        assert found is not None
        H = _middle(found)[0] + 2.0 * np.diag(of.spread(prices) * of.least)
        unit = 2.0 * float((of.spread(prices) * of.least).max()) / max(float(slope @ slope), 1e-300)
        convex = [_least(H + c * unit * np.outer(slope, slope), free) for c in _BENDS]
        chosen = next((c for c, least in zip(_BENDS, convex) if least >= _CONVEX * convex[-1] > 0.0), 0.0)
        return Touch(y, np.minimum(prices, 1e20), min(chosen * unit, 1e20))


def _least(H: Array, free: Array) -> float:
    return float(np.linalg.eigvalsh(H[np.ix_(free, free)])[0])


def _middle(x: Any) -> Array:
    return 0.5 * (x.low + x.high)


def nearest(
    make: Callable[[float], Margin], guess: float, most: float, rng: np.random.Generator, known: list[Array]
) -> tuple[float, list[Array]]:
    """The least radius found at which a margin is not positive, and the worst points met: infinite where there is none.

    Args:
        make: the margin of a radius.
        guess: a radius of the right size.
        most: the largest that counts.
        rng: of the starts.
        known: points to start from.
    """
    low, high, trial = 0.0, np.inf, min(guess, most)
    margin = make(trial)
    value, y = margin.least(margin.starts(rng, margin.moved(known)))
    at_low, at_high, points, growth = np.nan, np.nan, [y], 2.0
    for turn in range(60):
        if value > 0.0:
            low, at_low = trial, value
        else:
            high, at_high, points = trial, value, [y, *points[:1]]
        if high <= low * (1.0 + 1e-9) or low >= most or (turn > 40 and not np.isfinite(high)):
            break
        before = trial
        if not np.isfinite(high):
            trial, growth = min(growth * low, most), min(growth**_FASTER, _FASTEST)
        elif low == 0.0:
            trial = 0.5 * high
        elif high > _WIDE * low:
            trial = float(np.sqrt(low) * np.sqrt(high))
        else:
            part = at_low / (at_low - at_high) if at_low > at_high else 0.5
            part = 0.5 if turn % 3 == 2 else float(np.clip(part * (1.0 + 1e-9), 1e-7, 1.0 - 1e-7))
            trial = low + part * (high - low)
        if not low < trial < high:
            break
        margin = make(trial)
        warm = margin.moved([y, *points], trial / before)
        near = warm and np.isfinite(high) and high <= _WIDE * low
        value, y = margin.least(warm[:2] if near else margin.starts(rng, warm))
    return high, points
