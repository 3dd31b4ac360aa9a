"""The best rate that any proof could reach: a limit of every rate, proved from below."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Claim
from stability.refute.inputs import ANYWHERE, input_range
from stability.refute.orbits import leading_of_orbit, named_value
from stability.refute.periodic_inputs import PeriodicInput, slow_inputs
from stability.refute.sequences import search_sequences, sequence_data
from stability.refute.slopes import affordable, search_slopes
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline, TimeLimit
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

_BACK = (1e-9, 1e-7, 1e-5, 1e-3)
"""Relative retreats of a rate until its rule accepts it."""
STATES = 256


def rate_limit(
    subject: LureSystem | DrivenSystem, *, inputs: Any = None, seed: int = 0, time_limit: TimeLimit = None
) -> Claim | None:
    r"""A rate below which no bound ``|d| <= C rho^k |d(0)|`` can be, however it is proved.

    For a bare system the growth along periodic slopes (a lower bound of the joint spectral radius), for a network that
    of the linearisation along a periodic orbit under a periodic input.

    Args:
        subject: a map; for anything else there is no such claim.
        inputs: ``(low, high)`` that the inputs stay in, numbers or ``(p,)``; of networks.
        seed: of the searches.
        time_limit: seconds.

    Returns:
        The claim ``rate_limit``, its value the rate; ``None`` where nothing is proved.

    Example:
        >>> system = LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0)
        >>> round(rate_limit(system).value, 6)  # at the slope one
        0.5
        >>> round(rate_limit(DrivenSystem(system, "tanh", [[1.0]], [0.3])).value, 4)  # the input takes the bias away
        0.5
    """
    if not subject.is_discrete or subject.states > STATES or subject.system.channels == 0:
        return None
    deadline, rng = Deadline.after(time_limit).named("rate limit"), np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        if isinstance(subject, LureSystem):
            return _by_slopes(subject, rng, deadline)
        if subject.system.D.any() or activation(subject.activation).width is None:
            return None
        region = ANYWHERE if inputs is None else input_range(inputs, subject.inputs)
        found = sorted(slow_inputs(subject, region, rng=rng, deadline=deadline), key=lambda f: -f.radius)
        for one in found[:3]:
            claim = _by_orbit(subject, one)
            if claim is not None:
                return claim
    return None


def _by_slopes(system: LureSystem, rng: np.random.Generator, deadline: Deadline) -> Claim | None:
    constant = search_slopes(system, rng=rng, deadline=deadline.share(0.5), enough=np.inf, starts=4)
    told: dict[str, Any] = {"starts": 2, "periods": (2, 3, 4), "most": affordable(system)}
    found = search_sequences(system, rng=rng, deadline=deadline, first=constant.K, **told)
    data = sequence_data(system, found)
    return _stepping_back(system, "slope_sequence_rate", data, data.pop("rate", found.radius))


def _by_orbit(driven: DrivenSystem, found: PeriodicInput) -> Claim | None:
    value = leading_of_orbit(driven, found.orbit, found.inputs)
    data = {
        "orbit": found.orbit,
        "input": np.ascontiguousarray(found.inputs),
        "eigenvalue": named_value(driven, found.orbit, found.inputs, value),
    }
    return _stepping_back(driven, "orbit_rate", data, found.radius)


def _stepping_back(subject: Any, kind: str, data: dict[str, Any], rate: float) -> Claim | None:
    """The claim at the largest rate that its rule accepts."""
    for back in _BACK if 0.0 < rate < np.inf else ():
        claim = accepted(subject, kind, {**data, "rate": rate * (1.0 - back)})
        if claim is not None:
            return claim
    return None
