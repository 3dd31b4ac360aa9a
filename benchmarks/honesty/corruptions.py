"""Valid proofs of every certifying kind, their numbers altered and the sentence made again: the rule decides.

A corrupted proof may still be true (a slower rate, a larger radius); what is accepted is put to a judge that looks for
a run against it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability import LureSystem, certify, incremental_gain
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.search.criteria.nonexpansive import nonexpansive_claim
from stability.search.gains.stack import stack_gain
from stability.search.input_sets.bounded import bounded, equilibrium_claim
from stability.search.input_sets.regional import regional
from stability.systems import DrivenSystem
from stability.verification import verify_claim

from .constructions import draw, drive
from .judges import contradicted
from .networks import gated_cell, stack
from .systems import random_system

__all__ = ["CERTIFYING", "Tally", "certifying_proofs", "corrupt", "run_corruptions"]

Rng = np.random.Generator
Pair = tuple[Any, Claim]
CERTIFYING = (
    "multiplier_lmi", "attracting_equilibrium", "ball", "box", "regional_lmi", "growth_lmi", "gain_lmi",
    "interval_jacobian", "interval_lmi", "cascade", "stack_gain",
)  # fmt: skip
_PATIENCE = 2000
NO_SENTENCE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


@dataclass
class Tally:
    """What became of the corruptions of one kind."""

    kind: str
    proofs: int = 0
    corruptions: int = 0
    accepted: int = 0
    false: int = 0


def certifying_proofs(kind: str, rng: Rng) -> Iterator[Pair]:
    """Subjects with a valid certified claim of one kind."""
    for _ in range(_PATIENCE):
        for subject, claim in _attempts(kind, rng):
            proved = claim is not None and claim.verdict is Verdict.CERTIFIED and claim.proof is not None
            if proved and claim.proof.kind == kind:
                yield subject, claim


def _attempts(kind: str, rng: Rng) -> Iterator[tuple[Any, Claim | None]]:
    n = int(rng.integers(1, 5))
    if kind in ("multiplier_lmi", "attracting_equilibrium"):
        system = random_system(rng)
        main = certify(system, rate="any" if rng.random() < 0.7 else "best", tol=1e-2, refute=False).claim
        if main.verdict is Verdict.CERTIFIED:
            yield system, main if kind == "multiplier_lmi" else equilibrium_claim(system, main)
    elif kind == "ball":
        K = rng.standard_normal((n + 1, n + 1))
        A = 2.0 * (K - K.T) - np.diag(rng.uniform(0.2, 1.0, n + 1))
        turning = drive(LureSystem.recurrent(A, 0.5 * rng.standard_normal((n + 1, n + 1))), rng)
        assert turning is not None
        yield turning, bounded(turning)
    elif kind in ("box", "regional_lmi"):
        name = ("flow_two_norm", "flow_triangular", "leaky", "two_norm")[rng.integers(4)]
        network = drive(draw(name, rng, n, 0.2).system, rng)
        assert network is not None
        yield network, regional(network, time_limit=2.0) if kind == "regional_lmi" else bounded(network)
    elif kind == "growth_lmi":
        system = draw("orthogonal", rng, n, 1e-9).system
        yield system, nonexpansive_claim(system)
    elif kind == "gain_lmi":
        system = random_system(rng)
        E, F = rng.standard_normal((system.channels, 1)), rng.standard_normal((system.states, 1))
        measure, horizon = (("l2", None), ("final", None), ("final", 7), ("l2", 7))[rng.integers(4)]
        found = incremental_gain(system, E=E, F=F, measure=measure, horizon=horizon, time_limit=2.0)
        yield system, found.claim
    elif kind in ("interval_jacobian", "interval_lmi"):
        cell = _recurrent(gated_cell(rng, 0.3), rng)
        yield cell, certify(cell, rate="any" if kind == "interval_jacobian" else "best", refute=False).claim
    else:
        subject = stack(rng, 0.3)
        yield subject, certify(subject, rate="any", refute=False).claim if kind == "cascade" else stack_gain(subject)


def _recurrent(cell: GatedCell, rng: Rng) -> GatedCell:
    """The same cell with some recurrence."""
    R = 0.15 * rng.standard_normal(cell.w_hh.shape)
    return GatedCell(cell.kind, cell.w_ih, R, cell.b_ih, cell.b_hh, -1.0, 1.0)


def corrupt(subject: Any, claim: Claim, rng: Rng) -> Pair:
    """One number, matrix, word or part of the proof (sometimes of the subject) altered, and the sentence made again."""
    assert claim.proof is not None
    data = dict(claim.proof.data)
    value = claim.value
    if rng.random() < 0.15:
        subject = _altered(subject, rng)
    else:
        name = sorted(data)[rng.integers(len(data))]
        data[name] = _bent(data[name], rng)
    repeated = RULES[claim.proof.kind].value
    if repeated:
        value = data[repeated] if isinstance(data[repeated], float) else value
    elif repeated == "" and value is not None and rng.random() < 0.5:
        value = _number(value, rng)
    draft = replace(claim, proof=Proof(claim.proof.kind, data), value=value)
    with contextlib.suppress(NO_SENTENCE):  # such data have none: nothing to put above them
        draft = worded(subject, draft)
    return subject, draft


def _number(x: float, rng: Rng) -> float:
    factors = (-1.0, 0.0, 1e-3, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-12, 1 + 1e-12, 1 + 1e-6, 1.001, 1.1, 2.0, 1e3)
    return float(x * factors[rng.integers(len(factors))]) if rng.random() < 0.9 else float(rng.choice([0.0, 1.0, -0.0]))


def _bent(x: Any, rng: Rng) -> Any:
    if isinstance(x, bool) or x is None:
        return not x if x is not None else 1
    if isinstance(x, int):
        return max(0, x + int(rng.integers(-2, 3)))
    if isinstance(x, float):
        return _number(x, rng)
    if isinstance(x, str):
        words = ("running", "terminal", "l2", "final", "multiplier_lmi", "gain_lmi", "two_equilibria")
        return words[rng.integers(len(words))]
    if isinstance(x, np.ndarray) and x.size:
        y, way = x.copy(), int(rng.integers(6))
        where = tuple(int(rng.integers(k)) for k in x.shape)
        if way == 0:
            y[where] = _number(float(x[where]), rng)
            if x.ndim == 2 and x.shape[0] == x.shape[1]:
                y = 0.5 * (y + y.T)
        elif way == 1:
            y = y * _number(1.0, rng)
        elif way == 2:
            y = -y
        elif way == 3:
            y = y[::-1].copy()
        elif way == 4:
            y = np.ascontiguousarray(y.T)
        else:
            y = y + 1e-3 * float(np.abs(y).max()) * rng.standard_normal()
        return y
    if isinstance(x, Mapping) and x:
        key = sorted(x)[rng.integers(len(x))]
        return {**x, key: _bent(x[key], rng)}
    if isinstance(x, (list, tuple)) and len(x):
        out = list(x)
        i = int(rng.integers(len(out)))
        out[i] = _bent_claim(out[i], rng) if isinstance(out[i], Claim) else _bent(out[i], rng)
        return out
    return x


def _bent_claim(claim: Claim, rng: Rng) -> Claim:
    return claim if claim.proof is None else replace(claim, proof=Proof(claim.proof.kind, _bent(claim.proof.data, rng)))


def _altered(subject: Any, rng: Rng) -> Any:
    """Another subject of the same shapes, with larger weights."""
    factor = float(rng.choice([1.001, 1.1, 2.0]))
    if isinstance(subject, LureSystem):
        s = subject.origin.base if subject.origin is not None else subject
        return LureSystem(s.A, s.B, factor * s.C, s.D, (s.alpha, s.beta), subject.dt)
    if isinstance(subject, DrivenSystem):
        return DrivenSystem(_altered(subject.system, rng), subject.activation, subject.E, subject.b, subject.F)
    if isinstance(subject, GatedCell):
        return GatedCell(subject.kind, subject.w_ih, factor * subject.w_hh, factor * subject.b_ih, None, -1.0, 1.0)
    return LayerStack([_altered(layer, rng) for layer in subject.layers])


def run_corruptions(kind: str, count: int, rng: Rng) -> Tally:
    """``count`` corruptions of proofs of one kind, 20 a proof; what is accepted goes to the judge."""
    tally = Tally(kind)
    for subject, claim in certifying_proofs(kind, rng):
        assert verify_claim(subject, claim).valid
        tally.proofs += 1
        for _ in range(20):
            other, bent = corrupt(subject, claim, rng)
            tally.corruptions += 1
            if bent == claim and other is subject:
                continue
            if verify_claim(other, bent).valid:
                tally.accepted += 1
                tally.false += contradicted(other, bent, rng)
        if tally.corruptions >= count:
            return tally
    return tally
