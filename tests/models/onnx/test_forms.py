"""Other ways to write the same network in ONNX: Loop, undeclared shapes, older operators, constants on the left."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import DisagreementError, UnsupportedError
from stability.models.adapters import weights as described
from stability.models.onnx import sizes as onnx_sizes
from stability.models.onnx.graph import Graph
from stability.models.sources import load_subject
from stability.systems import LureSystem

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

N, P = 3, 2


def info(name, shape, kind=TensorProto.DOUBLE):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def save(path, nodes, inputs, constants, opset=17):
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [info("out", None)], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), str(path))
    return path


def loop(path, nodes, *, shape=(1, N), index="i", table=False, **constants):
    """A Loop that gathers ``x`` from ``X`` by its counter and computes ``next`` from ``h`` and ``x``."""
    body = helper.make_graph(
        [node("Identity", "cond", "again"), node("Gather", f"X {index}", "x", axis=0), *nodes],
        "body",
        [info("i", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL), info("h", shape)],
        [info("again", [], TensorProto.BOOL), info("next", shape)],
    )
    made = helper.make_node("Loop", ["T", "yes", "h0"], ["out"], name="loop", body=body)
    constants |= {"T": np.int64(4), "yes": np.bool_(True)}
    inputs = [info("h0", shape)] if table else [info("h0", shape), info("X", ["T", 1, P])]
    return save(path, [made], inputs, constants)


@pytest.fixture
def w(rng):
    return {"W": rng.normal(size=(N, N)), "U": rng.normal(size=(P, N)), "b": rng.normal(size=N)}


TAIL = [node("Add", "hw xu", "s"), node("Add", "s b", "z"), node("Tanh", "z", "next")]


@pytest.mark.parametrize(
    ("read", "change"),
    [
        ([node("MatMul", "x U", "xu")], {}),
        ([node("Gemm", "x V", "xu", transB=1)], {}),
        ([node("Gemm", "x U", "xu", transB=0)], {}),
        (
            [
                node("Identity", "x", "same"),
                node("Cast", "same", "c", to=TensorProto.DOUBLE),
                node("MatMul", "c U", "xu"),
            ],
            {},
        ),
    ],
)
def test_the_inputs_of_a_loop_to_the_last_bit(read, change, w, tmp_path):
    path = loop(tmp_path / "m.onnx", [node("MatMul", "h W", "hw"), *read, *TAIL], V=w["U"].T.copy(), **w)
    source = load_subject(path)
    subject = source.subject
    np.testing.assert_array_equal(subject.system.C, w["W"].T)
    np.testing.assert_array_equal(subject.E, w["U"].T)
    np.testing.assert_array_equal(subject.b, w["b"])
    assert (subject.name, subject.part) == ("ONNX Loop", "")
    assert source.info["nodes"] == "Loop"


def test_an_index_computed_from_the_counter(w, tmp_path):
    nodes = [node("MatMul", "h W", "hw"), node("MatMul", "x U", "xu"), *TAIL]
    path = loop(tmp_path / "m.onnx", [node("Add", "i one", "j"), *nodes], index="j", one=np.int64(1), **w)
    np.testing.assert_array_equal(load_subject(path).subject.E, w["U"].T)


def test_a_value_that_is_picked_by_no_counter_comes_from_outside(w, tmp_path):
    nodes = [node("MatMul", "h W", "hw"), node("MatMul", "x U", "xu"), *TAIL]
    with pytest.raises(UnsupportedError, match="operator Gather|comes from outside"):
        load_subject(loop(tmp_path / "m.onnx", nodes, index="k", k=np.int64(1), **w))


def test_a_value_that_is_picked_by_the_state_is_fed_back_and_no_input(w, tmp_path):
    """Looked up by the counter and by the state: what it is, the state decides."""
    pick = [
        node("Cast", "h", "whole", to=TensorProto.INT64),
        node("Gather", "whole zero", "row", axis=0),
        node("Gather", "row zero", "first", axis=0),
        node("Add", "i first", "j"),
    ]
    nodes = [*pick, node("MatMul", "h W", "hw"), node("MatMul", "x U", "xu"), *TAIL]
    with pytest.raises(UnsupportedError, match="operator Gather|comes from outside"):
        load_subject(loop(tmp_path / "m.onnx", nodes, index="j", zero=np.int64(0), **w))


def test_what_another_domain_calls_gather_is_no_input(w, tmp_path):
    nodes = [node("Gather", "X i", "other", domain="my.own"), node("MatMul", "other U", "ou")]
    nodes += [node("MatMul", "h W", "hw"), node("Add", "hw ou", "z"), node("Tanh", "z", "next")]
    with pytest.raises(UnsupportedError, match="the value X comes from outside"):
        load_subject(loop(tmp_path / "m.onnx", nodes, **w))


def test_an_input_that_is_never_read(w, tmp_path):
    path = loop(tmp_path / "m.onnx", [node("MatMul", "h W", "z"), node("Tanh", "z", "next")], W=w["W"])
    assert load_subject(path).subject.inputs == 0


def test_a_state_without_a_declared_size(w, tmp_path):
    for first in ([], [node("Identity", "h", "g")]):
        name = "g" if first else "h"
        nodes = [*first, node("MatMul", f"{name} W", "z"), node("Tanh", "z", "next")]
        path = loop(tmp_path / "m.onnx", nodes, shape=None, W=w["W"])
        np.testing.assert_array_equal(load_subject(path).subject.system.C, w["W"].T)
    with pytest.raises(UnsupportedError, match="the size of h is not given"):
        load_subject(loop(tmp_path / "m.onnx", [node("Tanh", "h", "next")], shape=None))


def scan(path, nodes, opset=17, **constants):
    body = helper.make_graph([*nodes], "body", [info("h", [1, N]), info("x", [1, P])], [info("next", [1, N])])
    made = helper.make_node("Scan", ["h0", "X"], ["out"], name="scan", body=body, num_scan_inputs=1)
    return save(path, [made], [info("h0", [1, N]), info("X", ["T", 1, P])], constants, opset)


def test_constants_on_the_left(w, tmp_path):
    nodes = [
        node("Add", "b b", "bb"),
        node("Sub", "bb h", "d"),
        node("Mul", "half b", "hb"),
        node("Div", "hb half", "again"),
        node("Neg", "again", "minus"),
        node("Add", "minus d", "z"),
        node("Tanh", "z", "t"),
        node("Mul", "half t", "next"),
    ]
    subject = load_subject(scan(tmp_path / "m.onnx", nodes, half=np.float64(0.5), b=w["b"])).subject
    np.testing.assert_array_equal(subject.system.C, -np.eye(N))
    np.testing.assert_array_equal(subject.system.B, np.eye(N) / 2)
    np.testing.assert_array_equal(subject.b, 2 * w["b"] - w["b"])


def test_operators_of_older_versions(w, tmp_path):
    nodes = [
        node("MatMul", "h W", "hw"),
        node("Unsqueeze", "hw", "u", axes=[0]),
        node("Squeeze", "u", "s", axes=[0]),
        node("Dropout", "s", "d", ratio=0.5),
        node("Flatten", "d", "f", axis=1),
        node("Reshape", "f target", "r"),
        node("Tanh", "r", "next"),
    ]
    path = scan(tmp_path / "m.onnx", nodes, opset=11, target=np.array([1, N]), W=w["W"])
    np.testing.assert_array_equal(load_subject(path).subject.system.C, w["W"].T)
    for op, attribute in (("Squeeze", "axis"), ("Reshape", "order"), ("Flatten", "axes"), ("Cast", "from")):
        nodes = [node(op, "h", "s", to=TensorProto.DOUBLE, **{attribute: 1}), node("Tanh", "s", "next")]
        with pytest.raises(UnsupportedError, match=f"{op} has the attribute"):
            load_subject(scan(tmp_path / "m.onnx", nodes))
    training = [node("Dropout", "h", "d", is_test=0), node("Tanh", "d", "next")]
    with pytest.raises(UnsupportedError, match="Dropout in training mode"):
        load_subject(scan(tmp_path / "m.onnx", training))


def test_a_cast_to_single_precision_early_in_the_body(w, tmp_path):
    """Read as exact: the reference rounds to 24 bits, and nothing else may hide behind that."""
    nodes = [
        node("Cast", "h", "c", to=TensorProto.FLOAT),
        node("Identity", "c", "same"),
        node("MatMul", "same W", "z"),
        node("Tanh", "z", "next"),
    ]
    path = scan(tmp_path / "m.onnx", nodes, W=w["W"].astype(np.float32))
    np.testing.assert_array_equal(load_subject(path).subject.system.C, w["W"].astype(np.float32).T.astype(float))


def cell(path, op, rng, **options):
    g = {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * N
    constants = {"W": rng.normal(size=(1, g, P)), "R": rng.normal(size=(1, g, N)), "B": rng.normal(size=(1, 2 * g))}
    made = helper.make_node(op, ["X", "W", "R", "B"], ["out"], name="cell", **options)
    return save(path, [made], [info("X", ["T", 1, P])], constants), constants


@pytest.mark.parametrize(
    ("op", "given"),
    [
        ("RNN", ["Tanh"]),
        ("GRU", ["Sigmoid", "Tanh"]),
        ("LSTM", ["Sigmoid", "Tanh", "Tanh"]),
        ("LSTM", None),
        ("RNN", None),
    ],
)
@pytest.mark.parametrize("size", [{}, {"hidden_size": N}])
def test_activations_that_are_said_and_those_by_default(op, given, size, tmp_path, rng):
    options = size | ({} if given is None else {"activations": given})
    path, w = cell(tmp_path / "m.onnx", op, rng, **options)
    subject = load_subject(path).subject
    assert subject.inputs == P
    if op == "RNN":
        np.testing.assert_array_equal(subject.system.C, w["R"][0])
        np.testing.assert_array_equal(subject.b, w["B"][0, :N] + w["B"][0, N:])


def test_a_misread_rnn_node_is_noticed(tmp_path, rng, monkeypatch):
    honest = described.rnn_subject
    monkeypatch.setattr(described, "rnn_subject", lambda w_hh, *rest: honest(w_hh.T, *rest))
    path, _ = cell(tmp_path / "m.onnx", "RNN", rng, hidden_size=N)
    with pytest.raises(DisagreementError, match="RNN node cell does not compute"):
        load_subject(path)


def test_a_state_that_is_only_scaled_is_linear(tmp_path):
    subject = load_subject(scan(tmp_path / "m.onnx", [node("Mul", "h half", "next")], half=np.float64(0.5))).subject
    assert isinstance(subject.system, LureSystem)
    assert subject.system.channels == 0
    np.testing.assert_array_equal(subject.system.A, np.eye(N) / 2)


def array(value, kind=np.float64):
    return np.asarray(value, dtype=kind)


FOLDED = {
    "Identity": (["a"], {}, lambda a: a),
    "Transpose": (["a"], {}, lambda a: a.T),
    "Reshape": (["a", "target"], {}, lambda a: a.reshape(3, 2)),
    "Cast": (["a"], {"to": TensorProto.FLOAT}, lambda a: a.astype(np.float32)),
    "Dropout": (["a"], {}, lambda a: a),
    "Flatten": (["a"], {"axis": 0}, lambda a: a.reshape(1, 6)),
    "Concat": (["a", "a"], {"axis": 1}, lambda a: np.hstack([a, a])),
    "Slice": (["a", "one", "two", "one"], {}, lambda a: a[:, 1:2]),
    "Gather": (["a", "one"], {"axis": 1}, lambda a: a[:, [1]]),
    "Add": (["a", "a"], {}, lambda a: a + a),
    "Sub": (["a", "b"], {}, lambda a: a - 3.0),
    "Mul": (["a", "b"], {}, lambda a: a * 3.0),
    "Div": (["a", "b"], {}, lambda a: a / 3.0),
    "Neg": (["a"], {}, lambda a: -a),
    "Shape": (["a"], {}, lambda a: np.array([2, 3])),
    "ConstantOfShape": (["target"], {}, lambda a: np.zeros((3, 2), dtype=np.float32)),
    "Expand": (["b", "target"], {}, lambda a: np.full((3, 2), 3.0)),
    "Unsqueeze": (["a", "one"], {}, lambda a: a[:, None]),
    "Squeeze": (["row", "zero"], {}, lambda a: np.array([1, 2])),
    "Split": (["a", "three"], {"axis": 1}, lambda a: a),
}


def test_every_operator_that_is_folded_has_its_numbers_below():
    assert set(FOLDED) == set(onnx_sizes.FOLDED)


@pytest.mark.parametrize("op", FOLDED)
def test_constants_are_folded_through_what_exporters_write(op):
    names, options, expected = FOLDED[op]
    a = array([[1.5, -2.0, 0.25], [4.0, 0.0, -7.0]])
    constants = {
        "a": a,
        "b": array(3.0),
        "target": array([3, 2], np.int64),
        "one": array([1], np.int64),
        "two": array([2], np.int64),
        "three": array([3], np.int64),
        "zero": array([0], np.int64),
        "row": array([[1, 2]], np.int64),
    }
    stored = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **options)], "g", [], [], stored)
    folded = Graph(graph, None, [helper.make_opsetid("", 17)]).constant("y")
    np.testing.assert_array_equal(folded, expected(a))
    assert folded.dtype == expected(a).dtype


def test_an_identity_of_a_constant_is_that_constant():
    stored = [numpy_helper.from_array(np.ones(3), "a")]
    graph = Graph(helper.make_graph([helper.make_node("Identity", ["a"], ["y"])], "g", [], [], stored))
    assert graph.constant("y") is graph.constant("a")


def test_constants_are_folded_by_the_operators_of_the_files_version():
    stored = [numpy_helper.from_array(np.ones((1, 3, 1)), "a")]
    graph = helper.make_graph([helper.make_node("Squeeze", ["a"], ["y"], axes=[0])], "g", [], [], stored)
    assert Graph(graph, None, [helper.make_opsetid("", 11)]).constant("y").shape == (3, 1)
