"""LSTM and GRU cells: the maps, what their gates imply, and their orbits."""

from stability.gated.cell import GatedCell

__all__ = ["GatedCell"]
