r"""Proved bound of the distance between computed states and the exact trajectory of a network, for one run.

The states ``y`` may come from anywhere. With :math:`r_t = y_t - f(y_{t-1}, u_t)`, computed in float64 with all rounding
errors enclosed, the distance :math:`e_t = y_t - x_t` from the exact trajectory obeys

.. math:: e_t = J_t e_{t-1} + s_t + r_t, \qquad |s_t| \le \text{spread}_t(|e_{t-1}|_2),

where ``J_t`` is the Jacobian at ``y`` and the spread bounds how far the difference of two steps is from linear. An
ellipsoid follows the errors: :math:`(c^T e_t)^2 \le c^T X_t c` for every ``c``. Young's inequality gives, for every
:math:`\sigma > 0` and :math:`|s_t + r_t|_2 \le g`,

.. math:: X_t = (1 + \sigma) J_t X_{t-1} J_t^T + (1 + 1 / \sigma)\, g^2 I .

A map with :math:`|f(x, u) - f(y, u)|_2 \le L |x - y|_2` and ``L`` at most one needs no ellipsoid:
:math:`|e_t|_2 \le L |e_{t-1}|_2 + |r_t|_2`.

Source: A. B. Kurzhanski, I. Valyi, "Ellipsoidal calculus for estimation and control" (1997).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, diagonal_of, row_sum_norm, system_balls
from stability.kernel.arithmetic.definiteness import FLUSHED, flushes_small_numbers, gamma, spectral_bounds
from stability.kernel.arithmetic.directed_functions import norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.pair_activations import modrelu, normals
from stability.kernel.theorems.step_errors import stages_of
from stability.systems import DrivenSystem, PairwiseSystem

Array = np.ndarray
ROWS = 2**18
"""Entries of the states in one piece of the residuals, which bounds the memory that they need."""


@dataclass(frozen=True, eq=False)
class Linearized:
    r"""Function ``g`` of the state around ``N`` states ``y``: its value, its slope, and how far it is from linear.

    .. math:: |g(y + e) - g(y) - S e| \le \text{spread} \quad \text{for } |e|_2 \le \text{radius}, entry by entry.

    Attributes:
        value: ball ``(N, k)`` around ``g(y)``.
        slope: ``S``, ``(N, k, n)``; with ``n = 0`` only values are enclosed, for a radius of zero.
        spread: ``(N, k)``.
        radius: ``(N, 1)``.
    """

    value: Ball
    slope: Array
    spread: Array
    radius: Array

    @property
    def reach(self) -> Array:
        """Bound ``|g(y + e) - g(y)|`` above, ``(N, k)``."""
        return upper(norm_above(self.slope) * self.radius + self.spread)

    def __getitem__(self, part: slice) -> Linearized:
        return Linearized(self.value[:, part], self.slope[:, part], self.spread[:, part], self.radius)

    def __add__(self, other: Linearized | Array) -> Linearized:
        if not isinstance(other, Linearized):
            return Linearized(self.value + other, self.slope, self.spread, self.radius)
        spread = upper(self.spread + other.spread + EPS * (self.reach + other.reach))
        return Linearized(self.value + other.value, self.slope + other.slope, spread, self.radius)

    def __mul__(self, other: Linearized) -> Linearized:
        """Split ``g h - g0 h0`` as ``g (h - h0) + h0 (g - g0)``."""
        wide = Ball(self.value.mid, upper(self.value.rad + self.reach))
        first = other.changed(self.value * other.value, wide)
        return first + self.changed(Ball.exact(np.zeros(self.spread.shape)), other.value)

    def changed(self, value: Ball, factor: Ball) -> Linearized:
        """Return a function with the given value, whose change is a number in ``factor`` times the change of this."""
        size = np.abs(factor.mid)
        spread = upper(size * self.spread + (factor.rad + EPS * size) * self.reach)
        return Linearized(value, factor.mid[..., None] * self.slope, spread, self.radius)

    def through(self, matrix: Any) -> Linearized:
        """Return ``M g`` for a matrix or a ball of matrices ``(l, k)``."""
        M = Ball.exact(matrix)
        diagonal = None if M.rad.any() else diagonal_of(M.mid)
        if diagonal is not None:
            return self.changed(self.value * diagonal, Ball.exact(diagonal))
        size, terms = np.abs(M.mid), 2 * M.shape[1] + 8
        lost = upper(gamma(terms) * size + M.rad)
        spread = upper(self.spread @ size.T + self.reach @ lost.T, gamma(terms))
        return Linearized(self.value @ M.T, M.mid @ self.slope, spread, self.radius)

    def squash(self, name: str) -> Linearized:
        """Return an activation of ``g``, entry by entry."""
        slopes = activation_slopes(name, Ball(self.value.mid, upper(self.value.rad + self.reach)))
        return self.changed(activation_values(name, self.value), slopes)


Step = Callable[[Linearized, Linearized], Linearized]
"""Next state as a function of state and input."""


def _joined(parts: list[Linearized]) -> Linearized:
    value = Ball(*(np.concatenate([getattr(p.value, name) for p in parts], 1) for name in ("mid", "rad")))
    slope, spread = (np.concatenate([getattr(p, name) for p in parts], 1) for name in ("slope", "spread"))
    return Linearized(value, slope, spread, parts[0].radius)


def _driven(subject: DrivenSystem, balls: tuple[Ball, ...], x: Linearized, u: Linearized) -> Linearized:
    A, B, C, D = balls
    free = x.through(C) + u.through(subject.E) + subject.b
    w = free.squash(subject.activation)
    if stages_of(subject) == 2:
        w = (free + w.through(D)).squash(subject.activation)
    return x.through(A) + w.through(B) + u.through(subject.F)


def _cell(cell: GatedCell, x: Linearized, u: Linearized) -> Linearized:
    m = cell.hidden
    first, second, third, fourth = (slice(k * m, (k + 1) * m) for k in range(4))
    h = x[first]
    drive, recurrent = u.through(cell.w_ih) + cell.b_ih, h.through(cell.w_hh) + cell.b_hh
    if cell.kind == "lstm":
        z = drive + recurrent
        i, f, o = (z[part].squash("sigmoid") for part in (first, second, fourth))
        c = f * x[second] + i * z[third].squash("tanh")
        return _joined([o * c.squash("tanh"), c])
    gates = (drive + recurrent)[: 2 * m].squash("sigmoid")
    r, z = gates[first], gates[second]
    _, R, _, bias = cell.gate("n")
    n = (drive[third] + (r * recurrent[third] if cell.reset_after else (r * h).through(R) + bias)).squash("tanh")
    return n + z * (h + n.changed(-n.value, Ball.exact(-np.ones(m))))


def _pairs(subject: PairwiseSystem, W: Ball, x: Linearized, u: Linearized) -> Linearized:
    """Return the next state of a network on pairs; except for modReLU it is ``z + 2 N^T (relu(N z) - N z)``."""
    z, n, bias = x.through(W) + u.through(subject.V), subject.states, subject.b
    if subject.activation == "modrelu":  # no difference of two pairs becomes longer
        sizes = np.abs(z.value.mid) + np.abs(np.tile(bias, 2))
        size, error, reach = (np.tile(norm_above(part[:, subject.pairs]), 2) for part in (sizes, z.value.rad, z.reach))
        value = Ball(modrelu(z.value.mid, bias), upper(16.0 * EPS * size + error))
        return Linearized(value, 0.0 * z.slope, reach, z.radius)
    N = Ball.exact(np.eye(n))
    if subject.activation != "abs":
        angles = np.full(n // 2, 0.5 * np.pi) if subject.angles is None else subject.angles
        mid = np.zeros((n // 2, n // 2, 2))
        mid[np.arange(n // 2), np.arange(n // 2)] = normals(angles)
        N = Ball(mid.reshape(-1, n), 16.0 * EPS * (mid.reshape(-1, n) != 0.0))
    z = z + bias
    behind = z.through(N)
    kept = behind.squash("relu") + behind.changed(-behind.value, Ball.exact(-np.ones(N.shape[0])))
    return z + kept.through(N.T * 2.0)


def _stack(steps: list[tuple[Any, Step]], x: Linearized, u: Linearized) -> Linearized:
    parts, at = [], 0
    for layer, step in steps:
        parts.append(step(x[at : at + layer.states], u))
        u, at = parts[-1][: layer.hidden if isinstance(layer, GatedCell) else layer.states], at + layer.states
    return _joined(parts)


def _step_of(subject: Any) -> Step | None:
    """Return the step of a network, or ``None`` for networks without one here."""
    if isinstance(subject, GatedCell):
        return partial(_cell, subject)
    if isinstance(subject, DrivenSystem) and subject.is_discrete and stages_of(subject):
        return partial(_driven, subject, system_balls(subject.system))
    if isinstance(subject, PairwiseSystem) and not subject.jumps:
        return partial(_pairs, subject, _weights(subject))
    if isinstance(subject, LayerStack) and subject.directions == 1:
        steps = [(layer, step) for layer in subject.layers if (step := _step_of(layer)) is not None]
        return partial(_stack, steps) if len(steps) == len(subject.layers) else None
    return None


def _weights(subject: PairwiseSystem) -> Ball:
    """Return a ball around ``W``; every singular value of a nearly orthogonal one is within ``|W^T W - I|`` of one."""
    W, n = subject.W, subject.states
    if not subject.orthogonal:
        return Ball.exact(W)
    defect = row_sum_norm(W.T @ Ball.exact(W) - np.eye(n))
    return Ball(W, np.full(W.shape, defect))


def running_bounds(subject: Any, states: Array, inputs: Array) -> Array | None:
    """Bound the distance of computed states from the exact trajectory that starts at the first of them.

    The cost of a step is that of a few products of ``(n, n)`` matrices, or of vectors with a matrix if the map does not
    expand distances. It grows linearly with the steps and the sequences.

    Args:
        subject: network; a ``DrivenSystem``, ``PairwiseSystem``, ``GatedCell``, or a stack of them.
        states: ``(time + 1, batch, n)`` computed states.
        inputs: ``(time, batch, p)``.

    Returns:
        ``(time, batch)`` upper bounds of the Euclidean distance after each step; infinite where none is known. ``None``
        for other networks, such as implicit ones and discontinuous ones.

    Raises:
        DimensionError: arrays of other shapes.
        ConfigurationError: the processor rounds subnormal numbers to zero.

    Example:
        >>> from stability.systems import LureSystem
        >>> net = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.2]], dt=1.0), "tanh", [[1.0]])
        >>> states = np.zeros((4, 1, 1))
        >>> states[1:] = 1e-9  # the exact states under zero inputs are zero
        >>> bounds = running_bounds(net, states, np.zeros((3, 1, 1)))
        >>> bool((bounds >= 1e-9).all() and (bounds < 1e-8).all())
        True
    """
    if flushes_small_numbers():
        raise ConfigurationError(f"nothing can be proved here: {FLUSHED}")
    step = _step_of(subject)
    if step is None:
        return None
    time, batch = np.shape(inputs)[:2] if np.ndim(inputs) == 3 else (0, 0)
    shapes = {"states": (time + 1, batch, subject.states), "inputs": (time, batch, subject.inputs)}
    for (name, shape), array in zip(shapes.items(), (states, inputs)):
        if not time or np.shape(array) != shape:
            raise DimensionError(name, shape, np.shape(array))
    with np.errstate(all="ignore"):
        rate = _lipschitz_constant(subject)
        if rate <= 1.0:
            found = _accumulated(rate, np.concatenate(list(_residuals(step, states, inputs))))
        else:
            found = _in_ellipsoids(step, states, inputs)
    return np.where(np.isfinite(found), found, math.inf)


def _lipschitz_constant(subject: Any) -> float:
    """Bound the Lipschitz constant of a step above; infinite for gated cells, stacks and integrators."""
    if isinstance(subject, PairwiseSystem):
        return 1.0 if subject.orthogonal else _norm(subject.W)
    if not isinstance(subject, DrivenSystem) or subject.system.origin is not None or subject.system.D.any():
        return math.inf
    A, B, C = (_norm(M) for M in (subject.system.A, subject.system.B, subject.system.C))
    return float(upper(np.array(A + B * C * max(map(abs, activation(subject.activation).slope)))))


def _norm(matrix: Array) -> float:
    """Bound the spectral norm above; infinite if no bound is proved."""
    size = float(norm_above(matrix.ravel()))
    if not size < 1e25:  # squares must stay within the range of the proof
        return math.inf
    gram = matrix @ matrix.T
    gram = 0.5 * (gram + gram.T)
    top = float(np.linalg.eigvalsh(gram).max(initial=0.0)) * (1.0 + 1e-10) + 1e-50
    if not spectral_bounds(gram, -top, top).holds:
        return math.inf
    return float(upper(np.sqrt(np.array(top + gamma(matrix.shape[1] + 4) * size * size))))


def _accumulated(rate: float, residuals: Array) -> Array:
    """Return ``e_t = L e_{t-1} + g_t``, from zero."""
    error, out = np.zeros(residuals.shape[1]), np.empty(residuals.shape)
    for k, residual in enumerate(residuals):
        out[k] = error = upper(rate * error + residual)
    return out


def _start(y: Array, radius: Array, columns: int) -> Linearized:
    slope = np.broadcast_to(np.eye(y.shape[1])[:, :columns], (*y.shape, columns))
    return Linearized(Ball.exact(y), slope, np.zeros(y.shape), radius)


def _advanced(step: Step, y: Array, u: Array, next_states: Array, radius: Array, columns: int) -> tuple[Array, Array]:
    """Return the Jacobian ``(N, n, n)`` of a step, and a bound ``(N,)`` of the norm of everything else."""
    inputs = Linearized(Ball.exact(u), np.zeros((*u.shape, columns)), np.zeros(u.shape), radius)
    found = step(_start(y, radius, columns), inputs)
    rest = upper(np.abs(next_states - found.value.mid)) + found.value.rad + found.spread
    return found.slope, norm_above(upper(rest))


def _residuals(step: Step, states: Array, inputs: Array) -> Iterator[Array]:
    """Yield bounds of the norms of the residuals, ``(steps, batch)``, in pieces."""
    length = max(1, ROWS // states[0].size)
    for k in range(0, len(inputs), length):
        y, u = states[k : k + length + 1], inputs[k : k + length]
        flat, zero = y[:-1].reshape(-1, y.shape[2]), np.zeros((len(u) * u.shape[1], 1))
        rest = _advanced(step, flat, u.reshape(-1, u.shape[2]), y[1:].reshape(flat.shape), zero, 0)[1]
        yield rest.reshape(u.shape[:2])


def _in_ellipsoids(step: Step, states: Array, inputs: Array) -> Array:
    """Follow the ellipsoid ``X`` of the errors and return the roots of its traces, ``(time, batch)``."""
    n, out = states.shape[2], np.full(inputs.shape[:2], math.inf)
    X, radius = np.zeros((inputs.shape[1], n, n)), np.zeros((inputs.shape[1], 1))
    diagonal = np.arange(n)
    for k, u in enumerate(inputs):
        J, rest = _advanced(step, states[k], u, states[k + 1], radius, n)
        moved = J @ X @ J.mT
        sizes = [norm_above(M.reshape(len(M), -1)) for M in (J, X)]
        trace = np.trace(moved, axis1=1, axis2=2)
        share = np.clip(rest * math.sqrt(n) / np.sqrt(np.maximum(trace, 1e-300)), 1e-12, 1e12)
        rounding = gamma(2 * n + 16) * sizes[0] * sizes[0] * sizes[1]
        X = (1.0 + share)[:, None, None] * moved
        X[:, diagonal, diagonal] += upper(
            (1.0 + 1e-9) * ((1.0 + 1.0 / share) * rest * rest + (1.0 + share) * rounding)
        )[:, None]
        radius = upper(np.sqrt(np.trace(X, axis1=1, axis2=2)), gamma(n + 8))[:, None]
        out[k] = radius[:, 0]
        if not np.isfinite(radius).any():
            break
    return out
