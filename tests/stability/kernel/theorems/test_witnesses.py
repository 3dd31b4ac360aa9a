"""The rules for witnesses: what is true passes, what is bent is refused, never raises; bounds are bounds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.certificate import Certificate
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.proposals import propose
from stability.search.counterexamples.counterexample_search import refute
from stability.search.input_sets.bounded import bounded, equilibrium_claim
from stability.search.input_sets.regional import regional
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

A = np.array([[-1.0, 0.3], [0.0, -1.0]])
FLOW = LureSystem.recurrent(A, np.array([[3.0, 0.0], [0.2, 2.0]]))
NETWORK = DrivenSystem(FLOW, "tanh", np.eye(2), [0.1, 0.0])
GROWING = DrivenSystem(LureSystem.recurrent([[0.5, 1.0], [0.0, -1.0]], np.eye(2)), "tanh", np.eye(2))
QUIET = DrivenSystem(LureSystem.recurrent(-2 * np.eye(2), [[0.0, 0.9], [-0.9, 0.0]]), "tanh", np.eye(2))
SPIN = DrivenSystem(LureSystem.recurrent([[-0.2, 1.0], [-1.0, -0.2]], np.eye(2)), "tanh", np.eye(2))
ODE = DrivenSystem(LureSystem.recurrent(np.zeros((2, 2)), [[-1.0, 0.4], [-0.4, -1.0]]), "tanh", np.eye(2))


def _equilibria():
    out = []
    for start in (np.array([2.5, 2.0]), -np.array([2.5, 2.0])):
        x = start
        for _ in range(4000):
            x = x + 0.05 * NETWORK.advance(x, np.zeros(2))
        out.append(x)
    return out


def _contraction():
    P, L = np.eye(2), np.full(2, 1.0)
    data = {"P": P, "L": L, "rate": 0.5, "overshoot": 1.1, "p_min": 0.99, "p_max": 1.01}
    return Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5)


def _claims():
    low, high = _equilibria()
    yield FLOW, Claim("contraction", (r := refute(FLOW)).statement, Verdict.REFUTED, r.proof)
    found = refute(NETWORK)
    yield NETWORK, Claim("contraction", found.statement, Verdict.REFUTED, found.proof)
    both = {"state1": low, "state2": high, "input": np.zeros(2)}
    yield NETWORK, propose(NETWORK, "two_equilibria", both)
    growing = refute(GROWING)
    yield GROWING, Claim("contraction", growing.statement, Verdict.REFUTED, growing.proof)
    yield SPIN, bounded(SPIN)
    yield QUIET, equilibrium_claim(QUIET, _contraction())
    box = DrivenSystem(LureSystem(0.1 * np.eye(2), np.eye(2), np.eye(2), dt=1.0), "tanh", np.eye(2))
    yield box, bounded(box)
    yield ODE, regional(ODE, input_bound=0.01, rate=0.4)


CLAIMS = list(_claims())
KINDS = [claim.proof.kind for _, claim in CLAIMS]


def test_every_kind_is_here():
    assert set(KINDS) == {
        "destabilising_slopes",
        "unstable_equilibrium",
        "two_equilibria",
        "unstable_linear",
        "ball",
        "box",
        "attracting_equilibrium",
        "regional_lmi",
    }


def changed(claim, **data):
    return dataclasses.replace(claim, proof=Proof(claim.proof.kind, {**claim.proof.data, **data}))


def both_refuse(subject, claim):
    """The rule itself and the verifier around it say no, without an exception."""
    outcome = RULES[claim.proof.kind](subject, claim)
    assert isinstance(outcome[1], str)
    return not outcome[0] and not verify_claim(subject, claim).valid


@pytest.mark.parametrize(("subject", "claim"), CLAIMS, ids=KINDS)
class TestEveryRule:
    def test_valid_also_after_a_round_through_a_file(self, subject, claim, tmp_path):
        assert verify_claim(subject, claim).valid
        main = Claim("contraction", "nothing", Verdict.INCONCLUSIVE)
        path = Certificate(subject, main, claims=(claim,)).save(tmp_path / "c.json")
        again = Certificate.load(path)
        assert verify_claim(again.subject, again.claims[0]).valid

    def test_missing_and_malformed_data(self, subject, claim):
        for key, value in claim.proof.data.items():
            rest = {k: v for k, v in claim.proof.data.items() if k != key}
            less = dataclasses.replace(claim, proof=Proof(claim.proof.kind, rest))
            if key in ("difference", "eigenvalue"):  # without it the claim is a weaker one, with its own sentence
                assert not verify_claim(subject, less).valid
            else:
                assert both_refuse(subject, less)
            bad = [None, "x", True, {"a": 1}, (1, 2, 3)]
            if isinstance(value, np.ndarray):
                bad += [
                    value * np.nan,
                    value[:-1],
                    value[..., None],
                    value.astype(np.float32),
                    value.tolist(),
                    value + 0j,
                ]
                bad += [np.full(value.shape, 1e308), np.zeros((0,)), np.array(["a"], dtype=object)]
            else:
                bad += [float("nan"), float("inf"), np.zeros(3), [value, value, value]]
            for item in bad:
                assert both_refuse(subject, changed(claim, **{key: item})), (key, item)

    def test_other_claims_and_verdicts(self, subject, claim):
        for verdict in Verdict:
            if verdict is not claim.verdict:
                assert both_refuse(subject, dataclasses.replace(claim, verdict=verdict))
        assert both_refuse(subject, dataclasses.replace(claim, name="gain"))
        assert both_refuse(subject, dataclasses.replace(claim, value=123.0))
        assert not verify_claim(subject, dataclasses.replace(claim, statement=claim.statement + " ")).valid

    def test_other_kinds(self, subject, claim):
        for kind in set(KINDS) - {claim.proof.kind}:
            assert both_refuse(subject, dataclasses.replace(claim, proof=Proof(kind, claim.proof.data)))

    def test_other_subjects(self, subject, claim):
        for other in (None, 3, "x", LureSystem.recurrent(-np.eye(3), np.eye(3)), LureSystem.linear([[-1.0]])):
            assert both_refuse(other, claim)
        calm = DrivenSystem(LureSystem.recurrent(-5 * np.eye(2), 0.1 * np.eye(2)), "tanh", np.eye(2))
        if claim.verdict is Verdict.REFUTED:
            assert both_refuse(calm, claim)
            assert both_refuse(calm.system, claim)


def claim_of(kind):
    return next(pair for pair in CLAIMS if pair[1].proof.kind == kind)


class TestBentWitnesses:
    def test_slopes_outside_the_interval(self):
        subject, claim = claim_of("destabilising_slopes")
        K = claim.proof.data["K"]
        assert both_refuse(subject, changed(claim, K=-K))
        assert both_refuse(subject, changed(claim, K=np.nextafter(np.ones(2), 2)))
        assert both_refuse(subject, changed(claim, K=0.1 * K))

    @pytest.mark.parametrize("kind", ["destabilising_slopes", "unstable_equilibrium", "unstable_linear"])
    def test_another_eigenvalue_than_the_sentence_names(self, kind):
        subject, claim = claim_of(kind)
        re, im = claim.proof.data["eigenvalue"]
        for pair in ([-re, im], [re + 1e-3, im], [re, im + 1e-3], [1e3, 0.0], [0.0, 0.0]):
            bent = propose(subject, kind, {**claim.proof.data, "eigenvalue": pair})
            assert both_refuse(subject, bent), pair

    def test_states_that_are_no_equilibrium(self):
        subject, claim = claim_of("unstable_equilibrium")
        x, u = claim.proof.data["state"], claim.proof.data["input"]
        assert both_refuse(subject, changed(claim, state=x + 3.0))
        assert both_refuse(subject, changed(claim, input=u + 5.0))
        stable = {"state": _equilibria()[0], "input": np.zeros(2)}
        value = np.linalg.eigvals(NETWORK.jacobian(x=stable["state"], u=stable["input"]))
        top = float(value.real.max())
        assert top < 0
        assert both_refuse(NETWORK, propose(NETWORK, "unstable_equilibrium", {**stable, "eigenvalue": [top, 0.0]}))

    def test_one_equilibrium_twice(self):
        subject, claim = claim_of("two_equilibria")
        x = claim.proof.data["state1"]
        assert both_refuse(subject, changed(claim, state2=x))
        assert both_refuse(subject, changed(claim, state2=x + 1e-9))

    def test_a_kink_has_no_jacobian(self):
        driven = DrivenSystem(LureSystem.recurrent(-np.eye(1), 2 * np.eye(1)), "relu", np.eye(1))
        data = {"state": np.zeros(1), "input": np.zeros(1), "eigenvalue": [1.0, 0.0]}
        assert both_refuse(driven, propose(driven, "unstable_equilibrium", data))

    def test_difference_too_small_or_off_the_unstable_direction(self):
        subject, claim = claim_of("unstable_linear")
        d = claim.proof.data["difference"]
        assert both_refuse(subject, changed(claim, difference=1e-3 * d))
        assert both_refuse(subject, changed(claim, difference=np.array([1.0, -1.5]) * 1e6))  # left vector (1.5, 1)
        assert verify_claim(subject, changed(claim, difference=-5.0 * d)).valid  # the other way round it grows as well

    def test_smaller_radii_and_wrong_weights(self):
        for kind in ("ball", "box"):
            subject, claim = claim_of(kind)
            radius = claim.proof.data["radius"]
            small = dataclasses.replace(changed(claim, radius=0.9 * radius), value=0.9 * radius)
            assert both_refuse(subject, small)
        subject, claim = claim_of("ball")
        for bent in (
            {"Y": -claim.proof.data["Y"]},
            {"Y": 0.9 * claim.proof.data["Y"]},
            {"mu": 1e3},
            {"mu": -0.1},
            {"tau": 2 * claim.proof.data["tau"]},
            {"tau": -claim.proof.data["tau"]},
        ):
            assert both_refuse(subject, changed(claim, **bent)), bent
        subject, claim = claim_of("box")
        assert both_refuse(subject, changed(claim, r=0.99 * claim.proof.data["r"]))
        assert both_refuse(subject, changed(claim, r=-claim.proof.data["r"]))

    def test_larger_regions_and_faster_rates(self):
        subject, claim = claim_of("regional_lmi")
        data = claim.proof.data
        for bent in (
            {"level": 100 * data["level"]},
            {"overshoot": 0.5},
            {"input_bound": 10.0},
            {"centre": data["centre"] + 1.0},
            {"P": -data["P"]},
            {"L": -data["L"]},
            {"p_min": 2 * data["p_max"]},
            {"radius": 2 * data["radius"]},
            {"p_min": 0.0},
            {"p_max": 0.5 * data["p_min"]},
            {"input": data["input"] + 1.0},
        ):
            assert both_refuse(subject, changed(claim, **bent)), bent
        fast = dataclasses.replace(changed(claim, rate=1.5), value=1.5)
        assert both_refuse(subject, fast)

    def test_multipliers_of_the_attracting_equilibrium(self):
        subject, claim = claim_of("attracting_equilibrium")
        for bent in ({"P": -np.eye(2)}, {"L": -np.ones(2)}, {"rate": 3.0}, {"L": np.zeros(2)}):
            assert both_refuse(subject, changed(claim, **bent)), bent
