"""RNN, GRU and LSTM nodes: every variant is either read as the reference evaluator runs it, or refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import ConfigurationError, DisagreementError, FileFormatError, StabilityError, UnsupportedError
from stability.models.adapters import weights as described
from stability.models.adapters.modules import recurrent_subject
from stability.models.onnx import parts
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from .graphs import GATES, N, P, cell, changed, info, node, save, weights  # noqa: E402

PHI = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "sigmoid": lambda z: 1 / (1 + np.exp(-z))}
READ = [
    *((op, {}) for op in GATES),
    *((op, {"inputs": "X W R"}) for op in GATES),
    *((op, {"inputs": "X W R B n", "n": np.array([2], dtype=np.int32)}) for op in GATES),
    *((op, {"hidden_size": N, "direction": "reverse"}) for op in GATES),
    *((op, {"directions": 2, "direction": "bidirectional"}) for op in GATES),
    ("GRU", {"linear_before_reset": 0, "activations": ["Sigmoid", "Tanh"]}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"directions": 2, "direction": "bidirectional", "linear_before_reset": 1}),
    ("LSTM", {"activations": ["sigmoid", "Tanh", "TANH"], "input_forget": 0}),
    ("LSTM", {"inputs": "X W R B    Q", "Q": np.zeros((1, 3 * N))}),
    ("LSTM", {"inputs": "X W R B  h c", "h": np.ones((1, 1, N)), "c": np.ones((1, 1, N))}),
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Sigmoid"]}),
    ("RNN", {"directions": 2, "direction": "bidirectional", "activations": ["Sigmoid", "Tanh"]}),
]


@pytest.mark.parametrize(("op", "options"), READ)
def test_a_node_is_what_the_reference_runs(op, options, tmp_path, rng):
    """Each direction alone, forward from zero, by the reference evaluator; plain RNNs by their definition."""
    path = cell(tmp_path / "m.onnx", op, rng, **options)
    source = load_subject(path)
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    W, R = held["W"], held["R"]
    B = held["B"] if "B" in options.get("inputs", "B") else np.zeros((len(W), 2 * W.shape[1]))
    layers = source.subject.layers if len(W) == 2 else [source.subject]
    x = rng.normal(size=(5, P))
    for k, layer in enumerate(layers):
        if op == "RNN":
            phi, h, expected = PHI[layer.activation], np.zeros(N), []
            for u in x:
                h = phi(W[k] @ u + R[k] @ h + B[k, :N] + B[k, N:])
                expected.append(h)
            names = [a.lower() for a in options.get("activations", ["tanh"] * 2)]
            assert layer.activation == names[k]
        else:
            own = {"linear_before_reset": options.get("linear_before_reset", 0)} if op == "GRU" else {}
            single = {"W": W[k : k + 1], "R": R[k : k + 1], "B": B[k : k + 1]}
            alone = save(tmp_path / "one.onnx", [node(op, "X W R B", "Y", **own)], [info("X", None)], "Y", single)
            expected = ReferenceEvaluator(str(alone)).run(None, {"X": x[:, None]})[0].reshape(5, N)
        state, found = np.zeros(layer.states), []
        for u in x:
            state = layer.advance(state, u)
            found.append(state[:N])
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert (source.info["part"], source.info["nodes"]) == ("cell", op)


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
    found, expected = (
        getattr(s, "layers", [s]) for s in (load_subject(tmp_path / "m.onnx").subject, recurrent_subject(module))
    )
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        state, u = np.linspace(-0.5, 0.5, theirs.states), np.ones(theirs.inputs)
        np.testing.assert_allclose(mine.advance(state, u), theirs.advance(state, u), atol=1e-7)


@pytest.mark.parametrize(
    ("op", "options", "error"),
    [
        *((op, {"clip": 5.0}, UnsupportedError) for op in GATES),
        *((op, {name: 1}, UnsupportedError) for op in GATES for name in ("LAYOUT", "steepness")),
        *((op, {f"activation_{name}": [1.0]}, UnsupportedError) for op in GATES for name in ("alpha", "beta")),
        ("LSTM", {"input_forget": 1}, UnsupportedError),
        ("LSTM", {"linear_before_reset": 1}, UnsupportedError),
        ("LSTM", {"inputs": "X W R B    Q", "Q": np.ones((1, 3 * N))}, UnsupportedError),
        ("RNN", {"activations": ["Elu"]}, UnsupportedError),
        ("RNN", {"activations": ["Affine"], "activation_alpha": [2.0]}, UnsupportedError),
        ("GRU", {"activations": ["Tanh", "Tanh"]}, UnsupportedError),
        ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, UnsupportedError),
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Relu"]}, UnsupportedError),
        ("GRU", {"inputs": "X V R", "before": [node("Exp", "W", "V")]}, UnsupportedError),
        ("RNN", {"activations": ["Tanh", "Tanh"]}, FileFormatError),
        ("GRU", {"activations": ["Sigmoid"]}, FileFormatError),
        ("GRU", {"direction": "sideways"}, FileFormatError),
        ("GRU", {"direction": "bidirectional"}, FileFormatError),
        ("GRU", {"hidden_size": N + 1}, FileFormatError),
        ("GRU", {"hidden_size": "three"}, FileFormatError),
        ("GRU", {"domain": "my.own"}, FileFormatError),
        ("GRU", {"inputs": "X W R B    W"}, FileFormatError),
        ("GRU", {"inputs": "X  R"}, FileFormatError),
        ("GRU", {"W": np.ones((1, 9))}, FileFormatError),
        ("GRU", {"W": np.ones((1, 8, 2))}, FileFormatError),
        ("GRU", {"R": np.ones((1, 9, 4))}, FileFormatError),
        ("GRU", {"R": np.ones((1, 0, 0)), "W": np.ones((1, 0, 2))}, FileFormatError),
        ("GRU", {"B": np.ones((1, 17))}, FileFormatError),
        ("GRU", {"B": np.ones((2, 18))}, FileFormatError),
    ],
)
def test_what_is_another_cell_is_refused(op, options, error, tmp_path, rng):
    with pytest.raises(error):
        load_subject(cell(tmp_path / "m.onnx", op, rng, **options))


@pytest.mark.parametrize("op", GATES)
def test_a_misread_cell_is_noticed_by_its_numbers(op, tmp_path, rng, monkeypatch):
    name = "rnn_subject" if op == "RNN" else "GatedCell"
    honest = getattr(described, name)
    at = 0 if op == "RNN" else 2  # the recurrent weights
    monkeypatch.setattr(described, name, lambda *a, **o: honest(*a[:at], np.roll(a[at], 1, axis=0), *a[at + 1 :], **o))
    with pytest.raises(DisagreementError):
        load_subject(cell(tmp_path / "m.onnx", op, rng))


def chain(path, rng, between, *, layouts=(0, 0), ways=("forward", "forward"), shape=("T", "B", P), **constants):
    """Two GRU nodes with operators ``(op, further input, options)`` between them."""
    directions = 1 + (ways[0] == "bidirectional")
    constants = weights(rng, "GRU", directions=directions, at="1") | {k: np.array(v) for k, v in constants.items()}
    constants |= weights(rng, "GRU", p=N * directions, directions=directions, at="2")
    names = ["Y1", *(f"s{k}" for k in range(len(between) - 1)), "Z"]
    links = [
        node(op, f"{names[k]} {more}".strip(), names[k + 1], **options) for k, (op, more, options) in enumerate(between)
    ]
    lower = node("GRU", "X W1 R1 B1", "Y1", name="lower", direction=ways[0], layout=layouts[0])
    upper = node("GRU", f"{names[-1]} W2 R2 B2", "Y", name="upper", direction=ways[1], layout=layouts[1])
    return save(path, [lower, *links, upper], [info("X", shape)], "Y", constants)


SQUEEZE, TURN = ("Squeeze", "axes", {}), ("Transpose", "", {"perm": [1, 0, 2]})
BOTH = {"ways": ("bidirectional",) * 2, "to": [0, 0, -1]}
CASTS = [("Cast", "", {"to": TensorProto.FLOAT}), ("Cast", "", {"to": TensorProto.DOUBLE})]


@pytest.mark.parametrize(
    ("between", "options"),
    [
        ([SQUEEZE, *CASTS, ("Dropout", "", {}), *[("Identity", "", {})] * 300], {"axes": [1]}),
        ([SQUEEZE, ("Unsqueeze", "axes", {}), SQUEEZE], {"axes": [1], "ways": ("reverse",) * 2}),
        ([SQUEEZE], {"axes": [2], "layouts": (1, 1)}),
        ([("Transpose", "", {"perm": [0, 2, 1, 3]}), ("Reshape", "to", {})], BOTH),
        ([("Reshape", "to", {})], {**BOTH, "layouts": (1, 1)}),
        ([("Reshape", "to", {})], {"to": [3, -1, 3], "shape": (3, "B", P)}),
    ],
)
def test_outputs_that_are_handed_on_as_they_are_make_a_stack(between, options, tmp_path, rng):
    stack = load_subject(chain(tmp_path / "m.onnx", rng, between, **options)).subject
    assert (stack.levels, stack.directions) == (2, 1 + (options.get("ways") == BOTH["ways"]))
    assert [layer.inputs for layer in stack.layers[:: stack.directions]] == [P, N * stack.directions]


@pytest.mark.parametrize(
    ("between", "options", "error"),
    [
        ([("Reshape", "to", {})], {**BOTH, "to": [0, -1, 6]}, DisagreementError),
        ([("Transpose", "", {"perm": [0, 2, 3, 1]}), ("Reshape", "to", {})], BOTH, DisagreementError),
        ([SQUEEZE, TURN], {"axes": [1]}, DisagreementError),
        ([SQUEEZE, ("Unsqueeze", "first", {})], {"axes": [1], "first": [0]}, DisagreementError),
        ([("Reshape", "to", {})], {"to": [-1, 2, 3]}, DisagreementError),
        ([SQUEEZE, ("Relu", "", {})], {"axes": [1]}, ConfigurationError),
        ([("Squeeze", "axes", {"domain": "my.own"})], {"axes": [1]}, ConfigurationError),
        ([SQUEEZE, ("Cast", "", {"to": TensorProto.FLOAT16}), CASTS[1]], {"axes": [1]}, UnsupportedError),
        ([SQUEEZE], {"axes": [1], "ways": ("forward", "reverse")}, UnsupportedError),
        ([SQUEEZE], {"axes": [1], "layouts": (0, 1)}, UnsupportedError),
        ([SQUEEZE, TURN], {"axes": [2], "layouts": (1, 0)}, UnsupportedError),
    ],
)
def test_nodes_that_are_linked_otherwise_are_no_stack_but_parts(between, options, error, tmp_path, rng):
    path = chain(tmp_path / "m.onnx", rng, between, **options)
    with pytest.raises(error):
        load_subject(path)
    assert load_subject(f"{path}#upper").subject.part == "upper of onnx_graph"
    with pytest.raises(ConfigurationError):
        load_subject(f"{path}#middle")


def test_the_limit_of_layers_holds_to_the_last_one(tmp_path, rng, monkeypatch):
    path = chain(tmp_path / "m.onnx", rng, [SQUEEZE], axes=[1])
    monkeypatch.setattr(parts, "LAYERS", 2)
    assert load_subject(path).subject.levels == 2
    monkeypatch.setattr(parts, "LAYERS", 1)
    with pytest.raises(FileFormatError):
        load_subject(path)


def own_function(model):
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("", "GRU", ["X"], ["Y"], [node("Neg", "X", "Y")], imports))


@pytest.mark.parametrize(
    "change",
    [
        own_function,
        lambda model: model.graph.ClearField("input"),
        lambda model: model.graph.ClearField("output"),
        lambda model: model.ClearField("opset_import"),
        lambda model: model.graph.ClearField("node"),
        lambda model: model.graph.node[0].CopyFrom(node("Tanh", "X", "Y")),
        lambda model: model.graph.node.append(node("Neg", "X", "W")),
        lambda model: model.graph.node.append(node("Neg", "Y", "X")),
        lambda model: model.graph.node[0].attribute.extend([helper.make_attribute("hidden_size", N)] * 2),
    ],
)
def test_a_file_that_is_no_whole_model_is_refused(change, tmp_path, rng):
    path = cell(tmp_path / "m.onnx", "GRU", rng)
    assert load_subject(path).subject.kind == "gru"
    with pytest.raises(FileFormatError):
        load_subject(changed(path, change))


@pytest.mark.parametrize("kept", [1, 3, 20, 0.5, 0.9, 0.99])
def test_truncated_files_are_refused(kept, tmp_path, rng):
    path = cell(tmp_path / "m.onnx", "LSTM", rng)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else kept])
    with pytest.raises(StabilityError):
        load_subject(path)
