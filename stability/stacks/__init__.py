"""Stacks of layers as one subject, as one network, and their orbits."""

from stability.stacks.residual import ResidualStack
from stability.stacks.stack import Cascade, LayerStack

__all__ = ["Cascade", "LayerStack", "ResidualStack"]
