"""Whole networks in ONNX files: recurrent part, reading, linear head; the data keep their own order of axes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.sources import load_module, load_subject, without_network

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from .graphs import N, P, info, node, stored, weights  # noqa: E402

K = 4


def network(path, *, op="GRU", before=(), cell="X W R B", tail=None, batch_first=False, options=None, **constants):
    rng = np.random.default_rng(1)
    held = {**weights(rng, op), "V": rng.normal(size=(N, K)), "v": rng.normal(size=K)}
    held = {k: v.astype(np.float32) for k, v in held.items()} | {"zero": np.array([0])} | constants
    tail = tail or [
        node("Squeeze", "end zero", "flat"),
        node("MatMul", "flat V", "scores"),
        node("Add", "scores v", "out"),
    ]
    made = [*before, node(op, cell, "Y end", hidden_size=N, **(options or {})), *tail]
    x = info("X", ["B", "T", P] if batch_first else ["T", "B", P], TensorProto.FLOAT)
    graph = helper.make_graph(made, "g", [x], [info("out", None, TensorProto.FLOAT)], stored(held))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


MEAN = [
    node("Squeeze", "Y one", "rows"),
    node("ReduceMean", "rows", "mean", axes=[0], keepdims=0),
    node("Gemm", "mean V v", "out"),
]
SOFT = [
    node("Squeeze", "end zero", "flat"),
    node("Gemm", "flat V v", "scores"),
    node("Softmax", "scores", "out", axis=1),
]
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
    (theirs,) = ReferenceEvaluator(str(path)).run(None, {"X": x if told.get("batch_first") else x.swapaxes(0, 1)})
    with torch.no_grad():
        ours = module(torch.tensor(x))
    assert ours.dtype == torch.float32
    ours = ours.softmax(1) if told.get("tail") is SOFT else ours
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-5)


GIVEN = np.ones((1, 1, N), np.float32)


@pytest.mark.parametrize(
    "told",
    [
        {"tail": [node("Relu", "end", "out")]},
        {"cell": "X W R B  h0", "h0": GIVEN},
        {"before": [node("Tanh", "X", "squashed")], "cell": "squashed W R B"},
        {"tail": [node("Relu", "end", "r"), node("Squeeze", "r zero", "f"), node("Gemm", "f V v", "out")]},
        {"tail": [node("Squeeze", "end zero", "f"), node("Gemm", "f V v", "out", beta=2.0)]},
        {"tail": [node("Squeeze", "end zero", "f"), node("Gemm", "f V v", "s"), node("Add", "s v", "out")]},
        {"options": {"direction": "reverse"}},
    ],
)
def test_other_networks_stay_recurrent_parts_and_say_why(told, tmp_path):
    path = network(tmp_path / "n.onnx", **told)
    assert load_module(path) is None
    assert load_subject(path).subject.inputs == P
    assert without_network(path)
