"""Layers written as ONNX: what runs is what was certified, and the file is certified with the same verdict."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.certification import certify
from stability.errors import UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.models import (
    GRU,
    ContractingRNN,
    ElmanRNN,
    LipschitzRNN,
    RotRNN,
    SequenceModel,
    export_onnx,
)
from stability.models.sources import load_subject
from stability.reports import cli
from stability.verification import verify

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402


def contracting() -> ContractingRNN:
    return ContractingRNN(3, 5)


def lipschitz() -> LipschitzRNN:
    return LipschitzRNN(3, 5, beta=0.75, gamma=1.0, dt=0.1)


def cut(name: str) -> ElmanRNN:
    return ElmanRNN(3, 5, activation=name)


MADE = [contracting, lipschitz, *(lambda name=name: cut(name) for name in ("sigmoid", "saturation", "deadzone"))]


@pytest.mark.parametrize("make", MADE)
def test_the_file_runs_as_the_model_and_is_certified_with_its_verdict(make, tmp_path, capsys) -> None:
    torch.manual_seed(0)
    model = SequenceModel(make(), 2)
    path = export_onnx(model, tmp_path / "net.onnx")
    x = torch.randn(4, 9, 3)
    feeds = {"x": x.double().transpose(0, 1).numpy(), "h0": np.zeros((4, 5))}
    answer, states = ReferenceEvaluator(str(path)).run(None, feeds)
    np.testing.assert_allclose(answer, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(states[-1], model.layer(x)[0][:, -1].detach().numpy(), rtol=1e-4, atol=1e-5)
    mine, theirs = (certify(each, rate="any") for each in (model, load_subject(path).subject))
    assert mine.verdict is theirs.verdict is Verdict.CERTIFIED
    assert verify(theirs).valid
    read = load_subject(path).subject
    for name in "ABC":
        np.testing.assert_array_equal(getattr(read.system, name), getattr(mine.subject.system, name))
    assert cli.run(["certify", str(path), "--rate", "any"]) == 0
    assert "PROVEN STABLE" in capsys.readouterr().out


def test_what_has_no_such_form_is_refused(tmp_path) -> None:
    refused = (
        GRU(2, 3),
        RotRNN(2, 4, heads=2),
        LipschitzRNN(2, 3, integrator="midpoint"),
        SequenceModel(ElmanRNN(2, 3), 2, reduction="mean"),
    )
    for layer in refused:
        with pytest.raises(UnsupportedError):
            export_onnx(layer, tmp_path / "no.onnx")
    assert not (tmp_path / "no.onnx").exists()
