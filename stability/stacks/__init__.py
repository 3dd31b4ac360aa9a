"""Stacks of layers as one subject, as one network, and their orbits."""

from stability.stacks.cascade import Cascade

__all__ = ["Cascade"]
