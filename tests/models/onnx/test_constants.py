"""Constants of ONNX graphs: folded as the runtime computes them, and never unfolded beyond the limit."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import FileFormatError, UnsupportedError
from stability.models.onnx import graph as onnx_graph
from stability.models.onnx.graph import Graph

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from .graphs import info, node, stored  # noqa: E402

A = np.array([[1.5, -2.0, 0.25], [4.0, 0.0, -7.0]])
HELD = {"a": A, "b": np.array(3.0), "row": np.array([[1, 2]]), "to": np.array([3, 2])}
HELD |= {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}


def graph_of(nodes, tensors=(), opset=17, outer=None, **constants):
    made = helper.make_graph(nodes, "g", [info("X", [2, None])], [], [*tensors, *stored(constants)])
    return Graph(made, outer, [helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    "made",
    [
        node("Transpose", "a", "y"),
        node("Reshape", "a to", "y"),
        node("Cast", "a", "y", to=TensorProto.FLOAT),
        node("Flatten", "a", "y", axis=0),
        node("Concat", "a a", "y", axis=1),
        node("Slice", "a one two one", "y"),
        node("Gather", "a one", "y", axis=1),
        *(node(op, "a b", "y") for op in ("Add", "Sub", "Mul", "Div")),
        node("Neg", "a", "y"),
        node("Shape", "a", "y"),
        node("ConstantOfShape", "to", "y"),
        node("Expand", "b to", "y"),
        node("Unsqueeze", "a one", "y"),
        node("Squeeze", "row zero", "y"),
        node("Split", "a", "y z", axis=0),
        node("Constant", "a", "y", value_floats=[0.5, 2.0]),
        node("Constant", "a", "y", value=numpy_helper.from_array(A, "v")),
    ],
)
def test_a_constant_is_folded_as_the_reference_computes_it(made):
    if made.op_type == "Constant":
        del made.input[:]
    chain = [made, node("Identity", "y", "again")]
    model = helper.make_model(
        helper.make_graph(chain, "g", [], [info("again", None)], stored(HELD)),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    (expected,) = ReferenceEvaluator(model).run(None, {})
    graph = graph_of(chain, **HELD)
    for found in (graph.constant("again"), Graph(helper.make_graph([], "inner", [], []), graph).constant("again")):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_what_depends_on_an_input_or_cannot_be_evaluated_is_no_constant():
    nodes = [
        node("Add", "a X", "c0"),
        node("Tanh", "a", "c1"),
        node("Neg", "a", "c2", domain="my.own"),
        node("Reshape", "a seven", "c3"),
        node("Constant", "", "c4"),
    ]
    graph = graph_of(nodes, seven=np.array([7]), **HELD)
    assert [graph.constant(f"c{k}") for k in range(5)] == [None] * 5
    inner = graph_of([], outer=graph_of([], X=np.ones(2)))
    assert inner.constant("X") is None  # its own input, not the constant outside


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "BOOL", "FLOAT16", "FLOAT", "DOUBLE", "INT64"])
def test_constants_of_every_width_are_read(kind):
    if not hasattr(TensorProto, kind):
        pytest.skip(f"this onnx has no {kind}")
    values = [k % 2 for k in range(1000)]
    tensor = helper.make_tensor("a", getattr(TensorProto, kind), [1000], values)
    np.testing.assert_array_equal(graph_of([], [tensor]).constant("a").astype(float), values)


@pytest.mark.parametrize("dims", [[2**32, 2**32], [-1, 10], [10**6], [-1]])
def test_a_shape_that_is_not_held_is_refused(dims):
    tensor = numpy_helper.from_array(np.ones(4), "a")
    tensor.dims[:] = dims
    for graph in (lambda: graph_of([], [tensor]), lambda: graph_of([node("Constant", "", "a", value=tensor)])):
        with pytest.raises(FileFormatError):
            graph().constant("a")


@pytest.mark.parametrize(
    ("made", "constants"),
    [
        *((node(op, "tall wide", "c"), {}) for op in ("Add", "Sub", "Mul", "Div")),
        (node("Expand", "tall n", "c"), {"n": [1, 9]}),
        (node("ConstantOfShape", "n", "c"), {"n": [8, 9]}),
        (node("ConstantOfShape", "n", "c"), {"n": [2**32, 2**32]}),
        (node("Concat", " ".join(["tall"] * 9), "c", axis=0), {}),
        (node("Gather", "tall n", "c", axis=1), {"n": [0] * 9}),
    ],
)
def test_constants_are_unfolded_up_to_the_limit(made, constants, monkeypatch):
    given = {"tall": np.ones((8, 1)), "wide": np.ones((1, 9)), **{k: np.array(v) for k, v in constants.items()}}
    if constants.get("n") != [2**32, 2**32]:
        monkeypatch.setattr(onnx_graph, "UNFOLDED", 72)
        assert graph_of([made], **given).constant("c").size == 72
        monkeypatch.setattr(onnx_graph, "UNFOLDED", 71)
    with pytest.raises(FileFormatError):
        graph_of([made], **given)


def test_the_limit_is_that_of_all_constants_and_another_view_is_free(monkeypatch):
    monkeypatch.setattr(onnx_graph, "UNFOLDED", 12)
    nodes = [node("Transpose", "a", "view"), node("Neg", "a", "c"), node("Neg", "view", "d")]
    assert graph_of(nodes, a=A).constant("d").shape == (3, 2)
    with pytest.raises(FileFormatError):
        graph_of([*nodes, node("Neg", "a", "e")], a=A)


def test_a_piece_is_run_from_what_is_fed(monkeypatch):
    nodes = [node("Mul", "X a", "y"), node("Tanh", "y", "z"), node("Add", "z q", "v")]
    graph = graph_of(nodes, a=np.array([2.0, 3.0]))
    x = np.array([[0.1, 0.2]])
    np.testing.assert_allclose(graph.run(["z"], {"X": x})[0], np.tanh([[0.2, 0.6]]), atol=1e-15)
    np.testing.assert_allclose(graph.run(["z"], {"y": x})[0], np.tanh(x), atol=1e-15)
    for outputs, feeds in ((["z"], {}), (["v"], {"X": x}), (["z"], {"X": np.ones((1, 5))})):
        with pytest.raises(UnsupportedError):
            graph.run(outputs, feeds)
    monkeypatch.setattr(onnx_graph, "UNFOLDED", 1)
    with pytest.raises(FileFormatError):
        graph.run(["z"], {"X": x})
