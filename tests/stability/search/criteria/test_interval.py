"""Certificates of gated cells: sound under simulation, no weaker than published conditions, tamper-proof."""

from __future__ import annotations

import numpy as np
import pytest

from stability.certification import certify
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
)
from stability.verification import verify_claim

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
    assert "|h_i| <= 0.02" in claim.statement
    checked = verify_claim(cell, claim)
    assert not checked.valid
    assert "every trajectory" in checked.reason


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


def test_a_rate_that_is_asked_for_is_reached_or_said_not_to_be(rng):
    cell = random_cell("gru", True, rng, 0.1)
    best = certify(cell).rate
    assert certify(cell, rate=0.5 * (1 + best)).rate <= 0.5 * (1 + best)
    beyond = certify(cell, rate=0.5 * best, refute=False)
    assert beyond.verdict is Verdict.CERTIFIED
    assert beyond.rate == pytest.approx(best, rel=1e-9)
    assert beyond.meta["asked_rate_reached"] is False
    assert certify(cell, rate="any").verdict is Verdict.CERTIFIED
