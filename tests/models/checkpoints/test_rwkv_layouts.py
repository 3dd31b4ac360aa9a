"""RWKV-7 in the layouts of flash-linear-attention and of its author, against a slow recurrence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stability import certify, verify
from stability.errors import UnsupportedError
from stability.models.checkpoints import open_checkpoint

from ...stability.gated_runs import decays, states, unit_norms
from .laws import assert_bounds_hold, extreme_inputs, state_bounds

D, HEADS, SIZE, RANK, STEPS = 6, 2, 3, 2, 25
N = HEADS * SIZE
NAMES = {
    "fla": ("model.layers.{}.attn_norm", "model.layers.{}.attn.", "k_proj.weight", "v_proj.weight"),
    "author": ("blocks.{}.ln1", "blocks.{}.att.", "key.weight", "value.weight"),
}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def tensors(layout: str, rng, spread: float) -> dict[str, torch.Tensor]:
    """Random weights of two layers; the rates vary by about ``spread``."""
    norm, prefix, key, value = NAMES[layout]
    low_rank = [f"{{}}_lora.lora.{i}" for i in ("2.bias", "0.weight", "2.weight")] if layout == "fla" else None
    found = {}
    for i in range(2):
        p = prefix.format(i)
        found |= {f"{norm.format(i)}.{end}": rng.normal(size=D) for end in ("weight", "bias")}
        found |= {f"{p}x_{name}": rng.random((1, 1, D)) for name in "rwkvag"}
        found |= {p + key: rng.normal(size=(N, D)), p + value: rng.normal(size=(N, D))}
        found |= {
            p + "k_k": rng.normal(size=N),
            p + "k_a": rng.normal(size=N),
            p + "r_k": rng.normal(size=(HEADS, SIZE)),
        }
        for name in "wav":
            bias, inner, outer = rng.normal(size=N) - 2.0, rng.normal(size=(RANK, D)), rng.normal(size=(N, RANK))
            outer *= 0.3 if name == "w" else spread
            parts = (bias, inner, outer) if low_rank else (bias, inner.T, outer.T)
            keys = [key.format(name) for key in low_rank] if low_rank else [f"{name}{j}" for j in range(3)]
            found |= {p + key: part for key, part in zip(keys, parts)}
    return {name: torch.from_numpy(np.ascontiguousarray(array)).float() for name, array in found.items()}


def run(stored: dict[str, torch.Tensor], layout: str, i: int, u, first=None):
    """Return decays, states from zero and values of a layer by its published formulas."""
    p, key, value = NAMES[layout][1].format(i), *NAMES[layout][2:]
    w = {name.removeprefix(p): tensor.double().numpy() for name, tensor in stored.items()}
    before = np.vstack([np.zeros(D), u[:-1]])

    def mixed(name):
        return u + w[f"x_{name}"][0, 0] * (before - u)

    def low_rank(name, function=lambda x: x):
        if layout == "fla":
            bias, inner, outer = (w[f"{name}_lora.lora.{x}"] for x in ("2.bias", "0.weight", "2.weight"))
            return function(mixed(name) @ inner.T) @ outer.T + bias
        return function(mixed(name) @ w[f"{name}1"]) @ w[f"{name}2"] + w[f"{name}0"]

    decay = np.exp(-0.6065306597126334 * sigmoid(low_rank("w", np.tanh)))
    k, v, a = mixed("k") @ w[key].T, mixed("v") @ w[value].T, sigmoid(low_rank("a"))
    v = v if first is None else v + sigmoid(low_rank("v")) * (first - v)
    unit = (k * w["k_k"]).reshape(STEPS, HEADS, SIZE)
    unit /= np.linalg.norm(unit, axis=2, keepdims=True)
    k = k * (1.0 + (a - 1.0) * w["k_a"])
    S, out = np.zeros((HEADS, SIZE, SIZE)), []
    for t in range(STEPS):
        for h in range(HEADS):
            c = slice(h * SIZE, (h + 1) * SIZE)
            M = np.diag(decay[t, c]) - np.outer(unit[t, h], a[t, c] * unit[t, h])
            S[h] = S[h] @ M + np.outer(v[t, c], k[t, c])
        out.append(S.copy())
    return decay, np.array(out), v


@pytest.mark.parametrize("layout", NAMES)
def test_states_of_both_layers(layout, rng, tmp_path) -> None:
    stored = tensors(layout, rng, 1e-3)
    save_file(stored, tmp_path / "model.safetensors")
    lower, upper = (one.build() for one in open_checkpoint(tmp_path).layers)
    inputs = [extreme_inputs(layer, rng, STEPS) for layer in (lower, upper)]
    assert lower.input_set.centered
    decay, expected, first = run(stored, layout, 0, inputs[0])
    np.testing.assert_allclose(states(lower, inputs[0]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(decays(lower.gate, inputs[0]), decay, rtol=1e-12)
    assert_bounds_hold(lower, inputs[0], expected)
    _, expected, mixed = run(stored, layout, 1, inputs[1], first)
    np.testing.assert_allclose(states(upper, inputs[1], mixed=mixed), expected, rtol=1e-9, atol=1e-12)
    assert (unit_norms(upper, expected) <= state_bounds(upper)).all()
    assert (np.abs(mixed) <= np.maximum(upper.injection.values.magnitude, upper.injection.first.magnitude)).all()
    certificate = certify(tmp_path)
    assert str(certificate.verdict) == "certified"
    assert "first layer" in certificate.layers[1].claims[0].statement
    assert verify(certificate, weights=tmp_path).valid


def test_a_refutation_is_proved_again_from_the_file(rng, tmp_path) -> None:
    stored = tensors("fla", rng, 1.0)
    for name in stored:
        if name.endswith("w_lora.lora.2.bias"):
            stored[name] -= 6.0
    save_file(stored, tmp_path / "model.safetensors")
    certificate = certify(tmp_path)
    assert str(certificate.verdict) == "refuted"
    path = certificate.save(tmp_path / "certificate.json")
    assert verify(path, weights=tmp_path).valid
    for i in range(2):
        stored[f"model.layers.{i}.attn.k_k"] *= -1.5
    save_file(stored, tmp_path / "model.safetensors")
    assert not verify(path, weights=tmp_path).valid


def test_one_tensor_may_hold_all_mixing_weights_and_a_second_norm_is_refused(rng, tmp_path) -> None:
    stored = tensors("fla", rng, 1e-3)
    save_file(stored, tmp_path / "new.safetensors")
    p = "model.layers.0.attn."
    stored[p + "x_x"] = torch.cat([stored.pop(f"{p}x_{name}")[0] for name in "rwkvag"])
    stored |= {"model.embeddings.weight": torch.ones(5, D), "model.layers.0.pre_norm.weight": torch.ones(D)}
    save_file(stored, tmp_path / "old.safetensors")
    new, old = (open_checkpoint(tmp_path / f"{name}.safetensors").layers[0] for name in ("new", "old"))
    assert new.build().injection.equals(old.build().injection)
    with pytest.raises(UnsupportedError):
        old.build("vocabulary")
