"""The region at its edge: the last accepted ones are left by no trajectory, and those a little beyond are left."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest

from stability.kernel.arithmetic.activation_bounds import slope_range
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import worded
from stability.kernel.reachability.ellipsoid_region import Region, region_bounds
from stability.kernel.theorems.regional_lmi import regional_system
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim


def claim(driven, **data) -> Claim:
    """A regional claim with the sentence that belongs to it."""
    return worded(driven, Claim("regional", "", Verdict.CERTIFIED, Proof("regional_lmi", data), data["rate"]))


def accepts(driven, **changes) -> bool:
    n, m = driven.system.states, driven.system.channels
    P, level = changes.get("P", np.eye(n)), changes.get("level", 1.0)
    values = np.linalg.eigvalsh(P)
    p_min, p_max = values[0] * (1 - 1e-9), values[-1] * (1 + 1e-9)
    data = {
        "P": P, "L": np.ones(m), "rate": 0.5, "overshoot": float(np.sqrt(p_max / p_min) * (1 + 1e-12)),
        "p_min": float(p_min), "p_max": float(p_max), "level": level, "radius": float(np.sqrt(level / p_max) * 0.999),
        "centre": np.zeros(n), "input": np.zeros(driven.inputs), "input_bound": 0.0,
    }  # fmt: skip
    return verify_claim(driven, claim(driven, **{**data, **changes})).valid


def linear(a: float, f: float, discrete: bool) -> DrivenSystem:
    """``h' = -a h + f u`` or ``h+ = (1 - a) h + f u``: the ball of radius r is invariant iff f max|u| <= a r."""
    matrix = [[1.0 - a]] if discrete else [[-a]]
    return DrivenSystem(LureSystem.linear(matrix, 1.0 if discrete else None), "identity", np.zeros((0, 1)), F=[[f]])


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("a", "f"), [(0.5, 1.0), (0.3, 2.7), (0.9, 0.01)])
def test_the_largest_input_bound_is_that_of_the_invariant_ball(a, f, discrete, exact):
    rate = (1.0 - a) * (1 + 1e-9) if discrete else a * (1 - 1e-9)
    for level in (1.0, 7.3, 1e-4):
        last = exact.bisect(
            lambda u, level=level: accepts(linear(a, f, discrete), rate=rate, level=level, input_bound=u), 0.0, 1e3
        )
        truth = a * np.sqrt(level) / f
        assert last <= truth
        assert last >= truth * (1 - 1e-7)


@pytest.mark.parametrize("discrete", [False, True])
def test_a_centre_beside_the_equilibrium_drifts(discrete, exact):
    """At the centre c the right-hand side is ``-a c``: the ball around c of radius r is invariant iff |c| <= r."""
    a = 0.5
    rate = (1.0 - a) * (1 + 1e-9) if discrete else a * (1 - 1e-9)
    for sign in (-1.0, 1.0):
        last = exact.bisect(
            lambda c, sign=sign: accepts(linear(a, 1.0, discrete), rate=rate, level=4.0, centre=np.array([sign * c])),
            0.0,
            10.0,
        )
        assert 2.0 * (1 - 1e-7) <= last <= 2.0


def test_the_metric_measures_the_drift(exact):
    """Two states with inputs of their own; in the metric P the drift's length is sqrt(F^T P F) at most ."""
    system = LureSystem.linear(-np.eye(2))
    for P in (np.diag([1.0, 9.0]), np.array([[2.0, 1.0], [1.0, 3.0]])):
        for f in ([[1.0], [0.0]], [[0.0], [1.0]], [[0.6], [0.8]]):
            driven = DrivenSystem(system, "identity", np.zeros((0, 1)), F=f)
            last = exact.bisect(
                lambda u, P=P, d=driven: accepts(d, P=P, rate=1.0 - 1e-9, level=1.0, input_bound=u), 0.0, 1e3
            )
            length = np.sqrt(np.array(f)[:, 0] @ P @ np.array(f)[:, 0])
            assert (1 - 1e-6) / length <= last <= 1.0 / length


def test_the_ball_must_fit_into_the_ellipsoid(exact):
    driven = linear(0.5, 1.0, False)
    last = exact.bisect(lambda r: accepts(driven, rate=0.4, level=9.0, radius=r), 1.0, 4.0)
    assert last <= 3.0
    assert last >= 3.0 * (1 - 1e-8)


def test_the_slopes_are_those_of_the_region(exact):
    """``h' = -h/2 + tanh(w h)`` at its stable equilibrium with w = 2: contracts near it, not as far as zero."""
    driven = DrivenSystem(LureSystem.recurrent([[-0.5]], [[2.0]]), "tanh", [[0.0]])
    h = 1.9
    for _ in range(200):
        h = 2.0 * np.tanh(2.0 * h)
    centre = np.array([h])

    def fits(radius: float) -> bool:
        # slopes in [0, s]: this multiplier is the best one
        s = 1 - np.tanh(2.0 * (h - radius)) ** 2
        return accepts(
            driven, rate=0.01, level=radius**2, centre=centre, radius=radius * 0.999, L=np.array([0.5 / max(s, 1e-3)])
        )

    last = exact.bisect(fits, 0.1, h)
    steepest = 1 - np.tanh(2.0 * (h - last)) ** 2
    assert 2.0 * steepest <= 0.49  # d/dh of the right-hand side is at most -0.01 in all of the region
    assert 2.0 * steepest >= 0.489


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_slope_ranges_enclose_and_are_tight(name, rng):
    flint.ctx.prec = 200

    def slope(z: float):
        z = flint.arb(z)
        if name == "tanh":
            return 1 - z.tanh() ** 2
        s = 1 / (1 + (-z).exp())
        return s * (1 - s)

    for centre, reach in [
        (0.0, 0.0),
        (0.0, 1.0),
        (2.0, 0.5),
        (-2.0, 0.5),
        (1.0, 3.0),
        (30.0, 1.0),
        *rng.normal(size=(20, 2)),
    ]:
        reach = abs(float(reach))
        low, high = slope_range(name, np.array([centre]), np.array([reach]))
        far, near = abs(centre) + reach, max(abs(centre) - reach, 0.0)
        assert low[0] <= float(slope(far).mid()) + 1e-18
        assert high[0] >= float(slope(near).mid()) - 1e-18
        assert low[0] >= max(float(slope(far).mid()) - 1e-14, 0.0)
        assert high[0] <= float(slope(near).mid()) + 1e-14
        assert 0.0 <= low[0] <= high[0] <= (1.0 if name == "tanh" else 0.25)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_over_the_region_enclose_what_happens_there(seed):
    """States on the ellipsoid's surface, inputs at the corners, a loop through D: reach, slopes and drift."""
    rng = np.random.default_rng(seed)
    n, m, p = 3, 2, 2
    system = LureSystem(
        rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n)), [[0.0, 0.6], [0.0, 0.0]],
        dt=1.0 if seed % 2 else None,
    )  # fmt: skip
    driven = DrivenSystem(system, "tanh", rng.normal(size=(m, p)), rng.normal(size=m), F=rng.normal(size=(n, p)))
    half = rng.normal(size=(n, n))
    P, level, bound = half @ half.T + np.eye(n), 0.4, 0.3
    P = 0.5 * (P + P.T)
    centre, inputs = rng.normal(size=n), rng.normal(size=p)
    region = region_bounds(driven, P, 0.99 * float(np.linalg.eigvalsh(P)[0]), level, centre, inputs, bound)
    directions = rng.normal(size=(400, n)) @ np.linalg.inv(np.linalg.cholesky(P))
    directions /= np.sqrt(np.einsum("ij,jk,ik->i", directions, P, directions))[:, None]
    # the farthest points for each channel are along P^-1 C^T
    along = np.vstack([np.linalg.solve(P, row) for row in system.C])
    along /= np.sqrt(np.einsum("ij,jk,ik->i", along, P, along))[:, None]
    directions = np.sqrt(level) * np.vstack([directions, along, -along])
    corners = inputs + bound * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1], [0, 0]])
    farthest = np.zeros(m)
    drift = np.zeros(n)
    for u in corners:
        still = driven.advance(centre, u) - (centre if system.is_discrete else 0.0)
        drift = np.maximum(drift, np.abs(still))
        for direction in directions:
            farthest = np.maximum(farthest, np.abs(driven.channel(centre + direction, u) - region.centre))
    assert (farthest <= region.reach).all()
    assert farthest[1] >= 0.999 * region.reach[1]  # the last channel has no loop: its reach is attained
    assert (drift <= region.drift * (1 + 1e-12)).all()
    assert (drift >= 0.4 * region.drift).all()  # it counts the steepest slope for every channel
    low, high = slope_range("tanh", region.centre, region.reach)
    assert (low == region.low).all()
    assert (high == region.high).all()


def test_a_large_condition_number_is_inside_the_reach(exact):
    """The inverse is approximate: its residual is bounded by p_min, and the reach stays above the true one."""
    size = 6
    hilbert = 1.0 / (1.0 + np.arange(size)[:, None] + np.arange(size))
    C = np.linspace(-1, 1, size)[None, :]
    system = LureSystem(-np.eye(size), np.ones((size, 1)), C)
    driven = DrivenSystem(system, "tanh", [[0.0]])
    region = region_bounds(driven, hilbert, 1e-8, 1.0, np.zeros(size), np.zeros(1), 0.0)
    inverse = flint.fmpq_mat(
        [[flint.fmpq(Fraction(x).numerator, Fraction(x).denominator) for x in row] for row in hilbert]
    ).inv()
    c = [Fraction(x) for x in C[0]]
    true = sum(
        c[i] * Fraction(int(inverse[i, j].p), int(inverse[i, j].q)) * c[j] for i in range(size) for j in range(size)
    )
    assert true <= Fraction(region.reach[0]) ** 2 <= true * Fraction(11, 10)


def test_the_radius_fits_to_the_last_bit():
    driven, rng = linear(0.5, 1.0, False), np.random.default_rng(0)
    for p_max, level in rng.uniform(1.1, 3.0, size=(20, 2)):
        root, seen = np.sqrt(level / p_max), []
        for ulps in (*range(-30, 11, 5), -200):
            radius = float(root * (1 + ulps * 2.0**-52))
            seen.append(accepts(driven, rate=0.4, level=level, p_min=0.9, p_max=p_max, overshoot=2.0, radius=radius))
            assert not seen[-1] or Fraction(radius) ** 2 * Fraction(p_max) <= Fraction(level)
        assert seen[-1]


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_the_drift_of_many_states_is_added_up_above_the_truth(turned, discrete, exact):
    """``sqrt(F^T P F) u`` against what the rate undoes, in rationals: each of sixty squares is rounded."""
    n, rng = 60, np.random.default_rng(1)
    a = 0.5 * np.eye(n) if discrete else -np.eye(n)
    driven = DrivenSystem(
        LureSystem.linear(a, 1.0 if discrete else None), "identity", np.zeros((0, 1)), F=rng.uniform(0.1, 1, (n, 1))
    )
    P = np.diag(rng.uniform(0.5, 2.0, size=n)) if turned else np.eye(n)
    rate = 0.5 + 1e-9 if discrete else 1.0 - 1e-9
    last = exact.bisect(lambda u: accepts(driven, P=P, rate=rate, input_bound=u), 0.0, 10.0)
    f = exact.of(driven.F)[:, 0]
    drift = Fraction(last) ** 2 * sum(f * exact.of(np.diagonal(P)) * f)
    room = (1 - Fraction(rate) if discrete else Fraction(rate)) ** 2
    assert room * (1 - Fraction(1, 10**10)) <= drift <= room


def test_copies_of_a_channel_share_the_slopes_of_both():
    """The midpoint rule evaluates each channel twice; its base has each once, with the wider interval."""
    base = LureSystem(-np.eye(2), np.eye(2), np.eye(2), [[0.0, 0.5], [0.0, 0.0]])
    low, high = np.array([0.2, 0.5, 0.3, 0.1]), np.array([0.6, 0.7, 0.4, 0.9])
    region = Region(np.zeros(4), np.zeros(4), low, high, np.zeros(2))
    inner = regional_system(base.midpoint(0.1), region.low, region.high)
    assert inner.alpha.tolist() == [0.2, 0.1, 0.2, 0.1]
    assert inner.beta.tolist() == [0.6, 0.9, 0.6, 0.9]
    assert inner.origin.method == "midpoint"
    for key in "ABCD":
        assert np.array_equal(getattr(inner, key), getattr(base.midpoint(0.1), key))
    one = Region(np.zeros(2), np.zeros(2), low[:2], high[:2], np.zeros(2))
    for system in (base, base.euler(0.1)):
        inner = regional_system(system, one.low, one.high)
        assert inner.alpha.tolist() == [0.2, 0.5]
        assert inner.beta.tolist() == [0.6, 0.7]


def test_what_squares_lose_by_underflow_is_not_lost(exact):
    """A centre that drifts by 1e-170, a radius of 1e-165, channels of 1e-170: none of them is nothing."""
    still = DrivenSystem(LureSystem.linear([[-1.0]]), "identity", np.zeros((0, 1)), F=[[1e-170]])
    data = {"P": np.full((1, 1), 1e30), "p_min": 9e29, "p_max": 1e30 * 1.0001, "overshoot": 2.0, "rate": 0.5}
    assert not accepts(still, **{**data, "p_max": 1e30, "p_min": 9e29}, level=5e-324, radius=1e-200, input_bound=1.0)
    data |= {"p_max": 1e30, "P": np.full((1, 1), 9.9e29)}
    assert accepts(still, **data, level=1.0, radius=9.9e-16)
    for level, radius in ((1.0, 1.01e-15), (1e-200, 1e-114), (1e-320, 1e-165)):
        assert not accepts(still, **data, level=level, radius=radius)
    small = DrivenSystem(LureSystem([[-1.0]], [[1.0]], [[1e-170]]), "relu", [[0.0]])
    region = region_bounds(small, np.eye(1), 0.9, 1.0, np.zeros(1), np.zeros(1), 0.0)
    assert region.reach[0] >= 1e-170
    assert region.low[0] == 0.0


@pytest.mark.parametrize("key", ["P", "L", "centre", "input"])
def test_data_of_a_region_have_the_sizes_of_the_network(key):
    driven = DrivenSystem(LureSystem.recurrent([[-1.0]], [[0.5]]), "tanh", [[1.0]])
    assert accepts(driven, rate=0.2, L=np.full(1, 2.0))
    data = {
        "P": np.eye(1),
        "L": np.full(1, 2.0),
        "centre": np.zeros(1),
        "input": np.zeros(1),
        "rate": 0.2,
        "level": 1.0,
    }
    data |= {"overshoot": 1.1, "p_min": 0.99, "p_max": 1.01, "radius": 0.9, "input_bound": 0.0}
    assert verify_claim(driven, claim(driven, **data)).valid
    bad = np.eye(2) if key == "P" else np.zeros(2)
    check = verify_claim(driven, claim(driven, **{**data, key: bad}))
    assert not check.valid
    assert "P, L, centre and input must be of the network's sizes" in check.reason
