"""Layouts without an oracle: slow recurrences from the published formulas, on tensors under the published names."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stability.errors import ConfigurationError, UnsupportedError
from stability.models.checkpoints import open_checkpoint
from stability.systems import InputBox

from ...stability.gated_runs import states
from .laws import assert_bounds_hold, extreme_inputs, state_bounds

D, STEPS = 6, 25


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0.0, x)


def silu(x):
    return x * sigmoid(x)


def g(x):
    return np.where(x >= 0, x + 0.5, sigmoid(x))


def rms(x, weight, eps):
    return weight * x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def conv(x, weight, bias=0.0):
    """Causal convolution with a kernel ``(channels, taps)`` whose last tap is the present."""
    taps = weight.shape[1]
    padded = np.vstack([np.zeros((taps - 1, x.shape[1])), x])
    return bias + sum(weight[:, j] * padded[j : j + len(x)] for j in range(taps))


def scan(a, b):
    """``h_t = a_t h_{t-1} + b_t`` from zero; ``a`` of fewer axes belongs to the first axes of ``b``."""
    h, out = np.zeros_like(b[0]), []
    for t in range(len(b)):
        h = a[t].reshape(a[t].shape + (1,) * (h.ndim - a[t].ndim)) * h + b[t]
        out.append(h)
    return np.array(out)


class Weights:
    """Random tensors by name, kept in float64 as the file holds them in float32."""

    def __init__(self, rng) -> None:
        self.rng, self.tensors = rng, {}

    def __call__(self, name, *shape, scale=0.5):
        value = torch.from_numpy(scale * self.rng.standard_normal(shape)).float()
        self.tensors[name] = value
        return value.double().numpy()


@pytest.fixture
def w(rng):
    return Weights(rng)


def check(tmp_path, w, expected, type_, *, config=None, kind="norm", frequency=None, low=-1.5, suffix="safetensors"):
    """Save, read back, and compare a run with the expected states of a function of the inputs."""
    path = tmp_path / f"model.{suffix}"
    if suffix == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in w.tensors.items()})
    elif suffix == "pt":
        torch.save({"model": w.tensors, "step": 3}, path)
    else:
        save_file(w.tensors, path)
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    (stored,) = open_checkpoint(path).layers
    assert stored.type == type_
    box = InputBox(np.full(D, low), np.full(D, 1.5))
    layer = stored.build(kind, box)
    u = w.rng.uniform(low, 1.5, (STEPS, D)) if kind == "box" else extreme_inputs(layer, w.rng, STEPS)
    found = states(layer, u, frequency=frequency)
    np.testing.assert_allclose(found, expected(u).reshape(found.shape), rtol=1e-9, atol=1e-12)
    assert_bounds_hold(layer, u, found)
    return stored


def test_mamba_ssm_with_a_layer_norm(tmp_path, w) -> None:
    p, channels, n, rank = "backbone.layers.0.", 8, 3, 2
    w("backbone.embedding.weight", 5, D)
    w(p + "norm.weight", D)
    w(p + "norm.bias", D)
    inner, kernel = w(p + "mixer.in_proj.weight", 2 * channels, D), w(p + "mixer.conv1d.weight", channels, 1, 4)
    shift, x_proj = w(p + "mixer.conv1d.bias", channels), w(p + "mixer.x_proj.weight", rank + 2 * n, channels)
    dt_proj, dt_bias = w(p + "mixer.dt_proj.weight", channels, rank), w(p + "mixer.dt_proj.bias", channels)
    a_log = w(p + "mixer.A_log", channels, n)

    def expected(u):
        v = silu(conv(u @ inner[:channels].T, kernel[:, 0], shift))
        dt = softplus(v @ x_proj[:rank].T @ dt_proj.T + dt_bias)
        keys = v @ x_proj[rank : rank + n].T
        return scan(np.exp(-np.exp(a_log) * dt[..., None]), (dt * v)[..., None] * keys[:, None, :])

    stored = check(tmp_path, w, expected, "Mamba", config={"d_model": D, "n_layer": 1})
    assert stored.build().input_set.centered
    assert len(stored.build("vocabulary").input_set.embedding) == 5


def test_mamba_py_with_inner_norms(tmp_path, w) -> None:
    p, channels, n, rank = "layers.0.", 8, 3, 2
    w(p + "norm.weight", D)
    inner, kernel = w(p + "mixer.in_proj.weight", 2 * channels, D), w(p + "mixer.conv1d.weight", channels, 1, 4)
    x_proj = w(p + "mixer.x_proj.weight", rank + 2 * n, channels)
    dt_proj, dt_bias = w(p + "mixer.dt_proj.weight", channels, rank), w(p + "mixer.dt_proj.bias", channels)
    a_log, dt_norm = w(p + "mixer.A_log", channels, n), w(p + "mixer.dt_layernorm.weight", rank)
    b_norm, _ = w(p + "mixer.B_layernorm.weight", n), w(p + "mixer.C_layernorm.weight", n)

    def expected(u):
        v = silu(conv(u @ inner[:channels].T, kernel[:, 0]))
        dt = softplus(rms(v @ x_proj[:rank].T, dt_norm, 1e-5) @ dt_proj.T + dt_bias)
        keys = rms(v @ x_proj[rank : rank + n].T, b_norm, 1e-5)
        return scan(np.exp(-np.exp(a_log) * dt[..., None]), (dt * v)[..., None] * keys[:, None, :])

    check(tmp_path, w, expected, "Jamba", suffix="pt")


def test_mamba2_with_channels_around_the_recurrence(tmp_path, w) -> None:
    p, heads, size, groups, n, around = "backbone.layers.3.", 4, 3, 2, 2, 5
    inner, keys = heads * size, groups * n
    w(p + "norm.weight", D)
    rows = 2 * around + 2 * inner + 2 * keys + heads  # z0, x0, z, x, B, C, step
    proj, kernel = w(p + "mixer.in_proj.weight", rows, D), w(p + "mixer.conv1d.weight", inner + 2 * keys, 1, 4)
    dt_bias, a_log = w(p + "mixer.dt_bias", heads), w(p + "mixer.A_log", heads)
    w(p + "mixer.out_proj.weight", D, inner + around)

    def expected(u):
        s = u @ proj.T
        at = 2 * around + inner
        x = silu(conv(s[:, at : at + inner + 2 * keys], kernel[:, 0]))
        dt = softplus(s[:, -heads:] + dt_bias)
        b = np.repeat(x[:, inner : inner + keys].reshape(STEPS, groups, n), heads // groups, axis=1)
        b = b[:, :, None, :] * x[:, :inner].reshape(STEPS, heads, size)[..., None]
        return scan(np.exp(-np.exp(a_log) * dt), dt[..., None, None] * b)

    config = {"d_model": D, "ssm_cfg": {"layer": "Mamba2", "ngroups": groups}}
    assert check(tmp_path, w, expected, "Mamba-2", config=config).index == 3


def test_rg_lru_of_recurrentgemma(tmp_path, w) -> None:
    p, heads, b = "blocks.0.", 2, 4
    width = heads * b
    w(p + "temporal_pre_norm.scale", D)
    p += "recurrent_block."
    linear, shift = w(p + "linear_x.weight", width, D), w(p + "linear_x.bias", width)
    kernel, bias = w(p + "conv_1d.w", 4, width), w(p + "conv_1d.b", width)
    a, (wa, ba) = (
        w(p + "rg_lru.a_param", width),
        [w(p + f"rg_lru.a_gate.{k}", heads, *[b] * n) for k, n in (("w", 2), ("b", 1))],
    )
    wi, bi = w(p + "rg_lru.input_gate.w", heads, b, b), w(p + "rg_lru.input_gate.b", heads, b)

    def expected(u):
        x = conv(u @ linear.T + shift, kernel.T, bias)
        blocks = x.reshape(STEPS, heads, b)
        r, i = (sigmoid(np.einsum("thi,hij->thj", blocks, m) + c).reshape(x.shape) for m, c in ((wa, ba), (wi, bi)))
        log_a = -8.0 * r * softplus(a)
        root = np.sqrt(1.0 - np.exp(2 * log_a))
        root[0] = 1.0
        return scan(np.exp(log_a), root * i * x)

    assert check(tmp_path, w, expected, "RG-LRU").build().input_set.offset == 1


@pytest.mark.parametrize("gate", ["gate", "f_i_gate"])
def test_min_gru_and_min_lstm(tmp_path, w, gate) -> None:
    parts = 2 if gate == "gate" else 3
    w("token_emb.weight", 7, D)
    w("layers.0.1.gamma", D)
    proj = w(f"layers.0.2.to_hidden_and_{gate}.weight", 5 * parts, D)

    def expected(u):
        value, first, *insert = (u @ proj[5 * i : 5 * i + 5].T for i in range(parts))
        if not insert:
            return scan(1.0 - sigmoid(first), sigmoid(first) * g(value))
        f, i = sigmoid(first), sigmoid(insert[0])
        return scan(f / (f + i), i / (f + i) * g(value))

    stored = check(tmp_path, w, expected, "minGRU" if gate == "gate" else "minLSTM")
    words = stored.build("vocabulary").input_set
    x = words.embedding
    normalized = x / np.linalg.norm(x, axis=1, keepdims=True) * np.sqrt(D)
    np.testing.assert_allclose(words.vectors, normalized * (1 + words.norm.weight), rtol=1e-12)


def test_gla(tmp_path, w) -> None:
    p, heads, n = "model.layers.0.attn.", 2, 3
    w("model.layers.0.attn_norm.weight", D)
    low, high, bias = (
        w(p + "gk_proj.0.weight", 2, D),
        w(p + "gk_proj.1.weight", heads * n, 2),
        w(p + "gk_proj.1.bias", heads * n),
    )
    k, v = w(p + "k_proj.weight", heads * n, D), w(p + "v_proj.weight", heads * 4, D)

    def expected(u):
        a = sigmoid(u @ low.T @ high.T + bias) ** (1 / 16)
        b = (u @ k.T).reshape(STEPS, heads, n, 1) * (u @ v.T).reshape(STEPS, heads, 1, 4)
        return scan(a.reshape(STEPS, heads, n), b)

    check(tmp_path, w, expected, "GLA", config={"model_type": "gla", "num_heads": heads})


def test_hgrn_floors_are_cumulative(tmp_path, w) -> None:
    w("model.layers.1.attn_norm.weight", D)
    f, i = w("model.layers.1.attn.f_proj.weight", 4, D), w("model.layers.1.attn.i_proj.weight", 4, D)
    bounds = w("model.lower_bounds", 3, 4)

    def expected(u):
        share = np.exp(bounds) / np.exp(bounds).sum(axis=0)
        floor = np.cumsum(share, axis=0)[1] - share[0]
        a = floor + (1 - floor) * sigmoid(u @ f.T)
        return scan(a, (1 - a) * silu(u @ i.T))

    check(tmp_path, w, expected, "HGRN", config={"model_type": "hgrn"})


def test_s4d(tmp_path, w) -> None:
    modes = 3
    w("kernel.C", D, modes, 2)
    w("D", D)
    log_dt, log_a, imag = w("kernel.log_dt", D), w("kernel.log_A_real", D, modes), w("kernel.A_imag", D, modes, scale=3)

    def expected(u):
        rate, dt = -np.exp(log_a) + 1j * imag, np.exp(log_dt)[:, None]
        b = (np.exp(rate * dt) - 1) / rate * u[:, :, None]
        return scan(np.broadcast_to(np.exp(rate * dt), b.shape), b)

    check(tmp_path, w, expected, "S4D", kind="box", frequency=imag.reshape(-1))


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
def test_s5(tmp_path, w, method) -> None:
    p, n = "encoder/layers_0/seq/", 4
    real = w(p + "Lambda_re", n)
    w.tensors[p + "Lambda_re"] = -w.tensors[p + "Lambda_re"].abs()
    imag, b, log_step = w(p + "Lambda_im", n), w(p + "B", n, D, 2), w(p + "log_step", n, 1)
    rate, step = -np.abs(real) + 1j * imag, np.exp(log_step[:, 0])
    a = np.exp(rate * step) if method == "zoh" else (1 + rate * step / 2) / (1 - rate * step / 2)
    factor = (a - 1) / rate if method == "zoh" else step / (1 - rate * step / 2)

    def expected(u):
        inputs = (u @ (b[..., 0] + 1j * b[..., 1]).T) * factor
        return scan(np.broadcast_to(a, inputs.shape), inputs)

    frequency = imag if method == "zoh" else np.angle(a)
    check(tmp_path, w, expected, "S5", kind="box", config={"discretization": method}, frequency=frequency, suffix="npz")


def test_s5_with_an_eigenvalue_to_the_right_is_read_as_it_is(tmp_path, w) -> None:
    for name, shape in (("Lambda_re", (3,)), ("Lambda_im", (3,)), ("B", (3, D, 2)), ("log_step", (3, 1))):
        w(name, *shape)
    w.tensors["Lambda_re"] = torch.tensor([-0.5, 0.25, -1.0])
    path = tmp_path / "s5.safetensors"
    save_file(w.tensors, path)
    box = InputBox(-np.ones(D), np.ones(D))
    with pytest.raises(UnsupportedError):
        open_checkpoint(path).layers[0].build("box", box)
    layer = open_checkpoint(path, config={"discretization": "zoh"}).layers[0].build("box", (-1.0, 1.0))
    assert layer.input_set.equals(box)
    assert (layer.gate.log_decay[0] > 0.0).tolist() == [False, True, False]
    assert state_bounds(layer)[1] == np.inf
    clipped = open_checkpoint(path, config={"discretization": "zoh", "clip_eigs": True}).layers[0].build("box", box)
    assert np.isfinite(state_bounds(clipped)).all()


@pytest.mark.parametrize("published_in", ["torch", "flax"])
def test_lru(tmp_path, w, published_in) -> None:
    n = 4
    nu, theta, gamma = w("lru.nu_log", n), w("lru.theta_log", n), w("lru.gamma_log", n)
    re, im = w("lru.B_re", n, D), w("lru.B_im", n, D)
    if published_in == "torch":
        w.tensors["lru.B"] = torch.complex(w.tensors.pop("lru.B_re"), w.tensors.pop("lru.B_im"))

    def expected(u):
        a = np.exp(-np.exp(nu) + 1j * np.exp(theta))
        return scan(np.broadcast_to(a, (STEPS, n)), np.exp(gamma) * (u @ (re + 1j * im).T))

    suffix = "pt" if published_in == "torch" else "npz"
    check(tmp_path, w, expected, "LRU", kind="box", frequency=np.exp(theta), suffix=suffix)


def test_delta_rules_of_flash_linear_attention(tmp_path, w) -> None:
    p, heads, n = "model.layers.0.attn.", 2, 3
    w("model.layers.0.attn_norm.weight", D)
    for name in ("q", "k", "v"):
        w(p + f"{name}_proj.weight", heads * n, D)
        w(p + f"{name}_conv1d.weight", heads * n, 1, 4)
    w(p + "b_proj.weight", heads, D)
    w(p + "A_log", heads)
    for name, shape in (("f_proj.0", (n, D)), ("f_proj.1", (heads * n, n))):
        w(p + name + ".weight", *shape)
    w(p + "dt_bias", heads * n)
    save_file(w.tensors, tmp_path / "model.safetensors")
    (stored,) = open_checkpoint(tmp_path, config={"model_type": "kda", "allow_neg_eigval": True}).layers
    layer = stored.build()
    assert (stored.type, layer.injection.scale, layer.units, layer.injection.key_size) == ("KDA", 2.0, heads * n, n)
    assert np.array_equal(layer.gate.log_rate, np.repeat(w.tensors[p + "A_log"].double().numpy(), n))
    with pytest.raises(UnsupportedError):
        open_checkpoint(tmp_path, config={"model_type": "comba"})
    for name in ("f_proj.0.weight", "f_proj.1.weight", "dt_bias"):
        del w.tensors[p + name]
    w(p + "a_proj.weight", heads, D)
    w(p + "dt_bias", heads)
    save_file(w.tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedError):  # whether beta reaches 2 is not known
        open_checkpoint(tmp_path, config={"model_type": "gated_deltanet"}).layers[0].build()
    (stored,) = open_checkpoint(tmp_path, config={"model_type": "gated_deltanet", "allow_neg_eigval": False}).layers
    assert (stored.type, stored.build().injection.scale, stored.build().units) == ("gated DeltaNet", 1.0, heads)


def test_input_sets_that_a_checkpoint_does_not_have(tmp_path, w) -> None:
    for i in range(2):
        w(f"layers.{i}.1.gamma", D)
        w(f"layers.{i}.2.to_hidden_and_gate.weight", 4, D)
    w("to_hidden_and_gate.weight", 4, D)
    save_file({"to_hidden_and_gate.weight": w.tensors.pop("to_hidden_and_gate.weight")}, tmp_path / "a.safetensors")
    save_file(w.tensors, tmp_path / "b.safetensors")
    (bare,) = open_checkpoint(tmp_path / "a.safetensors").layers
    with pytest.raises(UnsupportedError):
        bare.build()
    assert bare.build("box", InputBox(-np.ones(D), np.ones(D))).states == 2
    first, second = open_checkpoint(tmp_path / "b.safetensors").layers
    with pytest.raises(UnsupportedError):  # no embedding
        first.build("vocabulary")
    with pytest.raises(UnsupportedError):  # without a norm, the number of inputs is not known
        bare.build("box", (-1.0, 1.0))
    assert first.build("box", (-1.0, 1.0)).input_set.equals(InputBox(-np.ones(D), np.ones(D)))
    for call in (lambda: second.build("vocabulary"), lambda: first.build("box"), lambda: first.build("ball")):
        with pytest.raises(ConfigurationError):
            call()
