"""Layers read from tiny random models of transformers have the states that these models compute."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

if find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type] - imported by transformers; it need not fit to torch
import transformers  # noqa: E402

from stability.models.checkpoints import open_checkpoint  # noqa: E402
from stability.reports.cli import run  # noqa: E402
from stability.systems import DeltaInjection, InputBox  # noqa: E402

from ...stability.gated_runs import decays  # noqa: E402
from ...stability.gated_runs import states as states_of_run  # noqa: E402
from .laws import assert_bounds_hold, extreme_inputs  # noqa: E402

TOKENS, STEPS = 40, 20
COMMON = {"vocab_size": TOKENS, "hidden_size": 16, "num_hidden_layers": 2}
ATTENTION = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32}
MAMBA = {**COMMON, "state_size": 4, "time_step_rank": 3}
HEADS = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 2, "mamba_chunk_size": 8}
MIXED = {"layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
    "head_dim": 8,
}
MAMBA2 = {**COMMON, "state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 8}
MODELS = {
    "Mamba": ("Mamba", MAMBA),
    "Mamba with biases": ("Mamba", {**MAMBA, "use_bias": True}),
    "FalconMamba": ("FalconMamba", MAMBA),
    "Jamba": (
        "Jamba",
        {
            **COMMON,
            **ATTENTION,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 3,
        },
    ),
    "Mamba-2": ("Mamba2", MAMBA2),
    "Mamba-2 with biases": ("Mamba2", {**MAMBA2, "use_bias": True}),
    "Mamba-2 with limits": ("Mamba2", {**MAMBA2, "time_step_limit": (0.2, 0.5)}),
    "Bamba": ("Bamba", {**COMMON, **ATTENTION, **HEADS, "attn_layer_indices": [1]}),
    "Falcon-H1": (
        "FalconH1",
        {
            **COMMON,
            **ATTENTION,
            **HEADS,
            "mamba_d_ssm": 32,
            "ssm_multipliers": [0.5, 0.7, 1.3, 0.9, 0.6],
            "ssm_in_multiplier": 0.8,
            "embedding_multiplier": 3.0,
        },
    ),
    "Zamba2": (
        "Zamba2",
        {
            **COMMON,
            "num_hidden_layers": 3,
            "intermediate_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "n_mamba_heads": 4,
            "mamba_headdim": 8,
            "mamba_d_state": 4,
            "mamba_ngroups": 1,
            "chunk_size": 8,
            "layers_block_type": ["mamba", "mamba", "hybrid"],
            "num_mem_blocks": 1,
        },
    ),
    "Nemotron-H": (
        "NemotronH",
        {
            **COMMON,
            **ATTENTION,
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "moe", "attention"],
            "head_dim": 8,
            "mamba_num_heads": 4,
            "mamba_head_dim": 8,
            "ssm_state_size": 4,
            "n_groups": 2,
            "chunk_size": 8,
            "n_routed_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 16,
            "moe_shared_expert_intermediate_size": 16,
        },
    ),
    "Granite-hybrid": (
        "GraniteMoeHybrid",
        {**COMMON, **ATTENTION, **HEADS, **MIXED, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "RecurrentGemma": (
        "RecurrentGemma",
        {
            **COMMON,
            **ATTENTION,
            "num_hidden_layers": 3,
            "lru_width": 16,
            "head_dim": 8,
            "attention_window_size": 8,
        },
    ),
    "Qwen3-Next": (
        "Qwen3Next",
        {**COMMON, **ATTENTION, **LINEAR, **MIXED, **EXPERTS, "shared_expert_intermediate_size": 16},
    ),
    "Qwen3.5": ("Qwen3_5", {**COMMON, **ATTENTION, **LINEAR, **MIXED}),
    "OLMo-Hybrid": (
        "OlmoHybrid",
        {**COMMON, **ATTENTION, **LINEAR, **MIXED, **SPECIAL, "linear_num_value_heads": 2, "num_key_value_heads": 2},
    ),
    "Kimi Linear": (
        "KimiLinear",
        {
            **COMMON,
            **ATTENTION,
            **MIXED,
            **SPECIAL,
            "num_key_value_heads": 2,
            "kv_lora_rank": 4,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "linear_head_dim": 4,
            "linear_num_heads": 2,
            "mlp_layer_types": ["dense", "dense"],
        },
    ),
    "xLSTM": (
        "xLSTM",
        {
            **COMMON,
            "num_heads": 2,
            "chunkwise_kernel": "chunkwise--native_autograd",
            "sequence_kernel": "native_sequence__native",
            "step_kernel": "native",
        },
    ),
}
TYPES = {"Mamba": "Mamba", "FalconMamba": "FalconMamba", "Jamba": "Jamba", "RecurrentGemma": "RG-LRU", "xLSTM": "mLSTM"}
TYPES |= {
    "Qwen3Next": "gated DeltaNet",
    "Qwen3_5": "gated DeltaNet",
    "OlmoHybrid": "gated DeltaNet",
    "KimiLinear": "KDA",
}


def tiny_model(family: str, options: dict) -> torch.nn.Module:
    """Random model whose gates and norms are far from their initial values."""
    config = getattr(transformers, f"{family}TextConfig" if family == "Qwen3_5" else f"{family}Config")(**options)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        value = torch.randn_like(parameter)
        if name.endswith(("A_log", "recurrent_param")):
            value = value - 1.0
        elif "norm" in name and parameter.ndim == 1:
            value = parameter.detach() + 0.3 * value
        elif parameter.ndim > 1:
            value = value / parameter.shape[-1] ** 0.5
        parameter.data.copy_(value)
    return model


def mixer_runs(model: torch.nn.Module, layers, tokens):
    """Inputs and last states of the recurrent layers during a run of the whole model."""
    modules = dict(model.named_modules())
    inputs, outputs = {}, {}
    for layer in layers:
        name = layer.path if layer.path in modules else layer.path.replace("backbone.", "model.")

        def keep(module, args, kwargs, output, index=layer.index):
            inputs[index] = (args[0] if args else kwargs["hidden_states"])[0].double().numpy()
            outputs[index] = output, module

        modules[name].register_forward_hook(keep, with_kwargs=True)
    recurrent = "xLSTM" not in type(model).__name__
    with torch.no_grad():
        cache = getattr(model(tokens, use_cache=recurrent), "cache", None)
    states = {}
    for index, (output, module) in outputs.items():
        if hasattr(module, "rg_lru"):
            state = module.rg_lru.recurrent_states
        elif not recurrent:
            matrix, _, exponent = output[1]
            state = matrix.double() * torch.exp(exponent.double()).reshape(1, -1, 1, 1)
        else:
            state = cache.layers[index].recurrent_states[0]
        states[index] = state[0].double().numpy()
    return inputs, states, {index: module for index, (_, module) in outputs.items()}


def delta_keys(mixer: torch.nn.Module, u, heads: int):
    """Normalized keys of a delta rule, from the modules' own weights."""
    with torch.no_grad():
        if hasattr(mixer, "in_proj_qkvz"):
            size = mixer.head_k_dim
            weight = mixer.in_proj_qkvz.weight.reshape(mixer.num_k_heads, -1, len(u[0]))[:, size : 2 * size].flatten(
                0, 1
            )
        elif hasattr(mixer, "in_proj_qkv"):
            weight = mixer.in_proj_qkv.weight[mixer.key_dim : 2 * mixer.key_dim]
        else:
            weight = mixer.k_proj.weight
        kernel = mixer.conv1d.weight[len(weight) : 2 * len(weight)].double()
        x = torch.from_numpy(u) @ weight.double().T
        x = torch.nn.functional.conv1d(x.T[None], kernel, groups=len(weight), padding=kernel.shape[2] - 1)
        x = torch.nn.functional.silu(x[0, :, : len(u)].T)
    size = getattr(mixer, "head_k_dim", None) or mixer.head_dim
    x = x.numpy().reshape(len(u), -1, size)
    x = x / np.sqrt((x * x).sum(axis=2, keepdims=True) + 1e-6)
    return np.repeat(x, heads // x.shape[1], axis=1)


@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_of_transformers_and_within_the_proved_bounds(name, tmp_path, rng, capsys) -> None:
    family, options = MODELS[name]
    model = tiny_model(family, options)
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path, step_limits=True)
    assert {layer.type for layer in checkpoint.layers} == {TYPES.get(family, "Mamba-2")}
    assert len(checkpoint.layers) + len(checkpoint.skipped) == options["num_hidden_layers"]
    assert run(["certify", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == len(checkpoint.layers)
    tokens = torch.randint(1, TOKENS, (1, STEPS))
    inputs, expected, modules = mixer_runs(model, checkpoint.layers, tokens)
    for stored in checkpoint.layers:
        u, mixer = inputs[stored.index], modules[stored.index]
        layer = stored.build()

        def states_of(layer, u, mixer=mixer):
            delta = isinstance(layer.injection, DeltaInjection)
            keys = delta_keys(mixer, u, layer.injection.rate.size) if delta else None
            return states_of_run(layer, u, keys=keys)

        states = states_of(layer, u)
        scale = np.abs(expected[stored.index]).max()
        assert scale > 1e-3
        assert np.abs(states[-1].reshape(expected[stored.index].shape) - expected[stored.index]).max() < 1e-5 * scale
        assert_bounds_hold(layer, u, states)
        far = extreme_inputs(layer, rng)
        assert_bounds_hold(layer, far, states_of(layer, far))
        box = stored.build("box", InputBox(u.min(axis=0), u.max(axis=0)))
        assert_bounds_hold(box, u, states)
        if stored.index == 0:
            words = stored.build("vocabulary")
            exact = words.input_set.vectors[tokens[0]]
            np.testing.assert_allclose(exact, u, atol=2e-5)
            assert_bounds_hold(words, exact, states_of(words, exact))


def test_limits_of_the_step_belong_to_whole_sequences_only(tmp_path) -> None:
    model = tiny_model(*MODELS["Mamba-2 with limits"])
    model.save_pretrained(tmp_path)
    stored = open_checkpoint(tmp_path).layers[0]
    tokens = torch.randint(1, TOKENS, (1, STEPS))
    with torch.no_grad():
        cache = model(tokens[:, :1], use_cache=True).cache
        for t in range(1, STEPS):
            cache = model(tokens[:, t : t + 1], cache=cache, use_cache=True).cache
    inputs, _, _ = mixer_runs(model, [stored], tokens)
    limited = states_of_run(open_checkpoint(tmp_path, step_limits=True).layers[0].build(), inputs[0])
    layer = stored.build()
    free = states_of_run(layer, inputs[0])
    kept = decays(layer.gate, inputs[0])[1:].prod(axis=0)[:, None, None]  # of the first state, which had limits
    last = cache.layers[0].recurrent_states[0][0].double().numpy()
    scale = np.abs(last).max()
    np.testing.assert_allclose(free[-1] + kept * (limited[0] - free[0]), last, atol=1e-5 * scale)
    assert np.abs(limited[-1] - last).max() > 1e-2 * scale
