"""Bad input of the measurements: tensors without numbers, masked arrays, and sequences that are not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from stability import analysis as an
from stability.analysis import local_radius, pgd, train
from stability.analysis.dynamics.growth import local_growth
from stability.analysis.dynamics.pairs import pair_distances
from stability.analysis.guard import check_number
from stability.analysis.tasks.arrays import task_from_arrays
from stability.errors import ConfigurationError, MaskedError, NonFiniteError, StabilityError
from stability.models import ElmanRNN, SequenceModel

Call = Callable[[nn.Module, Any, Any], object]
DYNAMICS: dict[str, Call] = {
    "lyapunov": lambda m, x, _: an.lyapunov_exponents(m, x),
    "differentiable": lambda m, x, _: an.finite_time_exponents(m, x),
    "penalty": lambda m, x, _: an.lyapunov_penalty(m, x, -1.0),
    "growth": lambda m, x, _: local_growth(m, x),
    "norms": lambda m, x, _: an.norm_drift(m, x),
    "recovery": lambda m, x, _: an.measured_recovery(m, x),
    "pairs": lambda m, x, _: pair_distances(m, x, steps=3),
    "rounding": lambda m, x, _: an.rounding_distance(m, x),
}
LABELLED: dict[str, Call] = {
    "pgd": lambda m, x, y: an.pgd(m, x, y, epsilon=0.1),
    "apgd": lambda m, x, y: an.apgd(m, x, y, epsilon=0.1),
    "fgsm": lambda m, x, y: an.fgsm(m, x, y, epsilon=0.1),
    "deepfool": lambda m, x, y: an.deepfool(m, x, y),
    "sweep": lambda m, x, y: an.attack_sweep(m, x, y, epsilons=[0.0, 0.1]),
    "noise": lambda m, x, y: an.noise_sweep(m, x, y, levels=[0.0, 0.1]),
    "weights": lambda m, x, y: an.parameter_noise_sweep(m, x, y, levels=[0.0, 0.1]),
    "hessian": lambda m, x, y: an.hessian_summary(m, x, y, loss=cross_entropy),
    "density": lambda m, x, y: an.spectral_density(m, x, y, loss=cross_entropy),
    "certified": lambda m, x, y: an.certified_radius(m, x, y),
    "local": lambda m, x, y: an.local_radius(m, x, y, epsilon=0.01),
    "scores": lambda m, x, y: an.attack_scores(m, x, y, task=TASK, epsilons=[0.0, 0.1]),
    "noise scores": lambda m, x, y: an.noise_scores(m, x, y, task=TASK, levels=[0.0, 0.1]),
}
TASK = an.make_task("digits", size=7, limit=10, test_limit=4)
ABSENT: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": Tensor.to_sparse,
    "meta": lambda t: t.to("meta"),
    "nested": lambda t: torch.nested.nested_tensor([t[0], t[1]]),
}


def model() -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(ElmanRNN(2, 4), 3)


def data() -> tuple[Tensor, Tensor]:
    return torch.rand(4, 6, 2, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("way", ABSENT)
@pytest.mark.parametrize("name", [*DYNAMICS, *LABELLED])
def test_a_tensor_without_an_entry_at_every_place_is_named(name: str, way: str) -> None:
    x, y = data()
    call = {**DYNAMICS, **LABELLED}[name]
    with pytest.raises(ConfigurationError):
        call(model(), ABSENT[way](x), y)
    inner = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 3, batch_first=True))
    if name in DYNAMICS:
        with pytest.raises(ConfigurationError):
            call(inner, ABSENT[way](x), y)


@pytest.mark.parametrize("way", ["sparse", "meta"])
@pytest.mark.parametrize("name", LABELLED)
def test_labels_without_numbers_are_named(name: str, way: str) -> None:
    x, y = data()
    with pytest.raises(ConfigurationError):
        LABELLED[name](model(), x, ABSENT[way](y))


@pytest.mark.parametrize("name", [*DYNAMICS, *LABELLED])
def test_a_model_whose_weights_were_not_loaded_is_refused(name: str) -> None:
    x, y = data()
    with pytest.raises(ConfigurationError):
        {**DYNAMICS, **LABELLED}[name](model().to("meta"), x, y)


@pytest.mark.parametrize("name", DYNAMICS)
def test_sequences_that_are_not_real_or_not_finite_are_refused_as_such(name: str) -> None:
    x, y = data()
    call, net = DYNAMICS[name], model()
    for other in (x.to(torch.complex64), x > 0.5, x.long()):
        with pytest.raises(ConfigurationError):
            call(net, other, y)
    for other in (x.tolist(), None, "x"):
        with pytest.raises(StabilityError):
            call(net, other, y)
    one = x.clone()
    one[2, 3, 1] = float("inf")
    for bad in (one, torch.full_like(x, float("nan")), torch.full_like(x, -float("inf"))):
        with pytest.raises(NonFiniteError):
            call(net, bad, y)


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
