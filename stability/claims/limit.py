"""The best rate that any proof could reach: a limit of every rate, proved from below."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Claim
from stability.gated.cell import GatedCell
from stability.refute.inputs import ANYWHERE, InputRange, input_boxes, input_range
from stability.refute.orbits import leading_of_orbit, named_value
from stability.refute.periodic_inputs import PeriodicInput, slow_inputs
from stability.refute.sequences import search_sequences, sequence_data
from stability.refute.slopes import affordable, search_slopes
from stability.refute.slow_orbits import slow_orbits
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline, TimeLimit
from stability.stacks.stack import LayerStack
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem
from stability.systems.activations import activation

_BACK = (1e-9, 1e-7, 1e-5, 1e-3)
"""Relative retreats of a rate until its rule accepts it."""
STATES = 256


def rate_limit(
    subject: LureSystem | DrivenSystem | GatedCell | LayerStack,
    *,
    inputs: Any = None,
    seed: int = 0,
    time_limit: TimeLimit = None,
) -> Claim | None:
    r"""A rate below which no bound ``|d| <= C rho^k |d(0)|`` can be, however it is proved.

    For a bare system the growth along periodic slopes (a lower bound of the joint spectral radius), for a network, a
    gated cell or a stack that of the linearisation along a periodic orbit under a periodic input.

    Args:
        subject: a map; for anything else there is no such claim.
        inputs: ``(low, high)`` that the inputs stay in, numbers or ``(p,)``; not of bare systems. Those of
            a gated cell also stay in its own box.
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
    if not subject.is_discrete or subject.states > STATES:
        return None
    deadline, rng = Deadline.after(time_limit).named("rate limit"), np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        if isinstance(subject, (GatedCell, LayerStack)):
            return _of_layers(subject, input_range(inputs, subject.inputs), rng, deadline)
        if subject.system.channels == 0:
            return None
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


def _of_layers(
    subject: GatedCell | LayerStack, region: InputRange, rng: np.random.Generator, deadline: Deadline
) -> Claim | None:
    lowest, stack = (subject.layers[0], True) if isinstance(subject, LayerStack) else (subject, False)
    box = input_boxes(lowest.input_low, lowest.input_high, region, subject.inputs)[0]
    if isinstance(subject, LayerStack) and (
        subject.directions != 1 or any(isinstance(layer, PairwiseSystem) for layer in subject.layers)
    ):
        return None
    for one in slow_orbits(subject, box, rng=rng, deadline=deadline)[:3]:
        data = {"orbit": one.orbit, "input": one.inputs, "eigenvalue": [one.value.real, one.value.imag]}
        if stack:
            data["layer"] = one.layer
        claim = _stepping_back(subject, "stack_orbit_rate" if stack else "gated_orbit_rate", data, one.radius)
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
