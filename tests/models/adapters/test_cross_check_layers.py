"""Layers of this toolkit, classes that a user taught it and quantised modules, run beside their systems."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DisagreementError, UnsupportedError
from stability.models import GRU, LAYERS, LRU, LSTM, ElmanRNN, LipschitzRNN, RotRNN, Stack
from stability.models.adapters.cross_check import (
    _rounding,
    cross_check_layer,
    cross_check_quantized,
    run_subject,
)
from stability.models.adapters.modules import _ADAPTERS, register_adapter
from stability.models.gated_linear.block import GatedLinearBlock
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
            if name != "rotrnn" and not issubclass(make, GatedLinearBlock)  # no system to compare with
        ],
    ],
)
def test_layers_of_this_toolkit_pass_in_both_precisions(layer):
    for dtype in (torch.float32, torch.float64):
        cross_check_layer(layer.to(dtype), layer.driven())
    cross_check_layer(RotRNN(3, 4, heads=2, bidirectional=True), None)  # takes no state: not compared


def test_a_state_of_another_size_is_a_disagreement():
    with pytest.raises(DisagreementError):
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
    with pytest.raises(DisagreementError):
        as_subject(module)
    register_adapter(authors, replace=True)(adapter(right=False))
    assert as_subject(module).inputs == 2, "without a step nothing can be compared"
    register_adapter(authors, step=lambda m, x, h: m(x, h), replace=True)(lambda m: LureSystem.linear([[-1.0]]))
    assert as_subject(module).states == 1, "a bare system runs nothing"
    register_adapter(authors, step=lambda m, x, h: h.nonsense, replace=True)(adapter(right=True))
    with pytest.raises(UnsupportedError):
        as_subject(module)


def test_an_adapter_speaks_for_subclasses_that_run_the_same_methods(authors):
    class Child(authors):
        pass

    class Other(authors):
        def forward(self, x, h):
            return h + super().forward(x, h)

    register_adapter(authors)(adapter(right=True))
    assert as_subject(Child()).inputs == 2
    with pytest.raises(UnsupportedError):
        as_subject(Other())


def test_a_second_adapter_for_a_class_is_asked_for(authors):
    first = adapter(right=True)
    register_adapter(authors)(first)
    register_adapter(authors)(first)
    with pytest.raises(ConfigurationError):
        register_adapter(authors)(adapter(right=False))
    with pytest.raises(ConfigurationError):
        register_adapter(authors, step=lambda m, x, h: h)(first)
    assert _ADAPTERS[authors] == (first, None)
    with pytest.raises(ConfigurationError):
        register_adapter(authors, step=3)
    with pytest.raises(ConfigurationError):
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
        cross_check_quantized(module, as_subject(negated))
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError):
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
        with pytest.raises(DisagreementError):
            cross_check_layer(layer, subject)


def test_weights_of_torch_itself_are_compared_in_double_precision_whatever_their_own():
    """Only what computes its matrices in single precision may differ by single precision."""
    from stability.models.adapters.cross_check import cross_check

    module = nn.GRU(3, 4)
    subject = as_subject(module)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] += 1e-5
    with pytest.raises(DisagreementError):
        cross_check(module, subject)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("relative", [1e-9, 1e-3])
def test_the_allowance_is_that_of_rounding_and_hardly_more_where_nothing_is_amplified(relative, size):
    """For a map that keeps its state: a hundred times what a thousandth of it changes is less than half of it."""
    keeping = DrivenSystem(LureSystem.linear(np.eye(200), 1.0), "tanh", np.zeros((0, 1)))
    x, state = np.zeros((1, 5, 1)), size * np.random.default_rng(3).choice([-1.0, 1.0], size=(5, 200))
    allowed = _rounding(keeping, x, [state], run_subject(keeping, x, [state]), relative)
    least = relative * (1.0 + size)
    assert least <= allowed <= 1.5 * least
    assert size == 0.0 or allowed > 1.1 * least


def test_a_step_that_ends_the_program_is_no_agreement(authors):
    def leaves(m, x, h):
        raise SystemExit(0)

    register_adapter(authors, step=leaves)(adapter(right=True))
    with pytest.raises(UnsupportedError):
        as_subject(authors())


@pytest.mark.parametrize(
    ("make", "attribute", "value"),
    [
        (lambda: ElmanRNN(2, 3), "_phi", lambda z: 3 * torch.tanh(z)),
        (lambda: ElmanRNN(2, 3), "activation", "relu"),
        (lambda: LipschitzRNN(2, 3), "_phi", torch.sin),
        (lambda: Stack([ElmanRNN(2, 3), ElmanRNN(3, 2)]).layers[1], "_phi", torch.nn.functional.softplus),
    ],
)
def test_a_layer_of_ours_with_an_attribute_set_to_something_else(make, attribute, value):
    layer = make()
    assert as_subject(layer) is not None
    setattr(layer, attribute, value)
    with pytest.raises(DisagreementError):
        as_subject(layer)
