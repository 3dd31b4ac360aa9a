"""Capabilities of every layer: its walk, its states, its time base, gaps, bounds and laws; and their users."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import SpectrumTracker, contraction_gap, norm_drift
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import LRU, ElmanRNN, RotRNN, SequenceModel, Stack, describe

from .every_layer import (
    EVERY,
    HIDDEN,
    INPUT,
    LeakyRNN,
    drawn_like,
    flat,
    inputs,
    leaves,
    make,
    own_layers,  # noqa: F401 - a fixture
)


@EVERY
def test_a_walk_is_the_forward_pass(name):
    layer, x = make(name), inputs()
    outputs, final = layer(x)
    steps = list(layer.walk(x))
    assert len(steps) == x.shape[1]
    for t, step in enumerate(steps):
        torch.testing.assert_close(layer.output(step.after, step.drive, step.prepared), outputs[:, t])
        if t:
            assert step.before is steps[t - 1].after
    for one, other in zip(leaves(steps[-1].after), leaves(final), strict=True):
        torch.testing.assert_close(one, other)
    hidden = layer.states(x)
    torch.testing.assert_close(hidden, torch.stack([layer.hidden(step.after) for step in steps], dim=1))
    if layer.outputs_hidden:
        torch.testing.assert_close(hidden, outputs)
    going_on = list(layer.walk(x[:, 2:], steps[1].after))
    torch.testing.assert_close(layer.hidden(going_on[-1].after), layer.hidden(final))


@EVERY
def test_hidden_states_and_the_state_of_the_system(name):
    """Every layer inside has its hidden state, the top one last; the system's state is laid out as documented."""
    layer = make(name)
    _, state = layer(inputs())
    hidden = layer.hidden_states(state)
    torch.testing.assert_close(hidden[-1], layer.hidden(state))
    depth = sum(getattr(part, "num_layers", 1) for part in getattr(layer, "layers", [layer]))
    assert len(hidden) == depth
    assert all(h.shape[0] == 4 and not h.is_complex() for h in hidden)
    state = drawn_like(state)
    np.testing.assert_array_equal(layer.system_state(state).detach().numpy(), flat(layer, state))


GAPS = ("elman", "lipschitz", "reservoir", "a user's own", "torch.nn.RNN", "torch.nn.RNNCell")


@EVERY
def test_a_contraction_gap_bounds_every_step(name):
    """``|J| <= 1 - duration * gap`` for the Jacobian of any step, whatever the sign of the gap; it can be pushed on."""
    layer = make(name)
    if name not in GAPS:
        with pytest.raises(UnsupportedError):
            layer.contraction_gap()
        return
    gap = layer.contraction_gap()
    gap.backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())
    assert contraction_gap(layer).item() == gap.item()
    bound = 1 - (layer.time_step or 1.0) * gap.item()
    x, h = inputs(20, 1), 2 * torch.randn(20, HIDDEN, dtype=torch.float64)
    for k in range(20):
        J = torch.autograd.functional.jacobian(lambda s, k=k: layer.step(x[k : k + 1, 0], s[None])[1][0], h[k])
        assert torch.linalg.matrix_norm(J, 2).item() <= bound + 1e-12


@EVERY
def test_bounds_of_real_parts_hold_the_eigenvalues(name):
    layer = make(name)
    bounds, matrices = layer.real_part_bounds(), layer.matrices()
    assert set(bounds) <= set(matrices)
    assert set(layer.real_part_bounds(published=True)) == set(bounds)
    assert bool(bounds) == (name in ("lipschitz", "antisymmetric", "a user's own"))
    for key, (low, high) in bounds.items():
        real = torch.linalg.eigvals(matrices[key].detach()).real
        assert low - 1e-12 <= real.min() <= real.max() <= high + 1e-12


@EVERY
def test_a_law_of_norms_is_met_by_white_input(name):
    layer = make(name)
    law = layer.expected_squared_norm(3)
    assert (layer.expected_norm(3) is None) == (law is None) == (not isinstance(layer, (RotRNN, LRU)))
    if law is not None:
        squares = layer.states(inputs(4000, 3)).detach()[:, -1].square().sum(-1)
        assert float(law.sum()) == pytest.approx(layer.expected_norm(3) ** 2)
        assert float(squares.mean()) == pytest.approx(float(law.sum()), abs=5 * float(squares.std()) / 4000**0.5)


def test_what_a_users_layer_says_is_heard():
    """Margins, spectra and norms ask the layer; nothing asks for its class."""
    layer, x = make("a user's own"), inputs(5, 4)
    rows = SpectrumTracker(SequenceModel(layer, 2), margins=["gap"])
    rows.record()
    frame = rows.frame().set_index(["matrix", "quantity"]).value
    assert frame["margins", "contraction_gap"] == pytest.approx(layer.contraction_gap().item())
    low, high = layer.real_part_bounds()["W"]
    assert (frame["W", "prop1_low"], frame["W", "prop1_high"]) == (low, high)
    assert low <= frame["W", "min_real"] <= frame["W", "max_real"] <= high
    drift = norm_drift(layer, x, gradients=False)
    np.testing.assert_allclose(drift.mean[0], layer.states(x).detach().norm(dim=2).mean(0).numpy())
    assert describe(layer) == {"layer": "leaky", "config": {"input_size": INPUT, "hidden_size": HIDDEN, "leak": 0.3}}
    assert repr(layer) == f"LeakyRNN(input_size={INPUT}, hidden_size={HIDDEN}, leak=0.3)"


class ForgetfulRNN(LeakyRNN):
    """Made with an argument that it does not keep."""

    def __init__(self, input_size, hidden_size, *, scale, **options):
        super().__init__(input_size, hidden_size, **options)
        with torch.no_grad():
            self.W.mul_(scale)


def test_an_argument_that_is_not_kept_is_asked_for():
    layer = ForgetfulRNN(INPUT, HIDDEN, scale=0.5, leak=0.1)
    assert repr(layer) == "ForgetfulRNN()"
    with pytest.raises(ConfigurationError):
        layer.config()
    layer.scale = 0.5
    assert layer.config() == {"scale": 0.5, "input_size": INPUT, "hidden_size": HIDDEN, "leak": 0.1} | layer.config()


def test_a_stack_ends_in_a_layer_that_needs_its_input():
    """The output of LRU is ``C x + D u``: known in the middle of a walk too, so that losses have gradients there."""
    stack = Stack([ElmanRNN(INPUT, 4), LRU(4, HIDDEN)]).double()
    x = inputs()
    outputs, _ = stack(x)
    for t, step in enumerate(stack.walk(x)):
        torch.testing.assert_close(stack.output(step.after, step.drive, step.prepared), outputs[:, t])
    assert not stack.outputs_hidden
