"""Gated linear layers: forward pass against slow loops written from the formulas, steps, precisions and oracles."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from stability.analysis.unroll import step_jacobians
from stability.errors import ConfigurationError
from stability.models import LAYERS, RGLRU, S4D, S5, Mamba, MinGRU, MinLSTM, load, save

from .every_layer import leaves

INPUT, WIDTH = 3, 8
OPTIONS = {
    "mingru": {"expand": 1.5},
    "minlstm": {},
    "rglru": {"heads": 2, "lru_width": 6},
    "s4d": {"state_size": 6},
    "s5": {"state_size": 5},
    "mamba": {"state_size": 5, "rank": 2, "taps": 3},
    "mamba with floors": {"floor": 1.0},
}
EVERY = pytest.mark.parametrize("name", OPTIONS)


def make(name, dtype=torch.float64, seed=0):
    """A layer with weights far from their start, which hides terms that are zero or one there."""
    torch.manual_seed(seed)
    layer = LAYERS[name.split()[0]](INPUT, WIDTH, **OPTIONS[name]).double()
    with torch.no_grad():
        for value in layer.parameters():
            value.add_(0.3 * torch.randn_like(value))
    return layer.to(dtype)


def inputs(time, batch=2, seed=1):
    return torch.randn(batch, time, INPUT, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def softplus(v):
    return np.log1p(np.exp(v))


def gelu(v):
    return np.array([0.5 * s * (1 + torch.erf(torch.tensor(s / 2**0.5)).item()) for s in v])


def gelu_tanh(v):
    return 0.5 * v * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3)))


def candidate(v):
    return np.where(v >= 0, v + 0.5, sigmoid(v))


def mingru(w, u):
    h, out = 0, []
    for s in u:
        v, z = np.split(w["to_hidden_and_gate.weight"] @ s, 2)
        h = (1 - sigmoid(z)) * h + sigmoid(z) * candidate(v)
        out.append(w["to_out.weight"] @ h)
    return out


def minlstm(w, u):
    h, out = 0, []
    for s in u:
        v, f, i = np.split(w["to_hidden_and_f_i_gate.weight"] @ s, 3)
        f, i = sigmoid(f), sigmoid(i)
        h = f / (f + i) * h + i / (f + i) * candidate(v)
        out.append(w["to_out.weight"] @ h)
    return out


def windows(w, key, inner):
    """Convolution with zeros before the first input."""
    taps = w[f"{key}.weight"][:, 0]
    padded = np.vstack([np.zeros((taps.shape[1] - 1, inner.shape[1])), inner])
    return [(padded[t : t + taps.shape[1]].T * taps).sum(1) + w[f"{key}.bias"] for t in range(len(inner))]


def rglru(w, u):
    h, out = 0, []
    for t, x in enumerate(windows(w, "conv_1d", u @ w["linear_x.weight"].T + w["linear_x.bias"])):
        heads = x.reshape(w["rg_lru.input_gate_bias"].shape)
        r, i = (
            sigmoid(np.concatenate([head @ W + b for head, W, b in zip(heads, weights, biases)]))
            for weights, biases in (
                (w["rg_lru.recurrent_gate_weight"], w["rg_lru.recurrent_gate_bias"]),
                (w["rg_lru.input_gate_weight"], w["rg_lru.input_gate_bias"]),
            )
        )
        a = np.exp(-8 * r * softplus(w["rg_lru.recurrent_param"]))
        h = a * h + (np.sqrt(1 - a**2) if t else 1) * i * x
        gate = gelu_tanh(w["linear_y.weight"] @ u[t] + w["linear_y.bias"])
        out.append(w["linear_out.weight"] @ (h * gate) + w["linear_out.bias"])
    return out


def s4d(w, u):
    A = -np.exp(w["kernel.log_A_real"]) + 1j * w["kernel.A_imag"]
    C = w["kernel.C"] @ np.array([1, 1j])
    a = np.exp(np.exp(w["kernel.log_dt"])[:, None] * A)
    W, b = w["output_linear.0.weight"][..., 0], w["output_linear.0.bias"]
    h, out = 0, []
    for s in u:
        h = a * h + (a - 1) / A * s[:, None]
        value, gate = np.split(W @ gelu(2 * (C * h).sum(1).real + w["D"] * s) + b, 2)
        out.append(value * sigmoid(gate))
    return out


def s5(w, u):
    A = w["Lambda_re"] + 1j * w["Lambda_im"]
    B, C = w["B"] @ np.array([1, 1j]), w["C"] @ np.array([1, 1j])
    a = np.exp(np.exp(w["log_step"][:, 0]) * A)
    h, out = 0, []
    for s in u:
        h = a * h + (a - 1) / A * (B @ s)
        x = gelu(2 * (C @ h).real + w["D"] * s)
        out.append(x * sigmoid(w["out2.weight"] @ x + w["out2.bias"]))
    return out


def mamba(w, u):
    inner, rank = len(w["D"]), w["dt_proj.weight"].shape[1]
    A, h, out = np.exp(w["A_log"]), 0, []
    for t, x in enumerate(windows(w, "conv1d", u @ w["in_proj.weight"][:inner].T)):
        v, z = x * sigmoid(x), w["in_proj.weight"][inner:] @ u[t]
        dt, B, C = np.split(w["x_proj.weight"] @ v, [rank, rank + A.shape[1]])
        dt = np.maximum(softplus(w["dt_proj.weight"] @ dt + w["dt_proj.bias"]), w.get("dt_floor", 0.0))
        h = np.exp(-dt[:, None] * A) * h + np.outer(dt * v, B)
        out.append(w["out_proj.weight"] @ ((h @ C + w["D"] * v) * z * sigmoid(z)))
    return out


@EVERY
def test_the_forward_pass_is_a_slow_loop_from_the_formulas(name):
    layer, x = make(name), inputs(9)
    w = {key: value.detach().numpy() for key, value in layer.state_dict().items()}
    own = {key.removeprefix("mixer."): value for key, value in w.items() if key.startswith("mixer.")}
    scale, eps = (1 + w["norm.weight"], 1e-6) if name == "rglru" else (w["norm.weight"], 1e-5)
    for sequence, got in zip(x.numpy(), layer(x)[0].detach().numpy()):
        stream = sequence @ w["encoder.weight"].T + w["encoder.bias"]
        u = stream / np.sqrt((stream**2).mean(1, keepdims=True) + eps) * scale
        np.testing.assert_allclose(got, stream + np.array(globals()[name.split()[0]](own, u)), rtol=1e-10, atol=1e-11)


@EVERY
def test_long_sequences_equal_their_steps_and_pieces(name):
    """Long enough for the scan in chunks and for the convolution by FFT."""
    layer, x = make(name), inputs(300)
    outputs, final = layer(x)
    first, state = layer(x[:, :117])
    second, state = layer(x[:, 117:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), outputs, rtol=1e-11, atol=1e-11)
    for step, expected in zip(layer.walk(x), outputs.unbind(1)):
        torch.testing.assert_close(layer.output(step.after, step.drive, None), expected, rtol=1e-11, atol=1e-11)
    for one, other, third in zip(leaves(step.after), leaves(final), leaves(state), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(third, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@EVERY
def test_half_precision_is_near_double(name, dtype):
    layer, x = make(name), inputs(20)
    expected = layer(x)[0]
    layer = layer.to(dtype)
    got, state = layer(x.to(dtype))
    assert got.dtype == dtype
    assert all(leaf.dtype == dtype for leaf in leaves(state))
    torch.testing.assert_close(got.double(), expected, rtol=0.1, atol=0.1 * expected.abs().max().item())


def test_gates_that_round_to_zero_keep_a_finite_state():
    layer = MinLSTM(WIDTH, WIDTH)
    with torch.no_grad():
        layer.mixer.to_hidden_and_f_i_gate.weight[WIDTH:] = -1e3
    outputs, h = layer(torch.ones(1, 5, WIDTH))
    assert torch.isfinite(outputs).all()
    assert h.abs().max() < 10


@EVERY
def test_the_recorded_matrix_has_the_spectral_radius_of_a_step_under_zero_input(name):
    layer, zero = make(name), torch.zeros(1, 9, INPUT, dtype=torch.float64)
    before = layer(zero[:, 1:])[1]
    jacobian, _ = step_jacobians(layer, layer.drive(zero, None)[:, 0], before, None)
    radius = torch.linalg.eigvals(jacobian[0]).abs().max()
    torch.testing.assert_close(layer.matrices()["A"].abs().max(), radius, rtol=1e-9, atol=0)


def test_eigenvalues_are_clipped_when_asked():
    """S5 as published may leave the unit circle; with ``clip_eigs`` it cannot."""
    for clip in (False, True):
        layer = S5(2, 4, clip_eigs=clip)
        with torch.no_grad():
            layer.mixer.Lambda_re.fill_(0.5)
        assert bool(layer.matrices()["A"].abs().amax() < 1) == clip


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MinGRU, {"expand": 0.01}),
        (RGLRU, {"heads": 3}),
        (S4D, {"state_size": 5}),
        (S5, {"state_size": 0}),
        (Mamba, {"rank": 0}),
        (Mamba, {"expand": 1.5}),
    ],
)
def test_bad_options_give_typed_errors(kind, options):
    with pytest.raises(ConfigurationError):
        kind(INPUT, WIDTH, **options)


def test_a_block_of_its_own_width_has_no_encoder(tmp_path):
    """The keys are those of a public checkpoint's layer, and stacks of such blocks are the public network."""
    layer = Mamba(WIDTH, WIDTH)
    assert {key.split(".")[0] for key in layer.state_dict()} == {"norm", "mixer"}
    again = load(save(layer, tmp_path / "layer.safetensors"))
    x = torch.randn(2, 4, WIDTH)
    assert torch.equal(again(x)[0], layer(x)[0])


@pytest.fixture
def oracle(monkeypatch):
    """The package ``transformers``, without the torchvision that it would import."""
    pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    import transformers

    return transformers


def same_as(oracle_mixer, mixer, run):
    torch.manual_seed(0)
    with torch.no_grad():
        for value in oracle_mixer.parameters():
            value.add_(0.1 * torch.randn_like(value))
    mixer.load_state_dict(oracle_mixer.state_dict())
    u = torch.randn(2, 17, 32)
    with torch.no_grad():
        expected = run(u)
        torch.testing.assert_close(mixer.double()(u.double())[0].float(), expected, rtol=0, atol=1e-6)
        assert expected.abs().max() > 0.1


@pytest.mark.filterwarnings("default")
def test_the_mixer_of_mamba_is_that_of_transformers(oracle):
    config = oracle.MambaConfig(
        vocab_size=11, hidden_size=32, state_size=5, num_hidden_layers=1, time_step_rank=3, expand=2
    )
    theirs = oracle.MambaForCausalLM(config).eval().backbone.layers[0].mixer
    same_as(theirs, Mamba(32, 32, state_size=5, rank=3).mixer, lambda u: theirs(u))


@pytest.mark.filterwarnings("default")
def test_the_mixer_of_rg_lru_is_that_of_transformers(oracle):
    config = oracle.RecurrentGemmaConfig(
        vocab_size=11, hidden_size=32, lru_width=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    theirs = oracle.RecurrentGemmaForCausalLM(config).eval().model.layers[0].temporal_block
    positions = torch.arange(17).expand(2, -1)
    same_as(theirs, RGLRU(32, 32, heads=4).mixer, lambda u: theirs(u, positions, None, use_cache=False)[0])
