"""Exact certified radii of affine networks.

A result becomes a claim only if the rule ``local_linear`` accepts it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stability.kernel.arithmetic.fixed_point import rounded_ratio
from stability.kernel.format.claims import Claim
from stability.kernel.reachability.affine_margin import Margin, by_group, priced
from stability.kernel.reachability.affine_network import kernel, planned, why_not_applicable
from stability.kernel.systems.classifier import Classifier
from stability.proposals import accepted_claim
from stability.search.local.request import Request
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
KIND = "local_linear"
_REDUCTIONS = (1e-12, 1e-9, 1e-7)
"""Relative reductions of a found radius, tried until the proof holds."""
_HALVINGS = 80  # bisection steps for a radius, more than the resolution of float64 needs
_PACE = 4e6  # products of short integers per second, on a slow core
_SHARE = 0.9
"""Share of the time limit for this search; the rest is for other searches."""


def seconds(subject: Classifier, steps: int) -> float:
    """Estimate the time of ``kernel`` on a slow core in seconds."""
    return planned(subject, steps)[2] / _PACE


def applies(request: Request) -> bool:
    """Return True if the theorem covers the network and its integers fit the time for all inputs."""
    net, steps, limit = request.classifier, request.x.shape[1], request.time_limit
    if not len(request.right) or why_not_applicable(net) is not None:
        return False
    in_time = limit is None or seconds(net, steps) <= limit * len(request.right)
    return in_time and kernel(net, steps) is not None


def affine_claim(request: Request, k: int, norm: str, deadline: Deadline) -> tuple[Claim | None, bool]:
    """Return the claim about one input, and True if a better one is impossible.

    Args:
        request: the inputs.
        k: index of the input.
        norm: ``l2`` or ``linf``.
        deadline: time limit of the search.
    """
    net, x, label = request.classifier, request.x[k], int(request.y[k])
    exact, most = kernel(net, len(x)), request.furthest(k)
    assert exact is not None
    if request.epsilon is not None:
        claim = accepted_claim(net, KIND, request.data(k, norm, request.epsilon))
        return claim, True
    for other in range(net.classes):
        if deadline.over:
            return None, False
        if other != label:
            most = min(most, _distance(request, x, norm, exact.margin(x, label, other), most))
    for part in _REDUCTIONS if most > 0.0 else ():
        claim = accepted_claim(net, KIND, request.data(k, norm, most * (1.0 - part)))
        if claim is not None:
            return claim, True
    return None, True  # the bound of a margin is exact, so that no other proof gives more


def affine_claims(request: Request, norm: str) -> tuple[list[Claim | None], Array, float | None]:
    """Return the claims about the inputs, a mask of settled inputs, and seconds per sample for the others.

    Args:
        request: the inputs.
        norm: ``l2`` or ``linf``.
    """
    claims: list[Claim | None] = [None] * len(request.y)
    settled, limit = np.zeros(len(request.y), dtype=bool), request.time_limit
    for k in request.right:
        deadline = Deadline.from_limit(None if limit is None else _SHARE * limit)
        claims[k], settled[k] = affine_claim(request, int(k), norm, deadline)
    return claims, settled, None if limit is None else (1.0 - _SHARE) * limit


def _distance(request: Request, x: Array, norm: str, margin: Margin, most: float) -> float:
    """Return approximately the radius at which a margin becomes zero, at most ``most``."""
    each, free = norm == "l2" and request.budget == "step", request.free != 0
    if not margin.value > 0:
        return 0.0
    if norm == "l2" and request.bounds is None:
        dual = margin.dual(free, each)
        return min(most, rounded_ratio(margin.value, dual)) if dual else most
    g, value = np.where(free, margin.floats(), 0.0), rounded_ratio(margin.value, margin.scale)
    bottom, top = (-np.inf, np.inf) if request.bounds is None else request.bounds
    low, high = bottom - x, top - x

    def left(radius: float) -> float:
        if norm == "linf":
            down, up = np.maximum(low, -radius), np.minimum(high, radius)
            return value + float(np.minimum(g * down, g * up).sum())
        terms = by_group(g, each)
        _, d = priced(terms, by_group(low, each), by_group(high, each), radius)
        return value + float((terms * d).sum())

    return _root_of_decreasing(left, most)


def _root_of_decreasing(function: Callable[[float], float], most: float) -> float:
    """Find the root of a decreasing function, or ``most`` if it has none below."""
    if function(most) > 0.0:
        return most
    least = most * 1e-80
    for _ in range(_HALVINGS):
        middle = (least * most) ** 0.5
        least, most = (middle, most) if function(middle) > 0.0 else (least, middle)
    return least
