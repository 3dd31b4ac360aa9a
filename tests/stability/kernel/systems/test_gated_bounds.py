"""Bounds of gated cells against slow, obvious ones: gates that each read an input of their own, on dense grids."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.systems.gated_bounds import JacobianBound, embedding, gate_bounds, invariant_box, is_invariant
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import GATES

KINDS = [("lstm", True), ("gru", True), ("gru", False)]
ROUND = 2e-14  # what outward rounding may add to a gate


def free_cell(kind, reset_after, rng, reach=2.0) -> GatedCell:
    """One unit; gate ``k`` reads input ``k`` alone, so that the gates move independently of each other."""
    gates = len(GATES[kind])
    low = rng.uniform(-reach, reach, size=gates)
    high = low + rng.uniform(0.0, reach, size=gates)
    w_hh = rng.normal(size=(gates, 1)) * (0.8 if kind == "lstm" else 1.0)
    b = 0.3 * rng.normal(size=(2, gates))
    return GatedCell(kind, np.eye(gates), w_hh, b[0], b[1], low, high, reset_after=reset_after)


def state_box(cell, rng) -> Interval:
    a, b = rng.uniform(-1.0, 1.0, size=(2, cell.states))
    return Interval(np.minimum(a, b), np.maximum(a, b))


def sigma(x):
    return 1.0 / (1.0 + np.exp(-x))


def ends(low, high, count=9):
    return np.linspace(low, high, count)


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_gates_reach_both_ends_of_their_bounds(kind, reset_after, seed):
    rng = np.random.default_rng(seed)
    cell = free_cell(kind, reset_after, rng)
    box = state_box(cell, rng)
    bounds = gate_bounds(cell, box)
    grids = [ends(a, b, 2) for a, b in zip(box.low, box.high)] + [
        ends(a, b, 2) for a, b in zip(cell.input_low, cell.input_high)
    ]
    points = np.array(list(itertools.product(*grids)))
    parts = cell._parts(points[:, : cell.states], points[:, cell.states :])
    sharp = ("i", "f", "g", "o") if kind == "lstm" else ("r", "z", "v") if reset_after else ("r", "z")
    for name in sharp:
        seen = parts[name][:, 0]
        assert bounds[name].low[0] <= seen.min() <= bounds[name].low[0] + ROUND, name
        assert bounds[name].high[0] - ROUND <= seen.max() <= bounds[name].high[0], name
    if kind == "lstm":
        i, f, g, c, o = (bounds[k] for k in "ifgco")
        products = [s * t for s in (f.low, f.high) for t in (c.low, c.high)]
        gains = [s * t for s in (i.low, i.high) for t in (g.low, g.high)]
        after = np.array([min(products)[0] + min(gains)[0], max(products)[0] + max(gains)[0]])
        t = np.tanh(after)
        h = np.array([s * y for s in (o.low[0], o.high[0]) for y in t])
        for found, low, high in (
            (Interval(bounds["next"].low[1:], bounds["next"].high[1:]), *after),
            (bounds["t"], *t),
            (Interval(bounds["next"].low[:1], bounds["next"].high[:1]), h.min(), h.max()),
        ):
            assert low - ROUND <= found.low[0] <= low + 1e-16
            assert high - 1e-16 <= found.high[0] <= high + ROUND
        return
    r, n, h = bounds["r"], bounds["n"], bounds["h"]
    w, b = cell.w_hh[2, 0], cell.b_hh[2]
    if reset_after:
        inner = [s * (w * x + b) for s in (r.low[0], r.high[0]) for x in (box.low[0], box.high[0])]
    else:
        inner = [w * (s * x) + b for s in (r.low[0], r.high[0]) for x in (box.low[0], box.high[0])]
    drive = [cell.b_ih[2] + u for u in (cell.input_low[2], cell.input_high[2])]
    low, high = np.tanh(min(inner) + min(drive)), np.tanh(max(inner) + max(drive))
    assert low - ROUND <= n.low[0] <= low + 1e-16
    assert high - 1e-16 <= n.high[0] <= high + ROUND
    assert bounds["next"].low[0] == min(n.low[0], h.low[0])
    assert bounds["next"].high[0] == max(n.high[0], h.high[0])


def row_bounds(cell, box, d, fine=41) -> np.ndarray:
    """The largest ``|J| d`` over all gate values in their bounds, each free, on a dense grid with refined ends."""
    g = gate_bounds(cell, box)
    w = {k: abs(float(cell.gate(k)[1][0, 0])) for k in GATES[cell.kind]}

    def grid(name, count=fine):
        return ends(float(g[name].low[0]), float(g[name].high[0]), count)

    if cell.kind == "lstm":
        f, i, y, o, t = (grid(k) for k in ("f", "i", "g", "o", "t"))
        c = float(g["c"].magnitude[0])
        forget = (f * d[1] + f * (1 - f) * c * w["f"] * d[0]).max()
        fresh = (i * ((1 - y[:, None] ** 2) * w["g"] + (1 - i) * np.abs(y)[:, None] * w["i"]) * d[0]).max()
        row = forget + fresh
        return np.array([(o * ((1 - t[:, None] ** 2) * row + (1 - o) * np.abs(t)[:, None] * w["o"] * d[0])).max(), row])
    r, z, n = (grid(k, 81) for k in ("r", "z", "n"))
    h = float(g["h"].magnitude[0])
    if cell.reset_after:
        v = float(g["v"].magnitude[0])
        inner = (r * w["n"] + r * (1 - r) * v * w["r"]).max() * d[0]
    else:
        inner = w["n"] * (r + r * (1 - r) * h * w["r"]).max() * d[0]
    n = np.abs(n)[:, None]
    return np.array([(z * d[0] + (1 - z) * (1 - n**2) * inner + (h + n) * z * (1 - z) * w["z"] * d[0]).max()])


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_the_jacobian_bound_is_that_of_the_grid(kind, reset_after, seed):
    rng = np.random.default_rng(100 + seed)
    cell = free_cell(kind, reset_after, rng)
    box, d = state_box(cell, rng), rng.uniform(0.2, 2.0, size=cell.states)
    bound, seen = JacobianBound(cell, box).apply(d), row_bounds(cell, box, d)
    assert (bound >= seen).all()
    assert (bound <= seen * 1.07 + 1e-12).all(), bound / seen  # 32 slices of a unit, each bounded by its ends


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_a_point_has_the_jacobian_itself(kind, reset_after, rng):
    """Over a point of states and inputs the bound is ``|J| d`` with every sign lost: equal where none cancels."""
    for _ in range(20):
        base = free_cell(kind, reset_after, rng)
        x, u = rng.uniform(-0.9, 0.9, size=base.states), rng.normal(size=base.inputs)
        cell = base.with_inputs(u, u)
        bound = JacobianBound(cell, Interval.point(x)).apply(np.ones(cell.states))
        assert (np.abs(cell.jacobian(x, u)).sum(axis=1) <= bound).all()
        assert (bound <= row_bounds(cell, Interval.point(x), np.ones(cell.states)) * (1 + 1e-9)).all()


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_every_unit_counts(kind, reset_after, rng):
    """Several units: the bound of the whole is at least the Jacobian anywhere, and monotone in ``d``."""
    gates, m = len(GATES[kind]), 3
    cell = GatedCell(
        kind,
        rng.normal(size=(gates * m, 2)),
        rng.normal(size=(gates * m, m)),
        None,
        None,
        -1,
        1,
        reset_after=reset_after,
    )
    box, d = invariant_box(cell), rng.uniform(0.5, 2.0, size=cell.states)
    bound = JacobianBound(cell, box)
    rows = bound.apply(d)
    x, u = rng.uniform(box.low, box.high, size=(500, cell.states)), np.sign(rng.normal(size=(500, 2)))
    assert all((np.abs(cell.jacobian(a, b)) @ d <= rows).all() for a, b in zip(x, u))
    for j in range(cell.states):
        more = d.copy()
        more[j] *= 1.5
        assert (bound.apply(more) >= rows * (1 - 1e-12)).all()
    np.testing.assert_allclose(bound.apply(2 * d), 2 * rows, rtol=1e-12)


# ---- boxes -----------------------------------------------------------------------------------------------------


def test_the_edge_of_an_invariant_box(exact):
    """n = tanh(w h + b) over |h| <= r stays inside exactly where tanh(w r + b) <= r (and the same below)."""
    for w, b in ((0.5, 0.3), (2.0, 0.0), (-0.7, 0.2)):
        cell = GatedCell("gru", np.zeros((3, 1)), np.array([[0.0], [0.0], [w]]), np.array([50.0, 0.0, b]))
        r = 1.0
        for _ in range(5000):
            r = np.tanh(abs(w) * r + abs(b))

        def kept(s, cell=cell):
            return is_invariant(cell, Interval(np.array([-s]), np.array([s])))

        assert kept(r + 1e-9)
        assert not kept(r - 1e-9)
    for low, high in ((0.1, 1.0), (-1.0, -0.1), (-np.inf, 1.0), (-1.0, np.inf)):
        assert not is_invariant(cell, Interval(np.array([low]), np.array([high])))
    shut = GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))
    assert is_invariant(shut, Interval(np.array([-1e-13]), np.array([1e-13])))


def test_the_box_found_is_the_least_one():
    """GRU: the fixed point of the range of n; LSTM: where f c + i g = c at the ends of the gates."""
    w, b = -0.7, 0.2
    cell = GatedCell("gru", np.zeros((3, 1)), np.array([[0.0], [0.0], [w]]), np.array([50.0, 0.0, b]))
    low, high = -1.0, 1.0
    for _ in range(500):
        low, high = min(np.tanh(w * high + b), 0.0), max(np.tanh(w * low + b), 0.0)
    box = invariant_box(cell)
    assert low - 1e-8 <= box.low[0] <= low
    assert high <= box.high[0] <= high + 1e-8
    lstm = GatedCell("lstm", np.eye(4), np.zeros((4, 1)), None, None, [-1, -1, -1, -1], [1, 2, 0.5, 1])
    f, i, o = sigma(2.0), sigma(1.0), sigma(1.0)
    c_high, c_low = i * np.tanh(0.5) / (1 - f), -i * np.tanh(1.0) / (1 - f)
    box = invariant_box(lstm)
    for found, true in zip((*box.low, *box.high), (o * np.tanh(c_low), c_low, o * np.tanh(c_high), c_high)):
        assert abs(true) <= abs(found) <= abs(true) + 1e-8
    assert invariant_box(lstm.with_inputs(None, None)) is None


# ---- the embedding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_slopes_of_the_embedding_are_the_ranges_of_the_products(kind, reset_after, seed):
    """Every channel is a product of gate values and slopes, each over its own interval: ends by enumeration."""
    rng = np.random.default_rng(200 + seed)
    cell = free_cell(kind, reset_after, rng)
    box = state_box(cell, rng)
    g, system = gate_bounds(cell, box), embedding(cell, box)

    def span(name):
        return ends(float(g[name].low[0]), float(g[name].high[0]), 401)

    def steep(name):  # s (1 - s)
        s = span(name)
        s = np.append(s, 0.5) if s[0] <= 0.5 <= s[-1] else s
        return s * (1 - s)

    def flat(name):  # 1 - y^2
        y = span(name)
        y = np.append(y, 0.0) if y[0] <= 0.0 <= y[-1] else y
        return 1 - y * y

    def product(*factors):
        pairs = [(float(np.min(x)), float(np.max(x))) for x in factors]
        corners = [float(np.prod(c)) for c in itertools.product(*pairs)]
        return min(corners), max(corners)

    h, n, z = (span(k) if k in g else None for k in ("h", "n", "z"))
    if kind == "lstm":
        expected = [
            product(span("c"), steep("f")),
            product(span("g"), steep("i")),
            product(span("i"), flat("g")),
            product(span("f")),
            product(span("o"), flat("t")),
            product(span("t"), steep("o")),
        ]
    else:
        apart = np.array([h.min() - n.max(), h.max() - n.min()])
        common = [product(z), product(apart, steep("z"))]
        keep = 1 - z
        if reset_after:
            level = product(keep, flat("n"))
            rest = [product(level, span("r")), product(level, span("v"), steep("r"))]
        else:
            rest = [product(span("r")), product(h, steep("r")), product(keep, flat("n"))]
        expected = common + rest
    for k, (low, high) in enumerate(expected):
        assert low - 1e-13 <= system.alpha[k] <= low + 1e-15, k
        assert high - 1e-15 <= system.beta[k] <= high + 1e-13, k
    assert (system.alpha <= system.beta).all()


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_the_embedding_at_a_point_is_the_jacobian(kind, reset_after, rng):
    """With every slope at its value at a point, ``B K (I - D K)^{-1} C`` is the Jacobian there."""
    gates, m = len(GATES[kind]), 3
    base = GatedCell(
        kind, rng.normal(size=(gates * m, 2)), rng.normal(size=(gates * m, m)), *rng.normal(size=(2, gates * m)),
        reset_after=reset_after,
    )  # fmt: skip
    for _ in range(5):
        x, u = rng.uniform(-0.9, 0.9, size=base.states), rng.normal(size=2)
        cell = base.with_inputs(u, u)
        system = embedding(cell, Interval.point(x))
        np.testing.assert_allclose(system.jacobian(system.beta), cell.jacobian(x, u), atol=1e-12)
        assert (system.beta - system.alpha < 1e-12).all()
        assert system.dt == 1.0
