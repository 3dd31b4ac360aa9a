"""Graphs that are no whole models, and loops whose stored numbers are none: told as they are, not certified."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import FileFormatError, NonFiniteError
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")

from .test_loops import N, P, node, scan  # noqa: E402

BODY = [
    node("MatMul", "x E", "e"),
    node("MatMul", "h W", "r"),
    node("Add", "e r", "er"),
    node("Add", "er b", "z"),
    node("Tanh", "z", "t"),
    node("MatMul", "x F", "f"),
    node("Add", "t f", "next"),
]


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"E": (P, N), "W": (N, N), "b": (1, N), "F": (P, N)}
    return {name: 0.3 * rng.normal(size=size) for name, size in sizes.items()}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["E", "W", "b", "F"])
def test_the_constant_that_is_not_finite_is_named(name: str, value: float, tmp_path) -> None:
    given = weights()
    assert load_subject(scan(tmp_path / "m.onnx", BODY, **given)).subject.states == N
    given[name].flat[0] = value
    with pytest.raises(NonFiniteError, match=f"the constant '{name}' of the file holds NaN or infinite"):
        load_subject(scan(tmp_path / "m.onnx", BODY, **given))


@pytest.mark.parametrize("lacking", ["input", "output", "opset"])
def test_a_model_without_an_end_is_refused(lacking: str, tmp_path) -> None:
    path = scan(tmp_path / "m.onnx", BODY, **weights())
    model = onnx.load(str(path))
    del (model.opset_import if lacking == "opset" else getattr(model.graph, lacking))[:]
    onnx.save(model, str(path))
    with pytest.raises(FileFormatError, match=f"no whole ONNX model: it has no {lacking}"):
        load_subject(path)


def test_a_scan_that_reads_what_is_computed_from_it_is_refused(tmp_path) -> None:
    path = scan(tmp_path / "m.onnx", BODY, **weights())
    model = onnx.load(str(path))
    del model.graph.input[:1]
    model.graph.node.append(node("Tanh", "h1", "h0"))
    onnx.save(model, str(path))
    with pytest.raises(FileFormatError, match="in a circle"):
        load_subject(path)


def test_a_body_may_call_its_own_values_as_the_graph_does(tmp_path) -> None:
    path = scan(tmp_path / "m.onnx", BODY, **weights())
    model = onnx.load(str(path))
    model.graph.node.append(node("Tanh", "h1", "t"))  # the body has a t of its own
    onnx.save(model, str(path))
    assert load_subject(path).subject.states == N
