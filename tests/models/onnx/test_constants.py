"""Constants of ONNX graphs: of every width, never unfolded beyond the limit, and what an evaluator says of them."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import FileFormatError, UnsupportedError
from stability.models.onnx import graph as onnx_graph
from stability.models.onnx import sizes as onnx_sizes
from stability.models.onnx.algebra import _KNOWN, Body
from stability.models.onnx.graph import Graph

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def graph_of(nodes, stored=(), **constants):
    stored = [*stored, *(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())]
    made = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("X", TensorProto.DOUBLE, [2])], [], stored)
    return Graph(made, None, [helper.make_opsetid("", 17)])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Expand", "ConstantOfShape"])
def test_each_operator_that_unfolds_is_counted_before_it_does(op, monkeypatch):
    """Sixty-four entries may be made of few; of seventy-two nothing is made."""
    monkeypatch.setattr(onnx_sizes, "UNFOLDED", 64)
    for wide, good in ((8, True), (9, False)):
        if op == "ConstantOfShape":
            inputs, constants = ["n"], {"n": np.array([8, wide])}
        elif op == "Expand":
            inputs, constants = ["tall", "n"], {"tall": np.ones((8, 1)), "n": np.array([1, wide])}
        else:
            inputs, constants = ["tall", "wide"], {"tall": np.ones((8, 1)), "wide": np.ones((1, wide))}
        graph = graph_of([helper.make_node(op, inputs, ["c"])], **constants)
        if good:
            assert graph.constant("c").shape == (8, 8)
        else:
            with pytest.raises(
                FileFormatError, match="value 'c' unfolds to 72 entries; of constants a graph may have 64"
            ):
                graph.constant("c")


@pytest.mark.parametrize("op", ["Expand", "ConstantOfShape"])
def test_a_number_of_entries_that_wraps_around_is_not_small(op):
    inputs = ["n"] if op == "ConstantOfShape" else ["one", "n"]
    graph = graph_of([helper.make_node(op, inputs, ["c"])], one=np.ones(1), n=np.array([2**32, 2**32]))
    with pytest.raises(FileFormatError, match=f"unfolds to {2**64} entries"):
        graph.constant("c")


@pytest.mark.parametrize("op", ["Concat", "Reshape"])
def test_other_operators_are_counted_by_what_they_read(op, monkeypatch):
    monkeypatch.setattr(onnx_sizes, "UNFOLDED", 64)
    for size, good in ((30, True), (65, False)):
        inputs = ["a", "empty"] if op == "Concat" else ["a", "n"]
        graph = graph_of(
            [helper.make_node(op, inputs, ["c"], **({"axis": 0} if op == "Concat" else {}))],
            a=np.ones(size),
            n=np.array([1, size]),
            empty=np.zeros(0),
        )
        if good:
            assert graph.constant("c").size == size
        else:
            with pytest.raises(FileFormatError, match="unfolds"):
                graph.constant("c")


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "BOOL", "FLOAT16", "FLOAT", "DOUBLE", "INT64"])
def test_constants_of_every_width_are_read(kind):
    if not hasattr(TensorProto, kind):
        pytest.skip(f"this onnx has no {kind}")
    values = [k % 2 for k in range(1000)]
    stored = helper.make_tensor("a", getattr(TensorProto, kind), [1000], values)
    np.testing.assert_array_equal(graph_of([], [stored]).constant("a").astype(float), values)


@pytest.mark.parametrize("dims", [[2**32, 2**32], [-1, 10], [10**6], [-1]])
def test_a_shape_that_is_not_held_is_refused(dims):
    stored = numpy_helper.from_array(np.ones(4), "a")
    stored.dims[:] = dims
    with pytest.raises(FileFormatError, match=r"the ONNX constant 'a' claims the shape \(.*\), more than it holds"):
        graph_of([], [stored]).constant("a")


def test_what_the_evaluator_says_is_handed_on_in_one_line(monkeypatch):
    graph = graph_of([helper.make_node("Mul", ["X", "a"], ["y"])], a=np.ones(2))
    with pytest.raises(UnsupportedError, match="cannot run it: TypeError: Issues with types"):
        graph.run(["y"], {"X": np.ones(5)})

    def fail(*_):
        raise RuntimeError(f"\n{'x' * 200} \nsecond line")

    monkeypatch.setattr(Graph, "_piece", fail)
    with pytest.raises(UnsupportedError) as caught:
        graph.run(["y"], {"X": np.ones(2)})
    assert str(caught.value) == f"onnx's reference evaluator cannot run it: RuntimeError: {'x' * 120}"


def test_what_cannot_be_evaluated_is_no_constant():
    nodes = [
        helper.make_node("Reshape", ["a", "n"], ["b"]),
        helper.make_node("Concat", ["a", "a"], ["c"], axis=7),
        helper.make_node("Split", ["a"], ["d"], num_outputs=1),  # the evaluator gives nothing back
    ]
    graph = graph_of(nodes, a=np.ones(3), n=np.array([2, 2]))
    assert [graph.constant(name) for name in "bcd"] == [None] * 3


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"value": numpy_helper.from_array(np.array([[0.5, 2.0]]))}, [[0.5, 2.0]]),
        ({"value_float": 0.5}, 0.5),
        ({"value_floats": [0.5, 2.0]}, [0.5, 2.0]),
        ({"value_int": 7}, 7),
        ({"value_ints": [7, 8]}, [7, 8]),
    ],
)
def test_a_constant_is_read_in_each_of_its_forms(options, value):
    graph = graph_of([helper.make_node("Constant", [], ["y"], **options)])
    np.testing.assert_array_equal(graph.constant("y"), value)


def test_a_constant_of_another_form_is_none_and_a_damaged_one_is_named():
    one = numpy_helper.from_array(np.ones(1), "v")
    sparse = helper.make_sparse_tensor(one, numpy_helper.from_array(np.zeros(1, dtype=np.int64), "i"), [10])
    assert graph_of([helper.make_node("Constant", [], ["y"], sparse_value=sparse)]).constant("y") is None
    assert graph_of([helper.make_node("Constant", [], ["y"])]).constant("y") is None
    one.dims[:] = [10**6]
    with pytest.raises(FileFormatError, match="the ONNX constant 'y' claims the shape"):
        graph_of([helper.make_node("Constant", [], ["y"], value=one)]).constant("y")


def test_the_room_for_constants_is_that_of_all_and_another_view_takes_none(monkeypatch):
    monkeypatch.setattr(onnx_sizes, "UNFOLDED", 64)
    nodes = [
        helper.make_node("Reshape", ["a", "n"], ["view"]),
        helper.make_node("Concat", ["view", "view"], ["c"], axis=0),
        helper.make_node("Neg", ["a"], ["d"]),
    ]
    graph = graph_of(nodes, a=np.ones(30), n=np.array([2, 15]))
    assert graph.constant("c").shape == (4, 15)
    with pytest.raises(FileFormatError, match="'d' unfolds to 30 entries"):
        graph.constant("d")


def test_the_room_of_a_value_that_is_run_holds_to_the_last_entry(monkeypatch):
    graph = graph_of([helper.make_node("Mul", ["X", "a"], ["y"])], a=np.ones(2))
    monkeypatch.setattr(onnx_graph, "UNFOLDED", 2)
    assert graph.run(["y"], {"X": np.ones(2)})[0].size == 2
    monkeypatch.setattr(onnx_graph, "UNFOLDED", 1)
    with pytest.raises(FileFormatError, match="the ONNX value 'y' has 2 entries"):
        graph.run(["y"], {"X": np.ones(2)})


def test_what_is_computed_in_a_circle_is_no_constant():
    nodes = [helper.make_node("Add", ["a", "c"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    for circle in (nodes, [helper.make_node("Neg", ["d"], ["d"])]):
        with pytest.raises(FileFormatError, match="in a circle"):
            graph_of(circle, a=np.ones(3))


def test_each_output_of_an_operator_is_its_own():
    graph = graph_of([helper.make_node("Split", ["a", "n"], ["b", "c"])], a=np.arange(5.0), n=np.array([2, 3]))
    assert graph.constant("b").tolist() == [0.0, 1.0]
    assert graph.constant("c").tolist() == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("op", [*_KNOWN, *onnx_sizes.RESHAPES])
def test_no_operator_of_a_loop_is_read_with_an_attribute_that_is_not_known(op):
    body = Body(graph_of([]), "loop")
    body.values["h"] = body.symbol("h", 2)
    with pytest.raises(UnsupportedError, match=f"loop: {op} has the attribute steepness, which is not known here"):
        body.apply(helper.make_node(op, ["h", "h"], ["y"], steepness=2.0))


def test_an_operator_that_is_not_known_is_refused_by_its_name_whatever_its_attributes():
    body = Body(graph_of([]), "loop")
    for op in ("tanh", "SUM", "gemm", "Matmul", "Elu"):
        with pytest.raises(UnsupportedError, match=f"loop: it contains the operator {op};"):
            body.apply(helper.make_node(op, ["h"], ["y"], alpha=2.0))
