"""Forged claims: a proof supports one claim, one verdict, one subject; numbers beyond the truth are refused.

Every forgery carries the sentence that the rule itself would write above it, so the rule decides and not the words.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from specimens import HELD, Specimen, flow, latch, remade, specimens

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from stability.search.solvers.hinf import hinf_norm
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

NAMES = (
    "contraction",
    "equilibrium",
    "bounded",
    "regional",
    "attraction",
    "gain",
    "nonexpansive",
    "state_bound",
    "decay",
    "",
)
KINDS = sorted(RULES)
BAD_NUMBERS = (True, None, "1", [1.0], float("nan"), float("inf"), 10**400, 2**53 + 1, 1j)


@pytest.fixture(scope="session")
def of_kind() -> dict[str, list[Specimen]]:
    return {kind: [s for s in specimens().values() if s.kind == kind] for kind in KINDS}


def refusal(subject, claim, context: object = None) -> str:
    """Return the reason why a claim is refused; assert that it is refused, with a reason."""
    check = verify_claim(subject, claim)
    assert not check.valid, context
    assert check.reason not in ("", "None"), context
    return check.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_proof_is_valid_for_its_claim_its_verdict_its_kind_and_its_subject_alone(kind, of_kind):
    assert of_kind[kind]
    rule = RULES[kind]
    for specimen in of_kind[kind]:
        subject, claim = specimen.subject, specimen.claim
        check = verify_claim(subject, claim)
        assert check.valid, check.reason
        assert check.evidence == "proved"
        for name, verdict in itertools.product(NAMES, Verdict):
            if name not in rule.claim or verdict is not rule.verdict:
                for value in (claim.value, None, 0.5):
                    assert not verify_claim(
                        subject, remade(subject, claim, name=name, verdict=verdict, value=value)
                    ).valid
        for other in (*KINDS, "multiplier", ""):
            if other != kind:
                assert not verify_claim(subject, remade(subject, claim, kind=other)).valid, other
        for other in {type(s.subject): s.subject for s in specimens().values()}.values():
            if not isinstance(other, rule.subject):
                assert not verify_claim(other, remade(other, claim)).valid, other


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_data_are_refused(kind, of_kind):
    rule = RULES[kind]
    for specimen in of_kind[kind][:2]:
        subject, claim = specimen.subject, specimen.claim

        def refused(key, bad, subject=subject, claim=claim, **changes) -> str:
            return refusal(subject, remade(subject, claim, data={key: bad}, **changes), (kind, key, bad))

        assert "unknown note" in refused("note", 1.0)
        for key, form in rule.fields.items():
            assert "lacks" in refusal(subject, remade(subject, claim, without=[key]))
            for bad in BAD_NUMBERS:
                allowed = (form == "list" and isinstance(bad, list)) or (form == "text" and isinstance(bad, str))
                if not allowed and (form, bad) != ("number or null", None):
                    refused(key, bad, **({"value": bad} if rule.value == key else {}))
        for key, value in claim.proof.data.items():
            if isinstance(value, np.ndarray) and value.size:
                spoilt, huge = value.copy(), value.copy()
                spoilt.flat[-1], huge.flat[0] = np.nan, 1e308
                bads = [spoilt, huge, value.astype(np.float32)]
                if value.shape[-1] > 1:  # a constant input or an orbit of one number may be read by a smaller subject
                    bads.append(value[..., :-1])
                for bad in bads:
                    refused(key, bad)


def test_an_array_of_twice_the_size_is_refused_unless_it_says_the_same(of_kind):
    for specimen in (of_kind[kind][0] for kind in KINDS):
        for key, value in specimen.claim.proof.data.items():
            if isinstance(value, np.ndarray) and key not in (*REPEATABLE, "backward"):
                bent = remade(specimen.subject, specimen.claim, data={key: np.concatenate([value, value])})
                refusal(specimen.subject, bent, (specimen.name, key))


REPEATABLE = ("input", "inputs", "first", "second", "orbit", "state")
"""Data that may say the same twice: a constant input, or an orbit run twice."""


def rates() -> dict[str, float]:
    """The best rate that could be true: of the linear system with the worst constant slopes, or at an equilibrium."""
    turn = np.array([[0.6, 0.4], [-0.4, 0.6]])
    euler, half = -2.0 * np.eye(2) + turn, 0.1
    cells = {}
    for name in ("contraction of gru box", "contraction of lstm box"):
        cell = specimens()[name].subject
        x, u = np.zeros(cell.states), np.zeros(cell.inputs)
        for _ in range(500):
            x = cell.advance(x, u)
        cells[name] = float(np.abs(np.linalg.eigvals(cell.jacobian(x, u))).max())
    return {
        "contraction of flow": 1.4,
        "contraction of network": 1.4,
        "contraction of linear": 1.0,
        "contraction of uneven slopes": 0.5,
        "contraction of euler": float(np.abs(np.linalg.eigvals(np.eye(2) + half * euler)).max()),
        "contraction of midpoint": float(
            np.abs(np.linalg.eigvals(np.eye(2) + half * euler + half**2 / 2 * euler @ euler)).max()
        ),
        "contraction of stack": 0.5,
        **cells,
    }


RATES = ("flow", "network", "linear", "uneven slopes", "euler", "midpoint", "stack", "gru box", "lstm box")


@pytest.mark.parametrize("name", [f"contraction of {name}" for name in RATES])
def test_no_rate_beyond_the_truth_and_no_overshoot_below_one(name):
    specimen, best = specimens()[name], rates()[name]
    discrete = getattr(getattr(specimen.subject, "system", specimen.subject), "is_discrete", True)
    for distance in 10.0 ** np.arange(-14.0, 0.0):
        faster = best * (1.0 - distance) if discrete else best * (1.0 + distance)
        bent = remade(specimen.subject, specimen.claim, data={"rate": faster}, value=faster)
        assert not verify_claim(specimen.subject, bent).valid, faster
    for rate in (0.0, -0.0, 1.0, -0.1, -best) if discrete else (0.0, -0.0, -1e-300, -best):
        bent = remade(specimen.subject, specimen.claim, data={"rate": rate}, value=rate)
        assert not verify_claim(specimen.subject, bent).valid, rate
    for overshoot in (-1e9, -specimen.claim.proof.data["overshoot"], -1.0, 0.0, 0.5, 1.0 - 1e-9):
        bent = remade(specimen.subject, specimen.claim, data={"overshoot": overshoot})
        assert not verify_claim(specimen.subject, bent).valid, overshoot
    other = remade(specimen.subject, specimen.claim, value=specimen.claim.value * 0.9)
    assert not verify_claim(specimen.subject, other).valid


def _gain_truth(system: LureSystem, measure: str, horizon: int | None) -> float:
    """A gain that slope one really has: of ``x' = (A + B C) x + B u`` with output x."""
    a, b, n = system.A + system.B @ system.C, system.B, system.states
    if measure == "l2" and horizon is None:
        return hinf_norm(a, b, np.eye(n), dt=system.dt)
    steps = int(horizon or 400)
    if not system.is_discrete:
        fine = 400 * int(horizon or 20)
        h = int(horizon or 20) / fine
        a, b, steps = np.eye(n) + h * a + h * h / 2 * a @ a, b * math.sqrt(h), fine
        if measure == "l2":
            return 0.0  # the l2 gain over a finite time lies below the infinite one: bounded by the test above it
    powers, blocks = np.eye(n), []
    for _ in range(steps):
        blocks.append(powers @ b)
        powers = powers @ a
    if measure == "final":
        return float(np.linalg.norm(np.hstack(blocks), 2))
    toeplitz = np.zeros((steps * n, steps * n))
    for i, j in itertools.product(range(steps), repeat=2):
        if i >= j:
            toeplitz[i * n : (i + 1) * n, j * n : (j + 1) * n] = blocks[i - j]
    return float(np.linalg.norm(toeplitz, 2))


GAINS = [
    f"gain of a {subject}, {measure}, {horizon}"
    for subject in ("flow", "map")
    for measure in ("l2", "final")
    for horizon in (None, 5)
]


@pytest.mark.parametrize("name", GAINS)
def test_no_gain_below_the_truth(name):
    specimen = specimens()[name]
    data, system = specimen.claim.proof.data, specimen.subject.system
    truth = _gain_truth(system, data["measure"], data["horizon"])
    assert specimen.claim.value >= truth * (1.0 - 1e-3)
    for share in (0.0, 0.5, 0.9, 0.99, 0.999):
        smaller = truth * share
        for change in ({"gain": smaller}, {}):
            bent = remade(specimen.subject, specimen.claim, data=change, value=smaller)
            assert not verify_claim(specimen.subject, bent).valid, (share, change)
    growths = (0.5, 0.9) if system.is_discrete else (-0.5, 0.5)
    for growth in growths if "growth" in data else ():  # a growth that another sum would need
        bent = remade(specimen.subject, specimen.claim, data={"growth": growth}, value=0.9 * truth)
        assert not verify_claim(specimen.subject, bent).valid


@pytest.mark.parametrize("name", GAINS)
def test_mode_measure_and_horizon_are_those_of_a_theorem(name):
    specimen = specimens()[name]
    system = specimen.subject.system
    for mode, measure, horizon in itertools.product(("running", "terminal"), ("l2", "final"), (None, 1, 50, 10**6)):
        bent = remade(specimen.subject, specimen.claim, data={"mode": mode, "measure": measure, "horizon": horizon})
        if verify_claim(specimen.subject, bent).valid:
            truth = _gain_truth(system, measure, min(horizon, 50) if horizon else None)
            assert specimen.claim.value >= truth * (1.0 - 1e-3), (mode, measure, horizon)
    for horizon in (0, -1, 0.5 if system.is_discrete else -0.5, 2**31, True):
        bent = remade(specimen.subject, specimen.claim, data={"horizon": horizon})
        assert not verify_claim(specimen.subject, bent).valid, horizon


def test_a_running_cost_bounds_no_instant_of_continuous_time():
    lag = DrivenSystem(LureSystem.linear([[-100.0]]), "identity", np.zeros((0, 1)), F=[[100.0]])
    # |u| of size one in l2, put into the last moment: |y(T)| approaches sqrt(50) = 7.07
    data = {"P": np.array([[0.0101]]), "L": np.zeros(0), "E": np.zeros((0, 1)), "F": np.array([[100.0]])}
    data |= {"H": np.eye(1), "gain": 1.02, "growth": 0.0, "mode": "running", "measure": "l2", "horizon": None}
    draft = Claim("gain", "", Verdict.CERTIFIED, Proof("gain_lmi", data), 1.02)
    assert verify_claim(lag, remade(lag, draft)).valid
    for horizon in (None, 0.5, 10, 10.0):
        bent = remade(lag, draft, data={"measure": "final", "horizon": horizon})
        assert "no theorem" in refusal(lag, bent)


def test_growth_is_not_called_nonexpansive():
    for factor in (1.00095, 1.0 + 2e-6, 1.0001):
        system = LureSystem.linear([[factor * (1.0 - 1e-9)]], dt=1.0)
        data = {"factor": factor, "L": np.zeros(0)}
        draft = Claim("nonexpansive", "", Verdict.CERTIFIED, Proof("growth_lmi", data), factor)
        assert "beyond it distances grow" in refusal(system, remade(system, draft))
    system = LureSystem.linear([[1.0 + 5e-7]], dt=1.0)
    data = {"factor": 1.0 + 6e-7, "L": np.zeros(0)}
    draft = Claim("nonexpansive", "", Verdict.CERTIFIED, Proof("growth_lmi", data), 1.0 + 6e-7)
    assert verify_claim(system, remade(system, draft)).valid
    assert not verify_claim(system, remade(system, draft, data={"factor": 1.0 + 4e-7}, value=1.0 + 4e-7)).valid


def test_the_slack_of_a_stack_hides_no_faster_rate():
    layer = DrivenSystem(LureSystem.linear([[0.9990000000008491]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
    data = {"P": np.eye(1), "L": np.zeros(0), "overshoot": 1.000000002, "p_min": 0.999999999, "p_max": 1.000000001}

    def stack_claim(rate: float) -> Claim:
        part = {"kind": "multiplier_lmi", "data": {**data, "rate": rate}, "rate": rate}
        whole = {"layers": [part], "rate": rate, "overshoot": 1.00000001, "tolerance": 0.1}
        return Claim("contraction", "", Verdict.CERTIFIED, Proof("cascade", whole), rate)

    stack = LayerStack([layer])
    slow = 0.9990000000010
    assert verify_claim(stack, remade(stack, stack_claim(slow))).valid
    for rate in (0.999, 0.9990000000008, math.nextafter(slow, 0.0)):
        faster = remade(stack, stack_claim(slow), data={"rate": rate}, value=rate)
        assert not verify_claim(stack, faster).valid, rate
        assert not verify_claim(stack, remade(stack, stack_claim(0.999))).valid


def test_named_eigenvalues_exist_and_are_unstable():
    for a, good, bad in (
        (np.diag([-5.0, 7.0]), 7.0, (-5.0, 6.0, 7.1, 0.0)),
        (np.diag([0.0, 0.0, 1e6]), 1e6, (90.0, -90.0, 1.0, 0.0)),
        (np.diag([1.00008, 1.0]), 1.00008, (-1.0, 1.0001, 2.0)),
    ):
        system = LureSystem.linear(a)
        claim = propose(system, "destabilising_slopes", {"K": np.zeros(0), "eigenvalue": [good, 0.0]})
        assert verify_claim(system, claim).valid, good
        for value in bad:
            claim = propose(system, "destabilising_slopes", {"K": np.zeros(0), "eigenvalue": [value, 0.0]})
            assert not verify_claim(system, claim).valid, value
    identity = LureSystem.linear(np.eye(2), dt=1.0)
    for value in (1.00009, 0.5, -1.0):
        claim = propose(identity, "destabilising_slopes", {"K": np.zeros(0), "eigenvalue": [value, 0.0]})
        assert not verify_claim(identity, claim).valid, value


def test_orbits_in_the_box_alone_and_points_that_differ():
    cell = latch()
    for data in (
        {"first": np.array([[HELD]]), "second": np.array([[HELD]])},
        {"first": np.array([[HELD]]), "second": np.array([[0.0]]), "input": np.array([1.5])},
        {"first": np.array([[HELD], [-HELD]])},
    ):
        claim = propose(cell, "gated_orbits", {"input": np.zeros(1), **data})
        assert not verify_claim(cell, claim).valid


def test_slopes_outside_the_sentence_are_refused():
    system = flow()
    for slope in (1.0000001, -1e-12, 2.0):
        data = {"K": np.array([slope, 0.0]), "eigenvalue": [1.0, 0.0]}
        assert not verify_claim(system, propose(system, "destabilising_slopes", data)).valid
