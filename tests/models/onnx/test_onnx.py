"""ONNX graphs become the subject that the runtime would run: compared with onnx's own reference evaluator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from stability.certification import certify
from stability.errors import ConfigurationError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.systems.layer_stack import LayerStack
from stability.models.adapters.modules import recurrent_subject
from stability.models.sources import load_subject
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)


def write(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [constant(k, v) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, str(path))
    return lambda feeds: ReferenceEvaluator(model).run(None, feeds)


def node_model(path, op, rng, *, directions=1, p=3, m=4, peepholes=None, **attributes):
    g = GATES[op]
    constants = {
        "W": rng.normal(size=(directions, g * m, p)),
        "R": rng.normal(size=(directions, g * m, m)),
        "B": rng.normal(size=(directions, 2 * g * m)),
    }
    names = ["X", "W", "R", "B"]
    if peepholes is not None:
        constants["P"] = peepholes
        names += ["", "", "", "P"]
    node = helper.make_node(op, names, ["Y"], name="cell", hidden_size=m, **attributes)
    return write(path, [node], [info("X", ["T", 1, p])], [info("Y", None)], constants)


def run(subject, x):
    state, out = np.zeros(subject.system.states if isinstance(subject, DrivenSystem) else subject.states), []
    for u in x:
        state = subject.advance(state, u)
        out.append(state[: subject.hidden] if hasattr(subject, "hidden") else state)
    return np.array(out)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("RNN", {}),
        ("RNN", {"activations": ["Relu"]}),
        ("RNN", {"activations": ["Sigmoid"]}),
        ("LSTM", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 0}),
        ("GRU", {}),
    ],
)
def test_nodes_are_what_the_reference_runs(op, options, tmp_path, rng):
    reference = node_model(tmp_path / "m.onnx", op, rng, **options)
    subject = load_subject(tmp_path / "m.onnx").subject
    x = rng.normal(size=(6, 3))
    if options.get("activations") in (["Relu"], ["Sigmoid"]):  # the reference evaluator knows tanh only
        W, R, B = (numpy_helper.to_array(t) for t in onnx.load(str(tmp_path / "m.onnx")).graph.initializer)
        phi = (lambda z: np.maximum(z, 0)) if options["activations"] == ["Relu"] else (lambda z: 1 / (1 + np.exp(-z)))
        h, expected = np.zeros(4), []
        for u in x:
            h = phi(W[0] @ u + R[0] @ h + B[0, :4] + B[0, 4:])
            expected.append(h)
    else:
        expected = reference({"X": x[:, None]})[0].reshape(6, 4)
    np.testing.assert_allclose(run(subject, x), np.array(expected), atol=1e-12)


def test_two_directions_are_a_stack_of_one_level(tmp_path, rng):
    node_model(tmp_path / "m.onnx", "GRU", rng, directions=2, direction="bidirectional", linear_before_reset=1)
    subject = load_subject(tmp_path / "m.onnx").subject
    assert (subject.directions, subject.levels) == (2, 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make", [lambda: nn.RNN(3, 4), lambda: nn.LSTM(3, 4, 2), lambda: nn.GRU(3, 4, 2, bidirectional=True)]
)
def test_what_torch_exports_is_the_module(make, tmp_path):
    module = make().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module, (torch.zeros(5, 1, 3),), str(tmp_path / "m.onnx"), dynamo=False)
        except (ImportError, TypeError) as error:
            pytest.skip(f"this torch has no such exporter: {error}")
    subject, expected = load_subject(tmp_path / "m.onnx").subject, recurrent_subject(module)
    pairs = zip(subject.layers, expected.layers) if isinstance(expected, LayerStack) else [(subject, expected)]
    for mine, theirs in pairs:
        if isinstance(theirs, DrivenSystem):
            np.testing.assert_array_equal(mine.system.C, theirs.system.C)
            np.testing.assert_allclose(mine.b, theirs.b, atol=1e-7)
        else:
            for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


@pytest.mark.parametrize(
    ("op", "options", "text"),
    [
        ("LSTM", {"peepholes": np.ones((1, 12))}, "peephole"),
        ("LSTM", {"input_forget": 1}, "forget"),
        ("LSTM", {"clip": 3.0}, "clip"),
        ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "hardsigmoid"),
        ("RNN", {"activations": ["Affine"]}, "affine"),
    ],
)
def test_variants_without_criterion_are_refused(op, options, text, tmp_path, rng):
    node_model(tmp_path / "m.onnx", op, rng, **options)
    with pytest.raises(UnsupportedError, match=text):
        load_subject(tmp_path / "m.onnx")


def test_several_nodes_that_form_no_chain(tmp_path, rng):
    nodes = [helper.make_node("GRU", ["X", "W", "R"], [f"Y{k}"], name=f"cell{k}", hidden_size=2) for k in range(2)]
    write(
        tmp_path / "m.onnx",
        nodes,
        [info("X", ["T", 1, 3])],
        [info("Y0", None), info("Y1", None)],
        {"W": rng.normal(size=(1, 6, 3)), "R": rng.normal(size=(1, 6, 2))},
    )
    with pytest.raises(ConfigurationError, match="#cell0"):
        load_subject(tmp_path / "m.onnx")
    assert load_subject(f"{tmp_path}/m.onnx#cell1").subject.kind == "gru"
    with pytest.raises(ConfigurationError, match="cell0"):
        load_subject(f"{tmp_path}/m.onnx#absent")


def scan_model(path, body_nodes, constants, n, p, *, kinds=()):
    """A Scan over X (T, p) with the state h (n,), whose body computes ``h_next`` from ``h`` and ``x``."""
    nodes = [*body_nodes, helper.make_node("Identity", ["h_next"], ["y"])]
    body = helper.make_graph(
        nodes, "body", [info("h", [1, n]), info("x", [1, p])], [info("h_next", [1, n]), info("y", [1, n])]
    )
    scan = helper.make_node("Scan", ["h0", "X"], ["h_last", "Y"], name="scan", body=body, num_scan_inputs=1)
    return write(
        path,
        [scan],
        [info("h0", [1, n]), info("X", ["T", 1, p])],
        [info("h_last", [1, n]), info("Y", ["T", 1, n])],
        constants,
    )


def test_a_lipschitz_rnn_in_a_scan(tmp_path, rng):
    n, p, dt = 4, 2, 0.1
    A, W, U, b = rng.normal(size=(n, n)), rng.normal(size=(n, n)), rng.normal(size=(p, n)), rng.normal(size=n)
    nodes = [
        helper.make_node("MatMul", ["h", "W"], ["hw"]),
        helper.make_node("MatMul", ["x", "U"], ["xu"]),
        helper.make_node("Add", ["hw", "xu"], ["z0"]),
        helper.make_node("Add", ["z0", "b"], ["z"]),
        helper.make_node("Tanh", ["z"], ["w"]),
        helper.make_node("MatMul", ["h", "A"], ["ha"]),
        helper.make_node("Add", ["ha", "w"], ["f"]),
        helper.make_node("Mul", ["f", "dt"], ["df"]),
        helper.make_node("Add", ["h", "df"], ["h_next"]),
    ]
    reference = scan_model(tmp_path / "m.onnx", nodes, {"A": A, "W": W, "U": U, "b": b, "dt": np.float64(dt)}, n, p)
    source = load_subject(tmp_path / "m.onnx")
    x = rng.normal(size=(7, p))
    expected = reference({"h0": np.zeros((1, n)), "X": x[:, None]})[1].reshape(7, n)
    np.testing.assert_allclose(run(source.subject, x), expected, atol=1e-13)
    np.testing.assert_allclose(source.subject.system.A, np.eye(n) + dt * A.T, atol=1e-15)
    np.testing.assert_allclose(source.subject.system.C, W.T, atol=1e-15)
    assert source.info["nodes"] == "Scan"


def test_a_nested_step_in_a_scan_gets_a_triangular_coupling(tmp_path, rng):
    n = 3
    W = 0.5 * rng.normal(size=(n, n))
    nodes = [
        helper.make_node("Gemm", ["h", "W", "x"], ["z1"], transB=1),
        helper.make_node("Tanh", ["z1"], ["w1"]),
        helper.make_node("Gemm", ["w1", "W"], ["z2"], alpha=2.0),
        helper.make_node("Tanh", ["z2"], ["w2"]),
        helper.make_node("Sub", ["w2", "h"], ["h_next"]),
    ]
    reference = scan_model(tmp_path / "m.onnx", nodes, {"W": W}, n, n)
    subject = load_subject(tmp_path / "m.onnx").subject
    assert subject.system.channels == 2 * n
    assert subject.system.D[n:, :n].any()
    x = rng.normal(size=(5, n))
    expected = reference({"h0": np.zeros((1, n)), "X": x[:, None]})[1].reshape(5, n)
    np.testing.assert_allclose(run(subject, x), expected, atol=1e-13)


def test_a_loop_that_gathers_its_input(tmp_path, rng):
    n = 3
    W = rng.normal(size=(n, n))
    cond, count = (
        helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
    )
    again = helper.make_tensor_value_info("again", TensorProto.BOOL, [])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["cond"], ["again"]),
            helper.make_node("Gather", ["X", "i"], ["x_t"], axis=0),
            helper.make_node("MatMul", ["h", "W"], ["hw"]),
            helper.make_node("MatMul", ["x_t", "W"], ["xw"]),
            helper.make_node("Add", ["hw", "xw"], ["z"]),
            helper.make_node("Relu", ["z"], ["h_next"]),
        ],
        "body",
        [count, cond, info("h", [1, n])],
        [again, info("h_next", [1, n])],
    )
    loop = helper.make_node("Loop", ["T", "yes", "h0"], ["h_last"], name="loop", body=body)
    reference = write(
        tmp_path / "m.onnx",
        [loop],
        [info("h0", [1, n]), info("X", ["T", 1, n])],
        [info("h_last", [1, n])],
        {"W": W, "T": np.int64(4), "yes": np.bool_(True)},
    )
    subject = load_subject(tmp_path / "m.onnx").subject
    assert subject.activation == "relu"
    x = rng.normal(size=(4, n))
    expected = reference({"h0": np.zeros((1, n)), "X": x[:, None]})[0].reshape(n)
    np.testing.assert_allclose(run(subject, x)[-1], expected, atol=1e-12)


def test_mixed_activations_are_a_bare_system(tmp_path, rng):
    W = rng.normal(size=(3, 3))
    nodes = [
        helper.make_node("MatMul", ["h", "W"], ["z"]),
        helper.make_node("Tanh", ["z"], ["a"]),
        helper.make_node("Sigmoid", ["z"], ["s"]),
        helper.make_node("Add", ["a", "s"], ["as"]),
        helper.make_node("Add", ["as", "x"], ["h_next"]),
    ]
    scan_model(tmp_path / "m.onnx", nodes, {"W": W}, 3, 3)
    system = load_subject(tmp_path / "m.onnx").subject
    assert isinstance(system, LureSystem)
    np.testing.assert_array_equal(system.beta, [1, 1, 1, 0.25, 0.25, 0.25])


@pytest.mark.parametrize("op", ["Softmax", "Exp", "gate"])
def test_a_loop_with_anything_else_is_refused_by_name(op, tmp_path, rng):
    first = [helper.make_node("Tanh", ["h"], ["t"])]
    rest = (
        [helper.make_node("Mul", ["t", "h"], ["h_next"])] if op == "gate" else [helper.make_node(op, ["t"], ["h_next"])]
    )
    scan_model(tmp_path / "m.onnx", first + rest, {}, 3, 3)
    with pytest.raises(UnsupportedError, match="multiplied" if op == "gate" else op):
        load_subject(tmp_path / "m.onnx")


@pytest.mark.parametrize("keep", [1, 3, 20, 0.5, 0.9, 0.99])
def test_truncated_onnx_files(keep, tmp_path, rng):
    node_model(tmp_path / "m.onnx", "LSTM", rng)
    data = (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
    with pytest.raises(StabilityError) as caught:
        load_subject(tmp_path / "m.onnx")
    assert "\n" not in str(caught.value)


def test_a_shape_bombed_constant(tmp_path, rng):
    node_model(tmp_path / "m.onnx", "GRU", rng)
    model = onnx.load(str(tmp_path / "m.onnx"))
    model.graph.initializer[1].dims[1] = 10**12
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match="more than it holds"):
        load_subject(tmp_path / "m.onnx")


def test_a_graph_without_recurrence(tmp_path):
    write(tmp_path / "m.onnx", [helper.make_node("Tanh", ["X"], ["Y"])], [info("X", [1])], [info("Y", [1])], {})
    with pytest.raises(FileFormatError, match="Tanh"):
        load_subject(tmp_path / "m.onnx")


def test_an_exported_network_is_certified_and_verified(tmp_path, rng):
    nodes = [
        helper.make_node("MatMul", ["h", "W"], ["hw"]),
        helper.make_node("Add", ["hw", "x"], ["z"]),
        helper.make_node("Tanh", ["z"], ["h_next"]),
    ]
    W = rng.normal(size=(5, 5))
    scan_model(tmp_path / "m.onnx", nodes, {"W": 0.8 * W / np.linalg.norm(W, 2)}, 5, 5)
    certificate = certify(load_subject(tmp_path / "m.onnx").subject)
    assert str(certificate.verdict) == "certified"
    assert certificate.rate <= 0.8 + 1e-9
    assert verify(certificate).valid
