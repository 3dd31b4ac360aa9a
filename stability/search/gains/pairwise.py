r"""Gains of networks with an activation on pairs, from the norms of their weights.

For a growth :math:`\rho` above :math:`|W|` the smallest ``g`` with :math:`|W d + V u|^2 \le \rho^2 |d|^2 + g^2 |u|^2`
for all ``d`` and ``u`` is :math:`g^2 = \lambda_{\max}(V^T (I - W W^T / \rho^2)^{-1} V)`. The growth with the best bound
depends on the measure: one for the output at the last step of any number of steps, less for the whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim, Proof
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.norm_gain import sequence_bound
from stability.kernel.theorems.pairwise import why_it_stretches
from stability.proposals import propose
from stability.search.solvers.rates import minimize_on_grid

Array = np.ndarray
SLACK = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6)
"""Relative allowances for rounding errors of the proof, tried in turn."""


def pairwise_gain_bound(subject: PairwiseSystem) -> Callable[[float], float]:
    """Return the smallest ``g`` as a function of the growth; infinite if the growth is not above the norm of ``W``.

    Args:
        subject: the network.

    Example:
        >>> half = PairwiseSystem(0.5 * np.eye(2), np.eye(2), np.zeros(2), "oplu")
        >>> gain = pairwise_gain_bound(half)
        >>> round(gain(1.0), 6), gain(0.5)
        (1.154701, inf)
    """
    squares, vectors = np.linalg.eigh(subject.W @ subject.W.T)
    projected = vectors.T @ subject.V

    def gain(growth: float) -> float:
        room = 1.0 - squares / (growth * growth)
        if not room.min(initial=1.0) > 0.0:
            return math.inf
        return float(np.linalg.norm(projected / np.sqrt(room)[:, None], 2)) if projected.size else 0.0

    return gain


def pairwise_proof(subject: PairwiseSystem, H: Array, measure: str, horizon: int | None) -> tuple[float, Proof] | str:
    """Return the smallest bound that the rule ``norm_gain`` accepts, over all growths.

    Args:
        subject: the network.
        H: ``(k, n)`` state to output.
        measure: ``final`` or ``l2``.
        horizon: number of steps; ``None`` for every number.

    Returns:
        The bound with its proof, or the reason why there is none.
    """
    if subject.orthogonal:
        return "W is orthogonal, so input differences never decay and add up over the steps"
    why = why_it_stretches(subject)
    if why is not None:
        return why
    out = max(float(np.linalg.norm(H, 2)), 1e-30) if H.size else 1e-30
    gain, norm = pairwise_gain_bound(subject), float(np.linalg.norm(subject.W, 2))
    growth = _best_growth(gain, norm, measure, horizon)
    if growth is None:
        return f"the norm of W is {norm:.6g}, so norms prove no gain over an unlimited horizon: give a horizon"
    for slack in SLACK:
        wider = growth if growth == 1.0 else growth * (1.0 + slack)
        scale, inner = out * out * (1.0 + slack), out * max(gain(wider), 1e-30) * (1.0 + 2.0 * slack)
        value = sequence_bound(measure, inner, wider, horizon)
        if not math.isfinite(value):
            continue
        data: dict[str, Any] = {"weights": np.full(len(subject.pairs), scale), "H": H, "gain": inner}
        data |= {"growth": wider, "measure": measure, "horizon": horizon}
        if RULES["norm_gain"](subject, propose(subject, "norm_gain", data, value=value))[0]:
            return value, Proof("norm_gain", data)
    return "the bound is not proved because of rounding errors"


def _best_growth(gain: Callable[[float], float], norm: float, measure: str, horizon: int | None) -> float | None:
    """Return the growth with the smallest bound; ``None`` if none is finite."""
    least = max(norm, 1e-6) * (1.0 + 1e-12)  # above the norm by more than rounding

    def value(exponent: float) -> float:
        growth = math.exp(exponent)
        return math.log(min(sequence_bound(measure, max(gain(growth), 1e-30), growth, horizon), 1e300))

    candidates = [] if least > 1.0 else [1.0]
    top = least * 2.0 if horizon is not None else 1.0
    if not (measure == "final" and candidates) and least < top:
        grid = np.log(least) + (np.log(top) - np.log(least)) * np.linspace(0.0, 1.0, 25) ** 3
        candidates.append(math.exp(minimize_on_grid(value, grid, xatol=1e-9)))
    best = min(candidates, key=lambda growth: value(math.log(growth)), default=None)
    return None if best is None or value(math.log(best)) > math.log(1e299) else best


def weight_norm_claim(subject: Any, measure: str = "final") -> Claim | None:
    """Claim a gain over every horizon from the norms of the weights of a network with an activation on pairs.

    Args:
        subject: the network; ``None`` is returned for other subjects.
        measure: ``"final"`` (the state at any time) or ``"l2"`` (the whole sequence of states).

    Returns:
        The certified claim ``gain`` with the bound as its value, or ``None``.

    Example:
        >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
        >>> round(weight_norm_claim(half).value, 9)
        1.0
    """
    if not isinstance(subject, PairwiseSystem):
        return None
    bound = pairwise_proof(subject, np.eye(subject.states), measure, None)
    return None if isinstance(bound, str) else propose(subject, "norm_gain", bound[1].data, value=bound[0])
