"""Arrays and arguments of the analysis that are none of what they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import local_radius, pgd, train
from stability.analysis.guard import check_number
from stability.analysis.tasks.arrays import task_from_arrays
from stability.errors import ConfigurationError, MaskedError
from stability.models import ElmanRNN, SequenceModel

MODEL = SequenceModel(ElmanRNN(2, 3), 2)
X, Y = np.zeros((2, 3, 2), dtype=np.float32), np.zeros(2, dtype=np.int64)


def masked(value: np.ndarray) -> np.ma.MaskedArray:
    mask = np.zeros(value.shape, dtype=bool)
    mask.flat[0] = True
    return np.ma.masked_array(value, mask=mask)


def test_masked_data_are_refused() -> None:
    for call in (
        lambda: local_radius(MODEL, masked(X), Y), lambda: local_radius(MODEL, X, masked(Y)),
        lambda: pgd(MODEL, masked(X), torch.tensor(Y), epsilon=0.1), lambda: task_from_arrays(masked(X), Y),
    ):  # fmt: skip
        with pytest.raises(MaskedError):
            call()


def test_arrays_of_objects_are_refused() -> None:
    for x, y in ((X.astype(object), Y), (X, Y.astype(object))):
        with pytest.raises(ConfigurationError):
            local_radius(MODEL, x, y)


def test_training_needs_a_model_and_a_task() -> None:
    for model, task in ((None, None), (MODEL, "digits"), (MODEL, None)):
        with pytest.raises(ConfigurationError):
            train(model, task)  # type: ignore[arg-type]


def test_an_endless_time_limit_is_none_and_others_contradict_nobody() -> None:
    x = torch.zeros(1, 2, 2)
    assert len(local_radius(MODEL, x, MODEL(x).argmax(1), time_limit=float("inf"), restarts=0).radius) == 1
    for bad in (0, -1):
        with pytest.raises(ConfigurationError):
            check_number("lr", bad, strict=True)
