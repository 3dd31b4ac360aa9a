"""Gated linear layers of published checkpoints, read layer by layer without the packages that wrote them."""

from .folder import Checkpoint, StoredLayer, find_checkpoint, open_checkpoint

__all__ = ["Checkpoint", "StoredLayer", "find_checkpoint", "open_checkpoint"]
