"""Exponents over few steps: the frame begins with the directions that grow most over all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import lyapunov_exponents
from stability.analysis.dynamics import lyapunov
from stability.analysis.unroll import step_jacobians
from stability.models import LRU, ElmanRNN, RotRNN


@pytest.mark.parametrize("steps", [4, 28, 200])
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("kept", [0, 2**24])
def test_steps_that_are_normal_and_commute_have_their_eigenvalues_however_few(steps, skip, kept, monkeypatch):
    """A random frame loses half a logarithm of the number of its directions, which fewer steps show the more."""
    monkeypatch.setattr(lyapunov, "_KEPT", kept)
    torch.manual_seed(0)
    x = torch.randn(2, steps, 2)
    for layer in (LRU(2, 16), RotRNN(2, 16, heads=4)):
        prepared, state = layer.double().begin(x[:1].double())
        matrix = step_jacobians(layer, layer.drive(x[:1].double(), prepared)[:, 0], state, prepared)[0][0]
        exact = np.sort(np.log(np.abs(np.linalg.eigvals(matrix.detach().numpy()))))[::-1]
        result = lyapunov_exponents(layer, x, skip=skip)
        np.testing.assert_allclose(result.trajectories[:, :8], np.tile(exact[:8], (2, 1)), atol=1e-9)
        np.testing.assert_allclose(result.standard_error[:8], 0, atol=1e-9)
        assert lyapunov_exponents(layer, x, k=3, skip=skip).largest == pytest.approx(exact[0], abs=1e-9)
        if steps == 28:
            assert lyapunov_exponents(layer, x, skip=skip, start="random").largest < exact[0] - 1e-3


def test_a_product_beyond_the_range_of_numbers_has_its_fastest_directions():
    layer = ElmanRNN(1, 2, activation="leaky_relu").double()
    with torch.no_grad():
        layer.weight_ih.zero_()
        layer.bias.fill_(1.0)  # on the side of slope one
    for size, exact in ((1e-30, np.log(1e-30)), (0.0, -np.inf)):
        with torch.no_grad():
            layer.weight_hh.copy_(size * torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64))
        result = lyapunov_exponents(layer, torch.zeros(1, 40, 1), skip=0)
        np.testing.assert_allclose(result.exponents, exact, rtol=1e-9)
