"""What subjects are called, what readers call their errors, and torch's own modules inside a layer or a class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from stability.conversion.subjects import as_subject
from stability.errors import DisagreementError, NonFiniteError, UnsupportedError
from stability.models import GRU, LSTM, ElmanRNN, recurrent
from stability.models.adapters.cross_check import cross_check_layer
from stability.models.adapters.inspection import twin
from stability.models.adapters.modules import _ADAPTERS, lure_system, recurrent_parts, register_adapter
from stability.models.adapters.quantized import is_quantized
from stability.models.adapters.torch_modules import as_array, from_rows
from stability.models.lure import rnn_subject


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: nn.GRU(3, 4), "GRU l0"),
        (lambda: nn.GRU(3, 4, 2), "GRU"),
        (lambda: nn.LSTM(3, 4, bidirectional=True), "LSTM"),
        (lambda: nn.RNN(3, 4, 2), "RNN"),
        (lambda: nn.LSTMCell(3, 4), "LSTMCell"),
        (lambda: nn.LSTM(3, 4, 2).double(), "LSTM"),
        (lambda: nn.GRU(3, 4, 2).half(), "GRU (float16 weights, converted exactly)"),
        (lambda: nn.RNNCell(3, 4).bfloat16(), "RNNCell (bfloat16 weights, converted exactly)"),
    ],
)
def test_a_subject_is_called_after_its_class_and_what_its_weights_were(make, name):
    assert as_subject(make()).name == name


def test_the_layers_of_a_stack_have_their_own_names():
    stack = as_subject(nn.GRU(3, 4, 2, bidirectional=True).half())
    label = "GRU (float16 weights, converted exactly)"
    assert [part.name for part in stack.layers] == [f"{label} l{k}{back}" for k in (0, 1) for back in ("", "_reverse")]


def test_weights_of_two_kinds_are_both_named():
    cell = nn.RNNCell(3, 4).half()
    cell.bias_ih = nn.Parameter(cell.bias_ih.detach().bfloat16())
    assert as_subject(cell).name == "RNNCell (bfloat16, float16 weights, converted exactly)"


def test_a_parametrised_module_is_called_after_the_class_that_it_was():
    cell = nn.RNNCell(2, 3)
    parametrizations.orthogonal(cell, "weight_hh")
    assert type(cell).__name__ == "ParametrizedRNNCell"
    assert as_subject(cell).name == "RNNCell"


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_stack_says_so_as_a_whole():
    try:
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(3, 4, 2)), {nn.LSTM})[0]
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"this torch does not quantise: {error}")
    assert as_subject(module).name == "LSTM (qint8 weights dequantised exactly; rounding of activations not modelled)"


@pytest.mark.parametrize("home", ["torch.ao.nn.quantized.dynamic", "torch.nn.quantized.dynamic"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell"])
def test_quantised_modules_are_known_in_both_of_their_homes(home, name):
    def kind(module, called):
        return type(called, (), {"__module__": module})()

    assert is_quantized(kind(f"{home}.modules.rnn", name))
    assert not is_quantized(kind(f"{home}.modules.rnn", "Linear"))
    assert not is_quantized(kind(f"my.{home}.modules.rnn", name))


def test_defaults_of_what_users_call_from_their_adapters():
    subject = rnn_subject(0.5 * np.eye(2), [[1.0], [0.0]])
    assert (subject.name, subject.activation, subject.b.tolist()) == ("RNN", "tanh", [0.0, 0.0])
    assert as_array([[1, 2]]).dtype == np.float64
    np.testing.assert_array_equal(from_rows([[1, 2], [3, 4]]), [[1.0, 3.0], [2.0, 4.0]])
    for read in (as_array, from_rows):
        with pytest.raises(NonFiniteError, match=r"^weight "):
            read([[np.nan]])
        with pytest.raises(NonFiniteError, match=r"^W "):
            read([[np.inf]], "W")


def test_who_has_no_lure_system_is_told_what_it_is():
    with pytest.raises(UnsupportedError, match="an LSTM or GRU is no Lur'e system"):
        lure_system(nn.GRU(2, 3))
    with pytest.raises(UnsupportedError, match="a stack with gated layers is no Lur'e system"):
        lure_system(nn.GRU(2, 3, 2))


def test_the_module_itself_is_named_by_its_class_in_errors():
    module = nn.RNN(2, 3)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] = float("inf")
    with pytest.raises(NonFiniteError, match=r"^RNN: weight_hh_l0 "):
        recurrent_parts(module)


class Residual(nn.RNNCell):
    def forward(self, x, h=None):
        return h + super().forward(x, h)


class Holding(ElmanRNN):
    """A layer that holds a module of torch, and says itself which system it is."""

    def __init__(self, part):
        super().__init__(2, 3)
        self.part = part

    def driven(self, continuous=False):
        return super().driven(continuous)


def test_an_altered_module_of_torch_inside_a_layer_is_refused():
    assert as_subject(Holding(nn.RNNCell(2, 3))).inputs == 2
    with pytest.raises(UnsupportedError, match=r"Residual overrides RNNCell\.forward"):
        as_subject(Holding(Residual(2, 3)))


def test_a_quantised_module_inside_a_layer_is_no_altered_one():
    kind = type("LSTM", (nn.Module,), {"__module__": "torch.ao.nn.quantized.dynamic.modules.rnn"})
    assert as_subject(Holding(kind())).inputs == 2


class Steps(nn.Module):
    """Steps through a method of its own; ``forward`` is left to its children."""

    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.5 * torch.eye(2))

    def step(self, x, h):
        return torch.tanh(h @ self.W + x)


class Sequences(Steps):
    def forward(self, x, h):
        for row in x:
            h = self.step(row, h)
        return h


class OtherSteps(Steps):
    def step(self, x, h):
        return 2 * super().step(x, h)


@pytest.fixture
def taught():
    register_adapter(Steps)(lambda m: rnn_subject(from_rows(m.W), np.eye(2)))
    yield
    del _ADAPTERS[Steps]


def test_what_a_class_leaves_to_its_children_they_do_not_override(taught):
    assert as_subject(Sequences()).inputs == 2
    with pytest.raises(UnsupportedError, match=r"OtherSteps overrides Steps\.step"):
        as_subject(OtherSteps())


def test_a_rate_between_layers_that_are_not_there_drops_nothing(taught):
    module = Steps()
    module.dropout = 0.5
    assert as_subject(module).inputs == 2
    module.num_layers = 2
    with pytest.raises(UnsupportedError, match="Steps is in training mode with dropout"):
        as_subject(module)
    for harmless in ({"dropout": 0.0}, {"dropout": nn.Identity()}, {"num_layers": 1}, {"num_layers": "two"}):
        module = Steps()
        for name, value in ({"dropout": 0.5, "num_layers": 2} | harmless).items():
            setattr(module, name, value)
        assert as_subject(module).inputs == 2
    layered = Steps()
    layered.num_layers = 3
    assert as_subject(layered).inputs == 2


class Undefined(nn.Module):
    def forward(self, W):
        return W * float("nan")


def test_a_weight_that_is_computed_as_nan_is_not_called_restless():
    module = nn.RNN(2, 3)
    parametrize.register_parametrization(module, "weight_hh_l0", Undefined(), unsafe=True)
    with pytest.raises(NonFiniteError, match="weight_hh_l0"):
        as_subject(module)


class Stubborn(nn.Module):
    def __deepcopy__(self, memo):
        raise RuntimeError("x" * 500)


class Hook:
    def __call__(self, module, args, out):
        return out


def test_long_reasons_are_cut_and_objects_as_hooks_are_named_by_their_class():
    with pytest.raises(UnsupportedError) as caught:
        twin(Stubborn())
    assert str(caught.value).endswith(f": RuntimeError: {'x' * 120}")
    module = nn.RNN(2, 3)
    module.register_forward_hook(Hook())
    with pytest.raises(UnsupportedError, match=r"RNN has a forward hook \(Hook\)"):
        as_subject(module)


def test_a_layer_of_complex_or_of_no_parameters_is_compared_in_double_precision():
    """Nothing of it is rounded to single precision: a change of a hundred-thousandth shows."""

    class Fixed(ElmanRNN):
        pass

    layer = Fixed(2, 3).double()
    subject = layer.driven()
    for name, value in list(layer.named_parameters()):
        delattr(layer, name)
        layer.register_buffer(name, value.detach().clone())
    cross_check_layer(layer, subject)
    with torch.no_grad():
        next(layer.buffers()).view(-1)[0] += 1e-5
    with pytest.raises(DisagreementError):
        cross_check_layer(layer, subject)


def test_layers_without_dropout_of_several_levels_are_taken_in_training_mode():
    for layer in (LSTM(2, 3, num_layers=2), GRU(2, 3, num_layers=2)):
        assert layer.training
        assert isinstance(layer, recurrent.RecurrentLayer)
        assert as_subject(layer).inputs == 2
