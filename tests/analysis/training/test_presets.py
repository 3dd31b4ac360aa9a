"""Presets build, train and repeat."""

from __future__ import annotations

import pytest
import torch

from stability.analysis.training.presets import (
    PRESETS,
    QUICK,
    preset_model,
    preset_names,
    preset_training,
    train_preset,
)
from stability.models import ElmanRNN
from stability.models.recurrent import LAYERS, register_layer


@pytest.mark.parametrize("name", list(PRESETS))
def test_each_builds_and_trains(task, name):
    model, result = train_preset(name, task, quick=True, epochs=1)
    assert result.epochs == 1
    assert model.output_size == 10
    assert preset_training(name, quick=True)["epochs"] == QUICK["epochs"] < preset_training(name)["epochs"]
    one, two = (preset_model(name, task, seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_registered_layer_of_ones_own_has_a_preset(task):
    @register_layer("my_own")
    class MyOwn(ElmanRNN):
        pass

    try:
        assert "my_own" in preset_names("all")
        assert type(preset_model("my_own", task).layer) is MyOwn
    finally:
        del LAYERS["my_own"]
