"""Plain float64 runs of gated linear layers from their stored arrays, and random layers of every kind."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from stability import systems as s

SIZE, UNITS, KEYS, LENGTH = 6, 4, 3, 40


def signal_values(signal, u):
    """Return the values ``(time, size)`` of a signal for the inputs ``u (time, d)``."""
    if isinstance(signal, s.Affine):
        return signal_values(signal.source, u) @ signal.weight.T + signal.bias
    if isinstance(signal, s.Convolution):
        x = signal_values(signal.source, u)
        out = np.zeros_like(x) + signal.bias
        for j, tap in enumerate(signal.kernel):
            out[j:] += tap * x[: len(x) - j]
        return out
    if isinstance(signal, s.SiLU):
        x = signal_values(signal.source, u)
        return x * expit(x)
    if isinstance(signal, s.Tanh):
        return np.tanh(signal_values(signal.source, u))
    if isinstance(signal, s.Normalized):
        x = signal_values(signal.source, u)
        return signal.weight * x / np.sqrt((x * x).mean(axis=1, keepdims=True) + signal.eps)
    return u


def decays(gate, u):
    """Return the decays ``(time, units)`` or ``(time, units, k)``; complex for constant gates."""
    if isinstance(gate, s.SoftplusGate):
        step = steps(gate, u)
        step = step if gate.log_rate.ndim == 1 else step[..., None]
        return np.exp((1.0 if gate.growing else -1.0) * np.exp(gate.log_rate) * step)
    if isinstance(gate, s.SigmoidGate):
        p = signal_values(gate.signal, u)
        p = p if gate.cap is None else gate.cap * np.tanh(p / gate.cap)
        return gate.floor + (1.0 - gate.floor) * expit(p) ** (1.0 / gate.root)
    if isinstance(gate, s.RatioGate):
        f, i = expit(signal_values(gate.forget, u)), expit(signal_values(gate.insert, u))
        return f / (f + i)
    if isinstance(gate, s.RWKVGate):
        return np.exp(-np.exp(-0.5) * expit(signal_values(gate.signal, u)))
    if isinstance(gate, s.RGLRUGate):
        return np.exp(-8.0 * expit(signal_values(gate.signal, u)) * np.logaddexp(0.0, gate.parameter))
    rate = gate.rate if gate.rate is not None else -np.exp(gate.log_rate)
    return np.tile(np.exp(rate * np.exp(gate.log_step)), (len(u), 1))


def steps(gate, u):
    """Return the limited ``Delta (time, units)``."""
    step = np.maximum(np.logaddexp(0.0, signal_values(gate.signal, u)), gate.least)
    return step if gate.most is None else np.minimum(step, gate.most)


def states(layer, u, rng=None, keys=None, frequency=None, mixed=None, initial=0.0):
    """Return the states ``(time, units, ...)`` from zero.

    For RWKV-7 there may be ``mixed`` values ``(time, heads * value_size)`` and an ``initial`` state
    ``(heads, value_size, key_size)``.

    A layer stores neither the keys of a delta rule, ``(time, heads, key_size)``, nor the imaginary parts of continuous
    eigenvalues, ``(units,)``; where they are not given, keys and angles are random.
    """
    rng = rng or np.random.default_rng(0)
    a, b, T = decays(layer.gate, u), layer.injection, len(u)
    values = [signal_values(signal, u) for signal in b.signals]
    if isinstance(b, s.StepInjection):
        dt = steps(layer.gate, u)
        if a.ndim == 3:
            added = dt[..., None] * values[0][..., None] * values[1][:, None, :]
        else:
            x = values[0].reshape(T, layer.units, -1)
            keys = np.repeat(values[1].reshape(T, b.groups, -1), layer.units // b.groups, axis=1)
            added = dt[..., None, None] * x[..., :, None] * keys[..., None, :]
    elif isinstance(b, s.ConvexInjection):
        functions = {
            "identity": lambda x: x,
            "silu": lambda x: x * expit(x),
            "min_gru": lambda x: np.where(x >= 0.0, x + 0.5, expit(x)),
        }
        added = (1.0 - a) * functions[b.activation](values[0])
    elif isinstance(b, s.RootInjection):
        added = np.sqrt(1.0 - a**2) * expit(values[1]) * values[0]
        added[0] = expit(values[1][0]) * values[0][0]
    elif isinstance(b, s.OuterInjection):
        v, k = (x.reshape(T, b.heads, -1) for x in values[:2])
        added = k[..., :, None] * v[..., None, :]
        if b.insert is not None:
            q = values[2] if b.cap is None else b.cap * np.tanh(values[2] / b.cap)
            added = np.exp(q)[..., None, None] * added
        if layer.units != b.heads:
            a = a.reshape(T, b.heads, -1)
    elif isinstance(b, s.LinearInjection):
        rows = u @ b.weight.T
        scale, step = np.exp(b.log_scale), np.exp(layer.gate.log_step)
        if frequency is None:
            a, scale = a * np.exp(1j * rng.uniform(0, 6.3, a.shape[1])), scale * (step if b.hold else 1.0)
        else:
            rate = np.log(a[0]) / step + 1j * frequency
            a = np.tile(np.exp(rate * step), (T, 1))
            scale = scale * ((a[0] - 1.0) / rate if b.hold else 1.0)
        added = scale * (rows[:, ::2] + 1j * rows[:, 1::2])
    elif isinstance(b, s.RWKVInjection):
        return _rwkv(b, a, values if mixed is None else [mixed, *values[1:]], initial)
    else:
        return _delta(layer, a, values, rng, keys)
    h, out = np.zeros_like(added[0]), []
    for t in range(T):
        h = a[t].reshape(a[t].shape + (1,) * (h.ndim - a[t].ndim)) * h + added[t]
        out.append(h)
    return np.stack(out)


def _delta(layer, a, values, rng, keys):
    b = layer.injection
    heads = b.rate.size
    v, beta = values[0].reshape(len(a), heads, -1), b.scale * expit(values[1])
    a = a.reshape(len(a), heads, -1)
    S, out, k = np.zeros((heads, b.key_size, v.shape[2])), [], rng.normal(size=(heads, b.key_size))
    for t in range(len(a)):
        k = k + 0.5 * rng.normal(size=k.shape)
        unit = k / np.sqrt((k * k).sum(1, keepdims=True) + 1e-6) if keys is None else keys[t]
        S = a[t][..., None] * S
        S = S + beta[t][:, None, None] * unit[..., None] * (v[t] - np.einsum("hk,hkv->hv", unit, S))[:, None, :]
        out.append(S)
    return np.stack(out)


def _rwkv(b, w, values, initial):
    v, k, rate = (x.reshape(len(w), b.heads, -1) for x in values)
    removal, replacement = (x.reshape(b.heads, -1) for x in (b.removal, b.replacement))
    a, w = expit(rate), w.reshape(k.shape)
    unit = k * removal
    unit = unit / np.maximum(np.linalg.norm(unit, axis=2, keepdims=True), 1e-12)
    S, out = np.zeros((b.heads, v.shape[2], k.shape[2])) + initial, []
    for t in range(len(w)):
        S = S * w[t][:, None] - (S @ unit[t][..., None]) * (a[t] * unit[t])[:, None]
        S = S + v[t][..., None] * (k[t] * (1.0 + (a[t] - 1.0) * replacement))[:, None]
        out.append(S)
    return np.stack(out)


def unit_norms(layer, h):
    """Return the largest entry of every channel's state, else the Frobenius norm, ``(time, units)``."""
    h = np.abs(h)
    if layer.transition in ("diagonal", "constant complex"):
        return h if h.ndim == 2 else h.max(axis=2)
    return np.sqrt((h.reshape(len(h), h.shape[1], -1) ** 2).sum(-1))


def input_sets(rng, size=SIZE):
    """Return one input set of every kind."""
    w, c = rng.normal(size=size), rng.normal(size=size)
    ball = s.NormBall(w)
    return {
        "rms": ball,
        "rms, 1 + w": s.NormBall(0.3 * w, offset=1),
        "layer norm": s.NormBall(w, c, centered=True),
        "box": s.InputBox(np.minimum(w, c), np.maximum(w, c)),
        "vocabulary": s.Vocabulary(rng.normal(size=(9, size)), ball, 1e-5),
    }


def draw_inputs(inputs, rng, directions, length=LENGTH):
    """Return inputs ``(length, d)`` of a set: random ones, and extremes along the rows of ``directions``."""
    z = rng.normal(size=(length, inputs.size))
    chosen = rng.random(length) < 0.7
    signs = rng.choice([-1.0, 1.0], size=length)
    rows = directions[rng.integers(len(directions), size=length)] * signs[:, None]
    if isinstance(inputs, s.InputBox):
        random = inputs.low + (inputs.high - inputs.low) * rng.random(z.shape)
        return np.where(chosen[:, None], np.where(rows > 0, inputs.high, inputs.low), random)
    if isinstance(inputs, s.Vocabulary):
        best = (rows @ inputs.vectors.T).argmax(axis=1)
        return inputs.vectors[np.where(chosen, best, rng.integers(len(inputs.vectors), size=length))]
    z = np.where(chosen[:, None], rows * inputs.factor, z)
    z = z - z.mean(axis=1, keepdims=True) if inputs.centered else z
    return z / np.sqrt((z * z).mean(axis=1, keepdims=True)) * inputs.factor + inputs.bias


def rwkv7(rng, inputs, spread, scale=1.0):
    """Return a random RWKV-7 layer; it is certified for a small ``spread`` of the rates, refuted for a large one."""
    mixed, size = s.Convolution(rng.random((2, inputs.size)), inputs), UNITS * KEYS
    keys, values, rates = (rng.normal(size=(n, inputs.size)) for n in (size, 2 * UNITS, size))
    bounded = s.Tanh(s.Affine(scale * rng.normal(size=(2, inputs.size)), mixed))
    decay = s.Affine(scale * rng.normal(size=(size, 2)), bounded, rng.normal(size=size) - 4.0)
    rate = s.Affine(spread * rates, mixed, rng.normal(size=size))
    keys, values = s.Affine(scale * keys, mixed), s.Affine(scale * values, mixed)
    injection = s.RWKVInjection(values, keys, rate, *rng.normal(size=(2, size)), UNITS)
    return s.GatedLinearLayer(s.RWKVGate(decay), injection, "RWKV-7")


def layers(rng, inputs, scale=1.0):
    """Return a random layer of every kind over one input set."""

    def affine(size, source=inputs):
        return s.Affine(scale * rng.normal(size=(size, source.size)), source, rng.normal(size=size))

    def conv(size):
        return s.Convolution(rng.normal(size=(3, size)), affine(size), rng.normal(size=size))

    x = s.SiLU(conv(UNITS))
    normal = s.Normalized(rng.normal(size=KEYS), affine(KEYS, x), 1e-2)
    heads = s.SiLU(conv(2 * UNITS))
    rates = rng.normal(size=(UNITS, KEYS))
    rank = affine(2, x)
    dt = affine(UNITS, rank)
    slow = s.SoftplusGate(rates[:, 0], affine(UNITS), least=np.full(UNITS, 0.01), most=5.0)
    return {
        "mamba": s.GatedLinearLayer(s.SoftplusGate(rates, dt), s.StepInjection(x, affine(KEYS, x)), "Mamba"),
        "jamba": s.GatedLinearLayer(s.SoftplusGate(rates, affine(UNITS, normal)), s.StepInjection(x, normal), "Jamba"),
        "mamba2": s.GatedLinearLayer(slow, s.StepInjection(heads, s.SiLU(conv(2 * KEYS)), 2), "Mamba-2"),
        "mingru": s.GatedLinearLayer(
            s.SigmoidGate(affine(UNITS)), s.ConvexInjection(affine(UNITS), "min_gru"), "minGRU"
        ),
        "minlstm": s.GatedLinearLayer(
            s.RatioGate(affine(UNITS), affine(UNITS)), s.ConvexInjection(affine(UNITS), "min_gru"), "minLSTM"
        ),
        "hgrn": s.GatedLinearLayer(
            s.SigmoidGate(affine(UNITS), rng.random(UNITS) * 0.9), s.ConvexInjection(affine(UNITS), "silu"), "HGRN"
        ),
        "rg_lru": s.GatedLinearLayer(
            s.RGLRUGate(affine(UNITS, conv(UNITS)), rng.normal(size=UNITS)),
            s.RootInjection(conv(UNITS), affine(UNITS, conv(UNITS))),
            "RG-LRU",
        ),
        "gated_deltanet": s.GatedLinearLayer(slow, s.DeltaInjection(heads, affine(UNITS), KEYS, 2.0), "gated DeltaNet"),
        "kda": s.GatedLinearLayer(
            s.SoftplusGate(np.zeros(UNITS * KEYS), affine(UNITS * KEYS)),
            s.DeltaInjection(heads, affine(UNITS), KEYS),
            "KDA",
        ),
        "gla": s.GatedLinearLayer(
            s.SigmoidGate(affine(UNITS * KEYS), root=16.0),
            s.OuterInjection(heads, affine(UNITS * KEYS), UNITS),
            "GLA",
        ),
        "mlstm": s.GatedLinearLayer(
            s.SigmoidGate(affine(UNITS), cap=15.0),
            s.OuterInjection(heads, affine(UNITS * KEYS), UNITS, affine(UNITS), 15.0),
            "mLSTM",
        ),
        "rwkv7": rwkv7(rng, inputs, 0.003, scale),
        "lru": s.GatedLinearLayer(
            s.ConstantGate(inputs, log_rate=rng.normal(size=UNITS), log_step=rng.normal(size=UNITS)),
            s.LinearInjection(rng.normal(size=(2 * UNITS, inputs.size)), rng.normal(size=UNITS), hold=True),
            "LRU",
        ),
    }
