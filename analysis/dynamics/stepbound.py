"""Bounds of the difference of two trajectories after one step and after a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.gains.pairwise import pairwise_proof
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem

from ..guard import check_int

Array = NDArray[np.float64]
SLACK = 1e-9  # relative allowance for rounding: the norms below are computed in float64, not enclosed


@dataclass(frozen=True, eq=False)
class StepBound:
    """One-step bound of a difference of trajectories: ``|d+|_P <= rate |d|_P + drive |u|_2``, ``|d|_P = |R d|_2``.

    Attributes:
        root: ``R (n, n)``, upper triangular, ``P = R^T R``.
        rate: factor of the state.
        drive: factor of the input's difference.
        source: in words.
    """

    root: Array
    rate: float
    drive: float
    source: str

    def accumulated(self, horizon: int, mean: bool = False) -> float:
        """Return ``c`` in ``|d_T|_P <= c |u|_2``: ``drive sqrt(sum_k rate^{2k})``; or the ``c`` of the mean state.

        By Cauchy-Schwarz over the time steps, with weights ``rate^k`` (last state), ``(1 + ... + rate^k) / T`` (mean).
        """
        k = np.arange(horizon)
        with np.errstate(over="ignore"):
            weights = np.power(self.rate, k, dtype=np.float64)
            if mean:
                weights = np.cumsum(weights) / horizon
            return float(self.drive * np.linalg.norm(weights) * (1 + SLACK))

    def at_every_step(self, horizon: int) -> Array:
        """Return ``accumulated(t)`` for ``t = 1 ... horizon``."""
        with np.errstate(over="ignore"):
            squares = np.power(self.rate, 2.0 * np.arange(horizon))
            return self.drive * np.sqrt(np.cumsum(squares)) * (1 + SLACK)


@dataclass(frozen=True, eq=False)
class JointBound(StepBound):
    """One-step bound that joins state and input: ``|d+|^2 <= rate^2 |d|^2 + drive^2 |u|^2``.

    An input then adds to the square of the distance and not to the distance: over a sequence nothing is multiplied by
    the root of its length.
    """

    def accumulated(self, horizon: int, mean: bool = False) -> float:
        """Return ``c`` in ``|d_T| <= c |u|``: ``drive`` times the largest ``rate^k``; or for the mean state.

        The mean is at most the largest of the states, and at most the root of the mean of their squares.
        """
        k = np.arange(horizon)
        with np.errstate(over="ignore"):
            powers = np.power(self.rate, k, dtype=np.float64)
            whole = float(powers.max())
            if mean:
                whole = min(whole, float(np.linalg.norm(powers)) / math.sqrt(horizon))
            return self.drive * whole * (1 + SLACK)

    def at_every_step(self, horizon: int) -> Array:
        """Return ``accumulated(t)`` for ``t = 1 ... horizon``."""
        with np.errstate(over="ignore"):
            powers = np.power(self.rate, np.arange(horizon), dtype=np.float64)
            return self.drive * np.maximum.accumulate(powers) * (1 + SLACK)


def _norm(matrix: Array) -> float:
    return float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0


def _feedback_gain(system: LureSystem) -> float:
    """Return ``s`` in ``|w|_2 <= s |f|_2`` for ``v = f + D w, |w| <= beta |v|`` with an acyclic or small ``D``."""
    slope = float(np.maximum(np.abs(system.alpha), np.abs(system.beta)).max(initial=0.0))
    total, power = 1.0, slope * np.abs(system.D)
    reach = power.copy()
    for _ in range(system.channels):  # the Neumann series of an acyclic D ends
        if not reach.any():
            return slope * total
        total += _norm(reach)
        reach = reach @ power
    if _norm(power) < 1:
        return slope / (1 - _norm(power))
    raise UnsupportedError("the channel equation is not acyclic; in Python a proved gain can be given as gain=")


def _pairs(subject: PairwiseSystem) -> StepBound:
    if subject.jumps:
        raise UnsupportedError("modReLU with a positive bias jumps at zero, so that no gain exists")
    rate = 1.0 if subject.orthogonal else _norm(subject.W) * (1 + SLACK)
    return StepBound(
        np.eye(subject.states), rate, _norm(subject.V) * (1 + SLACK), "an activation that stretches nothing"
    )


def joint_bound(subject: PairwiseSystem, horizon: int, mean: bool = False) -> JointBound | None:
    """Return the one-step bound by the joint norm of state and input weights, proved by the rule ``norm_gain``.

    Args:
        subject: a network with an activation on pairs.
        horizon: time steps, for which it is to be the best.
        mean: the best for the mean of the states, instead of for the last one.

    Returns:
        The bound; ``None`` where none is proved.

    >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
    >>> bound = joint_bound(half, 100)
    >>> round(bound.accumulated(100), 6), round(StepBound(np.eye(2), 1.0, 0.8, "").accumulated(100), 6)
    (1.0, 8.0)
    """
    bound = pairwise_proof(subject, np.eye(subject.states), "l2" if mean else "final", horizon)
    if isinstance(bound, str):
        return None
    data = bound[1].data
    return JointBound(np.eye(subject.states), data["growth"], data["gain"], "a proved bound of the weights' norm")


def step_bound(subject: DrivenSystem | PairwiseSystem, witness: Mapping[str, Any] | None = None) -> StepBound:
    """Bound one step in the metric ``P`` of a proof of contraction, or in the Euclidean norm without one.

    The slopes split into midpoint and radius, ``K = K0 + S``, ``|S| <= r``: without a proof the rate is
    ``|A + B K0 C| + |B r^{1/2}| |r^{1/2} C|``, and the drive ``|R (B K0 E + F)| + |R B r^{1/2}| |r^{1/2} E|``.

    Args:
        subject: a discrete-time network; of one with an activation on pairs, which stretches nothing, ``|W|`` and
            ``|V|`` are the bounds.
        witness: ``{"P": (n, n), "L": (m,), "rate": rho}`` for the multiplier inequality; it is proved here
            again.

    Returns:
        The bound.

    Raises:
        UnsupportedError: a differential equation, which has no steps, or modReLU with a positive bias, which jumps.
        ConfigurationError: the witness proves nothing about this system.

    >>> system = LureSystem([[0.5]], [[0.25]], [[1.0]], dt=1.0)
    >>> bound = step_bound(DrivenSystem(system, "tanh", [[1.0]]))  # slopes [0, 1]: 0.5 to 0.75, and 0 to 0.25
    >>> bound.rate, bound.drive
    (0.75, 0.25)
    """
    if isinstance(subject, PairwiseSystem):
        return _pairs(subject)
    system = subject.system
    if not system.is_discrete:
        raise UnsupportedError("a gain over time steps needs the discrete map: use layer.driven()")
    root, rate, source = np.eye(system.states), math.inf, "norms of the weights"
    if witness is not None:
        proved, reason = check_lmi(system, witness["P"], witness["L"], float(witness["rate"]))
        if not proved:
            raise ConfigurationError(f"the certificate proves no contraction of this model: {reason}")
        root, rate = np.linalg.cholesky(np.asarray(witness["P"], float)).T, float(witness["rate"])
        source = "certified contraction"
    if system.D.any():
        s = _feedback_gain(system)
        free = _norm(system.A) + _norm(system.B) * s * _norm(system.C)
        drive = _norm(root @ subject.F) + _norm(root @ system.B) * s * _norm(subject.E)
        return StepBound(root, min(rate, free) if witness is None else rate, drive, source)
    middle = (system.alpha + system.beta) / 2
    spread = np.sqrt((system.beta - system.alpha) / 2)
    B, C, E = system.B, system.C, subject.E
    if witness is None:
        rate = _norm(system.A + (B * middle) @ C) + _norm(B * spread) * _norm(spread[:, None] * C)
    drive = _norm(root @ ((B * middle) @ E + subject.F)) + _norm(root @ (B * spread)) * _norm(spread[:, None] * E)
    return StepBound(root, rate, drive, source)


def horizon_gain(bound: StepBound, output: Array, horizon: int, mean: bool = False) -> float:
    """Return ``g`` in ``|H d_T|_2 <= g |u|_2``: ``g = |H R^{-1}|_2`` times the accumulated bound.

    Args:
        bound: bound of one step.
        output: ``H (k, n)``.
        horizon: time steps.
        mean: bound the mean of the states instead of the last one.

    Returns:
        The gain; infinite where it overflows.
    """
    total = bound.accumulated(check_int("horizon", horizon), mean)
    seen = solve_triangular(bound.root, np.asarray(output, float).T, trans=1).T
    return _norm(seen) * total if math.isfinite(total) else math.inf


def pair_gains(root: Array, output: Array, total: float) -> Array:
    """Return bounds ``(k, k)`` of ``|(h_i - h_j) d| / |u|`` for the rows of ``H``, given ``|R d| <= total |u|``.

    Args:
        root: ``R (n, n)``, upper triangular.
        output: ``H (k, n)``.
        total: total of the whole sequence.

    Returns:
        The gains; infinite where ``total`` is.
    """
    rows = solve_triangular(root, output.T, trans=1).T
    sizes = np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2)
    return sizes * (total * (1 + SLACK)) if math.isfinite(total) else np.full_like(sizes, math.inf)
