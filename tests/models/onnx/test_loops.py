"""Cells in Scan and Loop: what is read runs as the file does, and everything else is refused."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import DisagreementError, FileFormatError, NonFiniteError, StabilityError, UnsupportedError
from stability.models.affine import ChannelMap
from stability.models.onnx import algebra, loops
from stability.models.sources import load_subject
from stability.systems import DrivenSystem, LureSystem

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from .graphs import N, P, assert_runs_as, changed, info, loop, node, save, scan  # noqa: E402

PLAIN = [node("MatMul", "h W", "hw"), node("MatMul", "x U", "xu"), node("Add", "hw xu", "s"), node("Add", "s b", "z")]
TANH = [*PLAIN, node("Tanh", "z", "next")]
LEAK = {"alpha": 0.1}
HALF = {"half": np.float64(0.5), "four": np.float64(4.0), "one": np.ones(N), "two": np.ones(2), "zero": np.zeros(N)}
HALF |= {name: np.array([k]) for name, k in (("last", 2), ("zeroth", -9), ("axis", 1), ("back", -1))}
HALF["order"] = np.array([2, 0, 1])
ENDS = {"low": np.array(-1.0), "high": np.array(1.0)}


def to(kind):
    return {"to": getattr(TensorProto, kind)}


@pytest.fixture
def w(rng):
    shapes = {"W": (N, N), "U": (P, N), "b": N, "g": (1, N), "V": (N, N)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()} | HALF | ENDS


READ = {
    "tanh": TANH,
    "relu": [*PLAIN, node("Relu", "z", "next")],
    "sigmoid": [*PLAIN, node("Sigmoid", "z", "next")],
    "leaky_relu": [*PLAIN, node("LeakyRelu", "z", "next", **LEAK)],
    "saturation": [*PLAIN, node("Clip", "z low high", "next")],
    "deadzone": [*PLAIN, node("Shrink", "z", "next", lambd=1.0, bias=1.0)],
    "every affine operator": [
        *PLAIN,
        node("Tanh", "z", "t"),
        node("Mul", "g t", "tg"),
        node("Gemm", "h V zero", "hv", alpha=2.0, transB=1, beta=3.0),
        node("Div", "h four", "h4"),
        node("Neg", "xu", "minus"),
        node("Sum", "hv minus tg", "sum"),
        node("Sub", "sum h4", "next"),
    ],
    "several activations": [
        *PLAIN,
        node("Sigmoid", "z", "s1"),
        node("Tanh", "hw", "t1"),
        node("LeakyRelu", "s1", "l1", **LEAK),
        node("Sum", "s1 t1 l1 b", "next"),
    ],
    "nested steps": [
        node("MatMul", "x U", "xu"),
        node("Gemm", "h W xu", "z1", transB=1, beta=0.25),
        node("Tanh", "z1", "w1"),
        node("Gemm", "w1 W", "z2", alpha=2.0),
        node("Tanh", "z2", "w2"),
        node("Sub", "w2 h", "next"),
    ],
    "constants on the left": [
        node("Add", "b b", "bb"),
        node("Sub", "bb h", "d"),
        node("Mul", "half b", "hb"),
        node("Div", "hb four", "q"),
        node("Add", "q d", "z1"),
        node("Tanh", "z1", "t"),
        node("Mul", "half t", "next"),
    ],
    "casts and changes of form": [
        *PLAIN,
        node("Cast", "z", "c1", **to("FLOAT")),
        node("Cast", "c1", "c2", **to("DOUBLE")),
        node("Dropout", "c2", "d"),
        node("Flatten", "d", "f", axis=1),
        node("Identity", "f", "same"),
        node("Tanh", "same", "next"),
    ],
    "entries in another order": [
        node("Gather", "h order", "turned", axis=-1),
        node("Concat", "turned g", "more", axis=1),
        node("Slice", "more last zeroth axis back", "chosen"),
        node("MatMul", "chosen W", "next"),
    ],
    "no activation": [node("Mul", "h half", "next")],
    "three thousand nodes": [
        *(node("Neg", "h" if k == 0 else f"t{k - 1}", f"t{k}") for k in range(3000)),
        node("Mul", "t2999 half", "next"),
    ],
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("kind", [scan, loop])
def test_a_loop_is_the_system_that_runs(name, kind, w, tmp_path, rng):
    path = kind(tmp_path / "m.onnx", READ[name], **w)
    source = load_subject(path)
    subject = source.subject
    if isinstance(subject, LureSystem):
        assert name == "several activations"
        np.testing.assert_array_equal(subject.beta, [0.25] * N + [1] * 2 * N)
        np.testing.assert_array_equal(subject.D[2 * N :, :N], np.eye(N))
        return
    assert source.info["nodes"] == kind.__name__.title()
    assert_runs_as(path, subject, rng)
    if name in ("tanh", "relu", "sigmoid", "leaky_relu", "saturation", "deadzone"):
        assert subject.activation == name
        for found, expected in ((subject.system.C, w["W"].T), (subject.E, w["U"].T), (subject.b, w["b"])):
            np.testing.assert_array_equal(found, expected)


STATES = {
    "two that go round": (
        ("k",),
        [node("MatMul", "k W", "z"), node("Tanh", "z", "next"), node("MatMul", "h W", "k_next")],
    ),
    "three that go round": (
        ("k", "m"),
        [
            node("MatMul", "k W", "z"),
            node("Tanh", "z", "next"),
            node("Mul", "m half", "k_next"),
            node("MatMul", "h W", "m_next"),
        ],
    ),
    "a delayed input": (
        ("k",),
        [node("MatMul", "x U", "k_next"), node("Add", "h k", "s"), node("Mul", "s half", "next")],
    ),
    "one that is handed through": (
        ("k",),
        [node("Mul", "h half", "next"), node("Identity", "k", "k1"), node("Identity", "k1", "k_next")],
    ),
    "a delayed input that is not read": (("k",), [node("MatMul", "x U", "k_next"), node("Mul", "h half", "next")]),
}


@pytest.mark.parametrize("name", STATES)
def test_carried_values_with_a_memory_are_states(name, w, tmp_path, rng):
    extra, nodes = STATES[name]
    path = scan(tmp_path / "m.onnx", nodes, extra=extra, **w)
    subject = load_subject(path).subject
    memory = () if "not read" in name or "through" in name else extra
    assert subject.states == N * (1 + len(memory))
    if memory:
        assert_runs_as(path, subject, rng, extra)


def branch(name):
    inner = helper.make_graph([node("Identity", "k", "out")], name, [], [info("out", [1, N])])
    return helper.make_node("If", ["yes"], ["k_next"], then_branch=inner, else_branch=inner)


REFUSED = [
    [node("Exp", "h", "next")],
    [node("Tanh", "h", "t"), node("Mul", "t h", "next")],
    [node("Tanh", "h", "t"), node("Div", "one t", "next")],
    [node("MatMul", "h U", "next")],
    [node("MatMul", "W h", "next")],
    [node("Gemm", "h W", "next", transA=1)],
    [node("Gemm", "W h", "next", transB=1)],
    [node("LeakyRelu", "h", "next")],
    [node("LeakyRelu", "h", "next", alpha=0.1000005)],
    [node("Shrink", "h", "next")],
    [node("Clip", "h", "next")],
    [node("Clip", "h high low", "next")],
    [node("Clip", "h low", "next")],
    [node("Clip", "h low half", "next")],
    [node("Add", "h x", "next")],
    [node("Add", "h two", "next")],
    [node("Mul", "h W", "next")],
    [node("Tanh", "one", "t"), node("Add", "h t", "next")],
    [node("Add", "h absent", "next")],
    [node("Tanh", "x", "t"), node("Mul", "h zero", "n"), node("Identity", "t", "next")],
    [node("Identity", "h", "next")],
    [node("Tanh", "h", "next", domain="my.own")],
    [node("Tanh", "h", "next", steep=3.0)],
    [node("Add", "h one", "next", axis=1)],
    [node("Dropout", "h half high", "d"), node("Tanh", "d", "next")],
    [node("Cast", "h", "c"), node("Tanh", "c", "next")],
    *(
        [node("Cast", "h", "c", **to(kind)), node("Tanh", "c", "next")]
        for kind in ("INT64", "BOOL", "FLOAT16", "BFLOAT16")
    ),
    [node("Gather", "X zero", "other", domain="my.own"), node("Add", "h other", "next")],
    [node("Split", "h", "a same", axis=0, num_outputs=2), node("Tanh", "same", "next")],
]


@pytest.mark.parametrize("nodes", REFUSED)
def test_what_is_no_system_is_refused(nodes, w, tmp_path):
    with pytest.raises(UnsupportedError):
        load_subject(scan(tmp_path / "m.onnx", nodes, opset=18, **w))


HALVED = node("Mul", "h half", "n")
BY_STATE = [
    node("Cast", "h", "c", **to("INT64")),
    node("Gather", "c first", "row", axis=0),
    node("Gather", "row first", "entry", axis=0),
    node("Add", "i entry", "j"),
]
CARRIED = {"extra": ("k",)}


@pytest.mark.parametrize(
    ("kind", "nodes", "options", "error"),
    [
        (scan, [node("Mul", "h half", "next"), branch("b")], {**CARRIED, "yes": np.bool_(True)}, UnsupportedError),
        (scan, [HALVED, node("Add", "n k", "next"), node("Identity", "k", "k_next")], CARRIED, UnsupportedError),
        (scan, [node("Neg", "h", "next"), node("Identity", "k", "k_next", domain="my.own")], CARRIED, UnsupportedError),
        (loop, TANH, {"index": "k", "k": np.int64(1)}, UnsupportedError),
        (loop, [*BY_STATE, *TANH], {"index": "j", "first": np.int64(0)}, UnsupportedError),
        (loop, [node("Tanh", "h", "next")], {"shape": None}, UnsupportedError),
        (scan, TANH, {"options": {"SCAN_INPUT_AXES": [0]}}, UnsupportedError),
        (scan, TANH, {"shape": (1, 2**40)}, UnsupportedError),
        (scan, [node("Add", "h w", "c"), node("Tanh", "c", "next")], {"w": np.ones((N, 1))}, DisagreementError),
        (scan, [node("Neg", "h", f"t{k}") for k in range(5000)], {}, FileFormatError),
        (scan, [node("Add", "h next", "c"), node("Add", "h c", "next")], {}, FileFormatError),
        (scan, [*TANH, node("Neg", "h", "x")], {}, FileFormatError),
        (scan, [*TANH, node("Neg", "h", "z")], {}, FileFormatError),
        (scan, TANH, {"options": {"num_scan_inputs": 0}}, FileFormatError),
        (scan, TANH, {"options": {"num_scan_inputs": 9}}, FileFormatError),
        (scan, TANH, {"options": {"num_scan_inputs": "many"}}, FileFormatError),
        (scan, TANH, {"options": {"body": 3}}, FileFormatError),
    ],
)
def test_a_loop_that_cannot_be_followed_is_refused(kind, nodes, options, error, w, tmp_path):
    with pytest.raises(error):
        load_subject(kind(tmp_path / "m.onnx", nodes, **{**w, **options}))


def test_a_body_that_gives_less_than_it_carries_is_refused(w, tmp_path):
    def shorten(model):
        next(a.g for a in model.graph.node[0].attribute if a.name == "body").output.pop()

    for kind, options in ((scan, CARRIED), (loop, {})):
        with pytest.raises(FileFormatError):
            load_subject(changed(kind(tmp_path / "m.onnx", TANH, **options, **w), shorten))


def test_an_input_of_the_body_hides_a_constant_of_its_name(w, tmp_path, rng):
    """The body's ``k`` is what the loop carries, not the constant ``k`` of the graph around it."""
    nodes = [node("Mul", "h half", "n"), node("Add", "n k", "next"), node("Identity", "k", "k_next")]
    with pytest.raises(UnsupportedError):
        load_subject(scan(tmp_path / "m.onnx", nodes, extra=("k",), k=np.zeros((1, N)), **w))


@pytest.mark.parametrize("shape", [None, (1, 0)])
def test_a_size_that_is_not_declared_is_that_of_the_matrix(shape, w, tmp_path, rng):
    for path in (
        loop(tmp_path / "l.onnx", TANH, shape=shape, **w),
        scan(tmp_path / "s.onnx", TANH, shape=shape or (1, 0), **w),
    ):
        np.testing.assert_array_equal(load_subject(path).subject.system.C, w["W"].T)


def test_an_index_computed_from_the_counter_and_an_input_that_is_never_read(w, tmp_path):
    path = loop(tmp_path / "m.onnx", [node("Add", "i first", "j"), *TANH], index="j", first=np.int64(0), **w)
    np.testing.assert_array_equal(load_subject(path).subject.E, w["U"].T)
    path = loop(tmp_path / "n.onnx", [node("MatMul", "h W", "z"), node("Tanh", "z", "next")], **w)
    assert not load_subject(path).subject.E.any()


@pytest.mark.parametrize("field", ["A", "E", "F", "b", "offset", "C", "D"])
def test_a_misread_number_is_noticed(field, w, tmp_path, monkeypatch):
    honest = ChannelMap.of

    def misread(*followed):
        read = honest(*followed)
        system = read.system
        arrays = {name: getattr(system, name) for name in "ABCD"}
        arrays |= {name: getattr(read, name) for name in ("E", "F", "b", "offset")}
        moved = np.array(arrays[field])
        moved[(-1, 0) if moved.ndim == 2 else 0] += 1e-3
        arrays[field] = moved
        system = LureSystem(*(arrays[name] for name in "ABCD"), (system.alpha, system.beta), 1.0)
        return ChannelMap(system, read.kinds, arrays["E"], arrays["F"], arrays["b"], arrays["offset"])

    monkeypatch.setattr(ChannelMap, "of", misread)
    nodes = [*PLAIN, node("Tanh", "z", "t"), node("Sigmoid", "t", "u"), node("Sum", "t u h xu b", "next")]
    with pytest.raises(DisagreementError):
        load_subject(scan(tmp_path / "m.onnx", nodes, **w))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["U", "W", "b"])
def test_a_constant_that_is_not_finite_is_named(name, value, w, tmp_path):
    w[name].flat[0] = value
    with pytest.raises(NonFiniteError):
        load_subject(scan(tmp_path / "m.onnx", TANH, **w))


def test_limits_hold_to_the_last_entry(w, tmp_path, monkeypatch):
    """``next = tanh(h W) / 2``: symbols h, x and w, two constants, a product of matrices and one of numbers."""
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "t"), node("Mul", "t half", "next")]
    path = scan(tmp_path / "m.onnx", nodes, **w)
    entries = 6 * N * N + P * P + 1
    exact = {"LOOP_ENTRIES": (algebra, entries), "LOOP_WIDTH": (algebra, 2 * N + P)}
    for name, (module, most) in {**exact, "LOOP_NODES": (loops, 3), "LOOP_VALUES": (loops, 2)}.items():
        with monkeypatch.context() as patch:
            patch.setattr(module, name, most)
            assert isinstance(load_subject(path).subject, DrivenSystem)
            patch.setattr(module, name, most - 1)
            with pytest.raises(StabilityError):
                load_subject(path)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_loop_that_carries_nothing_is_no_system(given, tmp_path):
    first = [info("i", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL)][:given]
    body = helper.make_graph([node("Neg", "a", "c")], "body", first, [info("c", [])])
    made = node("Loop", "T yes", "out", body=body)
    with pytest.raises(StabilityError):
        load_subject(save(tmp_path / "m.onnx", [made], [info("T", [])], "out", {}))
