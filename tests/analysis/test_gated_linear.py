"""Measurements of gated linear layers: exponents, norms and attacked radii."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from stability.analysis import local_radius, lyapunov_exponents, make_task, norm_drift, train
from stability.analysis.campaign import work
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.studies.base import verdict
from stability.analysis.sweep.training import _certified
from stability.analysis.tasks import task_from_arrays
from stability.analysis.training.logs import verdict_of
from stability.errors import UnsupportedError
from stability.models import RGLRU, S5, GatedDeltaNet, Mamba, Mamba2, MinGRU, SequenceModel


def test_exponents_are_mean_logarithms_of_the_decays():
    torch.manual_seed(0)
    layer, x = MinGRU(3, 4).double(), torch.randn(1, 12, 3).double()
    with torch.no_grad():
        z = layer.mixer.to_hidden_and_gate(layer.norm(layer.encoder(x)))[..., 4:]
        expected = torch.nn.functional.logsigmoid(-z)[0].mean(0).sort(descending=True).values
    np.testing.assert_allclose(lyapunov_exponents(layer, x, skip=0).exponents, expected.numpy(), rtol=1e-9)


@pytest.mark.parametrize("kind", [RGLRU, Mamba])
def test_windows_of_convolutions_forget_at_once(kind):
    """The directions of a window have exponents of minus infinity, those of ``h`` finite ones below zero."""
    layer, x = kind(3, 4, **({"state_size": 2} if kind is Mamba else {})), torch.randn(2, 20, 3)
    exponents = lyapunov_exponents(layer, x, skip=8).exponents
    entries = layer.states(x).shape[2]
    assert (exponents[:entries] < 0).all()
    assert np.isfinite(exponents[:entries]).all()
    assert np.isneginf(exponents[entries:]).all()


def test_reports_compute_no_jacobians_of_large_states(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "MOST_STATES", 7)
    task = task_from_arrays(np.random.default_rng(0).normal(size=(20, 5, 3)), np.arange(20) % 2)
    for hidden, fits in ((7, True), (8, False)):
        model = SequenceModel(MinGRU(3, hidden), 2)
        own = work.Work(tmp_path, model, model, task, AnalysisSettings())
        with nullcontext() if fits else pytest.raises(UnsupportedError):
            own.sequences_for_jacobians(2)


@pytest.mark.parametrize("kind", [MinGRU, RGLRU, S5])
def test_norms_have_gradients_at_every_step(kind):
    drift = norm_drift(kind(3, 4), torch.randn(5, 9, 3))
    assert (drift.grad_norm[:9] > 0).all()


def test_radii_are_attacked_where_no_certificate_covers_the_network():
    torch.manual_seed(0)
    model, x = SequenceModel(MinGRU(2, 4), 3), torch.rand(4, 5, 2)
    label = model(x).argmax(1)
    scale = torch.tensor([1.0, 2.0])
    for unit in (None, scale):
        found = local_radius(model, x, label, scale=unit)
        assert found.correct.all()
        assert (found.radius == 0).all()
        moved = torch.tensor(found.adversarial)
        assert (model.double()(moved).argmax(1) != label).all()
        size = ((moved - x) / (1 if unit is None else unit)).flatten(1).norm(dim=1)
        np.testing.assert_allclose(found.attack_radius, size.numpy(), rtol=1e-6)
        model.float()


@pytest.mark.parametrize("kind", [MinGRU, RGLRU, S5, Mamba, Mamba2, GatedDeltaNet])
def test_state_bounds_hold_for_the_norm_of_the_whole_state(kind):
    """Large, alternating and constant inputs, whose norms are those of the ball's boundary."""
    torch.manual_seed(0)
    layer = kind(3, 8).double()
    x = 1e3 * torch.randn(6, 1, 3).double() * torch.tensor([1.0, -1.0] * 40)[:, None]
    x[:3] = x[:3].abs()
    drift = norm_drift(layer, x, gradients=False)
    assert drift.envelope is not None
    assert (layer.states(x).norm(dim=2).detach().numpy() <= drift.envelope).all()


def test_a_state_bound_is_not_taken_for_contraction():
    digits = make_task("digits", limit=40, test_limit=20)
    for layers in ([MinGRU(digits.input_size, 4)], [MinGRU(digits.input_size, 4), MinGRU(4, 4)]):
        network = SequenceModel(layers, digits.output_size)
        with pytest.raises(UnsupportedError):
            train(network, digits, epochs=1, until_certified=True)
        assert verdict_of(network, None)[0] == {}
        assert verdict(network) == "no verdict"
        columns, files = _certified(network, digits, 0, {})
        assert columns["verdict"] is None
        assert "certificate.json" in files
