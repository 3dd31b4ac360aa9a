"""Written-out kernels against the recorded graph: values, gradients and Hessian-vector products in float64."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from stability.analysis.curvature.products import HessianOperator, cross_entropy, select_parameters
from stability.analysis.kernels import swap
from stability.analysis.kernels.back import Map
from stability.analysis.kernels.lstm import lstm_states
from stability.analysis.kernels.lure import lure_states
from stability.analysis.kernels.swap import plain_lstm, written_out
from stability.models.contracting import ContractingRNN
from stability.models.elman import ElmanRNN
from stability.models.gated import LSTM
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel
from stability.models.neural_ode import NeuralODERNN
from stability.models.reservoir import EchoStateRNN


class Images(nn.Module):
    """Three convolutions: on data, between layers with groups and steps, and along one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 6, (2, 3), stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2, bias=False)
        self.third = nn.Conv1d(6, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.tanh(self.second(torch.tanh(self.first(x[:, None]))))
        return self.third(z.flatten(2)).mean(2)


class Pooled(nn.Module):
    """ReLU and pooling in both orders; what ReLU leaves is read besides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.rectify, self.pool = nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.first(x[:, None])
        y = self.rectify(z)
        pooled = self.pool(y)
        a = nn.functional.max_pool2d(self.second(pooled), (3, 2), stride=1, padding=1).relu()
        return a.mean((2, 3))[:, :3] + y.square().mean((2, 3))[:, 1:]


class Directions(nn.Module):
    """``torch.nn.LSTM`` with two layers both ways, all states read, from a learned start."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.rnn = nn.LSTM(2, 3, num_layers=2, bidirectional=True, bias=bias)
        self.h0, self.c0 = (nn.Parameter(torch.randn(4, 1, 3)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = tuple(s.expand(-1, len(x), -1).contiguous() for s in (self.h0, self.c0))
        outputs, (h, c) = self.rnn(x.transpose(0, 1), start)
        return outputs.mean(0)[:, :3] + (outputs.square().mean(0)[:, 3:] + h[0] * c[3])


class AtRest(nn.Module):
    """``torch.nn.LSTM`` both ways from zero; its last ``h`` and ``c`` are read besides, and every other output."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(2, 3, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, (h, c) = self.rnn(x)
        return outputs[:, ::2].square().sum(1)[:, 1:4] + h[0] * c[1] + c[0].sin()


class Mean(nn.Module):
    """The mean over time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def sequences(layer, reduction: str = "last") -> SequenceModel:
    return SequenceModel(layer, 3, reduction)


MODELS = {
    "lipschitz": lambda: sequences(LipschitzRNN(2, 4, dt=0.4, init_std=0.6)),
    "lipschitz relu": lambda: sequences(LipschitzRNN(2, 4, dt=0.4, init_std=0.6, activation="relu"), "mean"),
    "neural ode": lambda: sequences(NeuralODERNN(2, 4, dt=0.4, init_std=0.6, activation="sigmoid")),
    "contracting": lambda: sequences(ContractingRNN(2, 4, rate=0.95), "mean"),
    "contracting last": lambda: sequences(ContractingRNN(2, 4, rate=0.95)),
    "contracting all": lambda: nn.Sequential(sequences(ContractingRNN(2, 4, rate=0.95), "all"), Mean()),
    "contracting flow": lambda: sequences(ContractingRNN(2, 4, time="continuous", activation="sigmoid")),
    "elman": lambda: sequences(ElmanRNN(2, 4, activation="leaky_relu"), "mean"),
    "saturation": lambda: sequences(ElmanRNN(2, 4, activation="saturation"), "mean"),
    "dead zone": lambda: sequences(LipschitzRNN(2, 4, dt=0.4, init_std=0.6, activation="deadzone")),
    "stack": lambda: sequences([ElmanRNN(2, 4), LipschitzRNN(4, 3, dt=0.4, init_std=0.6)]),
    "lstm": lambda: sequences(LSTM(2, 4)),
    "lstm mean": lambda: sequences(LSTM(2, 4), "mean"),
    "lstm both ways": Directions,
    "lstm at rest": AtRest,
    "lstm without bias": lambda: Directions(bias=False),
    "images": Images,
    "pooled images": Pooled,
}


def problem(kind: str, time: int = 6):
    torch.manual_seed(5)
    model = MODELS[kind]().double()
    return model, torch.randn(7, time, 2 if "images" not in kind else 5, dtype=torch.float64), torch.arange(7) % 3


def product(gradient, at, directions):
    """``H v`` for the parameters and the input."""
    live = [(g, d) for g, d in zip(gradient, directions, strict=True) if g.requires_grad]
    by, along = [g for g, _ in live], [d for _, d in live]
    return torch.autograd.grad(by, at, along, retain_graph=True, materialize_grads=True)


def differentiated(model, x, y, at):
    loss = nn.functional.cross_entropy(model(x), y)
    return loss, torch.autograd.grad(loss, at, create_graph=True, materialize_grads=True)


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=1e-12 * max(1.0, float(b.detach().abs().max())))


@pytest.mark.parametrize("time", [1, 6])
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_loss_gradient_and_products_are_those_of_the_recorded_graph(kind, time):
    model, x, y = problem(kind, time if "images" not in kind else 6)
    x.requires_grad_(time > 1)  # images that are data keep their patches
    at = [*model.parameters(), *([x] if x.requires_grad else [])]
    directions = [torch.randn_like(p) for p in at]
    loss, gradient = differentiated(model, x, y, at)
    with written_out(model) as kernels:
        own_loss, own = differentiated(model, x, y, at)
    assert kernels.used
    torch.testing.assert_close(own_loss.detach(), loss.detach(), rtol=1e-13, atol=0)
    assert_equal(own, gradient)
    for _ in range(2):  # what is kept between products is not changed by one
        assert_equal(product(own, at, directions), product(gradient, at, directions))
    assert not [module for module in model.modules() if "forward" in vars(module)]


@pytest.mark.parametrize("kind", ["lipschitz", "contracting", "lstm both ways", "images", "pooled images"])
def test_a_gradient_by_the_input_alone_is_the_same(kind):
    model, x, y = problem(kind)
    for p in model.parameters():
        p.requires_grad_(False)
    x.requires_grad_()
    _, gradient = differentiated(model, x, y, [x])
    with written_out(model):
        _, own = differentiated(model, x, y, [x])
    assert_equal(own, gradient)
    assert_equal(product(own, [x], [x]), product(gradient, [x], [x]))


ALIKE = [kind for kind in MODELS if "images" not in kind]


@pytest.mark.parametrize("kind", ALIKE)
def test_sequences_that_begin_alike_have_the_products_of_sequences_each_for_itself(kind):
    """Three begin with nothing, two of these part at the end, two are one; the others differ at once."""
    model, x, y = problem(kind)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    x[:3, :2], x[1, :5], x[5] = 0.0, x[0, :5].clone(), x[4].clone()
    at = list(model.parameters())
    loss, gradient = differentiated(model, x, y, at)
    with written_out(model) as kernels:
        own_loss, own = differentiated(model, x, y, at)
    assert kernels.used
    torch.testing.assert_close(own_loss.detach(), loss.detach(), rtol=1e-13, atol=0)
    assert_equal(own, gradient)
    for _ in range(2):
        directions = [torch.randn_like(p) for p in at]
        assert_equal(product(own, at, directions), product(gradient, at, directions))


@pytest.mark.parametrize("kind", ["lipschitz", "lstm"])
def test_a_second_gradient_of_one_pass_is_not_differentiated(kind):
    model, x, y = problem(kind)
    at = list(model.parameters())
    with written_out(model):
        loss = nn.functional.cross_entropy(model(x), y)
    torch.autograd.grad(loss, at, create_graph=True)
    torch.autograd.grad(loss, at, retain_graph=True)
    with pytest.raises(NotImplementedError, match="one gradient of each pass"):
        torch.autograd.grad(loss, at, create_graph=True)


def test_pooling_of_what_relu_leaves_is_exact_with_its_derivative():
    """Where all of a window is negative, too, and from images without a batch.

    What is written to after ReLU is pooled as it then is; ReLU in place, whole numbers and places stay torch's.
    """
    torch.manual_seed(0)
    x = torch.randn(3, 6, 6, requires_grad=True)
    found = []
    for inside in (False, True):
        with written_out(nn.Identity()) if inside else nullcontext() as kernels:
            y = nn.functional.max_pool2d(torch.relu(x - 1.0), 2)
        found.append([y, *torch.autograd.grad(y.square().sum(), x)])
    assert kernels is not None
    assert kernels.used
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    with written_out(nn.Identity()), torch.no_grad():
        lowered = torch.relu(x)
        lowered -= 5.0
        assert nn.functional.max_pool2d(lowered, 2).max() < 0
        kept = x.detach().clone()
        assert nn.functional.relu(kept, inplace=True) is kept
        largest, places = nn.functional.max_pool2d(x, 2, return_indices=True)
        assert places.shape == largest.shape
        assert torch.equal(torch.relu(torch.tensor([-2, 3])), torch.tensor([0, 3]))


def test_whoever_watches_an_lstm_sees_it_run():
    """A hook, or a ``forward`` of one's own, is called inside, too; without one the head reads no other state."""
    model, x, _ = problem("lstm")
    expected, seen = model(x), []
    with written_out(model):
        torch.testing.assert_close(model(x), expected)
        assert "forward" in vars(model)
    handle = model.layer.rnn.register_forward_hook(lambda *_: seen.append(1))
    with written_out(model):
        torch.testing.assert_close(model(x), expected)
        assert "forward" not in vars(model)
    handle.remove()
    assert seen == [1]


class Damped(LipschitzRNN):
    """A user's layer whose step is not that of its base."""

    def transition(self, drive, state, prepared):
        return 0.5 * super().transition(drive, state, prepared)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: Damped(2, 4),
        lambda: EchoStateRNN(2, 4),
        lambda: LipschitzRNN(2, 4, integrator="midpoint"),
        lambda: nn.LSTM(2, 4, proj_size=2, batch_first=True).double(),
    ],
)
def test_what_no_kernel_stands_for_runs_as_it_is(layer):
    torch.manual_seed(0)
    layer = layer()
    x = torch.randn(3, 5, 2, dtype=next(layer.parameters()).dtype)
    expected = layer(x)[0]
    with written_out(layer):
        assert torch.equal(layer(x)[0], expected)


def operator(model, x, y, loss=cross_entropy, size=None):
    batches = [(x, y)] if size is None else list(zip(x.split(size), y.split(size)))
    return HessianOperator(model, batches, loss, select_parameters(model, "all"))


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("kind", ["lipschitz", "lstm"])
def test_the_operator_takes_kernels_and_keeps_to_the_graph_without(kind, size, monkeypatch):
    model, x, y = problem(kind)
    fast = operator(model, x, y, size=size)
    assert fast.written_out
    monkeypatch.setattr(HessianOperator, "_try_kernels", lambda self: False)
    plain = operator(model, x, y, size=size)
    assert not plain.written_out
    for v in torch.randn(3, plain.size, dtype=torch.float64).numpy():
        expected = plain.matvec(v)
        torch.testing.assert_close(fast.matvec(v), expected, rtol=0, atol=1e-12 * float(abs(expected).max()))


def test_a_kernel_that_computes_something_else_is_not_taken(monkeypatch):
    model, x, y = problem("lipschitz")
    honest = operator(model, x, y)
    monkeypatch.setattr(swap, "lure_states", lambda *args: [1.01 * part for part in lure_states(*args)])
    wary = operator(model, x, y)
    assert honest.written_out
    assert not wary.written_out
    v = torch.randn(wary.size, dtype=torch.float64).numpy()
    torch.testing.assert_close(wary.matvec(v), honest.matvec(v), rtol=1e-9, atol=1e-12)


def test_lstms_of_sequences_that_begin_alike_take_fewer_rows(monkeypatch):
    """A learned start, and an input that is differentiated by, keep each sequence for itself."""
    seen = []
    monkeypatch.setattr(swap, "lstm_states", lambda *given: seen.append(sum(given[4].sizes)) or lstm_states(*given))
    model, x, _ = problem("lstm at rest")
    x[:6, :3] = 0.0
    with written_out(model):
        model(x)
        model(x.requires_grad_())
    assert seen == [7 * 6 - 3 * 5, 7 * 6, 7 * 6, 7 * 6]


def test_a_loss_with_a_derivative_inside_has_its_hessian_all_the_same():
    model, x, y = problem("lipschitz")

    def smooth(outputs, targets):
        (slope,) = torch.autograd.grad(outputs.sum(), model.layer.bias, create_graph=True)
        return nn.functional.cross_entropy(outputs, targets) + slope.square().sum()

    found = operator(model, x, y, smooth)
    assert not found.written_out
    at, v = list(model.parameters()), torch.randn(found.size, dtype=torch.float64)
    gradient = torch.autograd.grad(smooth(model(x), y), at, create_graph=True)
    expected = torch.autograd.grad(gradient, at, found.unflatten(v.numpy()))
    flat = torch.cat([e.reshape(-1) for e in expected])
    torch.testing.assert_close(torch.from_numpy(found.matvec(v.numpy())), flat, rtol=1e-9, atol=1e-12)


def test_a_third_derivative_is_refused():
    W = torch.full((1, 1), 0.5, dtype=torch.float64, requires_grad=True)
    h = lure_states(Map("tanh"), torch.ones(2, 1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), W)[0]
    (first,) = torch.autograd.grad(h.sum(), W, create_graph=True)
    with pytest.raises(NotImplementedError, match="third"):
        torch.autograd.grad(first.sum(), W, create_graph=True)


@pytest.mark.parametrize("worst", [swap._WORST_CONDITION, 0.0])
def test_a_step_with_b_is_the_same_in_both_coordinates(worst, monkeypatch):
    """From a state of one's own, too; a B of a bad condition stays where it is."""
    monkeypatch.setattr(swap, "_WORST_CONDITION", worst)
    torch.manual_seed(6)
    layer, x = ContractingRNN(2, 4, rate=0.95).double(), torch.randn(5, 6, 2, dtype=torch.float64)
    start = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    seen = []
    monkeypatch.setattr(swap, "lure_states", lambda *given: seen.append(given[5] is not None) or lure_states(*given))
    at, found = [*layer.parameters(), start], []
    directions = [torch.randn_like(p) for p in at]
    for inside in (False, True):
        with written_out(layer) if inside else nullcontext():
            outputs, last = layer(x, start)
            loss = outputs.square().mean() + (last.sin() * outputs[:, 2]).sum()
            gradient = torch.autograd.grad(loss, at, create_graph=True)
        found.append([loss, *gradient, *product(gradient, at, directions)])
    assert_equal(found[1], found[0])
    assert seen == [worst == 0.0]


def test_a_layer_that_is_watched_is_still_called():
    model, x, _ = problem("contracting last")
    calls = []
    handle = model.layer.register_forward_hook(lambda *given: calls.append(1))
    with written_out(model) as kernels:
        seen = model(x)
    handle.remove()
    assert kernels.used
    assert calls == [1]
    torch.testing.assert_close(seen, model(x), rtol=1e-12, atol=1e-14)


def test_images_in_single_precision_are_multiplied_as_in_double():
    """Channels are laid side by side there: the answers, and how they lie, are those of the network."""
    model, x, y = problem("images")
    found = []
    for dtype in (torch.float32, torch.float64):
        model, at = model.to(dtype), None
        with written_out(model):
            at = list(model.parameters())
            _, gradient = differentiated(model, x.to(dtype), y, at)
            torch.manual_seed(7)
            directions = [torch.randn(p.shape, dtype=torch.float64).to(dtype) for p in at]
            found.append(
                [*gradient, *product(gradient, at, directions), model.second(model.first(x.to(dtype)[:, None]))]
            )
    for single, double in zip(*found, strict=True):
        torch.testing.assert_close(
            single.double(), double, rtol=0, atol=2e-6 * max(1.0, float(double.detach().abs().max()))
        )
    assert found[0][-1].is_contiguous()


@pytest.mark.parametrize("told", [{"bias": False}, {"proj_size": 2}, {"bidirectional": True}, {"num_layers": 2}])
def test_an_lstm_with_another_module_in_its_place_has_no_kernel(told):
    layer = LSTM(3, 4)
    assert plain_lstm(layer)
    layer.rnn = nn.LSTM(3, 4, batch_first=True, **told)
    assert not plain_lstm(layer)
