"""Modules whose map differs from that of their weights are refused by the cause, before anything is run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from stability.conversion.subjects import as_subject
from stability.errors import UnsupportedError
from stability.models import ElmanRNN, SequenceModel, Stack, lure_system
from stability.models.adapters import torch_modules as readers
from stability.models.adapters.inspection import is_reparametrized, twin, with_current_weights
from stability.models.adapters.modules import recurrent_parts

from .altered import LoudElman, Residual, old_weight_norm, pruned


@pytest.fixture(autouse=True)
def by_name_alone(monkeypatch):
    """Disable the numerical comparison, which has its own tests."""
    monkeypatch.setattr(readers, "cross_check", lambda *_: None)
    monkeypatch.setattr("stability.models.adapters.modules.cross_check_layer", lambda *_: None)


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


def overriding(method):
    """A subclass that overrides one method of the contract of layers, whatever it does there."""

    def other(self, *args, **options):
        return getattr(ElmanRNN, method)(self, *args, **options)

    return type(f"With_{method}", (ElmanRNN,), {method: other})


@pytest.mark.parametrize(
    "method", ["forward", "step", "transition", "drive", "prepare", "output", "emit", "begin", "initial_state"]
)
def test_every_method_of_the_contract_counts(method):
    with pytest.raises(UnsupportedError):
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
    "module",
    [
        Residual(2, 3),
        Scaled(2, 3),
        Called(2, 3),
        CalledInside(2, 3),
        Looked(2, 3),
        LookedFirst(2, 3),
        Wrapped(2, 3),
        Checked(2, 3),
        Measured(2, 3),
        Permuted(2, 3),
        LoudElman(2, 3),
        Stack([ElmanRNN(2, 2), LoudElman(2, 2)]),
        SequenceModel(LoudElman(2, 3), 2),
    ],
)
def test_an_overridden_method_is_refused_by_name(module):
    with pytest.raises(UnsupportedError) as caught:
        as_subject(module)
    assert "register_adapter(" in str(caught.value)
    if not isinstance(module, SequenceModel):
        with pytest.raises(UnsupportedError):
            recurrent_parts(nn.ModuleDict({"part": module}))


def test_subclasses_that_run_the_same_map_are_taken():
    for module in (Same(2, 3), QuietElman(2, 3), OwnWords(2, 3)):
        assert as_subject(module).inputs == 2


def test_a_method_replaced_on_the_instance_is_refused():
    module = nn.GRUCell(2, 3)
    module.forward = lambda x, h: h
    with pytest.raises(UnsupportedError):
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
    with pytest.raises(UnsupportedError):
        as_subject(module)
    handle.remove()
    assert as_subject(module).inputs == 2


def test_a_hook_of_every_module_is_refused():
    handle = nn.modules.module.register_module_forward_hook(ten_times)
    try:
        with pytest.raises(UnsupportedError):
            as_subject(nn.RNN(2, 3))
    finally:
        handle.remove()
    handle = nn.modules.module.register_module_forward_pre_hook(doubled)
    try:
        with pytest.raises(UnsupportedError):
            as_subject(nn.RNN(2, 3))
    finally:
        handle.remove()
    assert as_subject(nn.RNN(2, 3)).inputs == 2


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_dropout_in_training_mode_is_refused(kind):
    module = kind(2, 3, 2, dropout=0.5)
    with pytest.raises(UnsupportedError):
        as_subject(module)
    with pytest.raises(UnsupportedError):
        recurrent_parts(nn.ModuleDict({"rnn": module}))
    assert as_subject(module.eval()).levels == 2
    assert as_subject(kind(2, 3, 2, dropout=0.0)).levels == 2


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
    np.testing.assert_allclose(read, module.weight_hh_l0.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_a_forward_hook_beside_weight_norm_is_refused():
    module = old_weight_norm(nn.RNN(2, 4))
    module.register_forward_hook(ten_times)
    with pytest.raises(UnsupportedError):
        as_subject(module)


def test_spectral_norm_changes_the_weight_at_every_pass_of_training():
    torch.manual_seed(0)
    old, new = nn.RNN(2, 32), nn.RNN(2, 32)
    torch.nn.utils.spectral_norm(old, "weight_hh_l0")
    parametrizations.spectral_norm(new, "weight_hh_l0")
    with pytest.raises(UnsupportedError):
        as_subject(old)
    with pytest.raises(UnsupportedError):
        as_subject(new)
    for module in (old, new):
        read = lure_system(module.eval()).C
        module(torch.zeros(1, 1, 2))
        np.testing.assert_allclose(read, module.weight_hh_l0.detach().numpy(), rtol=1e-6, atol=1e-6)


class Negated(nn.Module):
    def forward(self, W):
        return -W


def test_what_is_recomputed_and_what_is_not():
    plain, made = nn.RNN(2, 3), nn.RNN(2, 3)
    assert not is_reparametrized(plain)
    assert with_current_weights(plain) is plain
    parametrize.register_parametrization(made, "weight_hh_l0", Negated())
    assert is_reparametrized(made)
    assert with_current_weights(made) is not made
    np.testing.assert_array_equal(lure_system(made).C, made.weight_hh_l0.detach().double().numpy())
    hooked = nn.RNN(2, 3)
    hooked.register_forward_hook(ten_times)
    assert not is_reparametrized(hooked)


def test_a_twin_shares_nothing():
    for module in (nn.LSTM(2, 3), old_weight_norm(nn.RNN(2, 4)), pruned(nn.GRU(2, 4))):
        copied = twin(module)
        for key, value in copied.state_dict().items():
            assert value.data_ptr() != module.state_dict()[key].data_ptr()
        with torch.no_grad():
            copied.weight_hh_l0.add_(1.0)
        assert not torch.equal(copied.weight_hh_l0, module.weight_hh_l0)


class OwnForward(SequenceModel):
    def forward(self, x):
        return super().forward(x)


def test_a_network_with_its_own_forward_is_certified_as_a_part():
    assert as_subject(SequenceModel(ElmanRNN(2, 3), 2)).part == ""
    assert as_subject(OwnForward(ElmanRNN(2, 3), 2)).part == "layer of OwnForward"
