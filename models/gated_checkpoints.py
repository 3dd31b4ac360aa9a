"""Models and files that hold gated linear layers, layer by layer, for certificates of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from stability.checkpoint_certificate import CheckpointLayer, register_checkpoint_reader
from stability.errors import ConfigurationError, StabilityError
from stability.systems import GatedLinearLayer

from .adapters.modules import is_recurrent, recurrent_subject
from .checkpoints import find_checkpoint
from .checkpoints.layer_weights import as_box
from .files import FORMAT, MODEL_FILE
from .gated_linear.block import GatedLinearBlock
from .network import SequenceModel
from .readers.safetensors import read_metadata
from .stack import Stack


def gated_layers(model: Any) -> Iterable[CheckpointLayer] | None:
    """Find the gated linear layers of a module, a run directory or a checkpoint.

    Args:
        model: a module, or a path.

    Returns:
        The layers, whose weights are read when they are built; ``None`` where there are none, or where a module has
        recurrent layers of other kinds too.

    Raises:
        FileFormatError: a damaged or hostile file.
        UnsupportedError: a layer whose function tensors and settings do not determine.

    Example:
        >>> from stability.models import MinGRU, SequenceModel
        >>> [layer.type for layer in gated_layers(SequenceModel(MinGRU(2, 8), 3))]
        ['minGRU']
    """
    if isinstance(model, nn.Module):
        parts = [p for p in model.modules() if is_recurrent(p) and not isinstance(p, (SequenceModel, Stack))]
        layers = [_layer_of(index, part) for index, part in enumerate(parts) if isinstance(part, GatedLinearBlock)]
        return layers if layers and len(layers) == len(parts) else None
    if not isinstance(model, (str, PathLike)) or not Path(model).exists():
        return None
    path = Path(model)
    if is_own_model(path):
        from .sources import load_module

        return gated_layers(load_module(path))
    return find_checkpoint(path)


def _layer_of(index: int, block: GatedLinearBlock) -> CheckpointLayer:
    def build(input_set: str, box: Any = None, step_limits: bool = False) -> GatedLinearLayer:
        if input_set == "box":
            return block.gated_linear(as_box(box, block.hidden_size))
        if input_set != "norm":
            raise ConfigurationError(f"a layer that was trained here reads no tokens, got input set {input_set!r}")
        return recurrent_subject(block)

    return CheckpointLayer(index, block.type_name, build)


def is_own_model(path: Path) -> bool:
    """Return True for a run directory or a file of weights that this toolkit wrote."""
    file = path / MODEL_FILE if path.is_dir() else path
    if path.is_dir() and (path / "run.json").is_file() and file.is_file():
        return True
    try:
        return file.suffix == ".safetensors" and read_metadata(file).get("format") == FORMAT
    except StabilityError:
        return False


register_checkpoint_reader(gated_layers)
