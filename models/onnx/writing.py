"""ONNX export of a recurrent layer as a ``Scan`` over the certified map, with float64 weights.

The graph holds the matrices of the layer's own system, so that reading it back gives the same system to the last bit,
and the same verdict with the same rate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import UnsupportedError
from stability.storage.writing import write_bytes
from stability.systems import DrivenSystem

from ..network import SequenceModel

Array = np.ndarray
_NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "tanh": ("Tanh", {}),
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "saturation": ("Clip", {}),
    "deadzone": ("Shrink", {"bias": 1.0, "lambd": 1.0}),
}
OPSET = 17


def export_onnx(model: nn.Module, path: str | Path) -> Path:
    """Write a layer, or a ``SequenceModel`` around one, as an ONNX file that ``certify`` reads as the same system.

    Args:
        model: a layer whose map is ``h+ = A h + B phi(C h + E x + b) + F x`` with tanh, ReLU, sigmoid, saturation
            or dead zone: Elman, Lipschitz and contracting RNNs, neural ODEs, antisymmetric RNNs by Euler's rule,
            ``torch.nn.RNN``, cells of one's own that are read so; or a model of the toolkit with a linear head on its
            last output.
        path: path of the file.

    Returns:
        The path. The graph takes ``x (time, batch, features)`` and ``h0 (batch, n)`` in float64 and gives the states at
        all times and, where there is a head, the answer.

    Raises:
        UnsupportedError: another kind of system, several layers, a map whose channels read each other (midpoint), or a
            head on anything but the last output; or the package ``onnx`` is missing.
        FileFormatError: a place that cannot be written to.

    Example:
        >>> import tempfile
        >>> from stability import certify
        >>> from stability.models import ElmanRNN
        >>> from stability.models.sources import load_subject
        >>> layer = ElmanRNN(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     read = load_subject(export_onnx(layer, folder + "/layer.onnx")).subject
        >>> np.array_equal(read.system.C, layer.driven().system.C)
        True
    """
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError as error:
        raise UnsupportedError("ONNX files need the package onnx: pip install 'rnn-stability[onnx]'") from error
    if isinstance(model, SequenceModel) and model.reduction != "last":
        raise UnsupportedError("only a head on the last output is written, not one on the mean or on each step")
    subject = as_subject(model)
    is_map = isinstance(subject, DrivenSystem) and subject.is_discrete and subject.activation in _NODES
    if not is_map or subject.system.D.any():
        raise UnsupportedError(f"a {type(subject).__name__} is not written: only maps of {', '.join(_NODES)} are")
    system, double = subject.system, TensorProto.DOUBLE
    n, p = subject.states, subject.inputs
    terms = {"A": system.A, "C": system.C, "B": system.B, "E": subject.E, "F": subject.F}
    held = [numpy_helper.from_array(np.ascontiguousarray(value.T), name) for name, value in terms.items()]
    held.append(numpy_helper.from_array(np.array(subject.b), "b"))
    kind, more = _NODES[subject.activation]
    clip_bounds = ["lowest", "highest"] if kind == "Clip" else []
    held += [numpy_helper.from_array(np.array(end), name) for name, end in zip(clip_bounds, (-1.0, 1.0))]
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "C"], ["Ch"]),
            helper.make_node("MatMul", ["x_t", "E"], ["Ex"]),
            helper.make_node("Sum", ["Ch", "Ex", "b"], ["z"]),
            helper.make_node(kind, ["z", *clip_bounds], ["w"], **more),
            helper.make_node("MatMul", ["h", "A"], ["Ah"]),
            helper.make_node("MatMul", ["w", "B"], ["Bw"]),
            helper.make_node("MatMul", ["x_t", "F"], ["Fx"]),
            helper.make_node("Sum", ["Ah", "Bw", "Fx"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        "step",
        [helper.make_tensor_value_info(k, double, ["batch", size]) for k, size in (("h", n), ("x_t", p))],
        [helper.make_tensor_value_info(k, double, ["batch", n]) for k in ("next", "seen")],
        initializer=held,
    )
    nodes = [helper.make_node("Scan", ["h0", "x"], ["last", "states"], body=body, num_scan_inputs=1, name="recurrence")]
    outputs = [helper.make_tensor_value_info("states", double, ["time", "batch", n])]
    outer = []
    if isinstance(model, SequenceModel):
        weight, bias = (v.detach().double().cpu().numpy() for v in (model.head.weight, model.head.bias))
        outer = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
        nodes.append(helper.make_node("Gemm", ["last", "weight", "bias"], ["answer"], transB=1))
        outputs.insert(0, helper.make_tensor_value_info("answer", double, ["batch", len(weight)]))
    inputs_info = [("x", ["time", "batch", p]), ("h0", ["batch", n])]
    inputs = [helper.make_tensor_value_info(name, double, shape) for name, shape in inputs_info]
    graph = helper.make_graph(nodes, type(model).__name__, inputs, outputs, initializer=outer)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="stability")
    made.ir_version = 8
    checker.check_model(made)
    write_bytes(path, made.SerializeToString())
    return Path(path)
