"""Layers of checkpoints as residual blocks of this toolkit, which run and can be measured, floored and certified."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, FileFormatError, UnsupportedError

from .checkpoints.folder import StoredLayer
from .checkpoints.layer_weights import EPSILONS, FLOOR, LayerWeights, as_number, norm_ball
from .gated_linear.block import GatedLinearBlock, RMSNorm
from .gated_linear.mamba import Mamba
from .gated_linear.matrix_state import GatedDeltaNet, Mamba2
from .gated_linear.rglru import RGLRU

EPSILON = 1e-5
"""Epsilon of the norms where ``config.json`` has none, as in mamba_ssm and mamba.py."""
INNER_NORMS = ("dt_layernorm", "b_layernorm", "c_layernorm")
USUAL = {"hidden_act": ("silu", "swish"), "norm_before_gate": (False,), "rms_norm": (True,), "d_intermediate": (0,)}
"""Settings of Mamba and Mamba-2, and their values with which the blocks compute the same function."""
PURE = (None, "mamba", "falcon_mamba", "mamba2")
"""Families of networks without other layers; ``config.json`` of mamba_ssm and mamba.py names none."""
Shapes = dict[str, torch.Size]


def epsilon(layer: LayerWeights) -> float:
    """Return the epsilon of the norms in front of the layers."""
    return layer.number(*EPSILONS, default=EPSILON)


def build_block(stored: StoredLayer, dtype: torch.dtype) -> tuple[GatedLinearBlock, set[str]]:
    """Read the residual block of a layer.

    Args:
        stored: the layer.
        dtype: precision of the block.

    Returns:
        The block on the CPU, and the names of the tensors that it holds.

    Raises:
        UnsupportedError: a type or a variant that is not run.
        FileFormatError: missing tensors, or shapes that do not fit together.
    """
    weights, layout = stored.weights, stored.layout
    if stored.type not in BUILDERS:
        raise UnsupportedError(f"{stored.path}: layers of type {stored.type} are not run")
    _refuse_variants(weights)
    ball, norm_name = norm_ball(weights, layout.offset, layout.norms)
    if ball is None or ball.centered:
        raise UnsupportedError(f"{stored.path}: the block has no RMSNorm in front, and others are not run")
    used = {name for name in weights.tensors if name.startswith(weights.prefix)}
    tensors = {f"mixer.{name.removeprefix(weights.prefix)}": weights.tensors[name]() for name in used}
    state = {name: torch.from_numpy(value).to(dtype) for name, value in tensors.items()}
    state["norm.weight"] = torch.from_numpy(ball.weight).to(dtype)
    used.add(f"{weights.prefix[:-1].rpartition('.')[0]}.{norm_name}".lstrip("."))
    try:
        with torch.device("meta"):
            block = BUILDERS[stored.type](weights, {name: value.shape for name, value in state.items()}, state)
            for part in (block, block.mixer):
                if isinstance(norm := getattr(part, "norm", None), RMSNorm):
                    norm.eps = epsilon(weights)
            _set_biases(block.mixer, state)
        if stored.type != "RG-LRU" and f"mixer.{FLOOR}" in state:
            block.set_floors(torch.zeros_like(state[f"mixer.{FLOOR}"]))
        block.load_state_dict(state, strict=True, assign=True)
    except (RuntimeError, KeyError, ConfigurationError, DimensionError, ZeroDivisionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(f"{stored.whole}: the tensors of {stored.path} do not fit together: {reason}") from error
    block.type_name = stored.type
    return block, used


def _refuse_variants(layer: LayerWeights) -> None:
    """Raise an error for settings under which the mixers compute another function.

    Raises:
        UnsupportedError: such a setting.
    """
    usual = USUAL if layer.model_type in PURE else {}  # mixers of hybrids are compared with those of transformers
    limits = layer.setting("time_step_limit", "dt_limit", default=[0.0, float("inf")])
    wrong = [name for name, values in usual.items() if layer.setting(name, default=values[0]) not in values]
    if not isinstance(limits, list) or [as_number(limit, "time_step_limit") for limit in limits] != [0.0, float("inf")]:
        wrong.append("time_step_limit")
    if wrong:
        raise UnsupportedError(f"{layer.prefix}: the setting {wrong[0]} has a value with which the network is not run")


def _expand(inner: int, width: int) -> int:
    """Return the number of channels over the width.

    Raises:
        UnsupportedError: it is no whole number.
    """
    if inner % width:
        raise UnsupportedError(f"{inner} channels are no multiple of the width {width}, so the layer is not run")
    return inner // width


def _mamba(layer: LayerWeights, shapes: Shapes, state: dict[str, Tensor]) -> Mamba:
    (inner, _, taps), width = shapes["mixer.conv1d.weight"], shapes["mixer.in_proj.weight"][1]
    rank, states = shapes["mixer.dt_proj.weight"][1], shapes["mixer.A_log"][1]
    block = Mamba(width, width, state_size=states, expand=_expand(inner, width), rank=rank, taps=taps)
    falcon = layer.model_type == "falcon_mamba"
    if falcon or f"mixer.{INNER_NORMS[0]}.weight" in shapes:
        eps = layer.number("mixer_rms_eps" if falcon else "rms_norm_eps", default=1e-6)
        for name, size in zip(INNER_NORMS, (rank, states, states)):
            setattr(block.mixer, name, RMSNorm(size, eps))
            if falcon:  # a norm without weights
                state[f"mixer.{name}.weight"] = torch.ones(size, device="cpu").to(state["norm.weight"])
    return block


def _mamba2(layer: LayerWeights, shapes: Shapes, state: dict[str, Tensor]) -> Mamba2:
    if "mixer.norm.weight" not in shapes:
        raise UnsupportedError(f"{layer.prefix}: Mamba-2 without a norm behind the recurrence is not run")
    (channels, _, taps), width = shapes["mixer.conv1d.weight"], shapes["mixer.in_proj.weight"][1]
    inner, heads = shapes["mixer.norm.weight"][0], shapes["mixer.A_log"][0]
    groups = layer.count("n_groups", "mamba_n_groups", "mamba_ngroups", "ngroups", default=1)
    sizes = {"heads": heads, "groups": groups, "state_size": (channels - inner) // (2 * groups), "taps": taps}
    return Mamba2(width, width, expand=_expand(inner, width), **sizes)


def _delta_net(layer: LayerWeights, shapes: Shapes, state: dict[str, Tensor]) -> GatedDeltaNet:
    if "mixer.in_proj_qkvz.weight" not in shapes:
        raise UnsupportedError(f"{layer.prefix}: gated DeltaNet is run in the layout of Qwen3-Next only")
    width, taps, heads = shapes["norm.weight"][0], shapes["mixer.conv1d.weight"][2], shapes["mixer.A_log"][0]
    keys = {"key_heads": layer.count("linear_num_key_heads"), "key_size": layer.count("linear_key_head_dim")}
    expand = _expand(heads * shapes["mixer.norm.weight"][0], width)
    return GatedDeltaNet(width, width, heads=heads, expand=expand, taps=taps, **keys)


def _rg_lru(layer: LayerWeights, shapes: Shapes, state: dict[str, Tensor]) -> RGLRU:
    width, taps = shapes["norm.weight"][0], shapes["mixer.conv_1d.weight"][2]
    inner, heads = shapes["mixer.rg_lru.recurrent_param"][0], shapes["mixer.rg_lru.input_gate_bias"][0]
    return RGLRU(width, width, lru_width=inner, heads=heads, taps=taps)


BUILDERS = {
    **dict.fromkeys(("Mamba", "FalconMamba", "Jamba"), _mamba),
    "Mamba-2": _mamba2,
    "gated DeltaNet": _delta_net,
    "RG-LRU": _rg_lru,
}
"""Functions that return an empty block of the sizes of a layer's tensors, by the type of the layer."""


def _set_biases(mixer: nn.Module, state: dict[str, Tensor]) -> None:
    """Give the maps of a mixer the biases that a checkpoint has, and take away the others."""
    for name in ("in_proj", "out_proj"):
        if f"mixer.{name}.bias" in state:
            module = getattr(mixer, name)
            module.bias = nn.Parameter(torch.empty(module.out_features))
    if hasattr(mixer, "conv1d") and "mixer.conv1d.bias" not in state:
        mixer.conv1d.bias = None  # type: ignore[union-attr, assignment]
