"""Reader of ONNX files that bounds the memory of the protobuf message before parsing.

The reader counts nodes and integers in the encoded message: two bytes can encode an empty node, which takes two hundred
bytes in memory, and one byte an eight-byte integer.
"""

from __future__ import annotations

import functools
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.read_errors import as_file_errors

from ..readers.limits import GRAPH_BYTES, GRAPH_DEPTH, GRAPH_FIELDS, GRAPH_NODES, GRAPH_PACKED

_PACKED = {"TensorProto": {5: 1, 7: 1, 11: 1}, "AttributeProto": {7: 32, 8: 32}, "SparseTensorProto": {3: 1}}
"""Fields of numbers that take more memory than file space; those of attributes become Python objects."""


def check_message(raw: bytes, message: Any, path: Path) -> None:
    """Raise an error for an ONNX message that would take far more memory than its bytes, or too much time.

    Args:
        raw: the message.
        message: the protobuf descriptor of its type, with the descriptors of the messages inside.
        path: path in error messages.

    Raises:
        FileFormatError: too many fields or nodes, or graphs nested too deeply.
        ValueError: lengths beyond the end of the message.
    """
    fields = nodes = packed = 0
    stack = [(0, len(raw), message, 0)]
    while stack:
        at, end, message, depth = stack.pop()
        inner, numbers = _inside(message), _PACKED.get(message.name, {})
        while at < end:
            tag, at = _varint(raw, at, end)
            fields += 1
            wire, number = tag & 7, tag >> 3
            if wire == 0:
                packed += numbers.get(number, 0)
                _, at = _varint(raw, at, end)
            elif wire in (1, 5):
                packed += numbers.get(number, 0)
                at += 8 if wire == 1 else 4
            elif wire == 2:
                length, at = _varint(raw, at, end)
                if length > end - at:
                    raise ValueError("a field goes beyond it")
                packed += length * numbers.get(number, 0)
                count = inner.get(number)
                if count is not None:
                    nodes += count.name == "NodeProto"
                    stack.append((at, at + length, count, depth + (count.name == "GraphProto")))
                at += length
            if fields > GRAPH_FIELDS or nodes > GRAPH_NODES or packed > GRAPH_PACKED:
                raise FileFormatError(f"{path} has more than {GRAPH_NODES} nodes, or too many fields or integers")
        if depth > GRAPH_DEPTH:
            raise FileFormatError(f"{path} is nested too deeply: at most {GRAPH_DEPTH} graphs in each other")


@functools.cache
def _inside(message: Any) -> dict[int, Any]:
    """Return the descriptors of the messages inside one, by the number of their field."""
    return {field.number: field.message_type for field in message.fields if field.message_type is not None}


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


def read_model(path: Path) -> Any:
    """Return the ``onnx.ModelProto`` of a file, with its external data.

    Raises:
        ConfigurationError: ``onnx`` is not installed.
        FileFormatError: no ONNX model, too large, or with misplaced data.
    """
    try:
        import onnx
        from onnx.external_data_helper import load_external_data_for_model
    except ImportError as error:
        raise ConfigurationError("reading .onnx files: pip install 'rnn-stability[onnx]'") from error
    with as_file_errors(path, "is damaged, truncated or no ONNX model", (Exception,)):
        if path.stat().st_size > GRAPH_BYTES:
            raise FileFormatError(f"{path} has {path.stat().st_size} bytes; of a graph at most {GRAPH_BYTES} are read")
        raw = path.read_bytes()
        check_message(raw, onnx.ModelProto.DESCRIPTOR, path)
        model = onnx.load_model_from_string(raw)
        _check_beside(model, path)
        load_external_data_for_model(model, str(path.parent))
    return model


def tensors_of(graph: Any) -> Iterator[Any]:
    """Yield all tensors of a graph and of the graphs inside it."""
    graphs = [graph]
    while graphs:
        here = graphs.pop()
        yield from here.initializer
        for node in here.node:
            for attribute in node.attribute:
                yield from ([attribute.t] if attribute.HasField("t") else ())
                yield from attribute.tensors
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs


def _check_beside(model: Any, path: Path) -> None:
    """Raise an error for external data in too many or non-regular files."""
    from onnx import TensorProto

    total = 0
    for tensor in tensors_of(model.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        status, length = (path.parent / entries.get("location", "")).lstat(), entries.get("length", "")
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(f"{path}: the data of {tensor.name[:60]!a} lie in no regular file")
        read = int(length) if length.isdecimal() and len(length) < 20 else status.st_size
        total += min(read, status.st_size)
        if total > GRAPH_BYTES:
            raise FileFormatError(f"{path} has more than {GRAPH_BYTES} bytes of data beside it")
