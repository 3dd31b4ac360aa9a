"""The module is run beside its system: with every refusal by name switched off, each altered map is still noticed."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from stability.conversion.subjects import as_subject
from stability.errors import DisagreementError, UnsupportedError
from stability.kernel.format.serialization import digest_of
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.models import ElmanRNN, SequenceModel, Stack
from stability.models.adapters import modules as doors
from stability.models.adapters import torch_modules as readers
from stability.models.adapters.cross_check import (
    compare,
    cross_check,
    run_subject,
)
from stability.models.adapters.modules import recurrent_parts
from stability.systems import DrivenSystem, LureSystem

from .altered import LoudElman, Residual, old_weight_norm, pruned


@pytest.fixture
def numbers_alone(monkeypatch):
    """No refusal by name, no weight recomputed: the comparison has to find everything."""
    for room in (readers, doors):
        monkeypatch.setattr(room, "refuse_altered", lambda *_: None)
        monkeypatch.setattr(room, "with_current_weights", lambda module: module)


class Scaled(nn.RNN):
    def forward(self, x, h=None):
        outputs, h = super().forward(x, h)
        return outputs, 1.5 * h


class FeedsBack(nn.GRU):
    """Only the outputs of later steps differ: one step alone would not show it."""

    def forward(self, x, h=None):
        outputs, h = super().forward(x, h)
        return outputs + 0.1 * (torch.arange(len(outputs)) > 0)[:, None, None], h


def hooked(module):
    module.register_forward_hook(lambda m, args, out: 10 * out if torch.is_tensor(out) else (10 * out[0], out[1]))
    return module


def prehooked(module):
    module.register_forward_pre_hook(lambda m, args: (2 * args[0], *args[1:]))
    return module


def replaced(module):
    inner = type(module).forward
    module.forward = lambda x, h: 0.5 * inner(module, x, h)
    return module


def renamed(module):
    module.nonlinearity = "relu"  # forward looks at module.mode
    return module


ALTERED = {
    "residual": lambda: Residual(2, 3),
    "scaled state": lambda: Scaled(2, 3),
    "later outputs": lambda: FeedsBack(2, 3),
    "hook on a layer": lambda: hooked(nn.LSTM(2, 3)),
    "hook on a cell": lambda: hooked(nn.GRUCell(2, 3)),
    "hook on our layer": lambda: hooked(ElmanRNN(2, 3)).layer_name and prehooked(ElmanRNN(2, 3)),
    "pre-hook": lambda: prehooked(nn.RNN(2, 3)),
    "replaced": lambda: replaced(nn.RNNCell(2, 3).double()),
    "dropout": lambda: nn.RNN(2, 8, 2, dropout=0.5),
    "weight norm": lambda: old_weight_norm(nn.RNN(2, 3)),
    "prune": lambda: pruned(nn.GRU(2, 3)),
    "nonlinearity": lambda: renamed(nn.RNN(2, 3)),
    "our layer": lambda: LoudElman(2, 3),
    "in our stack": lambda: Stack([ElmanRNN(2, 2), LoudElman(2, 2)]),
    "in our network": lambda: SequenceModel(LoudElman(2, 3), 2),
}


@pytest.mark.parametrize("name", ALTERED)
def test_every_altered_map_is_noticed_by_its_numbers(name, numbers_alone):
    torch.manual_seed(0)
    with pytest.raises(DisagreementError) as e:
        as_subject(ALTERED[name]())
    theirs, ours = re.search(
        r"it gives (\S+) where the system read from its weights gives (\S+) ", str(e.value)
    ).groups()
    assert abs(float(theirs) - float(ours)) > 1e-3


def test_the_same_in_a_container_names_the_part(numbers_alone):
    with pytest.raises(DisagreementError):
        recurrent_parts(nn.ModuleDict({"decoder": Residual(2, 3)}))


TAKEN = [
    lambda: nn.RNN(3, 4),
    lambda: nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True),
    lambda: nn.RNN(3, 4, 2, bidirectional=True, bias=False),
    lambda: nn.LSTM(3, 4, 2, batch_first=True),
    lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    lambda: nn.GRU(3, 4, 3),
    lambda: nn.GRU(3, 4, bidirectional=True, batch_first=True),
    lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
    lambda: nn.LSTMCell(3, 4, bias=False),
    lambda: nn.GRUCell(3, 4),
    lambda: nn.GRU(3, 4).half(),
    lambda: nn.LSTM(3, 4).bfloat16(),
    lambda: nn.GRU(3, 4, 2, dropout=0.5).eval(),
]


@pytest.mark.parametrize("make", TAKEN)
def test_what_runs_its_weights_passes_and_is_left_alone(make):
    torch.manual_seed(0)
    module = make()
    training, before = module.training, {k: v.clone() for k, v in module.state_dict().items()}
    state = torch.get_rng_state()
    as_subject(module)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training is training
    after = module.state_dict()
    assert all(torch.equal(before[k], after[k]) and before[k].dtype == after[k].dtype for k in before)


@pytest.mark.parametrize("make", TAKEN)
def test_any_other_number_in_a_weight_is_noticed(make):
    """The comparison at its edge: one entry of one weight of the last layer moved by a thousandth."""
    torch.manual_seed(0)
    module = make().double().eval()
    subject = as_subject(module)
    with torch.no_grad():
        list(module.parameters())[-1].view(-1)[0] += 1e-3
    with pytest.raises(DisagreementError):
        cross_check(module, subject)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3, 1e6])
def test_rounding_of_wild_weights_is_no_disagreement(scale):
    for make in (
        lambda: nn.RNN(3, 16, 2),
        lambda: nn.RNN(3, 16, nonlinearity="relu"),
        lambda: nn.LSTM(3, 8),
        lambda: nn.GRU(3, 8),
    ):
        torch.manual_seed(1)
        module = make()
        with torch.no_grad():
            for value in module.parameters():
                value.mul_(scale)
        subject = as_subject(module)  # raises where the two disagree
        first = subject.layers[0] if isinstance(subject, LayerStack) else subject
        read = first.w_hh if isinstance(first, GatedCell) else first.system.C
        assert abs(read).max() == module.weight_hh_l0.abs().max().item()


def test_a_default_dtype_autocast_and_inference_mode_change_nothing():
    module = nn.GRU(3, 4)
    plain = digest_of(as_subject(module))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert digest_of(as_subject(module)) == plain
    with torch.inference_mode():
        assert digest_of(as_subject(module)) == plain
    torch.set_default_dtype(torch.float64)
    try:
        assert digest_of(as_subject(module)) == plain
    finally:
        torch.set_default_dtype(torch.float32)


class Broken(nn.RNNCell):
    def forward(self, x, h=None):
        raise KeyError("not today")


class Wide(nn.RNNCell):
    def forward(self, x, h=None):
        return torch.cat([h, h], -1)


class Undefined(nn.RNNCell):
    def forward(self, x, h=None):
        return float("nan") * h


def test_what_cannot_be_run_or_has_another_shape_is_refused(numbers_alone):
    with pytest.raises(UnsupportedError):
        as_subject(Broken(2, 3))
    with pytest.raises(DisagreementError):
        as_subject(Wide(2, 3))
    with pytest.raises(DisagreementError):
        as_subject(Undefined(2, 3))


class ModeMatters(nn.RNNCell):
    def forward(self, x, h=None):
        out = super().forward(x, h)
        return out if self.training else 0.5 * out


def test_both_modes_are_run(numbers_alone):
    with pytest.raises(DisagreementError):
        as_subject(ModeMatters(2, 3))
    with pytest.raises(DisagreementError):
        as_subject(ModeMatters(2, 3).eval())


def test_reparametrised_weights_are_compared_in_their_own_precision():
    torch.manual_seed(0)
    for make in (parametrizations.orthogonal, parametrizations.weight_norm):
        module = nn.RNN(3, 12)
        make(module, "weight_hh_l0")
        subject = as_subject(module)
        moved = LureSystem(subject.system.A, subject.system.B, subject.system.C * 1.2, dt=1.0)
        with pytest.raises(DisagreementError):
            cross_check(module, DrivenSystem(moved, "tanh", subject.E, subject.b))


def test_the_edge_of_what_rounding_explains():
    subject = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])

    def run(by):
        def moved(x, states):
            outputs, last = run_subject(subject, x, states)
            return outputs + by, last

        return moved

    compare(run(1e-10), subject, "it")
    with pytest.raises(DisagreementError):
        compare(run(1e-8), subject, "it")
    compare(run(1e-8), subject, "it", relative=1e-7)
    with pytest.raises(DisagreementError):
        compare(run(1e-2), subject, "it")
