"""Runs of gated linear layers in a given arithmetic: the running bound holds and is tight, and so does the claim."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import ExecutionModel, certify
from stability.analysis import gated_run, run_in
from stability.errors import UnsupportedError
from stability.models import LRU, RGLRU, S4D, ElmanRNN, GatedDeltaNet, Mamba, Mamba2, MinGRU, MinLSTM

LAYERS = (MinGRU, MinLSTM, RGLRU, Mamba, Mamba2, GatedDeltaNet)
MODELS = (
    ExecutionModel("float32"), ExecutionModel("bfloat16"),
    ExecutionModel("int8:4", rounding="stochastic"), ExecutionModel("int6", rounding="feedback"),
    ExecutionModel("int6", rounding="noise_shaping"),
)  # fmt: skip


@pytest.mark.parametrize("kind", LAYERS)
def test_runs_stay_within_running_bound_and_claim(kind) -> None:
    torch.manual_seed(0)
    layer, x = kind(3, 8), torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    x[15:] = x[15]  # errors add up under a constant input
    for model in MODELS:
        run = gated_run(layer, x, model, seed=2)
        assert (run.distance <= run.bound).all(), model
        assert 0.0 < run.relative < 1.0
        claim = next((c for c in certify(layer, arithmetic=model).claims if c.name == "as_it_runs"), None)
        if kind is not GatedDeltaNet and claim is not None:  # its claim is about given gates and keys
            assert np.linalg.norm(run.distance, axis=1).max() <= claim.value, model
        if model.rounding in ("feedback", "noise_shaping"):
            assert run.ratio < (1.1 if model.rounding == "feedback" else 5.0), model


def test_a_zero_state_and_numbers_beyond_the_format() -> None:
    torch.manual_seed(0)
    layer, model = ElmanRNN(2, 4), ExecutionModel("float16", "int8")
    with torch.no_grad():
        layer.bias.zero_()
    assert run_in(layer, torch.zeros(1, 3, 2), model).largest == 0.0
    large = Mamba2(2, 8)
    with torch.no_grad():
        large.mixer.in_proj.weight.mul_(1e5)
    assert np.isposinf(gated_run(large, torch.randn(5, 2), model).bound).all()


def test_layers_and_arithmetic_that_cannot_be_run_here_are_refused() -> None:
    x, shaped = torch.zeros(2, 2), ExecutionModel("int8", rounding="noise_shaping")
    for layer, model in (
        (ElmanRNN(2, 3), "int8"), (LRU(2, 4), "int8"), (S4D(2, 3), "int8"),
        (MinGRU(2, 3), ExecutionModel("float32", factors="tf32")),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError):
            gated_run(layer, x, model)
    with pytest.raises(UnsupportedError):
        run_in(ElmanRNN(2, 3), x[None], shaped)
    assert "noise shaping" in certify(ElmanRNN(2, 3), arithmetic=shaped, input_box=(-1.0, 1.0)).meta["as_it_runs"]
