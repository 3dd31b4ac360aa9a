"""A registered layer without a system or recurrent matrices is trained, measured and certified as inconclusive."""

from __future__ import annotations

import numpy as np
import torch

from stability import Certificate, certify
from stability.analysis import (
    SpectrumTracker,
    lyapunov_exponents,
    norm_drift,
    pgd,
    task_from_arrays,
    train,
)
from stability.models import SequenceModel, Stack, load

from .every_layer import GatedLinearRNN, own_layers  # noqa: F401 - a fixture


def test_a_layer_without_a_system_is_trained_measured_and_undecided(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5, 3)).astype(np.float32), rng.integers(0, 2, 40)
    model = SequenceModel(GatedLinearRNN(3, 8), 2)
    before = model.head.weight.detach().clone()
    train(model, task_from_arrays(x, y), epochs=1, out=tmp_path / "run")
    assert not torch.equal(model.head.weight, before)

    for subject in (model, model.layer, load(tmp_path / "run" / "model.safetensors"), Stack([model.layer])):
        certificate = certify(subject)
        assert str(certificate.verdict) == "inconclusive"
        assert "no theorem covers" in certificate.findings[0].detail
    certificate.save(tmp_path / "certificate.json")
    assert Certificate.load(tmp_path / "certificate.json").verdict is certificate.verdict
    assert certificate.evidence == "none"

    tracker = SpectrumTracker(model)
    tracker.record()
    assert tracker.frame().empty
    x, y = torch.tensor(x), torch.tensor(y)
    assert norm_drift(model, x).mean.shape == (1, 5)
    assert np.isfinite(lyapunov_exponents(model, x[:2]).exponents).all()
    assert pgd(model, x.clamp(0, 1), y, epsilon=0.1).norms.max() <= 0.1001
