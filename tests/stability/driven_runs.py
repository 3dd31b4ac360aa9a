"""Reservoirs to be certified under inputs in a box, and runs of theirs that are held against the proved bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.claims import Claim, Proof
from stability.kernel.format.theorem_table import RULES
from stability.kernel.theorems.driven_lmi import DrivenLmi
from stability.kernel.theorems.near_run import RunLmi
from stability.systems import DrivenSystem, LureSystem

ROUNDING = 1e-13
"""Accuracy of a simulation: nothing is asserted about distances below it."""


def reservoir(n: int, radius: float, leak: float, seed: int, name: str = "tanh", fed: float = 0.0) -> DrivenSystem:
    """An echo state network; its state keeps the share ``1 - leak`` of itself, its channels feed later ones.

    Where the activation has no bound, most of its weights are negative.
    """
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n)) * (4.0 if name == "sigmoid" else 1.0)
    if not np.isfinite(activation(name).bound):
        W -= 1.5 * np.abs(rng.normal(size=(n, n)))
    W *= radius * (4.0 if name == "sigmoid" else 1.0) / np.abs(np.linalg.eigvals(W)).max()
    U, b = np.zeros((n, 1)), rng.choice([-1.0, 1.0], size=n)
    U[rng.choice(n, max(1, n // 5), replace=False), 0] = 1.0
    slope, D = activation(name).slope, None
    if fed:
        D = fed * np.tril(rng.normal(size=(n, n)), -1)
    system = LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, D, slope, 1.0)
    return DrivenSystem(system, name, U, b)


def assert_bent_is_refused(subject, claim: Claim, bend: dict) -> None:
    """The rule takes a claim, and refuses it with data changed by functions (``None``: left out)."""
    assert claim.proof is not None
    rule, data = RULES[claim.proof.kind], dict(claim.proof.data)
    assert rule(subject, claim)[0]
    for name, change in bend.items():
        data[name] = None if change is None else change(data.get(name))
    data = {name: value for name, value in data.items() if value is not None}
    value = data.get(rule.value or "", claim.value)
    assert not rule(subject, replace(claim, proof=Proof(claim.proof.kind, data), value=value))[0]


def holds_on_trajectories(
    driven: DrivenSystem, claim: Claim, seed: int, starts: float = 3.0, vanishes: bool = False
) -> float:
    """The largest share of the proved bound that pairs of trajectories reach, under inputs at the ends of the box.

    Up to the first step of the claim each has inputs of its own, so that they are far apart there; of units on flat
    pieces nothing may be left of that (``vanishes``).
    """
    assert claim.proof is not None
    data, rng = claim.proof.data, np.random.default_rng(seed)
    settled = (RunLmi if "waits" in data else DrivenLmi).of(data).settled
    x, y = starts * rng.normal(size=(2, 200, driven.states))
    if data["share"] > 0.0:
        falls = data.get("falls", data["r"])
        largest = float(max(np.maximum(v / data["r"], -v / falls).max() for v in (x, y)))
        wait = max(0, int(np.ceil(np.log(max(largest - 1, 1e-300) / data["room"]) / -np.log(data["share"]))))
    else:
        wait = 1
    first = None
    worst, k = 0.0, 0
    for t in range(wait + settled + 40):
        if t >= wait + settled:
            d = np.linalg.norm(x - y, axis=1)
            first = d if first is None else first
            bound = data["overshoot"] * data["rate"] ** k * first
            worst, k = max(worst, float(((d - ROUNDING) / np.maximum(bound, 1e-300)).max())), k + 1
        ends, others = (np.where(rng.random((200, driven.inputs)) < 0.5, data["low"], data["high"]) for _ in range(2))
        x, y = driven.advance(x, ends), driven.advance(y, ends if k else others)
    assert first is not None
    assert vanishes or first.max() > 1e6 * ROUNDING
    return worst
