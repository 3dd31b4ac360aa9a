"""What the readers of model files take at most. Sizes are computed, and refused, before memory is taken.

Where a file is the smallest form of what it holds (safetensors, ``.pt``), its own size bounds the memory; the limits
here are for graphs, which unfold. Those of archives are on the ground floor (``storage/limits.py``).
"""

from __future__ import annotations

GRAPH_BYTES = 2**30
"""Of an ONNX file, and of the data that lie beside it."""
GRAPH_FIELDS = 2**20
"""Of the messages of an ONNX file: each costs about a hundred bytes, whatever it takes in the file."""
GRAPH_PACKED = 2**26
"""Bytes of numbers that an ONNX file holds as variable-length integers: each may become eight."""
GRAPH_NODES = 20_000
GRAPH_DEPTH = 16
"""Of graphs inside graphs."""
UNFOLDED = 2**26
"""Numbers that the constants of a graph unfold to in all, beside those that the file holds."""
LOOP_NODES = 4096
"""Of the body of a loop."""
LOOP_VALUES = 256
"""Values that a loop carries or reads."""
STEP_INPUTS = 6
"""Inputs of a graph that is one step: every way to pair them with its outputs is tried."""
LOOP_WIDTH = 6144
"""Entries of all states, inputs and activations of a loop: the matrices of its system have no more columns."""
LOOP_ENTRIES = 2**26
"""Of all matrices that are followed through the body of a loop."""
LAYERS = 256
"""Recurrent layers of one model file."""
