"""Laws of every run of a layer that was read from a checkpoint."""

from __future__ import annotations

import numpy as np

from stability.kernel.theorems.gated_linear_bounds import BOUNDS
from stability.systems import GatedLinearLayer

from ...stability.gated_runs import decays, unit_norms


def state_bounds(layer: GatedLinearLayer):
    """Proved bounds of the states by the theorem of the layer's injection."""
    kind = next(k for k, (types, _) in BOUNDS.items() if k.endswith("_bound") and isinstance(layer.injection, types))
    return BOUNDS[kind][1](layer)


def assert_bounds_hold(layer: GatedLinearLayer, u, states) -> None:
    """Compare inputs, decays and states of a run with what is proved of them."""
    below, above = layer.input_set.bounds
    assert (u >= below - 1e-5).all()
    assert (u <= above + 1e-5).all()
    low, high = layer.gate.log_decay
    log_a = np.log(decays(layer.gate, u))
    assert (log_a >= low - 1e-9 * np.abs(low)).all()
    assert (log_a <= high + 1e-9 * (np.abs(high) + 1e-6)).all()
    sizes = unit_norms(layer, states)
    bounds = np.linalg.norm(state_bounds(layer).reshape(sizes.shape[1], -1), axis=1)  # of key channels: of their head
    assert (sizes <= bounds * (1 + 1e-12)).all()


def extreme_inputs(layer: GatedLinearLayer, rng, steps=40):
    """Inputs on the boundary of the ball of a norm: random ones, then one that stays."""
    ball = layer.input_set
    z = rng.standard_normal((steps, ball.size))
    z[steps // 2 :] = z[steps // 2]
    z = z - z.mean(axis=1, keepdims=True) if ball.centered else z
    return ball.factor * z * np.sqrt(ball.size) / np.linalg.norm(z, axis=1, keepdims=True) + ball.bias
