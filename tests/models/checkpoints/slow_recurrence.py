"""Gated linear layers evaluated step by step in float64 from their own arrays, and checks of the proved bounds."""

from __future__ import annotations

import numpy as np

from stability.kernel.theorems.gated_linear_bounds import BOUNDS
from stability.systems import (
    Affine,
    ConstantGate,
    ConvexInjection,
    Convolution,
    DeltaInjection,
    GatedLinearLayer,
    LinearInjection,
    Normalized,
    OuterInjection,
    RatioGate,
    RGLRUGate,
    RootInjection,
    SigmoidGate,
    SiLU,
    SoftplusGate,
    StepInjection,
)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0.0, x)


def capped(x, cap):
    return x if cap is None else cap * np.tanh(x / cap)


def signal(node, u):
    """Values ``(T, size)`` of a signal for inputs ``u (T, d)`` from the beginning of a sequence."""
    if isinstance(node, Affine):
        return signal(node.source, u) @ node.weight.T + node.bias
    if isinstance(node, Convolution):
        x = signal(node.source, u)
        taps = len(node.kernel)
        padded = np.vstack([np.zeros((taps - 1, x.shape[1])), x])
        return node.bias + sum(node.kernel[j] * padded[taps - 1 - j : taps - 1 - j + len(x)] for j in range(taps))
    if isinstance(node, SiLU):
        x = signal(node.source, u)
        return x * sigmoid(x)
    if isinstance(node, Normalized):
        x = signal(node.source, u)
        return node.weight * x / np.sqrt((x * x).mean(axis=1, keepdims=True) + node.eps)
    return u


def step_size(gate, u):
    step = np.maximum(softplus(signal(gate.signal, u)), gate.least)
    return step if gate.most is None else np.minimum(step, gate.most)


def log_decay(gate, u):
    """``ln a`` of every step, ``(T, units)`` or ``(T, units, k)``."""
    if isinstance(gate, SoftplusGate):
        step = step_size(gate, u)
        return -np.exp(gate.log_rate) * (step if gate.log_rate.ndim == 1 else step[:, :, None])
    if isinstance(gate, SigmoidGate):
        share = sigmoid(capped(signal(gate.signal, u), gate.cap)) ** (1.0 / gate.root)
        return np.log(gate.floor + (1.0 - gate.floor) * share)
    if isinstance(gate, RatioGate):
        forget, insert = sigmoid(signal(gate.forget, u)), sigmoid(signal(gate.insert, u))
        return np.log(forget / (forget + insert))
    if isinstance(gate, RGLRUGate):
        return -8.0 * sigmoid(signal(gate.signal, u)) * softplus(gate.parameter)
    assert isinstance(gate, ConstantGate)
    rate = -np.exp(gate.log_rate) if gate.rate is None else gate.rate
    return np.broadcast_to(rate * np.exp(gate.log_step), (len(u), gate.units))


def run(layer: GatedLinearLayer, u, *, keys=None, frequency=None):
    """All states ``(T, units, ...)`` from zero.

    Args:
        layer: the layer.
        u: inputs ``(T, d)``.
        keys: normalized keys ``(T, heads, key_size)`` of a delta rule, which the layer does not hold.
        frequency: imaginary parts of continuous eigenvalues of a time-invariant layer, not held either.
    """
    log_a, injection = log_decay(layer.gate, u), layer.injection
    a, steps = np.exp(log_a), len(u)
    if isinstance(injection, DeltaInjection):
        heads = injection.rate.size
        a = a.reshape(steps, heads, -1)[..., None]
        beta = injection.scale * sigmoid(signal(injection.rate, u))
        values = signal(injection.values, u).reshape(steps, heads, -1)
        state, states = np.zeros((heads, injection.key_size, values.shape[2])), []
        for t in range(steps):
            state = a[t] * state
            error = values[t] - np.einsum("hk,hkv->hv", keys[t], state)
            state = state + beta[t][:, None, None] * keys[t][:, :, None] * error[:, None, :]
            states.append(state)
        return np.array(states)
    if isinstance(injection, StepInjection):
        step = step_size(layer.gate, u)
        x, k = signal(injection.values, u), signal(injection.keys, u)
        if log_a.ndim == 3:
            b = (step * x)[:, :, None] * k[:, None, :]
        else:
            k = np.repeat(k.reshape(steps, injection.groups, -1), layer.units // injection.groups, axis=1)
            b = step[:, :, None, None] * x.reshape(steps, layer.units, -1)[..., None] * k[:, :, None, :]
    elif isinstance(injection, ConvexInjection):
        x = signal(injection.values, u)
        functions = {
            "identity": lambda x: x,
            "silu": lambda x: x * sigmoid(x),
            "min_gru": lambda x: np.where(x >= 0, x + 0.5, sigmoid(x)),
        }
        b = (1.0 - a) * functions[injection.activation](x)
    elif isinstance(injection, RootInjection):
        root = np.sqrt(1.0 - a * a)
        root[0] = 1.0
        b = root * sigmoid(signal(injection.insert, u)) * signal(injection.values, u)
    elif isinstance(injection, OuterInjection):
        k = signal(injection.keys, u).reshape(steps, injection.heads, -1)
        v = signal(injection.values, u).reshape(steps, injection.heads, -1)
        b = k[..., None] * v[:, :, None, :]
        if injection.insert is not None:
            b = b * np.exp(capped(signal(injection.insert, u), injection.cap))[:, :, None, None]
        if layer.units > injection.heads:
            b = b.reshape(steps, layer.units, -1)
    else:
        assert isinstance(injection, LinearInjection)
        pairs = (u @ injection.weight.T).reshape(steps, -1, 2) * np.exp(injection.log_scale)[:, None]
        b = pairs[..., 0] + 1j * pairs[..., 1]
        turn = frequency * np.exp(layer.gate.log_step)
        a = a * np.exp(1j * turn)
        if injection.hold:
            b = b * (a - 1.0) / ((log_a + 1j * turn) / np.exp(layer.gate.log_step))
    a = a.reshape(*a.shape, *([1] * (b.ndim - a.ndim)))
    states = [b[0]]
    for t in range(1, steps):
        states.append(a[t] * states[-1] + b[t])
    return np.array(states)


def unit_sizes(layer: GatedLinearLayer, states):
    """Largest entry of every channel or norm of every head over all steps: what the proved bounds speak of."""
    flat = np.abs(states).reshape(len(states), states.shape[1], -1)
    return (flat if layer.unit != "head" else np.sqrt((flat**2).sum(axis=2, keepdims=True))).max(axis=(0, 2))


def state_bounds(layer: GatedLinearLayer):
    """Proved bounds of the states by the theorem of the layer's injection."""
    kind = next(k for k, (types, _) in BOUNDS.items() if k.endswith("_bound") and isinstance(layer.injection, types))
    return BOUNDS[kind][1](layer)


def assert_bounds_hold(layer: GatedLinearLayer, u, states) -> None:
    """Compare decays and states of a run with what is proved of them."""
    low, high = layer.gate.log_decay
    log_a = log_decay(layer.gate, u)
    assert (log_a >= low - 1e-9 * np.abs(low)).all() and (log_a <= high + 1e-9 * np.abs(high)).all()
    below, above = layer.input_set.bounds
    assert (u >= below - 1e-5).all() and (u <= above + 1e-5).all()
    assert (unit_sizes(layer, states) <= state_bounds(layer) * (1 + 1e-12)).all()


def extreme_inputs(layer: GatedLinearLayer, rng, steps=40):
    """Inputs on the boundary of the ball of a norm: random ones, then one that stays."""
    ball = layer.input_set
    z = rng.standard_normal((steps, ball.size))
    z[steps // 2 :] = z[steps // 2]
    z = z - z.mean(axis=1, keepdims=True) if ball.centered else z
    return ball.factor * z * np.sqrt(ball.size) / np.linalg.norm(z, axis=1, keepdims=True) + ball.bias
