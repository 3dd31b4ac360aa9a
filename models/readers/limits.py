"""Limits of the readers of model files; sizes are checked before memory is allocated.

Where a file is the smallest form of what it holds (safetensors, ``.pt``), its own size bounds the memory; the limits
here are for graphs, which unfold. Those of archives are on the ground floor (``storage/limits.py``).
"""

from __future__ import annotations

GRAPH_BYTES = 2**30
"""Most bytes of an ONNX file, and of its external data."""
GRAPH_FIELDS = 2**20
"""Most fields of the messages of an ONNX file: each costs about a hundred bytes of memory."""
GRAPH_PACKED = 2**26
"""Most bytes of variable-length integers in an ONNX file: each byte may become eight."""
GRAPH_NODES = 20_000  # most nodes of a graph
GRAPH_DEPTH = 16
"""Most levels of nested graphs."""
UNFOLDED = 2**26
"""Most numbers of all constants of a graph after folding, beside those stored in the file."""
LOOP_NODES = 4096
"""Most nodes in the body of a loop."""
LOOP_VALUES = 256
"""Most values that a loop carries or reads."""
STEP_INPUTS = 6
"""Most inputs of a graph that is one step: all pairings with its outputs are tried."""
LOOP_WIDTH = 6144
"""Most entries of all states, inputs and activations of a loop: columns of its system's matrices."""
LOOP_ENTRIES = 2**26
"""Most entries of all matrices traced through the body of a loop."""
LAYERS = 256
"""Most recurrent layers of one model file."""
