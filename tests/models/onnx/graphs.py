"""Small ONNX files for tests: recurrent nodes, chains of them, cells in Scan and Loop, and graphs of one step."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

N, P = 3, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DOMAINS = ("my.own", "ai.onnx")


def info(name, shape, kind=TensorProto.DOUBLE):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    """A node; names are separated by one space, so that two spaces leave an input out."""
    return helper.make_node(op, inputs.split(" "), outputs.split(" "), **attributes)


def stored(constants):
    return [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]


def save(path, nodes, inputs, outputs, constants, opset=17, declared=None):
    ends = [(declared or {}).get(name, info(name, None)) for name in outputs.split()]
    graph = helper.make_graph(nodes, "g", inputs, ends, stored(constants))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in DOMAINS)]
    onnx.save(helper.make_model(graph, opset_imports=imports), str(path))
    return path


def changed(path, change):
    """The file after a function has changed its model."""
    model = onnx.load(str(path))
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def weights(rng, op, *, p=P, directions=1, at=""):
    rows = GATES[op] * N
    shapes = {"W": (directions, rows, p), "R": (directions, rows, N), "B": (directions, 2 * rows)}
    return {f"{name}{at}": rng.normal(size=shape) for name, shape in shapes.items()}


def cell(path, op, rng, inputs="X W R B", *, before=(), directions=1, **options):
    """A recurrent node with random weights; arrays among the options are further constants."""
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    made = node(op, inputs, "Y", name="cell", **{k: v for k, v in options.items() if k not in arrays})
    constants = weights(rng, op, directions=directions) | arrays
    return save(path, [*before, made], [info("X", ["T", 1, P])], "Y", constants)


def states_of(extra, shape):
    """Declarations of the carried values ``h`` and ``extra``, and of their next values."""
    names = {"h": "next", **{name: f"{name}_next" for name in extra}}
    return [info(name, shape) for name in names], [info(name, shape) for name in names.values()]


def scan(path, nodes, *, shape=(1, N), extra=(), opset=17, options=None, **constants):
    """A Scan whose body computes ``next`` from ``h`` and ``x``; ``extra``: names of further carried values."""
    states, following = states_of(extra, shape)
    body = helper.make_graph(nodes, "body", [*states, info("x", [1, P])], following)
    given = {"name": "scan", "body": body, "num_scan_inputs": 1} | (options or {})
    names, ends = ([f"{state.name}{k}" for state in states] for k in (0, 1))
    made = node("Scan", " ".join([*names, "X"]), " ".join(ends), **given)
    return save(path, [made], [*(info(k, shape) for k in names), info("X", ["T", 1, P])], "h1", constants, opset)


def loop(path, nodes, *, shape=(1, N), extra=(), index="i", **constants):
    """A Loop that gathers ``x`` from ``X`` by its counter and computes ``next`` from ``h`` and ``x``."""
    split = next((k for k, made in enumerate(nodes) if index in made.output), -1) + 1
    gather = [node("Identity", "cond", "again"), node("Gather", f"X {index}", "x", axis=0)]
    states, following = states_of(extra, shape)
    counter = [info("i", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL)]
    again = info("again", [], TensorProto.BOOL)
    body = helper.make_graph(
        [*nodes[:split], *gather, *nodes[split:]], "body", [*counter, *states], [again, *following]
    )
    names, ends = ([f"{state.name}{k}" for state in states] for k in (0, 1))
    made = node("Loop", " ".join(["T", "yes", *names]), " ".join(ends), name="loop", body=body)
    constants |= {"T": np.int64(4), "yes": np.bool_(True)}
    return save(path, [made], [*(info(k, shape) for k in names), info("X", ["T", 1, P])], "h1", constants)


def step(path, nodes, *, shape=(1, N), extra=(), **constants):
    """A graph that is one step: from ``x``, ``h`` and ``extra`` to their next values."""
    states, following = states_of(extra, shape)
    ends = {value.name: value for value in following}
    return save(path, nodes, [info("x", [1, P]), *states], " ".join(ends), constants, declared=ends)


def assert_runs_as(path, subject, rng, extra=()):
    """The last state of the file in onnx's reference evaluator is that of the subject."""
    x, states = rng.normal(size=(4, P)), rng.normal(size=(1 + len(extra), N))
    feeds = {f"{name}0": state[None] for name, state in zip(("h", *extra), states)}
    (expected,) = ReferenceEvaluator(str(path)).run(None, {**feeds, "X": x[:, None]})
    state = states.ravel()
    for u in x:
        state = subject.advance(state, u[: subject.inputs])
    np.testing.assert_allclose(state[:N], expected.ravel(), rtol=1e-6, atol=1e-7)
