"""A cell described by its step alone: what is read from it, what is not, and that every analyzer takes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

from stability.analysis import SpectrumTracker, lyapunov_exponents, norm_drift, pgd
from stability.analysis.unroll import layer_inputs, only_layer
from stability.certificate import Certificate
from stability.certification import certify
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.opaque import OpaqueMap
from stability.models import ElmanRNN, StepLayer, lure_system, register_adapter, register_cell
from stability.models.cells import CELLS
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify

P, N = 3, 6


class Cell(nn.Module):
    """One step, chosen by its name."""

    input_size, hidden_size = P, N

    def __init__(self, kind: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.kind, self.norm = kind, nn.LayerNorm(N)
        self.W = nn.Parameter(0.4 * torch.randn(N, N, generator=generator) / N**0.5)
        self.register_buffer("V", 0.3 * torch.randn(N, N, generator=generator) / N**0.5)
        self.U, self.both = nn.Linear(P, N), nn.Linear(P + N, N, bias=False)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return STEPS[self.kind](self, x, h)


STEPS = {
    "plain": lambda m, x, h: torch.tanh(h @ m.W + m.U(x)),
    "leaky": lambda m, x, h: 0.7 * h + 0.3 * torch.tanh(torch.nn.functional.linear(h, m.V) - m.U(x)),
    "joined": lambda m, x, h: torch.relu(0.2 * m.both(torch.cat([x, h], dim=-1))),
    "two layers": lambda m, x, h: torch.tanh(0.5 * torch.tanh(h @ m.W + m.U(x)) @ m.V.T / 2 + (1 - h) * 0.1),
    "halves": lambda m, x, h: torch.sigmoid(torch.cat([h[:, N // 2 :], h[:, : N // 2]], 1) @ m.W + m.U(x)),
    "clipped": lambda m, x, h: torch.clamp(h @ m.W + m.U(x), -0.5, 0.5),
    "hard tanh": lambda m, x, h: torch.nn.functional.hardtanh(h @ m.W + m.U(x)),
    "soft threshold": lambda m, x, h: torch.nn.functional.softshrink(h @ m.W + m.U(x), 0.25),
    "between": lambda m, x, h: torch.nn.functional.hardtanh(h @ m.W + m.U(x), -0.25, max_val=0.75),
    "open": lambda m, x, h: torch.clamp(h @ m.W + m.U(x), min=-1.0),
    "mixed": lambda m, x, h: 0.5 * torch.tanh(h @ m.W) + 0.1 * torch.relu(m.U(x)),
    "offset": lambda m, x, h: torch.tanh(h @ m.W + m.U(x)) + 1.0,
    "norm": lambda m, x, h: torch.tanh(m.norm(h @ m.W + m.U(x))),
    "gate": lambda m, x, h: torch.sigmoid(m.U(x)) * h,
    "look": lambda m, x, h: h if float(h[0, 0]) > 0 else -h,
    "escape": lambda m, x, h: torch.tanh(h @ m.W) * torch.tensor(h.detach().numpy()).abs().max(),
    "batch": lambda m, x, h: torch.tanh(h @ m.W + h.mean(0)),
    "in place": lambda m, x, h: torch.tanh(h @ m.W).mul_(0.5),
    "single": lambda m, x, h: torch.tanh(h @ m.W).float().double(),
}
READ = {"plain": "tanh", "leaky": "tanh", "joined": "relu", "two layers": "tanh", "halves": "sigmoid"}
READ |= {"clipped": "saturation", "hard tanh": "saturation", "soft threshold": "deadzone"}
BARE = ("mixed", "offset", "between")
REASONS = {
    "norm": "native_layer_norm",
    "gate": "a gate",
    "look": "selects single sequences",
    "escape": "not all that the step does",
    "batch": "mean",
    "in place": "in place",
    "single": "_to_copy",
    "open": "other bounds than two numbers",
}


@pytest.fixture(autouse=True)
def taught():
    register_cell(Cell, replace=True)
    yield
    CELLS.pop(Cell)


@pytest.mark.parametrize("kind", READ)
def test_a_step_of_affine_maps_and_activations_is_the_system_that_runs(kind):
    torch.manual_seed(1)
    cell = Cell(kind)
    subject = as_subject(cell)
    assert isinstance(subject, DrivenSystem)
    assert subject.activation == READ[kind]
    x, h = torch.randn(9, P, dtype=torch.float64), 3 * torch.randn(9, N, dtype=torch.float64)
    with torch.no_grad():
        np.testing.assert_allclose(subject.advance(h.numpy(), x.numpy()), cell.double().step(x, h).numpy(), atol=1e-12)


def test_the_certificate_is_that_of_the_same_layer_of_ours():
    torch.manual_seed(0)
    layer = ElmanRNN(P, N)
    with torch.no_grad():
        layer.weight_hh.mul_(0.5)
    held = {"W": layer.weight_hh.T.clone(), "U": layer.weight_ih.T.clone(), "b": layer.bias.detach().clone()}
    own = StepLayer(lambda m, x, h: torch.tanh(x @ m.U + h @ m.W + m.b), P, N, held=held)
    mine, theirs = certify(own), certify(layer)
    assert mine.verdict is Verdict.CERTIFIED
    assert verify(mine).valid
    assert mine.rate == pytest.approx(theirs.rate, rel=1e-9)


@pytest.mark.parametrize("kind", BARE)
def test_what_a_network_has_no_place_for_is_claimed_for_every_activation(kind):
    assert isinstance(as_subject(Cell(kind)), LureSystem)
    assert certify(Cell(kind)).verdict is Verdict.CERTIFIED


@pytest.mark.parametrize("kind", REASONS)
def test_a_step_that_no_criterion_is_about_is_inconclusive_and_says_why(kind, tmp_path):
    certificate = certify(Cell(kind))
    assert certificate.verdict is Verdict.INCONCLUSIVE
    assert REASONS[kind] in certificate.findings[0].detail
    assert not certificate.claims
    assert "neither proved nor refuted" in certificate.statement
    certificate.save(tmp_path / "c.json")
    again = Certificate.load(tmp_path / "c.json")
    assert isinstance(again.subject, OpaqueMap)
    assert not verify(again).valid
    assert not verify(again).valid
    with pytest.raises(UnsupportedError):
        lure_system(Cell(kind))


def test_the_digest_of_an_unread_cell_is_that_of_its_weights():
    cell = Cell("norm")
    before = as_subject(cell).weights
    assert as_subject(Cell("norm")).weights != before  # another draw of the input map
    with torch.no_grad():
        cell.norm.bias[0] += 1e-6
    assert as_subject(cell).weights != before


class Net(nn.Module):
    """The cell behind another layer, called by its step's name or as a module."""

    def __init__(self, cell: nn.Module, call: bool) -> None:
        super().__init__()
        self.scale, self.cell, self.head, self.call = nn.Linear(2, P), cell, nn.Linear(N, 2), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(len(x), N)
        for u in self.scale(x).unbind(1):
            h = self.cell(u, h) if self.call else self.cell.step(u, h)
        return self.head(h)


class Called(Cell):
    """Cell whose step is its forward pass."""

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return self.step(x, h)


@pytest.mark.filterwarnings("ignore::stability.analysis.attacks.masked.MaskedGradientWarning")  # of gates
@pytest.mark.parametrize("call", [False, True])
@pytest.mark.parametrize("kind", ["plain", "norm", "gate"])
def test_every_analyzer_takes_the_cell_inside_a_network(kind, call):
    torch.manual_seed(2)
    net, x = Net(Called(kind), call), torch.randn(5, 7, 2)
    if call:
        register_cell(Called, step="forward", replace=True)
    try:
        assert certify(net).subject.part == "cell of Net"
        read = layer_inputs(net, x)
        assert torch.equal(read, net.scale(x))
        assert "step" not in vars(net.cell)
        h, norms = torch.zeros(5, N), []
        for u in read.unbind(1):
            h = net.cell.step(u, h)
            norms.append(float(h.norm(dim=1).double().mean().detach()))
        np.testing.assert_allclose(norm_drift(net, x).mean[0], norms, rtol=1e-5)
        tracker = SpectrumTracker(net, probe=read)
        tracker.record()
        assert {"W", "V", "J@6"} <= set(tracker.frame().matrix)
        net, x, h, logs = net.double(), x.double(), torch.zeros(5, N, dtype=torch.float64), []
        for u in layer_inputs(net, x).unbind(1):
            each = [jacobian(lambda s, v=v: net.cell.step(v[None], s[None])[0], s) for v, s in zip(u, h)]
            logs.append(torch.linalg.slogdet(torch.stack(each)).logabsdet.mean())
            h = net.cell.step(u, h).detach()
        total = lyapunov_exponents(net, x, skip=0).exponents.sum()
        if kind != "norm":  # whose Jacobian is singular
            assert total == pytest.approx(float(torch.stack(logs).mean()), rel=1e-9)
        assert pgd(net, x, torch.zeros(5, dtype=torch.long), epsilon=0.1, steps=2, bounds=None) is not None
    finally:
        CELLS.pop(Called, None)


def test_an_adapter_serves_the_measurements_with_and_without_its_step():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(0.5 * torch.eye(4))

    def own(m: Own) -> DrivenSystem:
        return DrivenSystem(
            LureSystem(np.zeros((4, 4)), np.eye(4), m.W.detach().double().numpy(), dt=1.0), "tanh", np.eye(4)
        )

    x, made = torch.randn(3, 5, 4), []
    for step in (None, lambda m, x, h: torch.tanh(h @ m.W.T + x)):
        register_adapter(Own, step=step, replace=True)(own)
        made.append(norm_drift(Own(), x).mean)
        assert "W" in only_layer(Own()).matrices()
    np.testing.assert_allclose(made[0], made[1], rtol=1e-6)


def test_what_is_no_cell_is_refused_with_what_to_say():
    class Bare(nn.Module):
        def step(self, x, h):
            return h

    with pytest.raises(ConfigurationError):
        register_cell(Bare, step="advance")
    with pytest.raises(ConfigurationError):
        register_cell(Cell)
    register_cell(Bare)
    try:
        with pytest.raises(ConfigurationError):
            norm_drift(Bare(), torch.ones(1, 2, 3))
    finally:
        CELLS.pop(Bare)
    with pytest.raises(DimensionError):
        StepLayer(lambda x, h: h[:, :1], P, N)(torch.ones(1, 2, P))
    with pytest.raises(ConfigurationError):
        StepLayer(lambda x, h: (h, h), P, N)(torch.ones(1, 2, P))
