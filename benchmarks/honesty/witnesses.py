"""Witnesses against systems that contract by construction: borrowed from wilder ones, corrupted, or invented.

None may be accepted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from stability import LureSystem, refute
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from stability.search.trajectories.simulation import advance_batch
from stability.systems import DrivenSystem
from stability.verification import verify_claim

from .constructions import Rng, draw, drive
from .corruptions import NO_SENTENCE, Tally, corrupt
from .judges import is_unstable
from .networks import gated_cell, stack

__all__ = ["WITNESSES", "run_borrowed", "run_invented"]

Array = np.ndarray
WITNESSES = tuple(sorted(kind for kind, made in RULES.items() if made.verdict is Verdict.REFUTED))


def _unstable(rng: Rng) -> Iterator[tuple[Any, Claim]]:
    """Networks, cells and stacks with a witness against them."""
    n = int(rng.integers(1, 4))
    W = rng.standard_normal((n, n)) * 3.0 / np.sqrt(n) + np.diag(rng.uniform(1.0, 3.0, n))
    discrete = rng.random() < 0.5
    zero, one = np.zeros((n, n)), np.eye(n)
    system = LureSystem(zero, one, W, dt=1.0) if discrete else LureSystem.recurrent(-one, W)
    network = drive(system, rng)
    assert network is not None
    cell = gated_cell(rng, 0.3)
    loops = np.tile(8.0 * np.eye(cell.hidden), (len(cell.w_hh) // cell.hidden, 1))
    scale = 4.0 * rng.standard_normal(cell.w_hh.shape) + loops
    wild = GatedCell(cell.kind, cell.w_ih, scale, cell.b_ih, None, -1.0, 1.0)
    if rng.random() < 0.3:
        network = DrivenSystem(LureSystem.recurrent(W, one), "tanh", network.E, network.b)
    for subject in (system, network, wild, LayerStack([network, network] if network.inputs == n else [network])):
        found = refute(subject, seed=int(rng.integers(1000)), time_limit=0.5)
        if found.claim is not None:
            yield subject, found.claim


def run_borrowed(count: int, rng: Rng) -> list[Tally]:
    """Witnesses, as they are and corrupted, put above systems of their shapes that contract by construction."""
    tallies: dict[str, Tally] = {}
    while sum(t.corruptions for t in tallies.values()) < count:
        for subject, claim in _unstable(rng):
            assert claim.proof is not None
            tally = tallies.setdefault(claim.proof.kind, Tally(claim.proof.kind))
            tally.proofs += 1
            for _ in range(20):
                other, bent = corrupt(subject, claim, rng) if rng.random() < 0.7 else (subject, claim)
                other = _tamed(other)
                with contextlib.suppress(NO_SENTENCE):
                    bent = worded(other, bent)
                tally.corruptions += 1
                if verify_claim(other, bent).valid:
                    tally.accepted += 1
                    tally.false += 1
            if claim.proof.kind == "destabilising_slopes":
                tally.false += not is_unstable(subject, claim.proof.data["K"])
    return list(tallies.values())


def _tamed(subject: Any) -> Any:
    """The same shapes, contracting by construction."""
    if isinstance(subject, LureSystem):
        W = subject.C * (0.9 / max(float(np.abs(subject.C).sum(axis=1).max()), 1e-9))
        n = subject.states
        return LureSystem(np.zeros((n, n)) if subject.is_discrete else -np.eye(n), np.eye(n), W, dt=subject.dt)
    if isinstance(subject, DrivenSystem):
        return DrivenSystem(_tamed(subject.system), subject.activation, subject.E, subject.b, subject.F)
    if isinstance(subject, GatedCell):
        return GatedCell(subject.kind, subject.w_ih, np.zeros_like(subject.w_hh), subject.b_ih, None, -1.0, 1.0)
    return LayerStack([_tamed(layer) for layer in subject.layers])


def run_invented(kind: str, count: int, rng: Rng) -> Tally:
    """Data of the right names and shapes, as near to a witness as a contracting system allows."""
    tally = Tally(kind)
    while tally.corruptions < count:
        subject = _contracting(RULES[kind].subject, rng)
        tally.proofs += 1
        for _ in range(10):
            tally.corruptions += 1
            try:
                claim = propose(subject, kind, _invented(kind, subject, rng))
            except NO_SENTENCE:  # no sentence for such data: nothing to put above it
                continue
            if verify_claim(subject, claim).valid:
                tally.accepted += 1
                tally.false += 1
    return tally


def _contracting(types: tuple[type, ...], rng: Rng) -> Any:
    margin = 10.0 ** rng.uniform(-6, -0.5)
    wanted = types[rng.integers(len(types))]
    if wanted is GatedCell:
        return gated_cell(rng, margin)
    if wanted is LayerStack:
        return stack(rng, margin)
    kinds = ("two_norm", "inf_norm", "triangular", "leaky", "slow", "flow_two_norm", "euler", "midpoint")
    system = draw(kinds[rng.integers(len(kinds))], rng, int(rng.integers(1, 4)), margin).system
    return system if wanted is LureSystem else drive(system, rng)


def _invented(kind: str, subject: Any, rng: Rng) -> dict[str, Any]:
    states = subject.system.states if isinstance(subject, DrivenSystem) else subject.states
    inputs = 1 if isinstance(subject, LureSystem) else subject.inputs
    period = int(rng.integers(1, 4))
    u = rng.uniform(-1.0, 1.0, inputs)
    rest = _at_rest(subject, u, rng)
    near = rest + 10.0 ** rng.uniform(-16, 0) * rng.standard_normal(states)
    many = "orbit" in kind
    values: dict[str, Any] = {
        "state": rest, "state1": rest, "state2": near, "difference": rng.standard_normal(states),
        "first": rest, "second": near, "orbit": np.tile(rest, (period, 1)),
        "input": np.tile(u, (period, 1)) if many else u,
        "eigenvalue": [float(rng.choice([1.0, 1.01, 0.01, 0.999999])), 0.0],
        "gap": float(0.5 * np.linalg.norm(rest - near)), "layer": 0, "kind": "two_equilibria",
    }  # fmt: skip
    if "orbit" in kind:
        values |= {"first": np.tile(rest, (period, 1)), "second": np.tile(near, (period, 1))}
    if isinstance(subject, LureSystem):
        values["K"] = rng.uniform(subject.alpha, subject.beta)
    if isinstance(subject, LayerStack):
        layer = subject.layers[0]
        values["kind"] = "gated_orbits" if isinstance(layer, GatedCell) else "two_equilibria"
        values["data"] = _invented(values["kind"], layer, rng)
    made = RULES[kind]
    names = [*made.fields, *(name for name in made.optional if rng.random() < 0.5)]
    data = {name: values[name] for name in names}
    if values["kind"] in RULES and "data" in data:
        inner = RULES[values["kind"]]
        data["data"] = {k: v for k, v in values["data"].items() if k in inner.fields}
    return data


def _at_rest(subject: Any, u: Array, rng: Rng) -> Array:
    """Where the subject settles under a constant input: the best place to look for a witness."""
    if isinstance(subject, LureSystem):
        return rng.standard_normal(subject.states)
    n = subject.system.states if isinstance(subject, DrivenSystem) else subject.states
    x = rng.standard_normal(n)
    for _ in range(300):
        x = advance_batch(subject, x, u, 0.3) if isinstance(subject, DrivenSystem) else subject.advance(x, u)
    return x
