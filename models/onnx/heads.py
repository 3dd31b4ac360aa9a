"""Whole networks of ONNX graphs: recurrent nodes, their last or mean output, and a linear head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stability.errors import DisagreementError, UnsupportedError
from stability.kernel.systems.classifier import REDUCTIONS, Classifier

from ..adapters.cross_check import GRAPH_ADVICE
from ..classifier_network import ClassifierNetwork
from .graph import DOMAINS, Graph, attributes, name_of, refuse_rounding

Array = np.ndarray
_AT_THE_END = ("Softmax", "LogSoftmax")
_PASSED = ("Identity", "Cast", "Dropout")
_SIZES = ((3, 2), (4, 5))
"""Numbers of steps and sequences to run a graph with, where it leaves them open."""
_MOST = 2**22
"""Numbers of a trial input."""
_ROUNDING = 1e-4
"""Of the largest logit: graphs are in float32."""


def onnx_network(graph: Graph, nodes: list[Any], subject: Any) -> ClassifierNetwork:
    """Return the network of a graph: recurrent nodes in a chain, what is read of their outputs, a linear head.

    A softmax at the end is left off: the answers are the logits before it. What stands between input, recurrent part
    and head is run in onnx's reference evaluator, and refused where it does anything but turn axes, take the last step
    or the mean of all.

    Args:
        graph: the graph.
        nodes: its recurrent nodes, in a chain.
        subject: what was read from them.

    Returns:
        The network, for sequences ``(batch, time, features)`` whatever the graph's own order of axes, in its precision.

    Raises:
        UnsupportedError: saying what stands in the way.
        DisagreementError: run beside the graph, what was read gives other numbers.
    """
    logits, weight, bias = _linear_head(graph)
    for node in nodes:
        _refuse_start(graph, node)
    first, last = nodes[0], nodes[-1]
    name, turned = _input_of(graph, first)
    reduction = _reduction(graph, last, (logits, weight, bias))
    found = Classifier(subject, weight, bias, reduction)
    for steps, batch in _shapes(graph, first):
        x = np.random.default_rng(0).normal(size=(batch, steps, found.inputs))
        layout = bool(attributes(first).get("layout"))
        own = x if layout is not turned else np.swapaxes(x, 0, 1)
        (theirs,) = graph.run([logits], {name: np.ascontiguousarray(own, dtype=_stored(graph, first).dtype)})
        ours = found.logits(x)
        apart = np.abs(theirs - ours).max() if theirs.shape == ours.shape else np.inf
        if not apart <= _ROUNDING * (1.0 + np.abs(ours).max()):
            raise DisagreementError(
                f"the graph and its recurrent part with a linear head differ by {apart:.1e}. {GRAPH_ADVICE}"
            )
    single = _stored(graph, first).dtype == np.float32
    return ClassifierNetwork(found, torch.float32 if single else torch.float64).eval()


def _stored(graph: Graph, node: Any, which: int = 1) -> Array:
    """Return the input weights of a recurrent node, whose type is that of its numbers; 2: the recurrent weights."""
    weights = graph.constant(node.input[which])
    assert weights is not None, "the weights of a node that became a subject are stored"
    return weights


def _linear_head(graph: Graph) -> tuple[str, Array, Array]:
    """Return the name of the logits, and the head that makes them: ``weight (k, n)``, ``bias (k,)``."""
    name = logits = graph.proto.output[0].name
    bias: Array | None = None
    while name in graph.producers:
        node = graph.producers[name]
        op = node.op_type if node.domain in DOMAINS else ""
        if op in _AT_THE_END and name == logits and bias is None:
            name = logits = node.input[0]
        elif op in _PASSED:
            refuse_rounding(graph, node, "behind the head")
            name = node.input[0]
        elif op == "Add" and bias is None:
            first, second = (graph.constant(other) for other in node.input)
            if (first is None) is (second is None):
                raise UnsupportedError(f"the node {name_of(node)} adds no constant to what the head makes")
            name, bias = (node.input[1], first) if second is None else (node.input[0], second)
        elif op in ("MatMul", "Gemm"):
            return (logits, *_weight_and_bias(graph, node, bias))
        else:
            break
    raise UnsupportedError("its outputs are no linear function of what its recurrent part puts out (a MatMul or Gemm)")


def _weight_and_bias(graph: Graph, node: Any, bias: Array | None) -> tuple[Array, Array]:
    """Return the head of a MatMul or Gemm, and of what is added behind it."""
    options, weight = attributes(node), graph.constant(node.input[1])
    if len(node.input) > 2 and node.input[2]:
        if bias is not None:
            raise UnsupportedError(f"the head {name_of(node)} has two biases")
        bias = graph.constant(node.input[2])
    elif bias is None:
        bias = np.zeros(())
    if weight is None or weight.ndim != 2 or bias is None:
        raise UnsupportedError(f"the weights of the head {name_of(node)} are not stored")
    if options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0 or options.get("transA"):
        raise UnsupportedError(f"the Gemm {name_of(node)} scales or transposes what it gets")
    weight, bias = weight if options.get("transB") else weight.T, np.squeeze(bias)
    if bias.shape not in ((), (len(weight),)):
        raise UnsupportedError(f"what is added behind the head has the shape {bias.shape}, not ({len(weight)},)")
    return weight, np.broadcast_to(bias, (len(weight),)).copy()


def _refuse_start(graph: Graph, node: Any) -> None:
    """Refuse another direction, and initial states that are not zero."""
    if attributes(node).get("direction", "forward") != "forward":
        raise UnsupportedError(f"the node {name_of(node)} does not run forwards: what its head reads is not followed")
    for start in filter(None, list(node.input[5:7])):
        value = graph.constant(start)
        if value is None:  # made in the shape of the input, which then has to be given
            like = _stored(graph, node)
            width = like.shape[2]
            feeds = {
                v.name: np.ones((*_declared(graph, v.name, _SIZES[0], width), width), dtype=like.dtype)
                for v in _inputs(graph)
            }
            (value,) = graph.run([start], feeds)
        if value.any():
            raise UnsupportedError(
                f"the node {name_of(node)} does not start from zero: claims here are about that start"
            )


def _inputs(graph: Graph) -> list[Any]:
    return [value for value in graph.proto.input if value.name not in graph.initializers]


def _declared(graph: Graph, name: str, default: tuple[int, int], width: int) -> tuple[int, int]:
    """Return the first two declared sizes of a value, else the default; refuse more than is run here."""
    outer = graph.sizes(name, (*default, width))[:2]
    if outer[0] * outer[1] * width > _MOST:
        raise UnsupportedError(f"sequences of the declared sizes {outer} of {width} features are too large to try")
    return outer[0], outer[1]


def _shapes(graph: Graph, node: Any) -> list[tuple[int, int]]:
    """Return numbers of steps and sequences that the graph can run with."""
    layout = bool(attributes(node).get("layout"))
    found, width = [], max(_stored(graph, node).shape)
    for steps, batch in _SIZES:
        outer = _declared(graph, node.input[0], (batch, steps) if layout else (steps, batch), width)
        found.append((outer[1], outer[0]) if layout else (outer[0], outer[1]))
    return list(dict.fromkeys(found))


def _input_of(graph: Graph, node: Any) -> tuple[str, bool]:
    """Return the name of the input, and True if its first two axes are swapped before the first recurrent node."""
    given = _inputs(graph)
    if len(given) != 1:
        raise UnsupportedError(f"the graph has {len(given)} inputs, a network of sequences has one")
    name = given[0].name
    if name == node.input[0]:
        return name, False
    like = _stored(graph, node)
    width = like.shape[2]
    for turned in (False, True):
        for steps, batch in _SIZES:
            outer = _declared(graph, name, (steps, batch), width)
            entries = outer[0] * outer[1] * width
            x = (np.arange(entries) / 8.0).reshape(*outer, width).astype(like.dtype)
            (got,) = graph.run([node.input[0]], {name: x})
            if not np.array_equal(got, np.swapaxes(x, 0, 1) if turned else x):
                break
        else:
            return name, turned
    raise UnsupportedError("what its recurrent part reads is not the input itself: something is computed before it")


def _reduction(graph: Graph, node: Any, head: tuple[str, Array, Array]) -> str:
    """Return which outputs the head reads: ``last`` or ``mean``."""
    logits, weight, bias = head
    R, layout = _stored(graph, node, 2), bool(attributes(node).get("layout"))
    hidden, rng = R.shape[2], np.random.default_rng(0)
    left = list(REDUCTIONS)
    if weight.shape[1] != hidden:
        raise UnsupportedError(f"the head reads {weight.shape[1]} numbers, the recurrent part puts out {hidden}")
    for steps, batch in _shapes(graph, node):
        values = rng.normal(size=(batch, steps, hidden)).astype(R.dtype)
        Y = values[:, :, None] if layout else values.transpose(1, 0, 2)[:, None]
        end = values[:, -1:] if layout else values[None, :, -1]
        feeds = dict(zip((name for name in node.output), (np.ascontiguousarray(Y), np.ascontiguousarray(end))))
        feeds.pop("", None)
        (got,) = graph.run([logits], feeds)
        reads = {"last": values[:, -1], "mean": values.mean(1)}
        expected = {key: reads[key] @ weight.T + bias for key in left}
        left = [key for key in left if got.shape == expected[key].shape and np.allclose(got, expected[key], 1e-5, 1e-5)]
    if not left:
        raise UnsupportedError("the head reads neither the last output nor the mean of all outputs")
    return left[0]
