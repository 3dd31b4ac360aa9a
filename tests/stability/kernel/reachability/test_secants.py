"""Secant slopes: every sampled quotient lies inside, and the ends are those that are sampled."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from stability.errors import StabilityError
from stability.kernel.arithmetic.activation_bounds import secant_range, secants_between
from stability.kernel.arithmetic.activations import ACTIVATIONS, activation


def sampled(name: str, z: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    phi = activation(name).function
    v = r[:, None] * np.concatenate([np.linspace(-1.0, -1e-3, 1500), np.linspace(1e-3, 1.0, 1500)])
    k = (phi(z[:, None] + v) - phi(z)[:, None]) / v
    return k.min(axis=1), k.max(axis=1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_quotient_lies_inside_and_the_ends_are_met(name):
    rng = np.random.default_rng(5)
    z = rng.normal(size=600) * rng.choice([1e-3, 0.3, 1.0, 3.0, 9.0], 600)
    r = np.abs(rng.normal(size=600)) * rng.choice([1e-3, 0.1, 1.0, 6.0], 600) + 1e-4
    z[:5] = 0.0
    low, high = secant_range(name, z, r)
    least, most = sampled(name, z, r)
    assert (low <= least + 1e-7).all()
    assert (high >= most - 1e-7).all()
    assert (least - low).max() < 2e-3
    assert (high - most).max() < 2e-3
    grown = secant_range(name, z, 1.5 * r)
    assert (grown[0] <= low + 1e-9).all()
    assert (grown[1] >= high - 1e-9).all()


def test_the_ends_of_a_reach_of_nothing_and_of_everything():
    z = np.array([0.0, 0.7, -2.0])
    low, high = secant_range("tanh", z, np.zeros(3))
    exact = 1.0 - np.tanh(z) ** 2
    assert (low <= exact).all()
    assert (exact <= high).all()
    assert (high - low).max() < 1e-12
    low, high = secant_range("tanh", z, np.full(3, np.inf))
    assert (low == 0.0).all()
    assert high[0] == 1.0
    assert 0.5 < high[2] < 1.0
    assert [end.tolist() for end in secant_range("relu", z, np.full(3, np.inf))] == [[0.0] * 3, [1.0] * 3]


def test_an_activation_that_bends_otherwise_is_refused(monkeypatch):
    other = activation("relu").__class__("swish", np.tanh, np.tanh, (-0.1, 1.1))
    monkeypatch.setitem(ACTIVATIONS, "swish", other)
    with pytest.raises(StabilityError, match="swish"):
        secant_range("swish", np.zeros(1), np.ones(1))


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_quotients_between_two_intervals_lie_inside_and_the_ends_are_met(name):
    rng = np.random.default_rng(7)
    centre = rng.normal(size=(2, 400)) * rng.choice([1e-3, 0.3, 1.0, 4.0, 30.0], (2, 400))
    half = np.abs(rng.normal(size=(2, 400))) * rng.choice([0.0, 1e-6, 0.1, 1.0, 6.0], (2, 400))
    first, second = ((c - h, c + h) for c, h in zip(centre, half))
    low, high = secants_between(name, first, second)
    phi, share = activation(name), np.linspace(0.0, 1.0, 150)
    s, t = (a + share[:, None] * (b - a) for a, b in (first, second))
    apart = s[:, None] - t[None]
    seen = np.where(
        np.abs(apart) > 1e-4,
        (phi.function(s)[:, None] - phi.function(t)[None]) / np.where(apart == 0, 1.0, apart),
        phi.derivative(0.5 * (s[:, None] + t[None])),
    )
    least, most = seen.min(axis=(0, 1)), seen.max(axis=(0, 1))
    assert (low <= least + 1e-9).all()
    assert (high >= most - 1e-9).all()
    assert (least - low).max() < 1e-8  # corners are sampled
    assert (high - most).max() < 4e-3
    swapped = secants_between(name, second, first)
    turned = secants_between(name, *((-b, -a) for a, b in (first, second)))
    for other in (swapped, turned):
        assert np.allclose(other, (low, high), atol=1e-9)


def test_quotients_between_intervals_of_kinks_are_not_known():
    with pytest.raises(StabilityError, match="difference quotients"):
        secants_between("relu", (np.zeros(1), np.ones(1)), (np.zeros(1), np.ones(1)))


def test_no_quotient_of_tanh_is_above_the_bound_by_as_much_as_a_rounding():
    """Against 50 decimal digits, at the point where the line touches the other side."""
    points = np.geomspace(1e-4, 3.0, 60)
    _, high = secant_range("tanh", points, np.full(60, np.inf))
    _, wide = secant_range("tanh", points, 4.0 * points)
    with localcontext() as context:
        context.prec = 50

        def tanh(v: Decimal) -> Decimal:
            return ((2 * v).exp() - 1) / ((2 * v).exp() + 1)

        for z, *bounds in zip(points.tolist(), high.tolist(), wide.tolist()):
            z, w = Decimal(z), -Decimal(z) / 2
            for _ in range(60):  # the tangent from the far side: tanh(z) - tanh(w) = (1 - tanh(w)^2) (z - w)
                t = tanh(w)
                w -= (tanh(z) - t - (1 - t * t) * (z - w)) / (2 * t * (1 - t * t) * (z - w))
            for bound in bounds:
                assert (tanh(z) - tanh(w)) / (z - w) <= Decimal(bound)
