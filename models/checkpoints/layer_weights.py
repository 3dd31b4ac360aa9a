"""Weights and settings of one layer of a checkpoint, and the input sets in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from stability.checkpoint_certificate import INPUT_SETS
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.systems import Affine, Convolution, InputBox, NormBall, SiLU, SoftplusGate, Vocabulary

from .stored_tensors import ALL, Read

Array = np.ndarray
Signal = Any
InputSet = Any
MISSING: Any = object()
INNER = ("text_config", "ssm_cfg", "linear_attn_config")
"""Parts of ``config.json`` that hold settings of the recurrent layers."""
NORMS = (
    "norm",
    "input_layernorm",
    "temporal_pre_norm",
    "attention_layer_norm",
    "attn_norm",
    "mixer_norm",
    "norm_mlstm",
    "normalization",
)
"""Names of the norm in front of a recurrent layer, within its block."""
EMBEDDINGS = (
    "embed_tokens.weight",
    "embedding.weight",
    "embeddings.weight",
    "token_emb.weight",
    "embedder.input_embedding",
)
EPSILONS = ("layer_norm_epsilon", "rms_norm_eps", "norm_epsilon", "norm_eps")
INPUT_AXES = {"B": 1, "B_re": 1, "kernel.log_A_real": 0}
"""Tensors of time-invariant layers that tell the number of inputs, and the axis."""
FLOOR = "dt_floor"
"""Name of the tensor with the lower limits of a layer's steps."""
MOST_ENTRIES = 2**28
"""Most entries of a matrix that is larger than what the file stores of it (block diagonals, one input a mode)."""


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer, by names relative to it.

    Args:
        tensors: readers of all tensors of the checkpoint.
        config: settings of ``config.json``.
        prefix: common beginning of the names of the layer's tensors.
        index: number of the layer in its model.
        step_limits: apply the limits of a step in ``config.json``.
    """

    tensors: Mapping[str, Read]
    config: Mapping[str, Any]
    prefix: str = ""
    index: int = 0
    step_limits: bool = False

    def has(self, name: str) -> bool:
        """Return True if the layer has a tensor of this name."""
        return self.prefix + name in self.tensors

    def array(self, name: str, *shape: int | None, rows: slice = ALL) -> Array:
        """Read rows of a tensor in float64 or complex128; of their shape, ``None`` is any size.

        Raises:
            FileFormatError: missing, or of another shape.
        """
        if not self.has(name):
            raise FileFormatError(f"the checkpoint has no {self.prefix}{name}")
        array = self.tensors[self.prefix + name](rows)
        if array.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, array.shape)) or not array.size:
            raise FileFormatError(f"{self.prefix}{name} must have shape {shape}, got {array.shape}")
        return array

    def vector(self, name: str, size: int | None = None) -> Array:
        """Read a tensor as a vector, whatever its axes."""
        array = self.tensors[self.prefix + name]().reshape(-1) if self.has(name) else self.array(name, size)
        if size not in (None, len(array)):
            raise FileFormatError(f"{self.prefix}{name} must have {size} entries, got {len(array)}")
        return array

    def bias(self, name: str, size: int, rows: slice = ALL) -> Array:
        """Read the ``size`` entries of rows of a bias, or return zeros where there is none."""
        return self.array(name, size, rows=rows) if self.has(name) else np.zeros(size)

    def affine(self, name: str, source: Signal, rows: slice = ALL) -> Affine:
        """Return the rows of a linear map with its bias, applied to a signal."""
        weight = self.array(f"{name}.weight", None, source.size, rows=rows)
        return Affine(weight, source, self.bias(f"{name}.bias", len(weight), rows))

    def convolution(self, names: str | list[str], source: Signal, rows: slice = ALL) -> Convolution:
        """Return channels of a causal convolution, stored in one or more parts; the last stored tap is the present."""
        names = [names] if isinstance(names, str) else names
        weights = [self.array(f"{name}.weight", None, 1, None)[:, 0] for name in names]
        bias = np.concatenate([self.bias(f"{name}.bias", len(part)) for name, part in zip(names, weights)])
        kernel = np.concatenate([part[:, ::-1] for part in weights])[rows].T
        return Convolution(np.ascontiguousarray(kernel), source, bias[rows])

    def activated(self, names: str | list[str], source: Signal, rows: slice = ALL) -> SiLU:
        """Return SiLU of a convolution."""
        key = "hidden_act" if self.setting("mamba_hidden_act", default=None) is None else "mamba_hidden_act"
        activation = self.setting(key, default="silu")
        if activation not in ("silu", "swish") and self.model_type != "zamba2":  # there it is that of the other layers
            raise UnsupportedError(f"{self.prefix}: the activation behind the convolution is {activation!a}, not SiLU")
        return SiLU(self.convolution(names, source, rows))

    @property
    def model_type(self) -> str | None:
        """Name of the model's family in ``config.json``."""
        return self.setting("model_type", default=None)

    def setting(self, *names: str, default: Any = MISSING) -> Any:
        """Return the first setting of these names; settings of the text part of a model come first.

        Raises:
            UnsupportedError: none is set and there is no default.
        """
        inner = [self.config[key] for key in INNER if isinstance(self.config.get(key), Mapping)]
        for name in names:
            for settings in (*inner, self.config):
                if settings.get(name) is not None:
                    return settings[name]
        if default is MISSING:
            hint = "put config.json beside the file, or give it by config={...}"
            raise UnsupportedError(f"{self.prefix}: the setting {' or '.join(names)} is needed; {hint}")
        return default

    def count(self, *names: str, default: Any = MISSING) -> int:
        """Return a positive whole number of the settings."""
        value = self.setting(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise FileFormatError(f"{names[0]} must be a positive whole number, got {value!r:.40}")
        return value

    def number(self, *names: str, default: Any = MISSING) -> float:
        """Return a number of the settings; ``{"__float__": "Infinity"}`` is how transformers writes infinity."""
        return as_number(self.setting(*names, default=default), names[0])

    def flag(self, *names: str, default: Any = MISSING) -> bool:
        """Return a truth value of the settings."""
        value = self.setting(*names, default=default)
        if not isinstance(value, bool):
            raise FileFormatError(f"{names[0]} must be true or false, got {value!r:.40}")
        return value


def with_floors(gate: Any, layer: LayerWeights) -> Any:
    """Return a gate with the lower limits of its steps that are stored beside it.

    Raises:
        FileFormatError: limits for a gate without steps, or another number of them.
    """
    if not layer.has(FLOOR):
        return gate
    if not isinstance(gate, SoftplusGate):
        raise FileFormatError(f"{layer.prefix}{FLOOR} limits steps, and this layer has none")
    return replace(gate, least=np.maximum(gate.least, layer.vector(FLOOR, gate.units)))


def as_number(value: Any, name: str) -> float:
    """Return a number that a JSON document holds as such, as text, or as ``{"__float__": TEXT}``.

    Raises:
        FileFormatError: anything else.
    """
    value = value.get("__float__") if isinstance(value, Mapping) else value
    try:
        return float("no" if isinstance(value, bool) else value)
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"{name} must be a number, got {value!r:.40}") from error


def norm_ball(layer: LayerWeights, offset: int, norms: tuple[str, ...] = NORMS) -> tuple[NormBall | None, str]:
    """Return the norm in front of a layer and the name of its weight, or ``None`` where the block has none.

    A norm with a bias is a LayerNorm, but for that of the xLSTM; RWKV-7 has LayerNorms without a bias too.
    """
    parent = layer.prefix[:-1].rpartition(".")[0]
    block = LayerWeights(layer.tensors, layer.config, parent and parent + ".")
    names = [f"{norm}.{end}" for norm in norms for end in ("weight", "scale", "gamma")]
    name = next((n for n in names if block.has(n)), None)
    if name is None or any(block.has(name.rpartition(".")[0] + end) for end in (".running_mean", ".mean")):
        return None, ""
    bias = name.rpartition(".")[0] + ".bias"
    weight = block.array(name, None)
    offset = 1 if name.endswith("gamma") else offset
    if not block.has(bias):
        return NormBall(weight, offset=offset, centered=layer.has("k_k")), name
    return NormBall(weight, block.array(bias, len(weight)), offset, centered="norm_mlstm" not in name), name


def vocabulary(layer: LayerWeights, ball: NormBall, name: str) -> Vocabulary:
    """Return the outputs of the norm in front of the first layer for all tokens.

    Raises:
        UnsupportedError: the embedding or the norm's epsilon is not known.
    """
    key = next((k for end in EMBEDDINGS for k in layer.tensors if k == end or k.endswith("." + end)), None)
    if layer.has("k_k") and any(name.endswith(".pre_norm.weight") for name in layer.tensors):
        raise UnsupportedError("this model normalizes its embeddings twice: certify the norm's ball")
    if key is None:
        raise UnsupportedError("the checkpoint holds no embedding of tokens that is known by its name")
    gemma = layer.has("rg_lru.recurrent_param") or layer.has("rg_lru.a_param")
    if name.endswith("gamma"):  # lucidrains: division by the norm, without an epsilon
        eps = 1e-200
    elif layer.has("to_hidden_and_gate.weight") or layer.has("to_hidden_and_f_i_gate.weight"):
        eps = float(np.finfo(np.float32).eps)
    elif gemma or "d_model" in layer.config:  # recurrentgemma and mamba_ssm write no epsilon
        eps = layer.number(*EPSILONS, default=1e-6 if gemma else 1e-5)
    else:
        eps = layer.number(*EPSILONS)
    # Gemma rounds the factor to bfloat16
    scale = float(torch.tensor(float(ball.size) ** 0.5, dtype=torch.bfloat16)) if gemma else 1.0
    scale *= layer.number("embedding_multiplier", default=1.0)
    return Vocabulary(layer.tensors[key]() * scale, ball, eps)


def as_box(box: Any, size: int | None) -> InputBox:
    """Return an ``InputBox`` as it is, or two numbers as the bounds of ``size`` inputs.

    Raises:
        ConfigurationError: no box.
        UnsupportedError: two numbers for an unknown number of inputs.
    """
    if isinstance(box, InputBox):
        return box
    if not isinstance(box, tuple):
        raise ConfigurationError("the input set 'box' needs box=InputBox(low, high), measured behind the norm")
    if size is None:
        raise UnsupportedError("the number of inputs of a layer is not known: give a lower and an upper bound for each")
    return InputBox(*(np.full(size, float(end)) for end in box))


def input_set(layer: LayerWeights, offset: int, norms: tuple[str, ...], kind: str, box: Any) -> Any:
    """Return the input set of a layer: ``"norm"``, ``"vocabulary"`` or ``"box"`` (an ``InputBox`` or two numbers).

    Raises:
        ConfigurationError: another kind, a box that is not given, or the vocabulary for a layer that is not the first.
        UnsupportedError: a layer without a norm in front of it that is known.
    """
    if kind not in INPUT_SETS:
        raise ConfigurationError(f"the input set must be one of {', '.join(INPUT_SETS)}, got {kind!r:.40}")
    ball, name = norm_ball(layer, offset, norms)
    if kind == "box":
        key, axis = next((item for item in INPUT_AXES.items() if layer.has(item[0])), ("", 0))
        if ball is None and key:
            return as_box(box, layer.tensors[layer.prefix + key]().shape[axis])
        return as_box(box, None if ball is None else ball.size)
    if ball is None:
        where = layer.prefix or "the layer"
        raise UnsupportedError(f"{where}: no norm is known in front of it: measure its inputs and give a box")
    if kind == "norm":
        return ball
    if layer.index:
        raise ConfigurationError("the input set 'vocabulary' exists for the first layer of a model only")
    return vocabulary(layer, ball, name)
