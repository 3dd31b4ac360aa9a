r"""Worst inputs of networks whose activation has kinks: descents by convex programs, and the slopes at the kinks there.

Near a run a margin is a convex function of the inputs in those units ``u`` whose kink bends it upwards (what it gains
by their outputs, :math:`\omega_u`, has the sign of the bend), and is no larger than its extension from the piece that
the run is on in the others. So with variables :math:`a_u` for the outputs of the first, between which and the margin
all is affine, :math:`\min M(y, a)` where :math:`\omega_u a_u \ge \omega_u \ell(z_u)` for both pieces :math:`\ell` at
the kink is a linear program (in l_inf), or one under the balls' conditions, and its solution no worse than the run.
At the solution, with the units ``A`` on their kinks,

.. math:: \nabla M_A + \sum_{u \in A} \mu_u \nabla z_u + \sum_g p_g \nabla c_g = 0

for the coordinates that are not at their ends; ``mu_u = omega_u theta_u`` tells the slopes of the lines through the
kinks (see ``supports``) from the last unit back to the first. Source: for difference-of-convex descents T. Pham Dinh,
H. A. Le Thi, Convex analysis approach to d.c. programming, Acta Mathematica Vietnamica 22 (1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog, minimize

from stability.local.coordinates import Coordinates
from stability.systems.activations import Activation, activation

Array = np.ndarray
_NEAR, _POLISHED, _BEYOND = 1e-5, 8, 1e-6
"""How near to a kink, of its size, an argument counts as on it, Newton's steps, and slopes beyond the pieces."""


@dataclass(frozen=True, eq=False)
class Runs:
    """A small network's runs in floating point, unit by unit.

    Attributes:
        of: the ball.
        row: ``(n,)`` of the margin.
        bias: of it.
    """

    of: Coordinates
    row: Array
    bias: float

    @property
    def phi(self) -> Activation:
        """The activation."""
        return activation(self.of.classifier.recurrent.activation)

    @property
    def units(self) -> int:
        """Channels of all steps."""
        return len(self.of.steps) * len(self.of.C.low)

    def arguments(self, y: Array) -> Array:
        """``z (T m,)`` of the run of ``y (k,)``."""
        of, h, out = self.of, np.array(self.of.classifier.start, dtype=float), list[Array]()
        for step in of.steps:
            u = y[step.of]
            z = of.arguments(_middle(of.C) @ h + _middle(step.e) + _middle(step.E) @ u)
            h = _middle(of.A) @ h + _middle(of.B) @ self.phi.function(z) + _middle(step.f) + _middle(step.F) @ u
            out.append(z)
        return np.concatenate(out)

    def weights(self, slopes: Array) -> Array:
        """``omega (T m,)``: what the margin gains by the units' outputs, with slopes ``(T m,)`` of later ones."""
        of, m = self.of, len(self.of.C.low)
        worth, out, last = np.zeros(len(self.row)), np.zeros(self.units), len(of.steps) - 1
        for t in range(last, -1, -1):
            worth = worth + self.row if t == last or of.classifier.reduction == "mean" else worth
            own = slice(t * m, (t + 1) * m)
            out[own] = of.gained(_middle(of.B).T @ worth, slopes[own])
            worth = _middle(of.A).T @ worth + _middle(of.C).T @ (out[own] * slopes[own])
        return out

    def affine(self, pieces: Array, free: Array) -> tuple[Array, Array]:
        """The margin ``(1 + k + q,)`` and the arguments ``(T m, 1 + k + q)``: constant, by ``y`` and by free outputs.

        Args:
            pieces: ``(T m,)`` which ones of the activation.
            free: ``(T m,)`` the units, ``q`` of them, whose outputs are variables.
        """
        of, phi, m, k = self.of, self.phi, len(self.of.C.low), len(self.of.low)
        size, at = 1 + k + int(free.sum()), 1 + k
        kinks, slopes = np.array(phi.kinks), np.array(phi.pieces)
        h, out, value = np.zeros((len(self.row), size)), list[Array](), np.zeros(size)
        h[:, 0], value[0] = of.classifier.start, self.bias
        for t, step in enumerate(of.steps):
            z, entered = _middle(of.C) @ h, slice(1 + step.of.start, 1 + step.of.stop)
            z[:, 0] += _middle(step.e)
            z[:, entered] += _middle(step.E)
            a = np.zeros((m, size))
            for j in range(m):
                unit = t * m + j
                z[j] += _middle(of.D)[j] @ a  # of earlier channels, as the others have none yet
                if free[unit]:
                    a[j, at], at = 1.0, at + 1
                    continue
                kink = kinks[max(pieces[unit] - 1, 0)]
                a[j] = slopes[pieces[unit]] * z[j]
                a[j, 0] += float(phi.function(kink)) - slopes[pieces[unit]] * kink
            h = _middle(of.A) @ h + _middle(of.B) @ a
            h[:, 0] += _middle(step.f)
            h[:, entered] += _middle(step.F)
            out.append(z)
            if t == len(of.steps) - 1 or of.classifier.reduction == "mean":
                value = value + self.row @ h
        return value, np.concatenate(out)

    def convex(self, z: Array, pieces: Array, mixed: bool) -> Array:
        """The kinks ``(T m,)`` next to the pieces that bend the margin upwards, -1: none does.

        Args:
            z: ``(T m,)``.
            pieces: ``(T m,)``.
            mixed: whether later units count with the mean of both slopes at such a kink, not with that of their piece.
        """
        steep, out = np.array(self.phi.pieces), np.full(self.units, -1)
        slopes = steep[pieces]
        for unit in range(self.units - 1, -1, -1):
            omega = self.weights(slopes)[unit]
            near = sorted(
                (abs(z[unit] - self.phi.kinks[i]), i)
                for i in (pieces[unit] - 1, pieces[unit])
                if 0 <= i < len(self.phi.kinks) and omega * (steep[i + 1] - steep[i]) > 0.0
            )
            if near:
                out[unit] = near[0][1]
                slopes[unit] = 0.5 * (steep[out[unit]] + steep[out[unit] + 1]) if mixed else slopes[unit]
        return out

    def step(self, y: Array, mixed: bool) -> Array | None:
        """The solution of one convex program at a run."""
        of, phi, z = self.of, self.phi, self.arguments(y)
        pieces = np.searchsorted(np.array(phi.kinks), z, side="right")
        bends = self.convex(z, pieces, mixed)
        free = bends >= 0
        value, rows = self.affine(pieces, free)
        limits, k, steep = list[Array](), len(of.low), np.array(phi.pieces)
        for number, unit in enumerate(np.flatnonzero(free)):
            i = bends[unit]
            sign, kink = np.sign(steep[i + 1] - steep[i]), phi.kinks[i]
            for slope in (steep[i], steep[i + 1]):
                row = -slope * rows[unit]
                row[0] -= float(phi.function(np.array(kink))) - slope * kink
                row[1 + k + number] += 1.0
                limits.append(sign * row)
        G = np.array(limits).reshape(len(limits), len(value))
        outputs = phi.function(z[free])
        v = _program(of, value, G, np.concatenate([y, outputs]))
        return None if v is None else v[:k]


def _program(of: Coordinates, value: Array, G: Array, start: Array) -> Array | None:
    """The least affine ``value (1 + k + q,)`` where ``G (1, v) >= 0`` in the ball; ``None`` where none was found."""
    k, more = len(of.low), len(value) - 1 - len(of.low)
    scale = max(of.radius, 1e-300)
    ends = [*zip(of.low / scale, of.high / scale), *[(None, None)] * more]
    rows, fixed = G[:, 1:], G[:, 0] / scale
    if not of.balls:
        found = linprog(value[1:], -rows, fixed, bounds=ends, method="highs")
        return scale * found.x if found.success else None
    size = max(float(np.abs(value[1:]).max()), 1e-300)
    limits: list[dict[str, Any]] = [limit(of, part, len(value) - 1) for part in of.balls]
    if len(G):
        limits.append({"type": "ineq", "fun": lambda v: rows @ v + fixed, "jac": lambda v: rows})
    try:
        found = minimize(
            lambda v: float(value[1:] @ v) / size, start / scale, jac=lambda v: value[1:] / size, method="SLSQP",
            constraints=limits, bounds=ends, options={"maxiter": 60, "ftol": 1e-13},
        )  # fmt: skip
    except (ValueError, FloatingPointError):
        return None
    return scale * found.x if np.isfinite(found.x[:k]).all() else None


def limit(of: Coordinates, part: slice, size: int) -> dict[str, Any]:
    """A ball's condition on ``v (size,)``, the first of which are coordinates over the radius, for a solver."""
    k = len(of.low)

    def left(v: Array) -> float:
        return 1.0 - float(of.cost(of.radius * v[:k])[0][part].sum()) / of.radius**2

    def slope(v: Array) -> Array:
        out = np.zeros(size)
        out[part] = -of.cost(of.radius * v[:k])[1][part] / of.radius
        return out

    return {"type": "ineq", "fun": left, "jac": slope}


def _middle(x: Any) -> Array:
    return 0.5 * (x.low + x.high)


def stationary(runs: Runs, y: Array) -> tuple[Array, Array, Array]:
    """A point near ``y (k,)`` that fulfils the conditions above, the prices of its balls, and all units' slopes.

    Slopes of units that are on no kink are those of their pieces. A unit near a kink whose slope would have to be
    beyond its pieces is taken from it.
    """
    steep, kinks = np.array(runs.phi.pieces), np.array(runs.phi.kinks)
    z = runs.arguments(y)
    pieces, nearest = np.searchsorted(kinks, z, side="right"), np.abs(z[:, None] - kinks).argmin(axis=1)
    on = np.abs(z - kinks[nearest]) < _NEAR * (1.0 + np.abs(kinks[nearest]))
    while True:
        point, prices, mu = _newton(runs, y, pieces, on, kinks[nearest])
        slopes, beyond = steep[pieces], np.zeros(len(z))
        for number, unit in reversed([*enumerate(np.flatnonzero(on))]):
            omega, pair = runs.weights(slopes)[unit], sorted(steep[nearest[unit] : nearest[unit] + 2])
            angle = mu[number] / omega if abs(omega) > 1e-300 else pair[0]
            slopes[unit] = np.clip(angle, *pair)
            beyond[unit] = abs(angle - slopes[unit])
        worst = int(np.argmax(beyond))
        if not beyond[worst] > _BEYOND:
            return point, prices, slopes
        on[worst] = False
        pieces[worst] = nearest[worst] + int(slopes[worst] == steep[nearest[worst] + 1])


def _newton(runs: Runs, y: Array, pieces: Array, on: Array, kinks: Array) -> tuple[Array, Array, Array]:
    """A stationary point of the units' pieces, some of which stay on their kinks, with prices and ``mu``."""
    of, k = runs.of, len(y)
    wide = 1e-9 * (of.high - of.low)
    free = (y > of.low + wide) & (y < of.high - wide)
    value, rows = runs.affine(pieces, on)
    outputs, at, n = runs.phi.function(kinks[on]), kinks[on], int(free.sum())
    slope, Z, start = value[1 : 1 + k], rows[on, 1 : 1 + k], rows[on, 0] + rows[on, 1 + k :] @ outputs
    tight = [g for g, part in enumerate(of.balls) if of.cost(y)[0][part].sum() > of.radius**2 * (1.0 - 1e-5)]
    which, mu, prices = np.zeros((len(tight), k)), np.zeros(len(at)), np.zeros(len(of.balls))
    for number, g in enumerate(tight):
        which[number, of.balls[g]] = 1.0
    for turn in range(_POLISHED):
        cost, tilt = of.cost(y)
        bend = 2.0 * of.energy(y)[0] * of.spread(prices)
        J = np.concatenate([Z, which * tilt])[:, free]
        missing = np.concatenate([at - start - Z @ y, of.radius**2 - which @ cost])
        system = np.block([[np.diag(bend[free]), J.T], [J, np.zeros((len(J), len(J)))]])
        found = np.linalg.lstsq(system, np.concatenate([-slope[free], missing]), rcond=1e-13)[0]
        mu, prices[tight] = found[n : n + len(at)], np.maximum(found[n + len(at) :], 0.0)
        if turn:  # the first one is for the prices
            y = y.copy()
            y[free] += found[:n]
            y = np.clip(y, of.low, of.high)
    return y, prices, mu
