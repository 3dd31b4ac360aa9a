"""What the readers of model files take at most. Sizes are computed, and refused, before memory is taken.

Where a file is the smallest form of what it holds (safetensors, ``.pt``), its own size bounds the memory; the limits
here are for what unfolds: numbers that become float64 and are copied a few times, archives, headers, pickles, graphs.
"""

from __future__ import annotations

__all__ = [
    "GRAPH_BYTES",
    "GRAPH_DEPTH",
    "GRAPH_FIELDS",
    "GRAPH_NODES",
    "GRAPH_PACKED",
    "HEADER_BYTES",
    "MEMBERS",
    "NUMBERS",
    "PICKLE_BYTES",
    "PICKLE_OPCODES",
    "PICKLE_TREE",
    "UNFOLDED",
]

NUMBERS = 2**25
"""Of all arrays of a ``.npz``, or of one recurrent part of a state dict: 256 MiB as float64, of which about four copies
live at once."""
MEMBERS = 20_000
"""Of an archive (``.npz``, ``.pt``)."""
HEADER_BYTES = 16 * 2**20
"""Of a safetensors header."""
PICKLE_BYTES = 16 * 2**20
"""Of the pickle that lists the tensors of a ``.pt`` file; the tensors themselves stand beside it."""
PICKLE_OPCODES = 500_000
PICKLE_TREE = 1_000_000
"""Of an object inside a pickle, written out without sharing: what hashing or printing it would visit."""
GRAPH_BYTES = 2**30
"""Of an ONNX file, and of the data that lie beside it."""
GRAPH_FIELDS = 2**20
"""Of the messages of an ONNX file: each costs about a hundred bytes, whatever it takes in the file."""
GRAPH_PACKED = 2**26
"""Bytes of numbers that an ONNX file holds as variable-length integers: each may become eight."""
GRAPH_NODES = 20_000
GRAPH_DEPTH = 16
"""Of graphs inside graphs."""
UNFOLDED = 2**24
"""Numbers that the constants of a graph, or what is followed through the body of a loop, unfold to in all."""
