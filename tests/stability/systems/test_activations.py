"""What proofs take for granted of every activation in the table."""

from __future__ import annotations

import numpy as np
import pytest

from stability.systems.activations import ACTIVATIONS, Activation

POINTS = np.concatenate([np.linspace(-6, 6, 241), [-1e-3, 1e-3]])


def is_of_a_known_kind(phi: Activation) -> bool:
    """Smooth with ``phi' = beta (1 - tanh(w z)^2)``, or one kink at zero between the slopes ``alpha`` and ``beta``."""
    low, high = phi.slope
    if phi.width is None:
        known = np.where(POINTS > 0, high, low)
    else:
        known = high * (1 - np.tanh(phi.width * POINTS) ** 2)
    away = np.abs(POINTS) > 1e-9
    return bool(np.allclose(phi.derivative(POINTS)[away], known[away], atol=1e-12))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_are_those_that_enclosures_and_proofs_compute_with(name: str) -> None:
    phi = ACTIVATIONS[name]
    assert is_of_a_known_kind(phi)
    quotients = np.diff(phi.function(np.sort(POINTS))) / np.diff(np.sort(POINTS))
    assert (quotients >= phi.slope[0] - 1e-9).all()
    assert (quotients <= phi.slope[1] + 1e-9).all()
    assert (np.abs(phi.function(POINTS)) <= phi.bound).all()


def test_a_function_with_two_kinks_is_of_neither_kind() -> None:
    """Its slope falls to zero again above 1, where a proof would compute with ``beta``."""
    clipped = Activation("hard", lambda z: np.clip(z, -1, 1), lambda z: (np.abs(z) < 1) * 1.0, (0.0, 1.0), 1.0)
    assert not is_of_a_known_kind(clipped)
