"""What makes a module run another map than its weights describe is refused by its name, before anything is run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from stability.conversion.subjects import as_subject
from stability.errors import UnsupportedError
from stability.models import ElmanRNN, LipschitzRNN, SequenceModel, Stack, lure_system, sources
from stability.models.adapters import torch_modules as readers
from stability.models.adapters.inspection import is_reparametrised, settled, twin
from stability.models.adapters.modules import recurrent_parts, recurrent_subject


@pytest.fixture(autouse=True)
def by_name_alone(monkeypatch):
    """Nothing here may rest on the numerical comparison, which is tested by itself."""
    monkeypatch.setattr(readers, "cross_check", lambda *_: None)
    monkeypatch.setattr("stability.models.adapters.modules.cross_check_layer", lambda *_: None)


class Residual(nn.RNNCell):
    def forward(self, x, h=None):
        return h + super().forward(x, h)


class Scaled(nn.RNN):
    def forward(self, x, h=None):
        outputs, h = super().forward(x, h)
        return 3 * outputs, 3 * h


class Called(nn.GRU):
    def __call__(self, *args):
        outputs, h = super().__call__(*args)
        return outputs, 2 * h


class CalledInside(nn.GRU):
    def _call_impl(self, *args):
        outputs, h = super()._call_impl(*args)
        return outputs, 2 * h


class Looked(nn.GRU):
    def __getattr__(self, name):
        return super().__getattr__(name)


class LookedFirst(nn.GRU):
    def __getattribute__(self, name):
        return super().__getattribute__(name)


class Wrapped(nn.GRU):
    def _wrapped_call_impl(self, *args):
        return super()._wrapped_call_impl(*args)


class Checked(nn.RNN):
    def check_forward_args(self, *args):
        return None


class Measured(nn.GRU):
    def check_input(self, x, batch_sizes):
        x.mul_(2) if x.dtype == torch.float32 else None  # shows in the precision that the user runs, and there alone


class Permuted(nn.LSTM):
    def permute_hidden(self, state, order):
        return state


class Same(nn.RNN):
    """More parameters and methods, the same map."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head = nn.Parameter(torch.zeros(2))

    def step(self, x):
        return x


class LoudElman(ElmanRNN):
    def transition(self, drive, state, prepared):
        return 2 * super().transition(drive, state, prepared)


def overriding(method):
    """A subclass that overrides one method of the contract of layers, whatever it does there."""

    def other(self, *args, **options):
        return getattr(ElmanRNN, method)(self, *args, **options)

    return type(f"With_{method}", (ElmanRNN,), {method: other})


@pytest.mark.parametrize(
    "method", ["forward", "step", "transition", "drive", "prepare", "output", "emit", "begin", "initial_state"]
)
def test_every_method_of_the_contract_counts(method):
    with pytest.raises(UnsupportedError, match=f"With_{method} overrides ElmanRNN.{method}"):
        as_subject(overriding(method)(2, 3))


class QuietElman(ElmanRNN):
    pass


class OwnWords(ElmanRNN):
    """Overrides the step, and says itself which system that is."""

    def transition(self, drive, state, prepared):
        return super().transition(drive, state, prepared)

    def driven(self, continuous=False):
        return super().driven(continuous)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Residual(2, 3), "Residual overrides RNNCell.forward"),
        (Scaled(2, 3), "Scaled overrides RNN.forward"),
        (Called(2, 3), "Called overrides GRU.__call__"),
        (CalledInside(2, 3), "CalledInside overrides GRU._call_impl"),
        (Looked(2, 3), "Looked overrides GRU.__getattr__"),
        (LookedFirst(2, 3), "LookedFirst overrides GRU.__getattribute__"),
        (Wrapped(2, 3), "Wrapped overrides GRU._wrapped_call_impl"),
        (Checked(2, 3), "Checked overrides RNN.check_forward_args"),
        (Measured(2, 3), "Measured overrides GRU.check_input"),
        (Permuted(2, 3), "Permuted overrides LSTM.permute_hidden"),
        (LoudElman(2, 3), "LoudElman overrides ElmanRNN.transition"),
        (Stack([ElmanRNN(2, 2), LoudElman(2, 2)]), "LoudElman overrides"),
        (SequenceModel(LoudElman(2, 3), 2), "LoudElman overrides"),
    ],
)
def test_an_overridden_method_is_refused_by_name(module, words):
    with pytest.raises(UnsupportedError, match=words) as caught:
        as_subject(module)
    assert "register_adapter(" in str(caught.value)
    if not isinstance(module, SequenceModel):
        with pytest.raises(UnsupportedError, match=f"part: {words}"):
            recurrent_parts(nn.ModuleDict({"part": module}))


def test_subclasses_that_run_the_same_map_are_taken():
    for module in (Same(2, 3), QuietElman(2, 3), OwnWords(2, 3)):
        assert as_subject(module).inputs == 2


def test_a_method_replaced_on_the_instance_is_refused():
    module = nn.GRUCell(2, 3)
    module.forward = lambda x, h: h
    with pytest.raises(UnsupportedError, match="forward of this GRUCell was replaced on the instance"):
        as_subject(module)


def ten_times(module, args, outputs):
    return 10 * outputs


def doubled(module, args):
    return (2 * args[0], *args[1:])


@pytest.mark.parametrize(
    ("register", "hook"), [("register_forward_hook", ten_times), ("register_forward_pre_hook", doubled)]
)
@pytest.mark.parametrize(
    "make", [lambda: nn.RNNCell(2, 3), lambda: ElmanRNN(2, 3), lambda: SequenceModel(ElmanRNN(2, 3), 2).layer]
)
def test_a_hook_is_refused_by_name_and_taken_back(register, hook, make):
    module = make()
    handle = getattr(module, register)(hook)
    with pytest.raises(UnsupportedError, match=rf"forward hook \({hook.__name__}\)"):
        as_subject(module)
    handle.remove()
    assert as_subject(module).inputs == 2


def test_a_hook_inside_a_layer_is_refused_with_its_place():
    stack = Stack([ElmanRNN(2, 3), ElmanRNN(3, 3)])
    stack.layers[1].register_forward_hook(ten_times)
    with pytest.raises(UnsupportedError, match=r"forward hook on layers\.1 \(ten_times\)"):
        as_subject(stack)


def test_a_hook_of_every_module_is_refused():
    handle = nn.modules.module.register_module_forward_hook(ten_times)
    try:
        with pytest.raises(UnsupportedError, match=r"global forward hook \(ten_times\)"):
            as_subject(nn.RNN(2, 3))
    finally:
        handle.remove()
    handle = nn.modules.module.register_module_forward_pre_hook(doubled)
    try:
        with pytest.raises(UnsupportedError, match=r"global forward hook \(doubled\)"):
            as_subject(nn.RNN(2, 3))
    finally:
        handle.remove()
    assert as_subject(nn.RNN(2, 3)).inputs == 2


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_dropout_in_training_mode_is_refused(kind):
    module = kind(2, 3, 2, dropout=0.5)
    with pytest.raises(UnsupportedError, match=rf"{kind.__name__} is in training mode with dropout.*module\.eval\(\)"):
        as_subject(module)
    with pytest.raises(UnsupportedError, match=r"rnn: .*training mode with dropout"):
        recurrent_parts(nn.ModuleDict({"rnn": module}))
    assert as_subject(module.eval()).levels == 2
    assert as_subject(kind(2, 3, 2, dropout=0.0)).levels == 2


def old_weight_norm(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.utils.weight_norm(module, "weight_hh_l0")
    with torch.no_grad():
        module.weight_hh_l0_g.mul_(5.0)
    return module


def pruned(module):
    prune.l1_unstructured(module, "weight_hh_l0", 0.5)
    with torch.no_grad():
        module.weight_hh_l0_orig.mul_(5.0)
    return module


@pytest.mark.parametrize("stale", [old_weight_norm, pruned])
def test_stale_weights_are_recomputed(stale):
    torch.manual_seed(0)
    module = stale(nn.RNN(2, 4))
    stored = module.weight_hh_l0.detach().clone()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    read = lure_system(module).C
    assert np.abs(read - stored.numpy()).max() > 1.0, "the stored product is five times smaller"
    assert torch.equal(module.weight_hh_l0, stored), "the module itself is left alone"
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    module(torch.zeros(1, 1, 2))  # a forward pass recomputes the product
    np.testing.assert_array_equal(read, module.weight_hh_l0.detach().double().numpy())


def test_a_forward_hook_beside_weight_norm_is_refused():
    module = old_weight_norm(nn.RNN(2, 4))
    module.register_forward_hook(ten_times)
    with pytest.raises(UnsupportedError, match="ten_times"):
        as_subject(module)


def test_spectral_norm_changes_the_weight_at_every_pass_of_training():
    torch.manual_seed(0)
    old, new = nn.RNN(2, 32), nn.RNN(2, 32)
    torch.nn.utils.spectral_norm(old, "weight_hh_l0")
    parametrizations.spectral_norm(new, "weight_hh_l0")
    with pytest.raises(UnsupportedError, match=r"spectral_norm of weight_hh_l0 changes.*module\.eval\(\)"):
        as_subject(old)
    with pytest.raises(UnsupportedError, match=r"weight_hh_l0 of this RNN changes each time.*module\.eval\(\)"):
        as_subject(new)
    for module in (old, new):
        read = lure_system(module.eval()).C
        module(torch.zeros(1, 1, 2))
        np.testing.assert_array_equal(read, module.weight_hh_l0.detach().double().numpy())


def test_parametrised_weights_are_read_from_a_copy():
    torch.manual_seed(0)
    module = nn.RNN(2, 32)
    parametrizations.spectral_norm(module, "weight_hh_l0")
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(UnsupportedError, match="each time"):
        as_subject(module)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


class Negated(nn.Module):
    def forward(self, W):
        return -W


def test_what_is_recomputed_and_what_is_not():
    plain, made = nn.RNN(2, 3), nn.RNN(2, 3)
    assert not is_reparametrised(plain)
    assert settled(plain) is plain
    parametrize.register_parametrization(made, "weight_hh_l0", Negated())
    assert is_reparametrised(made)
    assert settled(made) is not made
    np.testing.assert_array_equal(lure_system(made).C, made.weight_hh_l0.detach().double().numpy())
    hooked = nn.RNN(2, 3)
    hooked.register_forward_hook(ten_times)
    assert not is_reparametrised(hooked)


def test_a_twin_shares_nothing():
    for module in (nn.LSTM(2, 3), old_weight_norm(nn.RNN(2, 4)), pruned(nn.GRU(2, 4))):
        copied = twin(module)
        for key, value in copied.state_dict().items():
            assert value.data_ptr() != module.state_dict()[key].data_ptr()
        with torch.no_grad():
            copied.weight_hh_l0.add_(1.0)
        assert not torch.equal(copied.weight_hh_l0, module.weight_hh_l0)


def test_a_module_that_cannot_be_copied_says_so():
    module = nn.RNN(2, 3)
    module.lock = open(__file__)  # noqa: SIM115
    try:
        with pytest.raises(UnsupportedError, match=r"RNN cannot be copied.*TypeError"):
            twin(module)
    finally:
        module.lock.close()


class OwnForward(SequenceModel):
    def forward(self, x):
        return super().forward(x)


def test_a_network_with_its_own_forward_is_certified_as_a_part():
    assert as_subject(SequenceModel(ElmanRNN(2, 3), 2)).part == ""
    assert as_subject(OwnForward(ElmanRNN(2, 3), 2)).part == "layer of OwnForward"


def test_a_dropout_layer_inside_an_own_class():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.RNNCell(2, 3)
            self.drop = nn.Dropout(0.3)

    from stability.models.adapters.modules import _ADAPTERS, register_adapter

    register_adapter(Cell)(lambda m: recurrent_subject(m.cell))
    try:
        with pytest.raises(UnsupportedError, match="drop is in training mode with dropout"):
            as_subject(Cell())
        assert as_subject(Cell().eval()).inputs == 2
    finally:
        del _ADAPTERS[Cell]


def test_the_differential_equation_of_an_altered_layer_is_refused_too(monkeypatch):
    layer = LipschitzRNN(2, 3)
    monkeypatch.setattr(sources, "_find", lambda spec, cell: sources.Source(layer, layer))
    assert not sources.load_subject("layer", continuous=True).subject.system.is_discrete
    layer.register_forward_hook(ten_times)
    with pytest.raises(UnsupportedError, match="ten_times"):
        sources.load_subject("layer", continuous=True)


def test_dropout_that_drops_nothing_is_none():
    module = nn.GRU(2, 3)
    module.drop = nn.Dropout(0.0)
    assert as_subject(module).inputs == 2
    module.drop = nn.Dropout2d(1e-3)
    with pytest.raises(UnsupportedError, match="drop is in training mode with dropout"):
        as_subject(module)
