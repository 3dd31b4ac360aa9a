"""Properties of every activation in the table that proofs assume."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from stability.kernel.arithmetic.activations import ACTIVATIONS, Activation
from stability.search.counterexamples.equilibria import steep_points

POINTS = np.concatenate([np.linspace(-6, 6, 241), [-1e-3, 1e-3]])


def is_of_a_known_kind(phi: Activation) -> bool:
    """Smooth with ``phi' = beta (1 - tanh(w z)^2)``, or linear between the kinks that it names, with their slopes."""
    low, high = phi.slope
    if phi.width is None and (min(phi.pieces, default=0), max(phi.pieces, default=0)) != (low, high):
        return False
    if phi.width is None:
        known = np.array(phi.pieces)[np.searchsorted(phi.kinks, POINTS)]
    else:
        known = high * (1 - np.tanh(phi.width * POINTS) ** 2)
    away = phi.to_kink(POINTS) > 1e-9
    return bool(np.allclose(phi.derivative(POINTS)[away], known[away], atol=1e-12))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_are_those_that_enclosures_and_proofs_compute_with(name: str) -> None:
    phi = ACTIVATIONS[name]
    assert is_of_a_known_kind(phi)
    quotients = np.diff(phi.function(np.sort(POINTS))) / np.diff(np.sort(POINTS))
    assert (quotients >= phi.slope[0] - 1e-9).all()
    assert (quotients <= phi.slope[1] + 1e-9).all()
    assert (np.abs(phi.function(POINTS)) <= phi.bound).all()


def test_what_names_other_kinks_or_slopes_is_of_neither_kind() -> None:
    """The slope falls to zero again above 1, where a proof would compute with ``bound``."""
    clip, slope = (lambda z: np.clip(z, -1, 1)), (lambda z: (np.abs(z) < 1) * 1.0)
    for told in ({}, {"kinks": (0.0,), "pieces": (0.0, 1.0)}, {"kinks": (-1.0, 1.0), "pieces": (0.0, 1.0, 0.5)}):
        assert not is_of_a_known_kind(Activation("hard", clip, slope, (0.0, 1.0), 1.0, **told))


KINKED = [name for name, phi in ACTIVATIONS.items() if phi.kinks]


@pytest.mark.parametrize("name", KINKED)
def test_pieces_tell_slopes_near_rises_and_steep_places(name: str) -> None:
    phi, rng = ACTIVATIONS[name], np.random.default_rng(3)
    z, reach = rng.normal(size=400) * 2, np.abs(rng.normal(size=400)) * 10.0 ** rng.uniform(-3, 0.5, 400)
    low, high = phi.slopes_near(z, reach)
    inside = z[:, None] + reach[:, None] * np.linspace(-1, 1, 4001)
    seen = phi.derivative(inside)
    assert (low <= seen.min(axis=1)).all()
    assert (high >= seen.max(axis=1)).all()
    assert (low == seen.min(axis=1)).mean() > 0.95
    assert (high == seen.max(axis=1)).mean() > 0.95
    np.testing.assert_allclose(phi.rise(z, reach), phi.function(z + reach) - phi.function(z), atol=1e-14)
    K = np.array([*phi.slope] * 2)
    steep = steep_points(phi, K, np.array([1.0, 1.0, -1.0, -1.0]))
    assert (phi.derivative(steep) == K).all()
    assert (phi.to_kink(steep) > 0.5).all()


def test_on_both_sides_of_a_saturation_signs_choose() -> None:
    assert steep_points(ACTIVATIONS["saturation"], np.zeros(2), np.array([1.0, -1.0])).tolist() == [2.0, -2.0]
    assert steep_points(ACTIVATIONS["deadzone"], np.array([1.0, 1.0, 0.0]), np.array([1.0, -1.0, 1.0])).tolist() == [
        2,
        -2,
        0,
    ]


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_values_are_as_near_as_their_error_says(name: str) -> None:
    """Against 40 decimal digits: relative and absolute error in units of the last place of one, and not all of it 0."""
    phi, rng = ACTIVATIONS[name], np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=300), rng.uniform(-40, 40, 100)])
    relative, absolute = phi.error
    with localcontext() as context:
        context.prec = 40
        for at, value in zip(z.tolist(), phi.function(z).tolist()):
            u = (Decimal(at) * (2 if name == "tanh" else 1)).exp()
            exact = (u - 1) / (u + 1) if name == "tanh" else u / (1 + u)
            allowed = Decimal(2.0**-53) * (Decimal(relative) * abs(exact) + Decimal(absolute))
            assert abs(Decimal(value) - exact) <= allowed
