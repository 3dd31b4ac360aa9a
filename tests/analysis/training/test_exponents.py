"""Exponents with gradients: the measured ones, derivatives by differences and in closed form, and training on them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from stability import analysis as an
from stability.errors import ConfigurationError, NonFiniteError, RankError, UnsupportedError
from stability.models import (
    GRU,
    LSTM,
    DeepNetwork,
    ElmanRNN,
    HouseholderRNN,
    LipschitzRNN,
    RotRNN,
    SequenceModel,
    Stack,
)

MAKERS = {
    "elman": lambda: ElmanRNN(2, 4),
    "lstm": lambda: LSTM(2, 3),
    "midpoint": lambda: LipschitzRNN(2, 4, dt=0.2, integrator="midpoint"),
    "oplu": lambda: HouseholderRNN(2, 4, reflections=2, activation="oplu"),
    "stack": lambda: Stack([GRU(2, 3), ElmanRNN(3, 2)]),
    "deep": lambda: DeepNetwork(2, 3, layer="elman", hidden_size=2, width=3),
    "torch rnn": lambda: nn.RNN(2, 4),
    "torch cell": lambda: nn.RNNCell(2, 4, bias=False),
    "torch lstm": lambda: nn.LSTM(2, 3, bias=False, batch_first=True),
    "torch gru": lambda: nn.GRU(2, 2, num_layers=2),
}


def sequences(steps=8, batch=2):
    return torch.randn(batch, steps, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MAKERS)
def test_they_are_the_measured_exponents_and_their_gradient_is_that_of_differences(name):
    torch.manual_seed(0)
    layer, x = MAKERS[name]().double(), sequences()
    exponents = an.finite_time_exponents(layer, x, 3)
    measured = an.lyapunov_exponents(layer, x, 3, start="random")
    ordered = exponents.detach().mean(0).sort(descending=True)[0]
    np.testing.assert_allclose(ordered.numpy(), measured.exponents, atol=1e-12)
    weights = torch.arange(1.0, 4.0).double()
    (exponents @ weights).mean().backward()
    assert any(p.grad is not None and bool(p.grad.any()) for p in layer.parameters())
    direction = {n: torch.randn_like(p) for n, p in layer.named_parameters()}
    along = sum(float((p.grad * direction[n]).sum()) for n, p in layer.named_parameters() if p.grad is not None)
    values = []
    for step in (-1e-5, 1e-5):
        moved = copy.deepcopy(layer)
        with torch.no_grad():
            for n, p in moved.named_parameters():
                p += step * direction[n]
        values.append(float((an.finite_time_exponents(moved, x, 3).detach() @ weights).mean()))
    assert along == pytest.approx((values[1] - values[0]) / 2e-5, rel=1e-6, abs=1e-8)


def test_gradients_go_through_a_parametrisation_of_torch():
    cell = weight_norm(nn.RNN(2, 4).double(), "weight_hh_l0")
    an.finite_time_exponents(cell, sequences()).mean().backward()
    size, direction = (getattr(cell.parametrizations.weight_hh_l0, name) for name in ("original0", "original1"))
    W = cell.weight_hh_l0.detach().requires_grad_()
    plain = ElmanRNN(2, 4).double()
    values = (("weight_ih", cell.weight_ih_l0), ("weight_hh", W), ("bias", cell.bias_ih_l0 + cell.bias_hh_l0))
    plain.load_state_dict({name: value.detach() for name, value in values})
    an.finite_time_exponents(plain, sequences()).mean().backward()
    (grown,) = torch.autograd.grad((plain.weight_hh.grad * cell.weight_hh_l0).sum(), direction)
    torch.testing.assert_close(direction.grad, grown)
    assert bool(size.grad.any())


def test_the_unit_of_time(rng):
    layer, x = LipschitzRNN(2, 4, dt=0.05).double(), sequences()
    torch.testing.assert_close(
        an.finite_time_exponents(layer, x, per_time=True) * 0.05, an.finite_time_exponents(layer, x)
    )
    with pytest.raises(ConfigurationError):
        an.finite_time_exponents(ElmanRNN(2, 4).double(), x, per_time=True)


def test_what_has_no_differentiable_exponent_is_refused():
    x = sequences().float()
    for model in (nn.GRU(2, 3, bidirectional=True), RotRNN(2, 4, heads=1, bidirectional=True), nn.Linear(2, 2)):
        with pytest.raises(UnsupportedError):
            an.finite_time_exponents(model, x)
    with pytest.raises(UnsupportedError):
        an.finite_time_exponents(nn.RNN(2, 3, num_layers=2), x)
    dead = ElmanRNN(2, 3, activation="relu")
    nn.init.constant_(dead.bias, -100.0)
    with pytest.raises(RankError):
        an.finite_time_exponents(dead, x)
    wild = ElmanRNN(2, 3, activation="relu")
    nn.init.constant_(wild.weight_hh, 1e30)
    nn.init.constant_(wild.bias, 1.0)
    with pytest.raises(NonFiniteError):
        an.finite_time_exponents(wild, x)
    for options in ({"k": 5}, {"k": 0}, {"skip": 8}):
        with pytest.raises(ConfigurationError):
            an.finite_time_exponents(ElmanRNN(2, 4), x, **options)


def network(task):
    torch.manual_seed(1)
    return SequenceModel(ElmanRNN(task.input_size, 8), task.output_size, task.reduction)


@pytest.mark.slow
def test_training_towards_an_exponent(tmp_path):
    """Seed 1: nearer to it on sequences never trained on; and a run that was cut in two ends with the same weights."""
    task = an.make_task("digits", size=7, limit=60, test_limit=20)
    common = {"epochs": 4, "lr": 2e-2, "batch_size": 30, "seed": 1}

    def largest(model):
        return an.lyapunov_exponents(model, task.test[0], 1, skip=0).largest

    free, whole, cut = (network(task) for _ in range(3))
    an.train(free, task, **common)
    options = {"lyapunov_target": largest(free) + 0.4, "lyapunov_weight": 20.0}
    an.train(whole, task, **common, **options)
    assert abs(largest(whole) - options["lyapunov_target"]) < 0.2
    an.train(cut, task, **{**common, "epochs": 2}, **options, out=tmp_path / "run")
    going_on, _ = an.resume_run(tmp_path / "run", epochs=4)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, going_on.state_dict()[name])


def test_the_penalty_is_of_short_trajectories_of_the_batch():
    torch.manual_seed(0)
    layer, x = ElmanRNN(2, 4), torch.randn(12, 60, 2)
    changed = x.clone()
    changed[8:] += 1
    changed[:, 50:] += 1
    assert an.lyapunov_penalty(layer, x, 0.1) == an.lyapunov_penalty(layer, changed, 0.1)
    own = an.finite_time_exponents(layer, x[:8, :50]).mean()
    torch.testing.assert_close(an.lyapunov_penalty(layer, x, 0.1), (own - 0.1) ** 2)


def test_a_training_whose_exponent_is_lost_says_so():
    x = torch.zeros(8, 4, 1)
    x[:, 3] = 10.0  # switches all units off
    task = an.task_from_arrays(x, torch.arange(8) % 2, held_out=0.25)
    model = SequenceModel(ElmanRNN(1, 4, activation="relu"), 2)
    nn.init.constant_(model.layer.bias, 5.0)
    nn.init.constant_(model.layer.weight_ih, -10.0)
    result = an.train(model, task, epochs=1, lyapunov_target=0.0)
    assert result.stopped == "diverged"
    assert "the Jacobian is singular" in result.detail
