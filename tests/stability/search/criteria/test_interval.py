"""Certificates of gated cells: sound under simulation, no weaker than published conditions, tamper-proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import UnsupportedError
from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.systems.gated_bounds import (
    JacobianBound,
    absorbs,
    embedding,
    gate_bounds,
    invariant_box,
    is_invariant,
)
from stability.kernel.systems.gated_cell import GatedCell, sigmoid
from stability.search.criteria.interval import (
    fastest_gated_claim,
    gated_findings,
    interval_criterion,
    interval_lmi_criterion,
)
from stability.search.solvers.deadline import TOO_LATE
from stability.systems import LureSystem
from stability.verification import verify, verify_claim

KINDS = [("lstm", True), ("gru", True), ("gru", False)]


def random_cell(kind, reset_after, rng, scale, m=6, p=3, box=1.0) -> GatedCell:
    g = 4 if kind == "lstm" else 3
    w = [scale * rng.normal(size=s) for s in ((g * m, p), (g * m, m), g * m, g * m)]
    return GatedCell(kind, *w, -box, box, reset_after=reset_after)


def points(cell, box, rng, count=200):
    """States in the box and inputs in theirs, many of them corners."""
    states = rng.uniform(box.low, box.high, size=(count, cell.states))
    inputs = rng.uniform(-1, 1, size=(count, cell.inputs))
    corner = rng.random((count, cell.states)) < 0.5
    states[::2] = np.where(corner, box.low, box.high)[::2]
    inputs[::3] = np.sign(inputs[::3])
    return states, cell.input_low + 0.5 * (inputs + 1) * (cell.input_high - cell.input_low)


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_the_box_is_left_by_no_step_and_bounds_every_gate(kind, reset_after, scale, rng):
    cell = random_cell(kind, reset_after, rng, scale)
    box = invariant_box(cell)
    assert is_invariant(cell, box)
    states, inputs = points(cell, box, rng)
    following = cell.advance(states, inputs)
    assert (following >= box.low).all()
    assert (following <= box.high).all()
    parts, bounds = cell._parts(states, inputs), gate_bounds(cell, box)
    for name in set(parts) & set(bounds):
        assert (parts[name] >= bounds[name].low - 1e-14).all(), name
        assert (parts[name] <= bounds[name].high + 1e-14).all(), name


def test_a_box_that_is_too_small_is_not_invariant(rng):
    cell = random_cell("gru", True, rng, 0.5)
    box = invariant_box(cell)
    assert not is_invariant(cell, Interval(0.5 * box.low, 0.5 * box.high))
    assert not is_invariant(cell, Interval(box.low + 10, box.high + 10))


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_every_trajectory_enters_the_box(kind, reset_after, scale, rng):
    cell = random_cell(kind, reset_after, rng, scale, m=3)
    box = invariant_box(cell)
    assert absorbs(cell, box)
    x = rng.uniform(-1.0, 1.0, size=(50, cell.states))
    x[:, cell.hidden :] *= 100.0  # any c
    x[::2, : cell.hidden] = np.sign(x[::2, : cell.hidden])
    missing = np.ones(50, bool)
    for _ in range(4000):
        x = cell.advance(x, np.sign(rng.normal(size=(50, cell.inputs))))
        inside = ((box.low <= x) & (x <= box.high)).all(axis=1)
        missing &= ~inside
        if not missing.any():
            break
    assert not missing.any()


def latch(weight=4.0) -> GatedCell:
    """n = tanh(weight h), z = 1/2: three equilibria for a weight above one, one below."""
    w_hh = np.array([[0.0], [0.0], [weight]])
    return GatedCell("gru", np.zeros((3, 1)), w_hh, np.array([50.0, 0.0, 0.0]), input_low=-1.0, input_high=1.0)


def test_a_box_around_one_of_several_attractors_absorbs_nothing():
    """The box |h| <= r of the latch is absorbing exactly where its equilibria +-h* lie inside."""
    h = 0.9
    for _ in range(200):
        h = float(np.tanh(4 * h))
    for r, absorbing in ((h + 1e-6, True), (h - 1e-6, False), (0.5, False), (1.0, True)):
        assert absorbs(latch(), Interval(np.full(1, -r), np.full(1, r))) is absorbing, r
    assert not absorbs(latch(), Interval(np.full(1, -1.0), np.full(1, 0.5)))
    assert not absorbs(latch(), Interval(np.full(1, -0.5), np.full(1, 1.0)))
    for r, absorbing in ((1e-3, True), (1e-12, False)):
        assert absorbs(latch(0.9), Interval(np.full(1, -r), np.full(1, r)), sweeps=200) is absorbing, r


def test_the_cell_state_enters_where_its_gates_let_it_settle():
    """f <= sigma(1), i g <= 1/2 tanh(1): c ends within tanh(1) / 2 / (1 - sigma(1))."""
    w_ih, b = np.array([[0.0], [0.0], [1.0], [0.0]]), np.array([0.0, 1.0, 0.0, 0.0])
    cell = GatedCell("lstm", w_ih, np.zeros((4, 1)), b, input_low=-1.0, input_high=1.0)
    c = 0.5 * np.tanh(1.0) * (1 + np.e)
    h = 0.5 * np.tanh(c)
    for dh, dc, absorbing in ((1e-9, 1e-9, True), (-1e-9, 1e-9, False), (1e-9, -1e-9, False)):
        high = np.array([h + dh, c + dc])
        assert absorbs(cell, Interval(-high, high)) is absorbing, (dh, dc)
    assert not absorbs(cell.with_inputs(-1.0, 1.1), Interval(-np.array([h, c]) - 1e-9, np.array([h, c]) + 1e-9))


def test_a_gate_that_may_keep_its_state_for_ever_absorbs_nothing():
    whole = Interval(-np.ones(1), np.ones(1))
    w_ih = np.array([[0.0], [1.0], [0.0]])
    keeps = GatedCell("gru", w_ih, np.zeros((3, 1)))
    assert not absorbs(keeps, whole)
    assert absorbs(keeps.with_inputs(-1.0, 1.0), whole)
    assert not absorbs(
        GatedCell("lstm", np.ones((4, 1)), np.zeros((4, 1))), Interval(-np.ones(2) * 1e9, np.ones(2) * 1e9)
    )


@pytest.mark.parametrize("kind", ["interval_jacobian", "interval_lmi"])
def test_no_certificate_on_a_small_box_of_a_bistable_cell(kind):
    """Around 0 the steep reset gate makes the cell calm; far out it holds +-h for ever."""
    w_hh = np.array([[40.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [9.0, 0.0], [0.0, 0.1]])
    b = np.array([-10.0, 0.0, -1.0, -1.0, 0.0, 0.0])
    cell = GatedCell("gru", np.zeros((6, 1)), w_hh, b, input_low=-1.0, input_high=1.0)
    x = np.array([[1.0, 0.0], [0.01, 0.0]])
    for _ in range(300):
        x = cell.advance(x, np.zeros((2, 1)))
    assert x[0, 0] > 0.5 > 1e-6 > abs(x[1, 0])  # two attractors
    r = np.full(2, 0.02)
    assert is_invariant(cell, Interval(-r, r))
    d = np.ones(2)
    rate = float(JacobianBound(cell, Interval(-r, r)).apply(d).max()) * (1 + 1e-9)
    assert rate < 1
    data = {"low": -r, "high": r, "rate": rate}
    if kind == "interval_jacobian":
        data |= {"d": d, "overshoot": 1.0 + 1e-12}
    else:
        data |= {"P": np.eye(2), "L": np.ones(8), "overshoot": 1.01, "p_min": 0.999, "p_max": 1.001}
    from stability.kernel.format.theorem_table import worded

    draft = Claim("contraction", "", Verdict.CERTIFIED, Proof(kind, data), rate)
    claim = worded(cell, draft)
    assert "|h| <= 0.02" in claim.statement
    checked = verify_claim(cell, claim)
    assert not checked.valid
    assert "every trajectory" in checked.reason


def test_the_size_of_the_box_stands_in_the_sentence():
    b = np.array([0.0, 1.0, 0.0, 0.0])
    cell = GatedCell(
        "lstm", np.array([[0.0], [0.0], [1.0], [0.0]]), np.zeros((4, 1)), b, input_low=-1.0, input_high=1.0
    )
    claim, _ = fastest_gated_claim(cell, [interval_criterion(cell)])
    c = 0.5 * np.tanh(1.0) * (1 + np.e)
    assert c < 1.4160 < c + 1e-3
    assert f"|h| <= {0.5 * np.tanh(c) + 5e-5:.4f}" in claim.statement
    assert "|c| <= 1.416 in every entry" in claim.statement
    assert "from |h| <= 1 and any c" in claim.statement
    assert "under every input with entries in [-1, 1]" in claim.statement


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_the_jacobian_bound_holds_and_is_not_loose(kind, reset_after, scale, rng):
    cell = random_cell(kind, reset_after, rng, scale)
    box = invariant_box(cell)
    d = rng.uniform(0.1, 1.0, size=cell.states)
    bound = JacobianBound(cell, box).apply(d)
    rows = np.array([np.abs(cell.jacobian(x, u)) @ d for x, u in zip(*points(cell, box, rng))])
    assert (rows <= bound).all()
    assert (rows.max(axis=0) >= 0.2 * bound).any()


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_differences_of_trajectories_satisfy_the_embedding(kind, reset_after, rng):
    """For two states there are slopes in the intervals that map their difference to that of the next states."""
    cell = random_cell(kind, reset_after, rng, 0.7, m=1, p=1)
    box = invariant_box(cell)
    system = embedding(cell, box)
    states, inputs = points(cell, box, rng, 40)
    for x, y, u in zip(states, states[::-1], inputs):
        gap = cell.advance(x, u) - cell.advance(y, u)
        corners = np.array(np.meshgrid(*zip(system.alpha, system.beta), indexing="ij")).reshape(system.channels, -1).T
        images = np.array([system.jacobian(k) @ (x - y) for k in corners])
        # the reachable set contains the exact image; each entry lies between those of the corners
        assert (gap >= images.min(axis=0) - 1e-12).all()
        assert (gap <= images.max(axis=0) + 1e-12).all()


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_simulation_never_contradicts_a_certificate(kind, reset_after, seed):
    rng = np.random.default_rng(seed)
    cell = random_cell(kind, reset_after, rng, 0.1, m=5)
    for finding in gated_findings(cell):
        assert finding.holds, finding.detail
        claim, _ = fastest_gated_claim(cell, [finding])
        data = claim.proof.data
        order = np.inf if claim.proof.kind == "interval_jacobian" else 2
        x, y = (rng.uniform(data["low"], data["high"], size=(300, cell.states)) for _ in range(2))
        x[::2] = np.where(rng.random(x.shape) < 0.5, data["low"], data["high"])[::2]
        start = np.linalg.norm(x - y, order, axis=1)
        for k in range(1, 40):
            u = rng.uniform(-1, 1, size=(300, cell.inputs))
            u[::2] = np.sign(u[::2])
            x, y = cell.advance(x, u), cell.advance(y, u)
            gap = np.linalg.norm(x - y, order, axis=1)
            assert (gap <= data["overshoot"] * data["rate"] ** k * start * (1 + 1e-9) + 1e-15).all()
        if order == np.inf:  # in its own norm every single step contracts
            x, y = (rng.uniform(data["low"], data["high"], size=(300, cell.states)) for _ in range(2))
            before = np.abs((x - y) / data["d"]).max(axis=1)
            after = np.abs((cell.advance(x, u) - cell.advance(y, u)) / data["d"]).max(axis=1)
            assert (after <= data["rate"] * before * (1 + 1e-12)).all()


# ---- the published conditions, written out as in their papers -------------------------------------------------


def bound_of(cell: GatedCell, name: str) -> float:
    """``||[W U b]||_inf`` of one gate."""
    w, u, b, c = cell.gate(name)
    return float((np.abs(w).sum(1) + np.abs(u).sum(1) + np.abs(b + c)).max())


def published_lstm(cell: GatedCell) -> bool:
    """Terzi, Bonassi, Farina, Scattolini 2021: the 2 x 2 matrix of delta-ISS is Schur."""
    f, i, o = (sigmoid(np.float64(bound_of(cell, k))) for k in "fio")
    c = np.tanh(bound_of(cell, "g"))
    norm = {k: np.linalg.norm(cell.gate(k)[1], 2) for k in "ifgo"}
    alpha = 0.25 * norm["f"] * i * c / (1 - f) + i * norm["g"] + 0.25 * norm["i"] * c
    matrix = np.array([[f, alpha], [o * f, alpha * o + 0.25 * np.tanh(i * c / (1 - f)) * norm["o"]]])
    return bool(np.abs(np.linalg.eigvals(matrix)).max() < 1)


def published_gru(cell: GatedCell) -> bool:
    """Bonassi, Farina, Scattolini 2021, theorem 2 (the reset gate acts on the state)."""
    z, f, phi = (
        sigmoid(np.float64(bound_of(cell, "z"))),
        sigmoid(np.float64(bound_of(cell, "r"))),
        np.tanh(bound_of(cell, "n")),
    )
    norm = {k: np.abs(cell.gate(k)[1]).sum(1).max() for k in "rzn"}
    return bool(norm["n"] * (0.25 * norm["r"] + f) < 1 - 0.25 * (1 + phi) / (1 - z) * norm["z"])


def at_the_boundary(kind, condition, rng, spread, fraction=0.98) -> GatedCell:
    """A random cell scaled to where the published condition just holds."""
    g, m, p = (4, 5, 2) if kind == "lstm" else (3, 5, 2)
    parts = [rng.normal(size=s) * f for s, f in zip(((g * m, p), (g * m, m), g * m), spread)]

    def make(scale):
        return GatedCell(kind, *(scale * w for w in parts), input_low=-1, input_high=1, reset_after=False)

    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if condition(make(middle)) else (low, middle)
    return make(fraction * low)


@pytest.mark.parametrize("spread", [(1.0, 1.0, 1.0), (0.1, 1.0, 0.1), (1.0, 0.3, 0.0)])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_never_weaker_than_the_published_conditions(kind, spread, rng):
    condition = published_lstm if kind == "lstm" else published_gru
    cell = at_the_boundary(kind, condition, rng, spread)
    assert condition(cell)
    findings = gated_findings(cell, rate="any")
    assert any(f.holds for f in findings), [f.detail for f in findings]


def test_certified_where_the_published_conditions_fail(rng):
    for kind, condition in (("lstm", published_lstm), ("gru", published_gru)):
        cell = at_the_boundary(kind, condition, rng, (1.0, 1.0, 1.0), fraction=1.1)
        assert not condition(cell)
        assert any(f.holds for f in gated_findings(cell, rate="any"))


# ---- certificates as files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_a_certificate_survives_its_file(kind, reset_after, tmp_path, rng):
    cell = random_cell(kind, reset_after, rng, 0.1)
    certificate = certify(cell)
    assert certificate.verdict is Verdict.CERTIFIED
    checked = verify(certificate.save(tmp_path / "c.json"))
    assert checked.valid, checked.reason
    assert "under every input with entries in [-1, 1]: every trajectory from" in certificate.claim.statement
    again = Certificate.load(tmp_path / "c.json")
    assert again.rate == certificate.rate < 1


def tampered(cell, finding):
    claim, _ = fastest_gated_claim(cell, [finding])
    data = dict(claim.proof.data)
    yield "a faster rate", cell, {**data, "rate": data["rate"] - 0.05}, data["rate"] - 0.05
    yield "a rate above one", cell, {**data, "rate": 1.5}, 1.5
    yield "a rate of another claim", cell, data, 0.5
    yield "a smaller overshoot", cell, {**data, "overshoot": 0.5 * data["overshoot"]}, data["rate"]
    yield "a smaller box", cell, {**data, "low": 0.5 * data["low"], "high": 0.5 * data["high"]}, data["rate"]
    yield "a box of another size", cell, {**data, "low": data["low"][1:]}, data["rate"]
    yield "a box upside down", cell, {**data, "low": data["high"], "high": data["low"]}, data["rate"]
    yield "wider inputs", cell.with_inputs(-9, 9), data, data["rate"]
    yield "any input", cell.with_inputs(None, None), data, data["rate"]
    key = "d" if "d" in data else "P"
    yield "no weights", cell, {k: v for k, v in data.items() if k != key}, data["rate"]
    yield "negative weights", cell, {**data, key: -data[key]}, data["rate"]
    yield "another subject", LureSystem.linear([[0.1]], 1.0), data, data["rate"]


@pytest.mark.parametrize("criterion", [interval_criterion, interval_lmi_criterion])
def test_tampered_proofs_are_refused(criterion, rng):
    cell = random_cell("gru", True, rng, 0.1)
    finding = criterion(cell)
    claim, _ = fastest_gated_claim(cell, [finding])
    from stability.kernel.format.theorem_table import RULES, worded

    assert verify_claim(cell, claim).valid
    for name, subject, data, value in tampered(cell, finding):
        draft = Claim("contraction", "", Verdict.CERTIFIED, Proof(claim.proof.kind, data), value)
        about = subject if isinstance(subject, GatedCell) else cell
        bent = worded(about, draft)
        assert not verify_claim(subject, bent).valid, name
    assert set(RULES) >= {"interval_jacobian", "interval_lmi", "gated_orbits", "cascade"}
    assert not verify_claim(cell, replace(claim, statement="It is stable.")).valid


def test_unbounded_inputs_are_inconclusive_and_say_what_to_do(rng):
    cell = random_cell("lstm", True, rng, 0.01).with_inputs(None, None)
    finding = interval_criterion(cell)
    assert not finding.holds
    assert "box" in finding.detail
    assert interval_criterion(cell.with_inputs(-1, 1)).holds


def test_huge_weights_are_answered(rng):
    for scale in (1e3, 1e150, 1e300):
        cell = random_cell("lstm", True, rng, scale)
        assert not interval_criterion(cell).holds
        gru = random_cell("gru", True, rng, scale)
        assert not interval_criterion(gru).holds


@pytest.mark.parametrize("bad", [(1, -1), (0, None), ("a", "b"), (np.nan, 1)])
def test_bad_input_boxes(bad, rng):
    with pytest.raises(ValueError, match=r"box|input"):
        random_cell("gru", True, rng, 0.1).with_inputs(*bad)


def test_other_subjects_and_options(rng):
    with pytest.raises(UnsupportedError):
        interval_criterion(LureSystem.linear([[0.5]], 1.0))
    with pytest.raises(UnsupportedError):
        certify(random_cell("gru", True, rng, 0.1), criterion="circle")


def test_a_rate_that_is_asked_for_is_reached_or_said_not_to_be(rng):
    cell = random_cell("gru", True, rng, 0.1)
    best = certify(cell).rate
    assert certify(cell, rate=0.5 * (1 + best)).rate <= 0.5 * (1 + best)
    beyond = certify(cell, rate=0.5 * best, refute=False)
    assert beyond.verdict is Verdict.CERTIFIED
    assert beyond.rate == pytest.approx(best, rel=1e-9)
    assert beyond.meta["asked_rate_reached"] is False
    assert certify(cell, rate="any").verdict is Verdict.CERTIFIED


def test_no_eigenvalue_problem_begins_for_which_the_time_left_is_too_short(rng, monkeypatch):
    """One of 512 states takes seconds and cannot be stopped half-way."""
    cell = random_cell("lstm", True, rng, 0.05, m=256)
    assert invariant_box(cell) is not None

    def refuse(*_):
        raise AssertionError("an eigenvalue problem was begun")

    monkeypatch.setattr(np.linalg, "eigvals", refuse)
    found = interval_lmi_criterion(cell, time_limit=1.0)
    assert found.detail == TOO_LATE
    with pytest.raises(AssertionError, match="was begun"):
        interval_lmi_criterion(cell)
