"""No corrupted proof of a false claim and no witness against a contracting system is accepted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stability import LureSystem, certify, incremental_gain, refute
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

from .constructions import KINDS, draw, drive, gated_cell, random_system, stack
from .judges import contradicted

Rng = np.random.Generator
FAST = ("multiplier_lmi", "ball", "interval_jacobian", "cascade")
SLOW = ("attracting_equilibrium", "box", "regional_lmi", "growth_lmi", "gain_lmi", "interval_lmi", "stack_gain")
KINDS_OF_PROOF = [*FAST, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
FALSE = {  # factor on one number of the proof that makes its claim false beyond doubt; None: chosen by the time
    "multiplier_lmi": ("rate", None),
    "ball": ("radius", 1e-3),
    "box": ("radius", 1e-3),
    "regional_lmi": ("overshoot", 1e-3),
    "growth_lmi": ("factor", 0.9),
    "interval_jacobian": ("rate", 1e-6),
    "interval_lmi": ("rate", 1e-6),
    "cascade": ("rate", 1e-6),
    "stack_gain": ("gain", 1e-4),
}
NO_SENTENCE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
"""Errors of wording a claim from data of wrong types or shapes."""
FACTORS = (-1.0, 0.0, 1e-3, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-12, 1 + 1e-12, 1 + 1e-6, 1.001, 1.1, 2.0, 1e3)


def proofs(kind: str, rng: Rng) -> Iterator[tuple[Any, Claim]]:
    """Yield subjects with a valid certified claim of one kind."""
    for _ in range(2000):
        subject, claim = attempt(kind, rng)
        if claim is not None and claim.verdict is Verdict.CERTIFIED and claim.proof.kind == kind:
            yield subject, claim


def attempt(kind: str, rng: Rng) -> tuple[Any, Claim | None]:
    n = int(rng.integers(1, 5))
    if kind in ("multiplier_lmi", "attracting_equilibrium"):
        system = random_system(rng)
        main = certify(system, rate="any" if rng.random() < 0.7 else "best", tol=1e-2, refute=False).claim
        certified = main.verdict is Verdict.CERTIFIED
        return system, main if kind == "multiplier_lmi" or not certified else equilibrium_claim(system, main)
    if kind == "ball":
        K = rng.standard_normal((n + 1, n + 1))
        A = 2.0 * (K - K.T) - np.diag(rng.uniform(0.2, 1.0, n + 1))
        network = drive(LureSystem.recurrent(A, 0.5 * rng.standard_normal((n + 1, n + 1))), rng)
        return network, bounded(network)
    if kind in ("box", "regional_lmi"):
        name = ("flow_two_norm", "flow_triangular", "leaky", "two_norm")[rng.integers(4)]
        network = drive(draw(name, rng, n, 0.2).system, rng)
        return network, regional(network, time_limit=2.0) if kind == "regional_lmi" else bounded(network)
    if kind == "growth_lmi":
        system = draw("orthogonal", rng, n, 1e-9).system
        return system, nonexpansive_claim(system)
    if kind == "gain_lmi":
        system = random_system(rng)
        E, F = rng.standard_normal((system.channels, 1)), rng.standard_normal((system.states, 1))
        measure, horizon = (("l2", None), ("final", None), ("final", 7), ("l2", 7))[rng.integers(4)]
        return system, incremental_gain(system, E=E, F=F, measure=measure, horizon=horizon, time_limit=2.0).claim
    if kind in ("interval_jacobian", "interval_lmi"):
        own = gated_cell(rng, 0.3)
        R = 0.15 * rng.standard_normal(own.w_hh.shape)
        cell = GatedCell(own.kind, own.w_ih, R, own.b_ih, own.b_hh, -1.0, 1.0)
        return cell, certify(cell, rate="any" if kind == "interval_jacobian" else "best", refute=False).claim
    subject = stack(rng, 0.3)
    return subject, certify(subject, rate="any", refute=False).claim if kind == "cascade" else stack_gain(subject)


def corrupted(subject: Any, claim: Claim, rng: Rng) -> tuple[Any, Claim]:
    """Alter one number, matrix or word of the proof, or the subject, and word the claim again."""
    assert claim.proof is not None
    data, value = dict(claim.proof.data), claim.value
    if rng.random() < 0.15:
        subject = rescaled(subject, float(rng.choice([1.001, 1.1, 2.0])))
    else:
        name = sorted(data)[rng.integers(len(data))]
        data[name] = altered(data[name], rng)
    repeated = RULES[claim.proof.kind].value
    if repeated:
        value = data[repeated] if isinstance(data[repeated], float) else value
    elif repeated == "" and value is not None and rng.random() < 0.5:
        value = value * float(rng.choice(FACTORS))
    draft = replace(claim, proof=Proof(claim.proof.kind, data), value=value)
    with contextlib.suppress(NO_SENTENCE):
        draft = worded(subject, draft)
    return subject, draft


def altered(x: Any, rng: Rng) -> Any:
    if isinstance(x, bool) or x is None:
        return not x if x is not None else 1
    if isinstance(x, int):
        return max(0, x + int(rng.integers(-2, 3)))
    if isinstance(x, float):
        return x * float(rng.choice(FACTORS))
    if isinstance(x, str):
        return str(rng.choice(["running", "terminal", "l2", "final", "multiplier_lmi", "gain_lmi", "two_equilibria"]))
    if isinstance(x, np.ndarray) and x.size:
        one = x.copy()
        one.flat[int(rng.integers(x.size))] *= float(rng.choice(FACTORS))
        shifted = x + 1e-3 * float(np.abs(x).max()) * rng.standard_normal()
        choices = [one, x * float(rng.choice(FACTORS)), x[::-1].copy(), np.ascontiguousarray(x.T), shifted]
        return choices[rng.integers(len(choices))]
    if isinstance(x, Mapping) and x:
        key = sorted(x)[rng.integers(len(x))]
        return {**x, key: altered(x[key], rng)}
    if isinstance(x, (list, tuple)) and len(x):
        out = list(x)
        i = int(rng.integers(len(out)))
        proof = out[i].proof if isinstance(out[i], Claim) else None
        if proof is not None:
            out[i] = replace(out[i], proof=Proof(proof.kind, altered(proof.data, rng)))
        elif not isinstance(out[i], Claim):
            out[i] = altered(out[i], rng)
        return out
    return x


def rescaled(subject: Any, factor: float) -> Any:
    """Return a subject of the same shapes with recurrent weights times a factor."""
    if isinstance(subject, LureSystem):
        s = subject.origin.base if subject.origin is not None else subject
        return LureSystem(s.A, s.B, factor * s.C, s.D, (s.alpha, s.beta), subject.dt)
    if isinstance(subject, DrivenSystem):
        return DrivenSystem(rescaled(subject.system, factor), subject.activation, subject.E, subject.b, subject.F)
    if isinstance(subject, GatedCell):
        return GatedCell(subject.kind, subject.w_ih, factor * subject.w_hh, subject.b_ih, None, -1.0, 1.0)
    return LayerStack([rescaled(layer, factor) for layer in subject.layers])


@pytest.mark.parametrize("kind", KINDS_OF_PROOF)
def test_an_accepted_corruption_is_true(kind: str) -> None:
    rng, tried, accepted = np.random.default_rng(7), 0, 0
    for (subject, claim), _ in zip(proofs(kind, rng), range(3)):
        for _ in range(20):
            other, bent = corrupted(subject, claim, rng)
            valid = verify_claim(other, bent).valid
            assert not (valid and contradicted(other, bent, rng))
            tried, accepted = tried + 1, accepted + valid
    assert tried == 60
    assert accepted < 0.8 * tried


@pytest.mark.parametrize("kind", [kind for kind in KINDS_OF_PROOF if getattr(kind, "values", [kind])[0] in FALSE])
def test_a_false_claim_is_contradicted_and_refused(kind: str) -> None:
    rng, seen = np.random.default_rng(1), 0
    for (subject, claim), _ in zip(proofs(kind, rng), range(3)):
        assert not contradicted(subject, claim, rng)
        name, factor = FALSE[kind]
        value = (1e-9 if subject.is_discrete else 1e3) if factor is None else factor * claim.proof.data[name]
        bent = replace(claim, proof=Proof(kind, {**claim.proof.data, name: value}), value=value)
        seen += contradicted(subject, bent, rng)
        assert not verify_claim(subject, bent).valid
    assert seen >= 2


def refuted_subjects(rng: Rng) -> Iterator[Any]:
    """Yield systems, networks, cells and stacks with large weights."""
    n = int(rng.integers(1, 4))
    W = rng.standard_normal((n, n)) * 3.0 / np.sqrt(n) + np.diag(rng.uniform(1.0, 3.0, n))
    map_of_W = LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0)
    system = map_of_W if rng.random() < 0.5 else LureSystem.recurrent(-np.eye(n), W)
    network, cell = drive(system, rng), gated_cell(rng, 0.3)
    loops = np.tile(8.0 * np.eye(cell.hidden), (len(cell.w_hh) // cell.hidden, 1))
    R = 4.0 * rng.standard_normal(cell.w_hh.shape) + loops
    yield from (system, network, GatedCell(cell.kind, cell.w_ih, R, cell.b_ih, None, -1.0, 1.0))
    yield LayerStack([network, network] if network.inputs == n else [network])


def contracting(subject: Any) -> Any:
    """Return a contracting subject of the same shapes."""
    if isinstance(subject, LureSystem):
        W = subject.C * (0.9 / max(float(np.abs(subject.C).sum(axis=1).max()), 1e-9))
        A = np.zeros_like(W) if subject.is_discrete else -np.eye(len(W))
        return LureSystem(A, np.eye(len(W)), W, dt=subject.dt)
    if isinstance(subject, DrivenSystem):
        return DrivenSystem(contracting(subject.system), subject.activation, subject.E, subject.b, subject.F)
    if isinstance(subject, GatedCell):
        return rescaled(subject, 0.0)
    return LayerStack([contracting(layer) for layer in subject.layers])


@pytest.mark.parametrize("draws", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_no_witness_against_another_system_is_accepted(draws: int) -> None:
    rng, kinds = np.random.default_rng(2), set()
    for _ in range(draws):
        for subject in refuted_subjects(rng):
            claim = refute(subject, seed=int(rng.integers(1000)), time_limit=0.5).claim
            if claim is None:
                continue
            kinds.add(claim.proof.kind)
            for _ in range(10):
                other, bent = corrupted(subject, claim, rng) if rng.random() < 0.7 else (subject, claim)
                other = contracting(other)
                with contextlib.suppress(NO_SENTENCE):
                    bent = worded(other, bent)
                assert not verify_claim(other, bent).valid
    assert len(kinds) >= (3 if draws < 10 else 4)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_contracting_system_is_not_refuted(kind: str) -> None:
    """Margins down to 1e-12, where float64 can no longer prove contraction."""
    rng = np.random.default_rng([1, *kind.encode()])
    for exponent in (2, 8, 12):
        made = draw(kind, rng, int(rng.integers(1, 4)), 10.0**-exponent)
        assert refute(made.system).proof is None
        network = drive(made.system, rng)
        if network is not None and exponent == 2:
            assert not refute(network).found


def test_contracting_cells_and_stacks_are_not_refuted() -> None:
    rng = np.random.default_rng(4)
    for exponent in (1, 4, 8, 11):
        for subject in (gated_cell(rng, 10.0**-exponent), stack(rng, 10.0**-exponent)):
            assert certify(subject, rate="any").verdict is not Verdict.REFUTED
