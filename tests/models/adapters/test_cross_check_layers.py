"""Layers of this toolkit, classes that a user taught it and quantised modules, run beside their systems."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DisagreementError, UnsupportedError
from stability.models import GRU, LAYERS, LRU, LSTM, ElmanRNN, LipschitzRNN, RotRNN, Stack
from stability.models.adapters.cross_check import (
    _SMALL,
    _coarse,
    _precision,
    _random_like,
    _rounding,
    cross_check_layer,
    cross_check_quantised,
    follow,
    samples,
)
from stability.models.adapters.modules import _ADAPTERS, register_adapter
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
    from stability.models.adapters.cross_check import cross_check

    module = nn.GRU(3, 4)
    subject = as_subject(module)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] += 1e-5
    with pytest.raises(DisagreementError):
        cross_check(module, subject)


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [(torch.float64, 1e-9), (torch.float32, 1e4 * 2.0**-23), (torch.bfloat16, 0.05), (torch.float16, 0.05)],
)
def test_rounding_is_allowed_in_the_precision_in_which_a_layer_computes_its_matrices(dtype, allowed):
    assert _precision(ElmanRNN(2, 3).to(dtype)) == allowed
    assert _precision(nn.RNN(2, 3).to(dtype)) == 1e-9, "its weights are read as they are"
    mixed = ElmanRNN(2, 3)
    mixed.bias = nn.Parameter(mixed.bias.detach().to(dtype))
    assert _precision(mixed) == max(allowed, 1e4 * 2.0**-23), "the coarsest of them counts"


@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("relative", [1e-9, 1e-3])
def test_the_allowance_is_that_of_rounding_and_hardly_more_where_nothing_is_amplified(relative, size):
    """For a map that keeps its state: a hundred times what a thousandth of it changes is less than half of it."""
    keeping = DrivenSystem(LureSystem.linear(np.eye(200), 1.0), "tanh", np.zeros((0, 1)))
    x, state = np.zeros((1, 5, 1)), size * np.random.default_rng(3).choice([-1.0, 1.0], size=(5, 200))
    allowed = _rounding(keeping, x, [state], follow(keeping, x, [state]), relative)
    least = relative * (1.0 + size)
    assert least <= allowed <= 1.5 * least
    assert size == 0.0 or allowed > 1.1 * least


def test_the_allowance_grows_with_what_a_map_makes_of_small_changes():
    """``h+ = 1000 (h1 - h2)`` with equal entries is zero, and the rounding of its state is seen in it."""
    A = 1e3 * np.array([[1.0, -1.0], [1.0, -1.0]])
    system = DrivenSystem(LureSystem.linear(A, 1.0), "tanh", np.zeros((0, 1)))
    x, state = np.zeros((1, 50, 1)), np.ones((50, 2))
    allowed = _rounding(system, x, [state], follow(system, x, [state]), 1e-9)
    assert 1e-7 < allowed < 1e-6
    driven = DrivenSystem(LureSystem.linear(np.zeros((1, 1)), 1.0), "tanh", np.zeros((0, 2)), None, [[1e3, -1e3]])
    x, state = np.ones((1, 50, 2)), np.zeros((50, 1))
    assert 1e-7 < _rounding(driven, x, [state], follow(driven, x, [state]), 1e-9) < 1e-6


def test_numbers_that_are_rounded_in_single_precision_are_no_disagreement_for_a_users_step(authors):
    """The orthogonal matrix is computed in single precision by the user's class, and in double by its copy."""

    def convert(m):
        system = LureSystem(np.zeros((3, 3)), np.eye(3), m.W.detach().double().numpy().T, dt=1.0)
        return DrivenSystem(system, "tanh", m.U.weight.detach().double().numpy(), m.U.bias.detach().double().numpy())

    torch.manual_seed(0)
    register_adapter(authors, step=lambda m, x, h: m(x, h))(convert)
    module = authors()
    torch.nn.utils.parametrizations.orthogonal(module, "W")
    with torch.no_grad():
        module.parametrizations.W.original.add_(0.3 * torch.randn(3, 3))
    assert as_subject(module).inputs == 2


def test_a_step_that_warns_is_run_and_a_long_reason_is_cut(authors):
    def warns(m, x, h):
        warnings.warn("slow", stacklevel=2)
        return m(x, h)

    def fails(m, x, h):
        raise ValueError(f"  {'y' * 500}")

    register_adapter(authors, step=warns)(adapter(right=True))
    assert as_subject(authors()).inputs == 2
    register_adapter(authors, step=fails, replace=True)(adapter(right=True))
    with pytest.raises(UnsupportedError) as caught:
        as_subject(authors())
    assert str(caught.value).endswith(f"ValueError: {'y' * 160}")


def test_a_step_that_ends_the_program_is_no_agreement(authors):
    def leaves(m, x, h):
        raise SystemExit(0)

    register_adapter(authors, step=leaves)(adapter(right=True))
    with pytest.raises(UnsupportedError, match="cannot be run beside its system: SystemExit: 0"):
        as_subject(authors())


def test_random_states_are_as_large_as_those_of_torchs_modules():
    leaf = torch.zeros(6, 400, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = _random_like((leaf, [leaf.to(torch.complex64)]), generator)
    for values, kind in ((drawn[0], torch.float64), (drawn[1][0], torch.complex64)):
        assert values.dtype == kind
        sizes = values.abs().square().mean(1).sqrt().numpy()
        assert sizes[0] == 0.0
        np.testing.assert_allclose(sizes, samples_scales(), rtol=0.25)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_module_that_amplifies_its_rounding_is_judged_by_one_step():
    """After three steps of such weights nothing is left of what the roundings had in common."""
    torch.manual_seed(1)
    cell = nn.RNNCell(3, 16)
    with torch.no_grad():
        cell.weight_hh.copy_(2 * torch.randn(16, 16))
    try:
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(cell), {nn.RNNCell})[0]
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"this torch does not quantise: {error}")
    assert as_subject(module).inputs == 3


def test_samples_of_quantised_modules_hold_rest_and_stay_small():
    """Their inputs and states are rounded to steps of the largest entry: large ones would hide small ones."""
    cell = DrivenSystem(LureSystem.linear(np.eye(400), 1.0), "tanh", np.zeros((0, 2)))
    x, (state,) = samples(cell, 1, _SMALL)
    assert not x[:, 0].any()
    assert not state[0].any()
    assert 0.05 < state[1].std() < 0.2
    assert 0.2 < state[1:].std() < 0.6


@pytest.mark.parametrize("size", [0.01, 1.0, 50.0])
def test_quantised_numbers_are_moved_one_by_one_and_by_one_step_at_most(size):
    array = size * np.linspace(-1.0, 0.5, 4000).reshape(2, 20, 100)
    steps = (_coarse(array, np.random.default_rng(5)) - array) * 127.0 / size
    assert np.abs(steps).max() <= 1.0 + 1e-9
    assert steps.max() > 0.99
    assert steps.min() < -0.99
    for axis in range(3):
        assert np.abs(np.diff(steps, axis=axis)).max() > 1.0, "neighbours along no axis move together"
    np.testing.assert_allclose(np.mean(np.square(steps)), 1 / 3, rtol=0.1)


def samples_scales():
    """Of the states that are drawn for torch's own modules, from many of them."""
    cell = DrivenSystem(LureSystem.linear(np.eye(400), 1.0), "tanh", np.zeros((0, 1)))
    return np.sqrt(np.square(samples(cell, 1)[1][0]).mean(1))


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
    with pytest.raises(DisagreementError, match="does not compute what its weights describe"):
        as_subject(layer)
