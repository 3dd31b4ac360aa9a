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
from .checkpoints import holds_gated_layers, open_checkpoint
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
    if _is_own(path):
        from .sources import load_module

        return gated_layers(load_module(path))
    return open_checkpoint(path) if holds_gated_layers(path) else None


def _layer_of(index: int, block: GatedLinearBlock) -> CheckpointLayer:
    def build(input_set: str) -> GatedLinearLayer:
        if input_set != "norm":
            raise ConfigurationError(f"a layer that was trained here has the input set 'norm' only, got {input_set!r}")
        return recurrent_subject(block)

    return CheckpointLayer(index, block.type_name, build)


def _is_own(path: Path) -> bool:
    """Return True for a run directory or a file of weights that this toolkit wrote."""
    if path.is_dir():
        return (path / "run.json").is_file() and (path / MODEL_FILE).is_file()
    try:
        return path.suffix == ".safetensors" and read_metadata(path).get("format") == FORMAT
    except StabilityError:
        return False


register_checkpoint_reader(gated_layers)
