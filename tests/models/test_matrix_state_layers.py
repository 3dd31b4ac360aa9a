"""Mamba-2 and gated DeltaNet against a slow loop from their formulas and against ``transformers``."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from stability.errors import ConfigurationError
from stability.models import GatedDeltaNet, Mamba2

KINDS = {"mamba2": (Mamba2, {"groups": 2}), "gated_deltanet": (GatedDeltaNet, {"key_heads": 2})}


def softplus(x):
    return np.log1p(np.exp(x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def normed(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def floored(w, step, head):
    return max(step, w["dt_floor"][head]) if "dt_floor" in w else step


def convolved(w, x, t):
    """SiLU of the causal convolution at step ``t``, of a zero past."""
    taps = w["conv1d.weight"][:, 0]
    past = sum(taps[:, -1 - j] * x[t - j] for j in range(min(taps.shape[1], t + 1)))
    return silu(past + w.get("conv1d.bias", 0.0))


def mamba2(w, u, heads, groups, size):
    """The mixer on one sequence, a head and a step at a time: outputs and the last states ``(dk, dv)``."""
    inner = len(w["norm.weight"])
    z, xbc, dt = np.split(u @ w["in_proj.weight"].T, [inner, len(w["in_proj.weight"]) - heads], axis=-1)
    S, outputs = np.zeros((heads, size, inner // heads)), []
    for t in range(len(u)):
        x, B, C = np.split(convolved(w, xbc, t), [inner, inner + groups * size])
        y = []
        for h, value in enumerate(np.split(x, heads)):
            group = slice((h * groups // heads) * size, (h * groups // heads + 1) * size)
            step = floored(w, softplus(dt[t, h] + w["dt_bias"][h]), h)
            S[h] = np.exp(-step * np.exp(w["A_log"][h])) * S[h] + step * np.outer(B[group], value)
            y.append(S[h].T @ C[group] + w["D"][h] * value)
        gated = np.concatenate(y) * silu(z[t])
        grouped = np.concatenate([normed(part, 1e-5) for part in np.split(gated, groups)])
        outputs.append(w["out_proj.weight"] @ (w["norm.weight"] * grouped))
    return np.stack(outputs), S


def gated_deltanet(w, u, heads, key_heads, size):
    each, dv = heads // key_heads, len(w["norm.weight"])
    rows = (u @ w["in_proj_qkvz.weight"].T).reshape(len(u), key_heads, -1)
    q, k, v, z = np.split(rows, [size, 2 * size, 2 * size + each * dv], axis=-1)
    b, a = (
        x.reshape(len(u), heads) for x in np.split((u @ w["in_proj_ba.weight"].T).reshape(len(u), key_heads, -1), 2, -1)
    )
    joined = np.concatenate([x.reshape(len(u), -1) for x in (q, k, v)], axis=-1)
    z = z.reshape(len(u), heads, dv)
    S, outputs = np.zeros((heads, size, dv)), []
    for t in range(len(u)):
        q, k, v = np.split(convolved(w, joined, t), [key_heads * size, 2 * key_heads * size])
        o = []
        for h, value in enumerate(np.split(v, heads)):
            key, query = (np.split(x, key_heads)[h // each] for x in (k, q))
            key, query = (x / np.sqrt(x @ x + 1e-6) for x in (key, query))
            alpha = np.exp(-np.exp(w["A_log"][h]) * floored(w, softplus(a[t, h] + w["dt_bias"][h]), h))
            beta = sigmoid(b[t, h])
            S[h] = alpha * (S[h] - beta * np.outer(key, key @ S[h])) + beta * np.outer(key, value)
            o.append(w["norm.weight"] * normed(S[h].T @ query / np.sqrt(size), 1e-6) * silu(z[t, h]))
        outputs.append(w["out_proj.weight"] @ np.concatenate(o))
    return np.stack(outputs), S


@pytest.mark.parametrize("floor", [None, 1.0])
@pytest.mark.parametrize("name", KINDS)
def test_a_layer_is_the_loop_of_its_formulas_and_its_own_steps(name, floor):
    torch.manual_seed(0)
    kind, options = KINDS[name]
    layer = kind(3, 8, floor=floor, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = 2.0 * torch.randn(2, 150, 3, dtype=torch.float64)
    outputs, (S, window) = layer(x)
    stream = (x @ layer.encoder.weight.T + layer.encoder.bias).detach().numpy()
    weights = {key: value.detach().numpy() for key, value in layer.mixer.state_dict().items()}
    scale = layer.norm.weight.detach().numpy() + (name == "gated_deltanet")
    run = {"mamba2": mamba2, "gated_deltanet": gated_deltanet}[name]
    for k in range(2):
        u = normed(stream[k], layer.norm.eps) * scale
        expected, states = run(weights, u, 4, 2, 16)
        np.testing.assert_allclose(outputs[k].detach().numpy(), stream[k] + expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(S[k].detach().numpy(), states, rtol=1e-9, atol=1e-11)
    state, hidden = None, layer.states(x)
    for t in range(x.shape[1]):
        output, state = layer.step(x[:, t], state)
        torch.testing.assert_close(output, outputs[:, t])
        torch.testing.assert_close(hidden[:, t], layer.hidden(state))
    torch.testing.assert_close(state, (S, window))


@pytest.mark.parametrize("name", KINDS)
def test_lower_precision_is_near_double(name):
    """In weights and inputs, and by autocast."""
    kind, options = KINDS[name]
    torch.manual_seed(0)
    layer, x = kind(3, 8, **options).double(), torch.randn(2, 70, 3, dtype=torch.float64)
    expected, single = layer(x)[0], layer.float()(x.float())[0]
    torch.testing.assert_close(single.double(), expected, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = [layer(x.float())[0]]
    for dtype in (torch.bfloat16, torch.float16):
        outputs, state = layer.to(dtype)(x.to(dtype))
        assert {leaf.dtype for leaf in (outputs, *state)} == {dtype}
        lowered.append(outputs)
    for outputs in lowered:
        torch.testing.assert_close(outputs.double(), expected, rtol=0.1, atol=0.1)


def oracle(name):
    """The mixer of ``transformers`` with random weights, and the arguments of ours."""
    if name == "mamba2":
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Config, Mamba2Mixer

        sizes = {"hidden_size": 16, "num_heads": 4, "head_dim": 8, "state_size": 16, "n_groups": 2}
        return Mamba2Mixer(Mamba2Config(**sizes, num_hidden_layers=1, chunk_size=32), 0), {"groups": 2}
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextConfig, Qwen3NextGatedDeltaNet

    heads = {"linear_num_value_heads": 4, "linear_num_key_heads": 2}
    sizes = {"hidden_size": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 8}
    return Qwen3NextGatedDeltaNet(Qwen3NextConfig(**sizes, **heads, num_hidden_layers=1), 0), {"key_heads": 2}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", KINDS)
def test_a_mixer_is_that_of_transformers_with_the_same_keys(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # it would be imported, and is not needed
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs, options = oracle(name)
    mixer = KINDS[name][0](16, 16, **options).double().mixer
    with torch.no_grad():
        for parameter in theirs.double().parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    mixer.load_state_dict(theirs.state_dict())
    u = torch.randn(2, 100, 16, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(mixer(u)[0], theirs.eval()(u), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Mamba2, {"heads": 3}),
        (Mamba2, {"groups": 3}),
        (GatedDeltaNet, {"key_heads": 3}),
        (GatedDeltaNet, {"key_size": 0}),
        (Mamba2, {"taps": 2.5}),
    ],
)
def test_sizes_that_do_not_divide_each_other_are_refused(kind, options):
    with pytest.raises(ConfigurationError):
        kind(3, 8, **options)
