"""Measurements of gated linear layers: exponents, norms and attacked radii."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from stability.analysis import local_radius, lyapunov_exponents, norm_drift
from stability.analysis.campaign import work
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.tasks import task_from_arrays
from stability.errors import UnsupportedError
from stability.models import RGLRU, S5, Mamba, MinGRU, SequenceModel


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
