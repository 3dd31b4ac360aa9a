"""Growth of differences along test sequences, and the fastest directions of products of Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import certify
from stability.analysis import lyapunov_exponents
from stability.analysis.dynamics import lyapunov
from stability.analysis.dynamics.growth import local_growth
from stability.analysis.unroll import step_jacobians
from stability.errors import DimensionError, NonFiniteError
from stability.models import LRU, LSTM, ContractingRNN, ElmanRNN, HouseholderRNN, LipschitzRNN, RotRNN, SequenceModel


def jacobians(layer: ElmanRNN, x: torch.Tensor) -> np.ndarray:
    """``(batch, steps, n, n)`` of ``h+ = tanh(W h + U x + b)``, by its formula."""
    W, U, b = (p.detach().double().numpy() for p in (layer.weight_hh, layer.weight_ih, layer.bias))
    h, out = np.zeros((len(x), len(W))), []
    for u in x.double().numpy().transpose(1, 0, 2):
        h = np.tanh(h @ W.T + u @ U.T + b)
        out.append((1 - h**2)[:, :, None] * W)
    return np.stack(out, 1)


def test_every_number_is_that_of_the_jacobians_by_hand() -> None:
    torch.manual_seed(0)
    layer, x = ElmanRNN(2, 4), torch.randn(3, 5, 2)
    J = jacobians(layer, x)
    found = local_growth(layer, x, spectra=15)
    np.testing.assert_allclose(found.stretch, np.linalg.norm(J, 2, axis=(2, 3)), rtol=1e-9)
    grown = np.linalg.norm(J, 2, axis=(2, 3))[:, 0]
    for k in range(3):
        v = np.linalg.svd(J[k, 0])[2][0]
        sizes = []
        for step in J[k]:
            v = step @ v
            sizes.append(np.linalg.norm(v))
            v = v / sizes[-1]
        assert sizes[0] == pytest.approx(grown[k])
        np.testing.assert_allclose(found.exponents[k], np.log(sizes), rtol=1e-8)
    np.testing.assert_allclose(np.sort(np.abs(found.spectra).ravel()), np.sort(np.abs(np.linalg.eigvals(J)).ravel()))
    assert found.worst[0] == np.argmax(found.exponents.mean(1))
    table = found.frame()
    assert table[(table.sequence == 2) & (table.t == 4)].stretch.item() == found.stretch[2, 3]


def test_shares_count_steps_and_sequences() -> None:
    layer = ElmanRNN(1, 2)
    with torch.no_grad():
        layer.weight_hh.copy_(
            torch.tensor([[0.0, 2.0], [0.1, 0.0]])
        )  # stretches by 2 in every step, and shrinks in two
        layer.weight_ih.zero_()
        layer.bias.zero_()
    found = local_growth(layer, torch.zeros(2, 10, 1))
    assert found.stretching == 1.0
    assert found.growing == 0.5
    assert found.grown == 0.0
    assert found.exponents.mean() == pytest.approx(0.5 * np.log(0.2))


def test_what_keeps_norms_neither_grows_nor_stretches() -> None:
    torch.manual_seed(0)
    layer = HouseholderRNN(2, 8, reflections=4)
    found = local_growth(layer, torch.rand(3, 12, 2))
    assert found.stretch.max() == pytest.approx(1.0, abs=1e-9)
    assert found.stretching == found.growing == 0.0


def test_no_product_of_growth_goes_beyond_the_proof() -> None:
    torch.manual_seed(1)
    layer = ContractingRNN(1, 6, rate=0.7)
    certificate = certify(layer)
    found = local_growth(layer, torch.randn(5, 40, 1))
    assert certificate.rate is not None
    assert certificate.overshoot is not None
    along = found.exponents.cumsum(1)
    bound = np.log(certificate.overshoot) + np.log(certificate.rate) * np.arange(1, 41)
    assert (along <= bound + 1e-9).all()
    assert found.grown == 0.0


def test_the_mean_exponent_comes_near_the_largest_lyapunov_exponent() -> None:
    torch.manual_seed(2)
    model = SequenceModel(LipschitzRNN(2, 6), 3)
    x = torch.randn(2, 400, 2)
    mine = local_growth(model, x).exponents[:, 40:].mean(1)
    np.testing.assert_allclose(mine, lyapunov_exponents(model, x, 1).trajectories[:, 0], atol=5e-3)


def test_the_state_of_an_lstm_is_the_complete_one() -> None:
    found = local_growth(LSTM(2, 3), torch.rand(2, 4, 2))
    assert found.states == 6
    assert found.spectra.shape == (8, 6)
    assert list(found.eigenvalues(np.array([1j])).what.unique()) == ["data", "slope"]


def test_bad_input() -> None:
    with pytest.raises(DimensionError):
        local_growth(ElmanRNN(2, 3), torch.zeros(0, 4, 2))
    layer = ElmanRNN(2, 3, activation="relu")
    with torch.no_grad():
        layer.weight_hh.fill_(1e200) if layer.weight_hh.dtype == torch.float64 else layer.weight_hh.fill_(1e30)
    with pytest.raises(NonFiniteError):
        local_growth(layer, torch.ones(1, 60, 2) * 1e20)


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
