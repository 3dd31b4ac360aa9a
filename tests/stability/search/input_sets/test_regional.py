"""Regional certificates: in the region pairs obey the rate and nobody leaves; outside nothing is claimed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activation_bounds import slope_range
from stability.kernel.format.claims import Verdict
from stability.kernel.format.sentences import at_least
from stability.kernel.reachability.ellipsoid_region import region_bounds
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.kernel.theorems.regional_lmi import regional_system
from stability.search.counterexamples.counterexample_search import refute
from stability.search.input_sets.regional import _equilibrium, regional
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.simulation import advance_batch
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify, verify_claim


def network(rng, form, n=4):
    """A neural ODE or an antisymmetric network (A = 0), or its Euler or midpoint map."""
    W = rng.normal(size=(n, n)) / np.sqrt(n) - 1.5 * np.eye(n)
    system = LureSystem.recurrent(np.zeros((n, n)), W)
    if form == "antisymmetric":
        system = LureSystem.recurrent(np.zeros((n, n)), W - W.T - 0.3 * np.eye(n)).euler(0.1)
    elif form != "continuous":
        system = system.discretise(form, 0.1)
    copies = system.channels // n
    E, b = np.tile(rng.normal(size=(n, 2)), (copies, 1)), np.tile(0.3 * rng.normal(size=n), copies)
    return DrivenSystem(system, "tanh", E, b)


def inside(claim, rng, count):
    """Random states of the ellipsoid, half of them on its boundary."""
    data = claim.proof.data
    directions = rng.normal(size=(count, len(data["centre"])))
    sizes = np.sqrt(np.einsum("ij,jk,ik->i", directions, data["P"], directions))
    radii = np.where(np.arange(count) % 2, 1.0, rng.random(count)) * np.sqrt(data["level"])
    return data["centre"] + directions / sizes[:, None] * radii[:, None]


@pytest.mark.parametrize("form", ["continuous", "euler", "midpoint", "antisymmetric"])
@pytest.mark.parametrize("input_bound", [0.0, 0.002])
def test_rate_and_invariance_hold_in_simulation(rng, form, input_bound):
    driven = network(rng, form)
    claim = regional(driven, input_bound=input_bound)
    assert claim.verdict is Verdict.CERTIFIED
    assert verify_claim(driven, claim).valid
    data, discrete = claim.proof.data, driven.system.is_discrete
    x = np.stack([inside(claim, rng, 40), inside(claim, rng, 40)])
    first, step = np.linalg.norm(x[0] - x[1], axis=1), 1.0 if discrete else 0.02
    for k in range(1, 300):
        u = data["input"] + input_bound * np.sign(rng.normal(size=(40, 2)))
        x = advance_batch(driven, x, np.broadcast_to(u, (2, 40, 2)), step)
        gaps = np.linalg.norm(x[0] - x[1], axis=1)
        decay = data["rate"] ** k if discrete else np.exp(-data["rate"] * step * k)
        assert (gaps <= data["overshoot"] * decay * first * (1 + 1e-6) + 1e-12).all()
        d = x - data["centre"]
        assert (np.einsum("aij,jk,aik->ai", d, data["P"], d) <= data["level"] * (1 + 1e-6)).all()


def test_it_says_what_the_global_claim_cannot(rng):
    """The same network has no global rate (A = 0), and its map is refuted; the region is another claim."""
    driven = network(rng, "continuous")
    assert refute(driven).found
    claim = regional(driven)
    assert claim.verdict is Verdict.CERTIFIED
    assert "nothing is said about states outside" in claim.statement
    assert at_least(claim.value) in claim.statement


def test_scalar_region_is_nearly_the_largest_there_is():
    """``dh/dt = -tanh(h)``: rate 1/4 holds where ``sech^2 h >= 1/4``: ``|h| <= atanh(sqrt(3) / 2)``."""
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
    claim = regional(driven, rate=0.25)
    exact = np.arctanh(np.sqrt(0.75))
    assert 0.97 * exact < claim.proof.data["radius"] <= exact * (1 + 1e-9)


def test_a_region_is_a_claim_on_request_that_a_certificate_can_hold(rng, tmp_path):
    driven = network(rng, "continuous")
    found = certify(driven)
    assert "regional" not in {claim.name for claim in found.claims}
    with_region = dataclasses.replace(found, claims=(*found.claims, regional(driven)))
    assert verify(with_region.save(tmp_path / "c.json")).valid


def test_slower_rates_have_larger_regions():
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
    radii = [regional(driven, rate=rate).proof.data["radius"] for rate in (0.8, 0.5, 0.2)]
    assert radii[0] < radii[1] < radii[2]


def test_unstable_equilibrium_has_no_region():
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[1.0]]), "tanh", [[1.0]])
    claim = regional(driven)
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert "not stable" in claim.statement


def test_bistable_network_contracts_around_one_of_its_equilibria():
    driven = DrivenSystem(LureSystem.recurrent([[-1.0]], [[3.0]]), "tanh", [[1.0]])
    claim = regional(driven)
    assert claim.verdict is Verdict.CERTIFIED
    assert verify_claim(driven, claim).valid
    assert abs(claim.proof.data["centre"][0]) > claim.proof.data["radius"]  # the unstable one, 0, is not in it


@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_no_region_has_a_rate_beyond_the_equilibrium_itself(rate):
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
    assert regional(driven, rate=rate).verdict is Verdict.INCONCLUSIVE


def test_inputs_that_move_too_much():
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
    assert regional(driven, input_bound=0.05).verdict is Verdict.CERTIFIED
    assert regional(driven, input_bound=50.0).verdict is Verdict.INCONCLUSIVE


def test_where_the_input_puts_the_equilibrium(rng):
    driven = network(rng, "continuous")
    u = np.array([0.2, -0.1])
    claim = regional(driven, input=u)
    centre = claim.proof.data["centre"]
    assert np.abs(driven.advance(centre, u)).max() < 1e-9
    assert np.array_equal(claim.proof.data["input"], u)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "leaky_relu", "identity", "saturation", "deadzone"])
def test_slope_ranges_contain_difference_quotients(rng, name):
    from stability.kernel.arithmetic.activations import activation

    phi = activation(name).function
    for _ in range(100):
        centre, reach = rng.normal(size=5) * 3, rng.random(5) * 10.0 ** rng.uniform(-3, 1)
        low, high = slope_range(name, centre, reach)
        s, t = centre + reach * rng.uniform(-1, 1, (2, 5))
        quotient = (phi(s) - phi(t)) / (s - t)
        assert (low <= quotient + 1e-7).all()
        assert (quotient <= high + 1e-7).all()
        bottom, top = activation(name).slope
        assert (low >= bottom).all()
        assert (high <= top).all()


def test_bounds_over_the_region_contain_samples(rng):
    for form in ("continuous", "euler", "midpoint"):
        driven = network(rng, form)
        n = driven.system.states
        S = rng.normal(size=(n, n))
        P = np.eye(n) + S @ S.T
        P = 0.5 * (P + P.T)
        centre, u, level, bound = rng.normal(size=n), rng.normal(size=2), 0.7, 0.3
        region = region_bounds(driven, P, 0.99 * np.linalg.eigvalsh(P)[0], level, centre, u, bound)
        for _ in range(200):
            d = rng.normal(size=n)
            x = centre + d * np.sqrt(level / (d @ P @ d)) * rng.random() ** 0.1
            v = u + bound * rng.uniform(-1, 1, 2)
            assert (np.abs(driven.channel(x, v) - region.centre) <= region.reach).all()
            still = driven.advance(centre, v) - (centre if driven.system.is_discrete else 0.0)
            assert (np.abs(still) <= region.drift).all()
        inner = regional_system(driven.system, region.low, region.high)
        assert (inner.alpha <= region.low).all()
        assert (inner.beta >= region.high).all()


def test_the_inequality_does_not_hold_without_the_region(rng):
    driven = network(rng, "continuous")
    data = regional(driven).proof.data
    assert not check_lmi(driven.system, data["P"], data["L"], data["rate"])[0]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"input": [1.0, 2.0, 3.0]}, DimensionError),
        ({"input": "x"}, ConfigurationError),
        ({"input": [np.nan, 0.0]}, ConfigurationError),
        ({"input_bound": -1.0}, ConfigurationError),
        ({"input_bound": True}, ConfigurationError),
        ({"rate": 0.0}, ConfigurationError),
        ({"rate": "best"}, ConfigurationError),
        ({"time_limit": -1.0}, ConfigurationError),
    ],
)
def test_bad_options(rng, options, error):
    with pytest.raises(error):
        regional(network(rng, "continuous"), **options)


def test_subjects_without_a_region():
    assert regional(LureSystem.recurrent([[-1.0]], [[1.0]])).verdict is Verdict.INCONCLUSIVE
    linear = DrivenSystem(LureSystem.linear([[-1.0]]), "tanh", np.zeros((0, 1)))
    assert regional(linear).verdict is Verdict.INCONCLUSIVE


def test_trajectories_are_followed_only_where_rest_is_no_stable_equilibrium(monkeypatch):
    def followed(*_):
        raise AssertionError("followed")

    monkeypatch.setattr("stability.search.input_sets.regional.simulate_to_limit", followed)
    calm = DrivenSystem(_decaying(0.5), "tanh", np.zeros((2, 1)), np.zeros(2))
    found = _equilibrium(calm, np.zeros(1), 0, Deadline.from_limit(None))
    assert found is not None
    assert found[1] < 0
    wild = DrivenSystem(_decaying(2.0), "tanh", np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(AssertionError, match="followed"):
        _equilibrium(wild, np.zeros(1), 0, Deadline.from_limit(None))


def _decaying(factor):
    return LureSystem(factor * np.eye(2), 0.1 * np.eye(2), np.eye(2), dt=1.0)
