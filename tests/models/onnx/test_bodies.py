"""Bodies of loops: offsets, sizes that are not said, what a loop may say of itself, and bodies that break off."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import FileFormatError, StabilityError, UnsupportedError
from stability.models.onnx import algebra as onnx_algebra
from stability.models.onnx import loops as onnx_loops
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

N, P = 3, 2


def info(name, shape, kind=TensorProto.DOUBLE):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def scan(path, nodes, *, shape=(1, N), options=None, **constants):
    """A Scan whose body computes ``next`` from ``h`` and ``x``."""
    body = helper.make_graph(nodes, "body", [info("h", shape), info("x", [1, P])], [info("next", shape)])
    made = helper.make_node(
        "Scan", ["h0", "X"], ["out"], **({"name": "scan", "body": body, "num_scan_inputs": 1} | (options or {}))
    )
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    inputs = [info("h0", shape), info("X", ["T", 1, P])]
    graph = helper.make_graph([made], "g", inputs, [info("out", None)], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


@pytest.fixture
def w(rng):
    return {"W": rng.normal(size=(N, N)), "U": rng.normal(size=(P, N)), "b": rng.normal(size=N)}


def test_a_constant_goes_through_the_matrices_behind_it(w, tmp_path):
    nodes = [
        node("Add", "h b", "moved"),
        node("MatMul", "moved W", "z"),
        node("Tanh", "z", "t"),
        node("Sub", "t b", "s"),
        node("Mul", "s half", "next"),
    ]
    source = scan(tmp_path / "m.onnx", nodes, half=np.array([0.5, 0.25, -1.0]), **w)
    system = load_subject(source).subject
    np.testing.assert_array_equal(system.C, w["W"].T)
    np.testing.assert_array_equal(system.B, np.diag([0.5, 0.25, -1.0]))


def test_the_third_input_of_a_gemm_is_scaled_by_beta_whatever_it_is(w, tmp_path):
    nodes = [
        node("MatMul", "x U", "xu"),
        node("Gemm", "h W b", "z", beta=3.0),
        node("Tanh", "z", "t"),
        node("Gemm", "t W xu", "next", alpha=0.5, beta=0.25),
    ]
    subject = load_subject(scan(tmp_path / "m.onnx", nodes, **w)).subject
    np.testing.assert_array_equal(subject.b, 3.0 * w["b"])
    np.testing.assert_array_equal(subject.system.B, w["W"].T / 2)
    np.testing.assert_array_equal(subject.F, w["U"].T / 4)


def test_a_row_is_no_vector_that_a_matrix_takes_from_the_left(w, tmp_path):
    """The runtime could not run it; the algebra alone would read it."""
    nodes = [node("MatMul", "W h", "z"), node("Tanh", "z", "next")]
    assert load_subject(scan(tmp_path / "m.onnx", nodes, shape=(N,), **w)).subject.system.states == N
    with pytest.raises(UnsupportedError, match="cannot run it"):
        load_subject(scan(tmp_path / "m.onnx", nodes, shape=(1, N), **w))


def test_a_shape_that_is_computed_from_the_state_is_no_value_of_the_loop(w, tmp_path):
    nodes = [
        node("Shape", "h", "s"),
        node("Reshape", "h s", "r"),
        node("MatMul", "r W", "z"),
        node("Tanh", "z", "next"),
    ]
    subject = load_subject(scan(tmp_path / "m.onnx", nodes, **w)).subject
    np.testing.assert_array_equal(subject.system.C, w["W"].T)


@pytest.mark.parametrize("options", [{}, {"to": 99}])
def test_a_cast_that_does_not_say_to_what_is_refused(options, w, tmp_path):
    nodes = [node("Cast", "h", "c", **options), node("Tanh", "c", "next")]
    with pytest.raises(UnsupportedError, match="a Cast to nothing rounds"):
        load_subject(scan(tmp_path / "m.onnx", nodes, **w))


@pytest.mark.parametrize("constant", [np.ones((N, N)), np.ones(2), np.ones((2, 1, N)), np.ones((1, 0))])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_what_does_not_fit_a_vector_is_refused_by_its_shape(constant, op, w, tmp_path):
    nodes = [node(op, "h c", "z"), node("Tanh", "z", "next")]
    with pytest.raises(UnsupportedError, match="a constant of shape .* meets a vector of 3 entries"):
        load_subject(scan(tmp_path / "m.onnx", nodes, c=constant, **w))


def test_a_value_that_is_handed_through_and_read_comes_from_outside(tmp_path):
    half = numpy_helper.from_array(np.float64(0.5), "half")
    nodes = [node("Mul", "h half", "n"), node("Add", "n k", "next"), node("Identity", "k", "same")]
    body = helper.make_graph(
        nodes,
        "body",
        [info("h", [1, N]), info("k", [1, N]), info("x", [1, P])],
        [info("next", [1, N]), info("same", [1, N])],
    )
    made = helper.make_node("Scan", ["h0", "k0", "X"], ["out", "k1"], body=body, num_scan_inputs=1)
    graph = helper.make_graph([made], "g", [info("h0", [1, N])], [info("out", None)], [half])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedError, match="the value k comes from outside the loop"):
        load_subject(tmp_path / "m.onnx")


def test_a_size_that_is_declared_as_zero_is_not_known(w, tmp_path):
    """Exporters write zero for what they do not know; the matrix that the state meets tells."""
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "next")]
    assert load_subject(scan(tmp_path / "m.onnx", nodes, shape=(1, 0), **w)).subject.system.states == N


SAID = {
    "scan_input_axes": [0],
    "scan_input_directions": [1],
    "scan_output_axes": [0],
    "scan_output_directions": [0],
    "directions": [0],
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_scan_may_say_is_read(name, w, tmp_path):
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "next")]
    subject = load_subject(scan(tmp_path / "m.onnx", nodes, options={name: SAID[name]}, **w)).subject
    np.testing.assert_array_equal(subject.system.C, w["W"].T)
    with pytest.raises(UnsupportedError, match=f"Scan node scan has the attribute '{name.upper()}'"):
        load_subject(scan(tmp_path / "m.onnx", nodes, options={name.upper(): SAID[name]}, **w))


def test_changes_of_form_cost_no_room_and_each_symbol_is_named(w, tmp_path, monkeypatch):
    nodes = [node("Identity", "h", "g"), node("Mul", "g half", "n"), node("Identity", "n", "next")]
    entries = N * N + P * P + 1 + N * N
    path = scan(tmp_path / "m.onnx", nodes, half=np.float64(0.5))
    for room, good in ((entries, True), (entries - 1, False), (N * N - 1, False)):
        monkeypatch.setattr(onnx_algebra, "LOOP_ENTRIES", room)
        if good:
            assert load_subject(path).subject.system.channels == 0
        else:
            name = "n" if room > N * N else "h"
            with pytest.raises(UnsupportedError, match=rf"scan: {name} unfolds to matrices of {room + 1} entries, at"):
                load_subject(path)


def test_the_limits_of_nodes_and_of_values_hold_to_the_last_one(w, tmp_path, monkeypatch):
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "next")]
    path = scan(tmp_path / "m.onnx", nodes, **w)
    for name in ("LOOP_NODES", "LOOP_VALUES"):
        with monkeypatch.context() as patch:
            patch.setattr(onnx_loops, name, 2)
            assert load_subject(path).subject.system.states == N
            patch.setattr(onnx_loops, name, 1)
            with pytest.raises(FileFormatError, match="of the body of a loop at most"):
                load_subject(path)


def test_the_width_of_a_loop_is_that_of_all_its_values(w, tmp_path, monkeypatch):
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "next")]
    path = scan(tmp_path / "m.onnx", nodes, **w)
    monkeypatch.setattr(onnx_algebra, "LOOP_WIDTH", N + P + N)
    assert load_subject(path).subject.system.channels == N
    monkeypatch.setattr(onnx_algebra, "LOOP_WIDTH", N + P + N - 1)
    with pytest.raises(UnsupportedError, match=f"with w0 its values have {N + P + N} entries, at most"):
        load_subject(path)


@pytest.mark.parametrize("op", ["Scan", "Loop"])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_body_that_gives_less_than_it_carries_is_refused(op, kept, tmp_path):
    """Else what it carries without a next value would be left out of the system."""
    half = numpy_helper.from_array(np.float64(0.5), "half")
    nodes = [node("Mul", "h half", "next"), node("Identity", "cond", "again")]
    carried, outputs = [info("h", [1, N]), info("k", [1, N])], [info("next", [1, N])][:kept]
    first = [info("i", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL)]
    if op == "Scan":
        body = helper.make_graph(nodes[:1], "body", [*carried, info("x", [1, P])], outputs)
        made = helper.make_node(op, ["h0", "k0", "X"], ["out"], body=body, num_scan_inputs=1)
    else:
        outputs = [info("again", [], TensorProto.BOOL), *outputs]
        body = helper.make_graph(nodes, "body", [*first, *carried], outputs)
        made = helper.make_node(op, ["T", "yes", "h0", "k0"], ["out"], body=body)
    graph = helper.make_graph([made], "g", [info("h0", [1, N])], [info("out", None)], [half])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "m.onnx"))
    with pytest.raises(FileFormatError, match="its body gives fewer values than it carries"):
        load_subject(tmp_path / "m.onnx")


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_loop_that_carries_nothing_is_no_system(given, tmp_path):
    first = [info("i", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL)][:given]
    body = helper.make_graph([node("Neg", "a", "b")], "body", first, [info("b", [])])
    made = helper.make_node("Loop", ["T", "yes"], ["out"], body=body)
    graph = helper.make_graph([made], "g", [info("T", [])], [info("out", None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "m.onnx"))
    with pytest.raises(StabilityError):
        load_subject(tmp_path / "m.onnx")
