"""Gated linear layers of published checkpoints, read layer by layer without the packages that wrote them."""

from .folder import Checkpoint, StoredLayer, holds_gated_layers, open_checkpoint

__all__ = ["Checkpoint", "StoredLayer", "holds_gated_layers", "open_checkpoint"]
