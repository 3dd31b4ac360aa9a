"""Language models of checkpoints that consist of Mamba, FalconMamba or Mamba-2 layers alone, as torch modules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from stability.errors import FileFormatError, UnsupportedError

from ..gated_linear.block import GatedLinearBlock, RMSNorm
from ..gated_linear.mamba import Mamba
from ..gated_linear.matrix_state import Mamba2
from .folder import Checkpoint, StoredLayer, open_checkpoint
from .layer_weights import EMBEDDINGS, EPSILONS, FLOOR, LayerWeights, as_number

EPSILON = 1e-5
"""Epsilon of the norms where ``config.json`` has none, as in mamba_ssm and mamba.py."""
HEAD, FINAL_NORM = "lm_head.weight", "norm_f.weight"


class CheckpointNetwork(nn.Module):
    """Language model: embedding, residual blocks, norm and head; ``network(tokens)`` gives logits of the next token.

    Attributes:
        embedding: vectors of the tokens.
        layers: residual blocks, each a ``GatedLinearBlock``.
        paths: path of every mixer in the checkpoint.
        norm: norm behind the last block.
        head: linear map to the logits, ``(tokens, width)``; may be the embedding itself.
    """

    def __init__(self, embedding: Tensor, layers: Iterable[GatedLinearBlock], paths: list[str], norm: RMSNorm) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(embedding, freeze=False)
        self.layers, self.paths, self.norm = nn.ModuleList(layers), paths, norm
        self.head = nn.Linear(*reversed(embedding.shape), bias=False, device="meta")
        self.head.weight = self.embedding.weight

    @property
    def tokens(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.embedding.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``(batch, time, vocabulary)`` of the token after each of ``tokens (batch, time)``."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x))


def load_network(path: str | Path, dtype: torch.dtype = torch.float32) -> CheckpointNetwork:
    """Read a whole network of Mamba, FalconMamba or Mamba-2 layers, with the floors of its steps.

    Args:
        path: folder or file, as for ``open_checkpoint``.
        dtype: precision of the weights and of the computation.

    Returns:
        The network on the CPU, in evaluation mode.

    Raises:
        UnsupportedError: other layers (attention, experts, other recurrences) or variants.
        FileFormatError: missing tensors, or shapes that do not fit together.
    """
    checkpoint = open_checkpoint(path)
    types = sorted({layer.type for layer in checkpoint.layers} | set(checkpoint.skipped.values()))
    if checkpoint.skipped or not set(types) <= {"Mamba", "FalconMamba", "Mamba-2"}:
        raise UnsupportedError(
            f"{path} cannot be run: whole networks of Mamba, FalconMamba or Mamba-2 are, and it has {', '.join(types)}"
        )
    tensors = checkpoint.layers[0].weights.tensors
    used: set[str] = set()

    def read(name: str) -> Tensor:
        used.add(name)
        return torch.from_numpy(tensors[name]()).to(dtype)

    def find(*ends: str) -> str | None:
        return next((name for end in ends for name in tensors if name == end or name.endswith(f".{end}")), None)

    embedding, norm, head = find(*EMBEDDINGS), find(FINAL_NORM), find(HEAD)
    if embedding is None or norm is None:
        raise FileFormatError(f"{path} holds no embedding of tokens or no norm {FINAL_NORM} behind the last layer")
    eps = LayerWeights(tensors, checkpoint.config).number(*EPSILONS, default=EPSILON)
    blocks = [_block(layer, checkpoint, eps, dtype, used) for layer in checkpoint.layers]
    network = CheckpointNetwork(
        read(embedding), blocks, [layer.path for layer in checkpoint.layers], _norm(read(norm), eps)
    )
    if head is not None:
        weight = read(head)
        if weight.shape != network.embedding.weight.shape:
            raise FileFormatError(f"{path}: {head} and {embedding} differ in shape")
        network.head.weight = nn.Parameter(weight)
    if left := sorted(set(tensors) - used):
        raise UnsupportedError(f"{path} cannot be run: the tensor {left[0][:100]} has no place in such a network")
    return network.eval()


def _norm(weight: Tensor, eps: float) -> RMSNorm:
    norm = RMSNorm(len(weight), eps)
    norm.weight = nn.Parameter(weight)
    return norm


def _block(
    stored: StoredLayer, checkpoint: Checkpoint, eps: float, dtype: torch.dtype, used: set[str]
) -> GatedLinearBlock:
    """Return the residual block of a layer.

    Raises:
        UnsupportedError: a variant that is not run.
        FileFormatError: shapes that do not fit together.
    """
    weights = stored.weights
    _refuse_variants(weights)
    names = [name for name in weights.tensors if name.startswith(weights.prefix)]
    parent = weights.prefix[:-1].rpartition(".")[0]
    state = {f"mixer.{name.removeprefix(weights.prefix)}": name for name in names}
    state["norm.weight"] = f"{parent}.norm.weight"
    tensors = {key: torch.from_numpy(weights.tensors[name]()) for key, name in state.items() if name in weights.tensors}
    used.update(state.values())
    with torch.device("meta"):
        block = _empty_block(stored, {key: value.shape for key, value in tensors.items()})
        block.norm.eps = eps
        _set_biases(block.mixer, tensors)
    block.type_name = stored.type
    if stored.type == "FalconMamba":
        assert isinstance(block, Mamba)
        _add_inner_norms(block, weights.number("mixer_rms_eps", default=1e-6), tensors)
    elif stored.type == "Mamba-2":
        assert isinstance(block, Mamba2)
        block.mixer.norm.eps = eps
    try:
        block.load_state_dict({key: value.to(dtype) for key, value in tensors.items()}, strict=True, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(
            f"{checkpoint.name}: the tensors of {stored.path} do not fit together: {reason}"
        ) from error
    return block


def _refuse_variants(layer: LayerWeights) -> None:
    """Raise an error for settings under which the mixers compute another function.

    Raises:
        UnsupportedError: such a setting.
    """
    limits = layer.setting("time_step_limit", "dt_limit", default=[0.0, float("inf")])
    usual = {
        "hidden_act": ("silu", "swish"),
        "norm_before_gate": (False,),
        "rms_norm": (True,),
        "d_intermediate": (0,),
    }
    wrong = [name for name, values in usual.items() if layer.setting(name, default=values[0]) not in values]
    if not isinstance(limits, list) or [as_number(limit, "time_step_limit") for limit in limits] != [0.0, float("inf")]:
        wrong.append("time_step_limit")
    if wrong:
        raise UnsupportedError(f"{layer.prefix}: the setting {wrong[0]} has a value with which the network is not run")


def _empty_block(stored: StoredLayer, shapes: dict[str, torch.Size]) -> GatedLinearBlock:
    """Return a block of the sizes of a layer's tensors.

    Raises:
        UnsupportedError: channels that are no multiple of the width.
    """
    inner, _, taps = shapes["mixer.conv1d.weight"]
    width, floor = shapes["mixer.in_proj.weight"][1], 0.0 if f"mixer.{FLOOR}" in shapes else None
    if stored.type == "Mamba-2":
        inner = shapes["mixer.norm.weight"][0] if "mixer.norm.weight" in shapes else 0
    if not inner or inner % width:
        raise UnsupportedError(f"{stored.path}: {inner} channels are no multiple of the width {width}")
    common = {"expand": inner // width, "taps": taps, "floor": floor}
    if stored.type != "Mamba-2":
        rank, states = shapes["mixer.dt_proj.weight"][1], shapes["mixer.A_log"][1]
        return Mamba(width, width, state_size=states, rank=rank, **common)
    groups = stored.weights.count("n_groups", "ngroups", default=1)
    states = (shapes["mixer.conv1d.weight"][0] - inner) // (2 * groups)
    return Mamba2(width, width, heads=shapes["mixer.A_log"][0], groups=groups, state_size=states, **common)


def _set_biases(mixer: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the linear maps of a mixer the biases that a checkpoint has."""
    for name in ("in_proj", "out_proj"):
        if f"mixer.{name}.bias" in tensors:
            size = getattr(mixer, name).out_features
            getattr(mixer, name).bias = nn.Parameter(torch.empty(size))
    if "mixer.conv1d.bias" not in tensors:
        mixer.conv1d.bias = None  # type: ignore[union-attr, assignment]


def _add_inner_norms(block: Mamba, eps: float, tensors: dict[str, Tensor]) -> None:
    """Norm step, B and C, as FalconMamba does, with weights of one."""
    mixer = block.mixer
    sizes = {"dt_layernorm": mixer.rank, "b_layernorm": mixer.state_shape[1], "c_layernorm": mixer.state_shape[1]}
    for name, size in sizes.items():
        setattr(mixer, name, RMSNorm(size, eps))
        tensors[f"mixer.{name}.weight"] = torch.ones(size)
