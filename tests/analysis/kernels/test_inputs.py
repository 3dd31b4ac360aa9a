"""Derivatives by the input alone against the recorded graph, in both precisions, with copies and without."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from stability.analysis.attacks.threat import open_threat
from stability.analysis.kernels import inputs
from stability.analysis.kernels.activate import activate_, steepened
from stability.analysis.kernels.inputs import by_input
from stability.models.contracting import ContractingRNN
from stability.models.elman import ElmanRNN
from stability.models.gated import GRU, LSTM
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel
from stability.models.neural_ode import NeuralODERNN
from stability.models.options import TORCH_ACTIVATIONS
from stability.models.reservoir import EchoStateRNN

KNOWN = {
    "lipschitz": lambda: LipschitzRNN(2, 4, dt=0.4, init_std=0.6),
    "lipschitz relu": lambda: LipschitzRNN(2, 4, dt=0.4, init_std=0.6, activation="relu"),
    "neural ode": lambda: NeuralODERNN(2, 4, dt=0.4, init_std=0.6, activation="sigmoid"),
    "contracting": lambda: ContractingRNN(2, 4, rate=0.95),
    "contracting flow": lambda: ContractingRNN(2, 4, time="continuous", activation="leaky_relu"),
    "elman": lambda: ElmanRNN(2, 4),
    "saturation": lambda: ElmanRNN(2, 4, activation="saturation"),
    "dead zone": lambda: LipschitzRNN(2, 4, dt=0.4, init_std=0.6, activation="deadzone"),
    "lstm": lambda: LSTM(2, 4),
}
OTHERS = {
    "midpoint": lambda: SequenceModel(LipschitzRNN(2, 4, dt=0.4, integrator="midpoint"), 3),
    "mean": lambda: SequenceModel(LipschitzRNN(2, 4), 3, "mean"),
    "echo state": lambda: SequenceModel(EchoStateRNN(2, 4), 3),
    "gru": lambda: SequenceModel(GRU(2, 4), 3),
    "two layers": lambda: SequenceModel(LSTM(2, 4, num_layers=2), 3),
    "no sequence model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(inputs, "_FEW", 1)


def derivative(model: nn.Module, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_(True)
    logits = model(x)
    return logits.detach(), torch.autograd.grad((logits * weights).sum(), x)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("kind", KNOWN)
def test_logits_and_derivative_are_the_models_own(kind, copies, dtype, monkeypatch):
    torch.manual_seed(0)
    model = SequenceModel(KNOWN[kind](), 3).to(dtype)
    x = torch.randn(4, 6, 2, dtype=dtype).repeat_interleave(copies, 0)
    weights = torch.randn(len(x), 3, dtype=dtype)
    expected = derivative(model, x, weights)
    close = {"rtol": 1e-4, "atol": 3e-6} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    with by_input(model, copies):
        found = derivative(model, x, weights)
        for kernel in (inputs._LastState, inputs._LastOfCells):  # which it was that ran
            monkeypatch.setattr(kernel, "apply", lambda *_: pytest.fail("ran"))
        with pytest.raises(pytest.fail.Exception, match="ran"):
            derivative(model, x, weights)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, **close)
    assert "forward" not in vars(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", sorted(set(KNOWN) - {"lstm"}))
def test_logits_without_a_graph_are_the_models_own(kind, dtype, monkeypatch):
    torch.manual_seed(0)
    model, x = SequenceModel(KNOWN[kind](), 3).to(dtype), torch.randn(7, 6, 2, dtype=dtype)
    expected = model(x).detach()
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-13}
    monkeypatch.setattr(inputs, "_ROWS", 3)
    monkeypatch.setattr(model.layer, "walk", lambda *_: pytest.fail("step by step"))
    with torch.no_grad(), by_input(model):
        torch.testing.assert_close(model(x), expected, **close)
        torch.testing.assert_close(model(x[:1, :1]), SequenceModel.forward.__get__(_twin(model))(x[:1, :1]), **close)
        with by_input(model, 5):  # the outer one rules
            torch.testing.assert_close(model(x), expected, **close)
    with torch.no_grad(), by_input(model, 2):
        torch.testing.assert_close(model(x.repeat_interleave(2, 0)), expected.repeat_interleave(2, 0), **close)


def _twin(model: SequenceModel) -> SequenceModel:
    twin = copy.deepcopy(model)
    vars(twin.layer).pop("walk")
    return twin


def test_weights_that_change_between_two_doors_are_seen():
    torch.manual_seed(0)
    model, x = SequenceModel(ElmanRNN(2, 4), 3), torch.randn(5, 6, 2)
    with torch.no_grad():
        for _ in range(2):
            model.layer.weight_hh.mul_(1.5)
            expected = model(x)
            with by_input(model):
                torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", sorted(TORCH_ACTIVATIONS))
def test_activations_in_place_and_their_slopes(activation, dtype):
    z = torch.tensor([-40.0, -3.0, -1.5, -0.4, -1e-6, 0.3, 2e-6, 0.9, 1.1, 7.0, 60.0], dtype=dtype)
    wide = z.double().clone().requires_grad_(True)
    expected = TORCH_ACTIVATIONS[activation](wide)
    (slope,) = torch.autograd.grad(expected.sum(), wide)
    rounding = 4 * torch.finfo(dtype).eps
    c = activate_(activation, z.clone())
    torch.testing.assert_close(c.double(), expected.detach(), rtol=rounding, atol=0.0)
    found = steepened(activation, torch.full_like(z, 3.0), c, torch.empty_like(z))
    torch.testing.assert_close(found.double(), 3.0 * slope, rtol=1e-9, atol=16 * rounding)


def test_nothing_but_finite_values_is_expected_of_an_activation():
    broken = activate_("tanh", torch.tensor([float("nan"), float("inf"), -float("inf")]))
    assert broken[0].isnan()
    assert broken[1:].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("kind", OTHERS)
def test_what_has_no_kernel_runs_as_it_is(kind):
    torch.manual_seed(0)
    model, x, weights = OTHERS[kind](), torch.randn(5, 6, 2), torch.randn(5, 3)
    expected = derivative(model, x, weights)
    with by_input(model):
        assert all(torch.equal(*pair) for pair in zip(derivative(model, x, weights), expected))


def test_a_watched_or_changed_layer_runs_as_it_is():
    class Doubled(LipschitzRNN):
        def transition(self, drive, state, prepared):
            return 2.0 * super().transition(drive, state, prepared)

    torch.manual_seed(0)
    watched = SequenceModel(LipschitzRNN(2, 4), 3)
    seen = []
    watched.layer.register_forward_hook(lambda *_: seen.append(1))
    for model in (SequenceModel(Doubled(2, 4), 3), watched):
        x, weights = torch.randn(5, 6, 2), torch.randn(5, 3)
        expected = derivative(model, x, weights)
        with by_input(model):
            assert torch.equal(derivative(model, x, weights)[1], expected[1])
    assert len(seen) == 2


def test_an_ascent_leaves_the_model_as_it_was_and_takes_the_same_way():
    torch.manual_seed(0)
    model, x, y = SequenceModel(LipschitzRNN(2, 4, dt=0.4), 3), torch.rand(7, 6, 2), torch.arange(7) % 3
    threat = open_threat(model, x, y, norm="l2", bounds=(0, 1), mask=None, seed=0, epsilon=0.1)
    _, gradient, logits = threat.ascend(x, lambda z, labels: nn.functional.cross_entropy(z, labels, reduction="none"))
    x.requires_grad_(True)
    loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, x)[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(logits, model(x).detach(), rtol=1e-5, atol=1e-6)
    assert "forward" not in vars(model)
