"""Layers of this toolkit, classes that a user taught it and quantised modules, run beside their systems."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import ConfigurationError, DisagreementError, UnsupportedError
from stability.models import GRU, LAYERS, LRU, LSTM, ElmanRNN, LipschitzRNN, RotRNN, Stack
from stability.models.adapters import _ADAPTERS, register_adapter
from stability.models.cross_check import cross_check_layer, cross_check_quantised
from stability.subjects import as_subject
from stability.systems import DrivenSystem, LureSystem


@pytest.mark.parametrize(
    "layer",
    [
        LSTM(3, 4, num_layers=3),
        GRU(3, 4, num_layers=2),
        Stack([LipschitzRNN(3, 6, dt=0.2), LSTM(6, 5), GRU(5, 4), ElmanRNN(4, 7)]),
        Stack([LRU(3, 4), RotRNN(3, 4, heads=2)]),
        *[
            make(3, 8, **{"unitary": {"activation": "tanh"}}.get(name, {}))
            for name, make in LAYERS.items()
            if name != "rotrnn"
        ],
    ],
)
def test_layers_of_this_toolkit_pass_in_both_precisions(layer):
    for dtype in (torch.float32, torch.float64):
        cross_check_layer(layer.to(dtype), layer.driven())
    cross_check_layer(RotRNN(3, 4, heads=2, bidirectional=True), None)  # takes no state: not compared


def test_a_state_of_another_size_is_a_disagreement():
    with pytest.raises(DisagreementError, match="holds 3 numbers, one of its system 4"):
        cross_check_layer(ElmanRNN(2, 3), ElmanRNN(2, 4).driven())


@pytest.fixture
def authors():
    class AuthorsRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.U, self.W = nn.Linear(2, 3), nn.Parameter(torch.randn(3, 3))

        def forward(self, x, h):
            return torch.tanh(h @ self.W + self.U(x))

    yield AuthorsRNN
    _ADAPTERS.pop(AuthorsRNN, None)


def adapter(right):
    def convert(m):
        W = m.W.detach().double().numpy()
        system = LureSystem(np.zeros((3, 3)), np.eye(3), W.T if right else W, dt=1.0)
        return DrivenSystem(system, "tanh", m.U.weight.detach().double().numpy(), m.U.bias.detach().double().numpy())

    return convert


def test_a_users_step_is_run_beside_the_users_system(authors):
    module = authors()
    register_adapter(authors, step=lambda m, x, h: m(x, h))(adapter(right=True))
    assert as_subject(module).inputs == 2
    register_adapter(authors, step=lambda m, x, h: m(x, h), replace=True)(adapter(right=False))
    with pytest.raises(DisagreementError, match="the step of AuthorsRNN in training mode does not compute"):
        as_subject(module)
    register_adapter(authors, replace=True)(adapter(right=False))
    assert as_subject(module).inputs == 2, "without a step nothing can be compared"
    register_adapter(authors, step=lambda m, x, h: m(x, h), replace=True)(lambda m: LureSystem.linear([[-1.0]]))
    assert as_subject(module).states == 1, "a bare system runs nothing"
    register_adapter(authors, step=lambda m, x, h: h.nonsense, replace=True)(adapter(right=True))
    with pytest.raises(UnsupportedError, match="cannot be run beside its system: AttributeError"):
        as_subject(module)


def test_an_adapter_speaks_for_subclasses_that_run_the_same_methods(authors):
    class Child(authors):
        pass

    class Other(authors):
        def forward(self, x, h):
            return h + super().forward(x, h)

    register_adapter(authors)(adapter(right=True))
    assert as_subject(Child()).inputs == 2
    with pytest.raises(UnsupportedError, match=r"Other overrides AuthorsRNN\.forward"):
        as_subject(Other())


def test_a_second_adapter_for_a_class_is_asked_for(authors):
    first = adapter(right=True)
    register_adapter(authors)(first)
    register_adapter(authors)(first)
    with pytest.raises(ConfigurationError, match=r"AuthorsRNN has an adapter already.*replace=True"):
        register_adapter(authors)(adapter(right=False))
    with pytest.raises(ConfigurationError, match="already"):
        register_adapter(authors, step=lambda m, x, h: h)(first)
    assert _ADAPTERS[authors] == (first, None)
    with pytest.raises(ConfigurationError, match=r"step must be a function"):
        register_adapter(authors, step=3)
    with pytest.raises(ConfigurationError, match="must be a function of the module"):
        register_adapter(authors, replace=True)(3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(3, 4, 2),
        lambda: nn.GRU(3, 4, batch_first=True),
        lambda: nn.LSTMCell(3, 4),
        lambda: nn.RNNCell(3, 4),
    ],
)
def test_quantised_modules_are_run_too(make, dtype):
    torch.manual_seed(0)
    plain = make()
    try:
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(plain), {type(plain)}, dtype=dtype)[0]
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"this torch does not quantise: {error}")
    subject = as_subject(module)
    negated = make()
    with torch.no_grad():
        for mine, theirs in zip(negated.parameters(), plain.parameters()):
            mine.copy_(-theirs)
    with pytest.raises(DisagreementError):
        cross_check_quantised(module, as_subject(negated))
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="forward hook"):
        as_subject(module)
    assert subject.inputs == 3


@pytest.mark.parametrize("seed", [3, 4])
def test_the_order_of_the_states_of_several_layers_matters(seed):
    """One weight of one layer moved: the layers' states must be compared where they belong."""
    torch.manual_seed(seed)
    for layer in (LSTM(3, 4, num_layers=2), GRU(3, 4, num_layers=2), Stack([LRU(3, 4), LRU(3, 4)])):
        layer.double()
        subject = layer.driven()
        with torch.no_grad():
            next(layer.parameters()).view(-1)[0] += 1e-2
        with pytest.raises(DisagreementError, match="in training mode does not compute"):
            cross_check_layer(layer, subject)


def test_weights_of_torch_itself_are_compared_in_double_precision_whatever_their_own():
    """Only what computes its matrices in single precision may differ by single precision."""
    from stability.models.cross_check import cross_check

    module = nn.GRU(3, 4)
    subject = as_subject(module)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] += 1e-5
    with pytest.raises(DisagreementError):
        cross_check(module, subject)
