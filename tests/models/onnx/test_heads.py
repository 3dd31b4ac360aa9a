"""Whole networks in ONNX files: recurrent part, reading, linear head; the data keep their own order of axes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import feedback
from stability.errors import DisagreementError, StabilityError
from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.onnx.graph import evaluator
from stability.models.packed import reading
from stability.models.sources import load_module, load_subject, without_network

onnx = pytest.importorskip("onnx")
from onnx import TensorProto  # noqa: E402

from .graphs import N, P, info, node, save, weights  # noqa: E402

K = 4


def network(path, *, op="GRU", before=(), cell="X W R B", tail=None, batch_first=False, options=None, **constants):
    steps = "T" if "steps" not in constants else int(constants["steps"][0])
    rng = np.random.default_rng(1)
    held = {**weights(rng, op), "V": rng.normal(size=(N, K)), "v": rng.normal(size=K)}
    held = {k: v.astype(np.float32) for k, v in held.items()} | {"zero": np.array([0])} | constants
    tail = tail or [FLAT, node("MatMul", "flat V", "scores"), node("Add", "scores v", "out")]
    made = [*before, node(op, cell, "Y end", hidden_size=N, **(options or {})), *tail]
    x = info("X", ["B", steps, P] if batch_first else [steps, "B", P], TensorProto.FLOAT)
    return save(path, made, [x], "out", held)


FLAT = node("Squeeze", "end zero", "flat")
MEAN = [
    node("Squeeze", "Y one", "rows"),
    node("ReduceMean", "rows", "mean", axes=[0], keepdims=0),
    node("Gemm", "mean V v", "out"),
]
SOFT = [FLAT, node("Gemm", "flat V v", "scores"), node("Softmax", "scores", "out", axis=1)]
TAKEN = [
    node("Gather", "Y last", "one_step", axis=0),
    node("Squeeze", "one_step zero", "flat"),
    node("Gemm", "flat V v", "out"),
]


@pytest.mark.parametrize(
    ("told", "reduction"),
    [
        ({"op": "LSTM"}, "last"),
        ({"op": "RNN"}, "last"),
        ({"op": "RNN", "options": {"activations": ["Relu"]}}, "last"),
        ({"tail": [FLAT, node("Gemm", "flat V v", "out", beta=2.0)]}, "last"),
        ({"tail": [FLAT, node("Gemm", "flat V v", "scores"), node("Add", "scores v", "out")]}, "last"),
        ({"options": {"linear_before_reset": 1}, "tail": SOFT}, "last"),
        ({"tail": MEAN, "one": np.array([1])}, "mean"),
        ({"tail": TAKEN, "last": np.array(-1)}, "last"),
        (
            {"before": [node("Transpose", "X", "turned", perm=[1, 0, 2])], "cell": "turned W R B", "batch_first": True},
            "last",
        ),
    ],
)
def test_sequences_of_batches_give_the_logits_of_the_graph(told, reduction, tmp_path):
    path = network(tmp_path / "n.onnx", **told)
    module = load_module(path)
    assert isinstance(module, ClassifierNetwork)
    assert classifier(module).reduction == reduction
    x = np.random.default_rng(2).normal(size=(5, 6, P)).astype(np.float32)
    (theirs,) = evaluator(onnx.load(path)).run(None, {"X": x if told.get("batch_first") else x.swapaxes(0, 1)})
    with torch.no_grad():
        ours = module(torch.tensor(x))
    assert ours.dtype == torch.float32
    ours = ours.softmax(1) if told.get("tail") is SOFT else ours
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)


GIVEN = np.ones((1, 1, N), np.float32)
LATE = {"from_forty": np.array([-40]), "to_end": np.array([2**63 - 1]), "one": np.array([1])}
MEAN_OF_LATE = [node("Squeeze", "late one", "rows"), *MEAN[1:]]
BY_VALUE = [
    node("ReduceMean", "X", "mean", keepdims=0),
    node("Cast", "mean", "whole", to=TensorProto.INT64),
    node("Mul", "whole none", "nothing"),
    node("Sub", "nothing one", "last"),
]
IN = {"cell": "w W R B"}


@pytest.mark.parametrize(
    "told",
    [
        {"tail": [node("Relu", "end", "out")]},
        {"cell": "X W R B  h0", "h0": GIVEN},
        {"before": [node("Tanh", "X", "squashed")], "cell": "squashed W R B"},
        {"tail": [node("Relu", "end", "r"), node("Squeeze", "r zero", "f"), node("Gemm", "f V v", "out")]},
        {"cell": "X W R B lengths", "lengths": np.full(1, 3, np.int32)},
        {"options": {"direction": "reverse"}},
        {"tail": [node("Slice", "Y from_forty to_end zero", "late"), *MEAN_OF_LATE], **LATE},
        {"tail": MEAN, "one": np.array([1]), "before": [node("Slice", "X from_forty to_end zero", "w")], **LATE, **IN},
        {"before": [node("Clip", "X low high", "w")], **IN, "low": np.float32(-6), "high": np.float32(6)},
        {"before": [node("Mul", "X half", "w")], **IN, "half": np.float32(0.5)},
        {"tail": [*SOFT[:2], node("Softmax", "scores", "out", axis=0)]},
        {"tail": [*BY_VALUE, *TAKEN], "one": np.array(1), "none": np.array(0)},
    ],
)
def test_other_networks_stay_recurrent_parts_and_say_why(told, tmp_path):
    path = network(tmp_path / "n.onnx", **told)
    assert load_module(path) is None
    assert load_subject(path).subject.inputs == P
    assert without_network(path)


def step_by_length(path):
    """A network that reads the output before the last where there are forty steps or more."""
    tail = [
        node("Shape", "X", "shape"),
        node("Gather", "shape zero", "steps"),
        node("Div", "steps forty", "many"),
        node("Sub", "steps many", "after"),
        node("Sub", "after one", "last"),
        node("Gather", "Y last", "taken", axis=0),
        node("Squeeze", "taken both", "flat"),
        node("Gemm", "flat V v", "out"),
    ]
    return network(path, tail=tail, forty=np.array([40]), one=np.array([1]), both=np.array([0, 1]))


def test_a_graph_is_run_at_the_length_of_the_data(tmp_path):
    module = load_module(step_by_length(tmp_path / "n.onnx"))
    long = torch.randn(3, 41, P)
    assert reading(module, long[:, :39]).subject.reduction == "last"
    assert module(long[:, :39]).shape == (3, K)
    for run in (module, lambda x: reading(module, x)):
        with pytest.raises(DisagreementError):
            run(long)


def test_a_graph_for_one_number_of_steps_is_read_at_that_number(tmp_path):
    before = [node("Reshape", "X steps", "x")]
    module = load_module(network(tmp_path / "n.onnx", before=before, cell="x W R B", steps=np.array([6, -1, P])))
    assert reading(module, torch.randn(4, 6, P)).subject.inputs == P
    with pytest.raises(StabilityError):
        reading(module, torch.randn(5, 4, P))


@pytest.mark.parametrize("factor", [1.0, 1.0 + 1e-6])
def test_a_network_that_is_off_by_a_millionth_is_refused(factor, tmp_path):
    module = load_module(network(tmp_path / "n.onnx"))
    run, x = module.source, torch.randn(2, 5, P)

    class Off:
        check = run.check

        def __call__(self, given):
            return factor * run(given)

    module.source = Off()
    if factor == 1.0:
        assert reading(module, x).subject is module.subject
    else:
        with pytest.raises(DisagreementError):
            reading(module, x)


def test_a_head_of_one_output_is_a_controller(tmp_path, rng) -> None:
    head = {"V": rng.normal(size=(N, 1)).astype(np.float32), "v": np.float32([0.3])}
    path = network(tmp_path / "one.onnx", op="LSTM", **head)
    A, B, C = np.array([[0.9, 0.1], [0.0, 0.8]]), np.array([[0.0], [1.0]]), np.eye(P)
    loop, module = feedback((A, B, C, np.zeros((P, 1)), 1.0), path), load_module(path)
    x, state, past = np.ones(2), np.zeros(loop.states), []
    state[:2] = x
    for _ in range(8):
        past.append(x)
        with torch.no_grad():
            u = module.double()(torch.tensor(np.array(past))[None])[0, 1:].numpy()
        x, state = A @ x - B @ u, loop.advance(state, np.zeros(P))
        np.testing.assert_allclose(state[:2], x, rtol=1e-9)
