"""Checkpoints as lists of gated linear layers, each of which is read when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from stability.checkpoint_certificate import MARKERS, CheckpointLayer
from stability.errors import ConfigurationError, DimensionError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.systems.parts import COMPUTED, LONGEST_PATH, LONGEST_WHOLE
from stability.storage.read_errors import as_file_errors
from stability.systems import GatedLinearLayer, InputBox

from . import delta_rule, gated, rwkv, state_space
from .floors import floor_tensors
from .layer_weights import NORMS, LayerWeights, input_set, with_floors
from .stored_tensors import SUFFIXES, Read, find_files, read_config, stored_tensors

MAMBA = "Mamba"
QWEN = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
MAMBA2 = ("mamba2", "bamba", "falcon_h1", "zamba2", "nemotron_h", "granitemoehybrid")


@dataclass(frozen=True)
class Layout:
    """Names and shapes of a kind of layer.

    Args:
        name: name of the layer in reports.
        keys: names of tensors that a layer has; the first one marks layers.
        parts: function that returns gate and injection.
        model_types: families in ``config.json`` that use it; empty where the keys alone are clear.
        offset: 1 where the norm in front stores the difference of its weight to one.
        norms: names of the norm in front; empty where a post-norm cannot be told from a pre-norm.
    """

    name: str
    keys: tuple[str, ...]
    parts: Callable[[LayerWeights, Any], tuple[Any, Any]]
    model_types: tuple[str, ...] = ()
    offset: int = 0
    norms: tuple[str, ...] = NORMS


LAYOUTS = (
    Layout("Jamba", ("A_log", "x_proj.weight", "dt_proj.weight", "dt_layernorm.weight"), state_space.mamba),
    Layout(MAMBA, ("A_log", "x_proj.weight", "dt_proj.weight"), state_space.mamba),
    Layout("Mamba-2", ("A_log", "in_proj.weight", "conv1d.weight", "dt_bias"), state_space.mamba2, MAMBA2),
    Layout("gated DeltaNet", ("A_log", "in_proj_qkvz.weight"), delta_rule.qwen3_next, QWEN, 1),
    Layout("gated DeltaNet", ("A_log", "in_proj_qkv.weight", "in_proj_a.weight"), delta_rule.qwen3_5, QWEN, 1),
    Layout(
        "gated DeltaNet",
        ("A_log", "v_proj.weight", "a_proj.weight", "b_proj.weight"),
        delta_rule.gated_deltanet,
        ("olmo_hybrid", "gated_deltanet"),
    ),
    Layout("KDA", ("A_log", "f_a_proj.weight", "f_b_proj.weight"), delta_rule.kimi_delta, ("kimi_linear", "kda")),
    Layout("KDA", ("A_log", "f_proj.0.weight", "f_proj.1.weight"), delta_rule.kimi_delta, ("kimi_linear", "kda")),
    Layout("RG-LRU", ("rg_lru.recurrent_param",), gated.rg_lru, offset=1),
    Layout("RG-LRU", ("rg_lru.a_param",), gated.rg_lru, offset=1),
    Layout("minGRU", ("to_hidden_and_gate.weight",), gated.min_gru, norms=("1", *NORMS)),
    Layout("minLSTM", ("to_hidden_and_f_i_gate.weight",), gated.min_lstm, norms=("1", *NORMS)),
    Layout("mLSTM", ("fgate_preact.weight", "igate_preact.weight", "v.weight"), gated.mlstm, ("xlstm",)),
    Layout("GLA", ("gk_proj.0.weight",), gated.gla, ("gla",)),
    Layout("HGRN", ("f_proj.weight", "i_proj.weight"), gated.hgrn, ("hgrn",)),
    Layout("RWKV-7", ("k_k", "k_a", "r_k", "w_lora.lora.0.weight"), rwkv.rwkv7),
    Layout("RWKV-7", ("k_k", "k_a", "r_k", "w0"), rwkv.rwkv7, norms=rwkv.OWN_NORM),
    Layout("S4D", ("kernel.log_A_real",), state_space.s4d, norms=()),
    Layout("S5", ("Lambda_re", "Lambda_im", "log_step"), state_space.s5, norms=()),
    Layout("LRU", ("nu_log", "theta_log", "gamma_log"), state_space.lru, norms=()),
)
REFUSED = {
    "dt_bias": "Mamba-3 or a layer like it",
    "qkv_opreact.weight": "an xLSTM with fused weights",
    "time_decay": "RWKV",
    "Lambda": "a layer of s5-pytorch",
    "A_b_log": "a bidirectional Mamba",
}
"""Tensors of recurrent layers that are not read."""
_NUMBER = re.compile(r"(?:^|[._])(\d+)(?=\.|$)")
_LAYER = re.compile(r"(.*(?:^|\.)(?:s4_)?(?:layers|blocks))[._](\d+)\.(.*)")


@dataclass(frozen=True)
class StoredLayer:
    """Recurrent layer of a checkpoint, whose weights are not read yet.

    Attributes:
        index: its number in the model.
        type: its type, such as ``"Mamba-2"``.
        path: path of its module.
    """

    index: int
    type: str
    path: str
    weights: LayerWeights
    layout: Layout
    whole: str

    def build(
        self, kind: str = "norm", box: InputBox | tuple[float, float] | None = None, step_limits: bool = False
    ) -> GatedLinearLayer:
        """Read the weights and return the subject of claims.

        Args:
            kind: input set: ``"norm"`` (every input of the norm in front), ``"vocabulary"`` (every sequence of tokens;
                first layer only) or ``"box"``.
            box: bounds of the layer's inputs, behind the norm; two numbers for all entries. Bounds of a time-invariant
                layer grow in proportion to its inputs.
            step_limits: apply Mamba-2's limits of the step, as ``open_checkpoint`` says.

        Raises:
            FileFormatError: weights of other shapes.
            ConfigurationError: another input set.
            UnsupportedError: a variant that is not read, or an input set that the checkpoint does not tell.
        """
        norms = self.layout.norms
        if not norms and self.weights.flag("prenorm", default=False):
            norms = NORMS
        wrong = f"has a layer {self.path} whose tensors do not fit together"
        part = f"{_plain(self.path, LONGEST_PATH)} of {self.whole}" if self.path else ""
        with as_file_errors(self.whole, wrong, (Exception,)):
            weights = replace(self.weights, step_limits=self.weights.step_limits or step_limits)
            u = input_set(weights, self.layout.offset, norms, kind, box)
            try:
                gate, injection = self.layout.parts(weights, u)
                part += COMPUTED if self._computed else ""
                return GatedLinearLayer(with_floors(gate, self.weights), injection, self.type, part=part)
            except (DimensionError, ConfigurationError) as error:
                raise FileFormatError(f"{self.whole} {wrong}: {error}") from error

    @property
    def _computed(self) -> bool:
        """True where arrays are products or sums of stored numbers, rounded to float64."""
        summed = self.type == "Mamba-2" and self.weights.has("in_proj.bias")
        return self.type in ("S5", "HGRN", "RWKV-7") or self.weights.model_type == "falcon_h1" or summed


@dataclass(frozen=True)
class Checkpoint:
    """Recurrent layers of a checkpoint.

    Attributes:
        name: name of the folder or file.
        layers: recurrent layers in the order of their numbers.
        skipped: numbers of the other layers, with what they are: attention, experts or feedforward.
        config: settings of ``config.json``.
        files: files of tensors.
    """

    name: str
    layers: tuple[StoredLayer, ...]
    skipped: dict[int, str]
    config: dict[str, Any]
    files: tuple[Path, ...]

    def __iter__(self) -> Iterator[CheckpointLayer]:
        return (CheckpointLayer(layer.index, layer.type, layer.build) for layer in self.layers)


def find_checkpoint(path: str | Path) -> Checkpoint | None:
    """Find the recurrent layers of a folder or file, or return ``None`` for a damaged one and one without such layers.

    Raises:
        UnsupportedError: a recurrent layer whose function tensors and settings do not determine.
    """
    path = Path(path)
    try:
        folder, files = find_files(path)
        tensors = stored_tensors([file for file in files if file.suffix in SUFFIXES])
    except StabilityError:
        return None
    if not any(_ends(name, marker) for name in tensors for marker in (*MARKERS, *REFUSED)):
        return None
    return _checkpoint(path, files, tensors, read_config(folder), False)


def _ends(name: str, marker: str) -> bool:
    return name == marker or name.endswith("." + marker)


def open_checkpoint(
    path: str | Path, *, config: Mapping[str, Any] | None = None, step_limits: bool = False
) -> Checkpoint:
    """Find the recurrent layers of a checkpoint; their weights are read by ``build``, one layer at a time.

    Args:
        path: a folder with ``config.json`` and ``model.safetensors`` (or shards), or a ``.safetensors``, ``.npz`` or
            torch file. Code in a file is never run.
        config: settings that replace those of ``config.json``, such as ``{"discretization": "zoh"}`` for S5.
        step_limits: apply Mamba-2's limits of the step (``time_step_limit``). transformers and mamba_ssm apply them to
            whole sequences and ignore them when they decode token by token, so this is a choice of the claim.

    Returns:
        The checkpoint.

    Raises:
        FileFormatError: a missing, damaged or hostile file.
        UnsupportedError: no recurrent layer, or one whose function tensors and settings do not determine.

    Example:
        >>> import tempfile, numpy as np
        >>> file = tempfile.mkdtemp() + "/lru.npz"
        >>> np.savez(file, nu_log=[0.0], theta_log=[0.0], gamma_log=[0.0], B_re=[[1.0]], B_im=[[0.0]])
        >>> layer = open_checkpoint(file).layers[0].build("box", InputBox([-1.0], [1.0]))
        >>> layer.transition
        'constant complex'
    """
    path = Path(path)
    folder, files = find_files(path)
    settings = {**read_config(folder), **(config or {})}
    return _checkpoint(path, files, stored_tensors(files), settings, step_limits)


def _checkpoint(
    path: Path, files: list[Path], tensors: dict[str, Read], settings: dict[str, Any], step_limits: bool
) -> Checkpoint:
    tensors |= floor_tensors(files[0].parent, tensors)
    layers = tuple(sorted(_layers(tensors, settings, step_limits), key=lambda layer: layer.index))
    if not layers:
        raise UnsupportedError(f"{path} holds no gated linear layer of a known layout among {len(tensors)} tensors")
    for before, after in pairwise(layers):
        if before.index == after.index:
            raise UnsupportedError(f"{path} holds two recurrent layers {before.index}: {before.path}, {after.path}")
    return Checkpoint(path.resolve().name, layers, _skipped(tensors, layers), settings, tuple(files))


def _plain(text: str, length: int) -> str:
    """Replace characters that sentences of certificates do not hold."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", text)[-length:] or "checkpoint"


def _layers(tensors: Mapping[str, Read], config: Mapping[str, Any], step_limits: bool) -> Iterator[StoredLayer]:
    markers = {*MARKERS, *REFUSED} | ({"f_proj.weight"} if config.get("model_type") == "hgrn" else set())
    prefixes = {key[: len(key) - len(marker)]: marker for key in tensors for marker in markers if _ends(key, marker)}
    kinds = config.get("architectures")  # unlike the folder's name, it belongs to the checkpoint wherever that lies
    kind = kinds[0] if isinstance(kinds, list) and kinds else config.get("model_type", "checkpoint")
    whole = _plain(str(kind), LONGEST_WHOLE)
    for prefix, marker in prefixes.items():
        number = _NUMBER.search(prefix)
        index = int(number[1][:9]) if number else 0
        layer = LayerWeights(tensors, config, prefix, index, step_limits)
        layout = next((layout for layout in LAYOUTS if all(map(layer.has, layout.keys))), None)
        if layout is None:
            what = REFUSED.get(marker, "a recurrent layer of an unknown layout")
            raise UnsupportedError(f"{prefix}{marker} belongs to {what}, which is not read")
        yield StoredLayer(index, _type(layer, layout), prefix[:-1], layer, layout, whole)


def _type(layer: LayerWeights, layout: Layout) -> str:
    """Return the type of a layer.

    Raises:
        UnsupportedError: the tensors alone do not tell the function, and the settings do not either.
    """
    family = layer.model_type
    if layout.name == MAMBA:
        if family == "falcon_mamba":
            return "FalconMamba"
        own = any(key.endswith("embedding.weight") for key in layer.tensors)  # as mamba_ssm and mamba.py name it
        if family == "mamba" or (family is None and (own or "d_model" in layer.config)):
            return MAMBA
        raise UnsupportedError(
            f"{layer.prefix}: Mamba and FalconMamba store the same tensors and compute different states: the "
            f"model_type of config.json must be mamba or falcon_mamba, got {family!r:.40}"
        )
    written_by_mamba_ssm = layout.model_types is MAMBA2 and family is None and "d_model" in layer.config
    if layout.model_types and family not in layout.model_types and not written_by_mamba_ssm:
        known = ", ".join(layout.model_types)
        raise UnsupportedError(f"{layer.prefix}: model_type of config.json must be one of {known}, got {family!r:.40}")
    return layout.name


def _skipped(tensors: Mapping[str, Read], layers: tuple[StoredLayer, ...]) -> dict[int, str]:
    """Name the kinds of the layers in the same stacks that are not recurrent."""
    stems = {match[1] for layer in layers if (match := _LAYER.fullmatch(layer.path + "."))}
    kinds: dict[int, str] = {}
    for key in tensors:
        match = _LAYER.fullmatch(key)
        if match and match[1] in stems:
            kind = "attention" if re.search(r"q_proj|qkv|attn|attention", match[3]) else "feedforward"
            kind = "experts" if kind == "feedforward" and "expert" in match[3] else kind
            index = int(match[2][:9])
            order = ("feedforward", "experts", "attention")
            kinds[index] = max(kind, kinds.get(index, kind), key=order.index)
    recurrent = {layer.index for layer in layers}
    return {index: kind for index, kind in sorted(kinds.items()) if index not in recurrent}
