"""Loops in ONNX graphs: every number of the system, every refusal, and the comparison of numbers by itself."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import DisagreementError, FileFormatError, StabilityError, UnsupportedError
from stability.models.affine import ChannelMap
from stability.models.onnx import algebra as onnx_algebra
from stability.models.onnx import parts as onnx_files
from stability.models.sources import load_subject
from stability.systems import DrivenSystem, LureSystem

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

N, P = 3, 2


def info(name, shape, kind=TensorProto.DOUBLE):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def scan(path, nodes, *, opset=17, shape=(1, N), extra=(), domains=(), **constants):
    """A Scan whose body computes ``next`` from ``h`` and ``x``; ``extra``: names of further carried values."""
    carried = ["h", *extra]
    body = helper.make_graph(
        [*nodes, node("Identity", "next", "y")],
        "body",
        [*(info(name, shape) for name in carried), info("x", [1, P])],
        [*(info("next" if name == "h" else f"{name}_next", shape) for name in carried), info("y", shape)],
    )
    made = helper.make_node(
        "Scan",
        [*(f"{c}0" for c in carried), "X"],
        [*(f"{c}1" for c in carried), "Y"],
        name="scan",
        body=body,
        num_scan_inputs=1,
    )
    graph = helper.make_graph(
        [made],
        "g",
        [*(info(f"{c}0", shape) for c in carried), info("X", ["T", 1, P])],
        [info("Y", None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=imports), str(path))
    return path


def read(*arguments, **options):
    return load_subject(scan(*arguments, **options)).subject


@pytest.fixture
def w(rng):
    return {"W": rng.normal(size=(N, N)), "U": rng.normal(size=(P, N)), "b": rng.normal(size=N)}


PLAIN = [node("MatMul", "h W", "hw"), node("MatMul", "x U", "xu"), node("Add", "hw xu", "s"), node("Add", "s b", "z")]


@pytest.mark.parametrize(
    ("op", "name", "slope", "options"),
    [
        ("Tanh", "tanh", (0, 1), {}),
        ("Relu", "relu", (0, 1), {}),
        ("Sigmoid", "sigmoid", (0, 0.25), {}),
        ("LeakyRelu", "leaky_relu", (0.1, 1), {"alpha": 0.1}),
        ("Shrink", "deadzone", (0, 1), {"lambd": 1.0, "bias": 1.0}),
    ],
)
def test_one_activation_to_the_last_bit(op, name, slope, options, w, tmp_path):
    subject = read(tmp_path / "m.onnx", [*PLAIN, node(op, "z", "next", **options)], **w)
    assert isinstance(subject, DrivenSystem)
    np.testing.assert_array_equal(subject.system.A, np.zeros((N, N)))
    np.testing.assert_array_equal(subject.system.B, np.eye(N))
    np.testing.assert_array_equal(subject.system.C, w["W"].T)
    np.testing.assert_array_equal(subject.system.D, np.zeros((N, N)))
    np.testing.assert_array_equal(subject.E, w["U"].T)
    np.testing.assert_array_equal(subject.b, w["b"])
    np.testing.assert_array_equal(subject.F, np.zeros((N, P)))
    assert (subject.activation, subject.name, subject.system.dt) == (name, "ONNX Scan", 1.0)
    assert subject.system.slope == slope


@pytest.mark.parametrize("bounds", ["one low", "low low", "low", "low z", "low two"])
def test_other_bounds_of_a_clip_are_refused(bounds, w, tmp_path):
    ends = {"low": np.array(-1.0), "one": np.array(1.0), "two": np.array(2.0)}
    with pytest.raises(UnsupportedError, match="other bounds than -1 and 1"):
        read(tmp_path / "m.onnx", [*PLAIN, node("Clip", f"z {bounds}", "next")], **w, **ends)


def test_every_affine_operator_to_the_last_bit(w, tmp_path):
    """next = 2 (V h) - (h / 4) + [-(x U)] + tanh(...) * g, with a bias of Gemm and a sum of three."""
    g, V = np.array([[0.5, -1.0, 2.0]]), np.arange(9.0).reshape(N, N) / 8
    nodes = [
        *PLAIN,
        node("Tanh", "z", "t"),
        node("Mul", "g t", "tg"),
        node("Gemm", "h V zero", "hv", alpha=2.0, transB=1, beta=3.0),
        node("Div", "h four", "h4"),
        node("Neg", "xu", "minus"),
        node("Sum", "hv minus tg", "sum"),
        node("Sub", "sum h4", "next"),
    ]
    subject = read(tmp_path / "m.onnx", nodes, g=g, V=V, four=np.float64(4.0), zero=np.zeros(N), **w)
    np.testing.assert_array_equal(subject.system.A, 2 * V - np.eye(N) / 4)
    np.testing.assert_array_equal(subject.system.B, np.diag(g[0]))
    np.testing.assert_array_equal(subject.F, -w["U"].T)
    np.testing.assert_array_equal(subject.system.C, w["W"].T)


def test_mixed_activations_have_their_slopes_channel_by_channel(w, tmp_path):
    nodes = [
        *PLAIN,
        node("Sigmoid", "z", "s1"),
        node("Tanh", "hw", "t1"),
        node("LeakyRelu", "s1", "l1", alpha=0.1),
        node("Sum", "s1 t1 l1", "next"),
    ]
    system = read(tmp_path / "m.onnx", nodes, **w)
    assert isinstance(system, LureSystem)
    np.testing.assert_array_equal(system.alpha, [0] * N + [0] * N + [0.1] * N)
    np.testing.assert_array_equal(system.beta, [0.25] * N + [1] * N + [1] * N)
    np.testing.assert_array_equal(system.C[:N], w["W"].T)
    np.testing.assert_array_equal(system.C[N : 2 * N], w["W"].T)
    np.testing.assert_array_equal(system.C[2 * N :], np.zeros((N, N)))
    np.testing.assert_array_equal(system.D[2 * N :, :N], np.eye(N))
    assert np.count_nonzero(system.D) == N
    np.testing.assert_array_equal(system.B, np.hstack([np.eye(N)] * 3))


def test_a_constant_beside_the_channels_is_a_bare_system(w, tmp_path):
    nodes = [*PLAIN, node("Tanh", "z", "t"), node("Add", "t b", "next")]
    system = read(tmp_path / "m.onnx", nodes, **w)
    assert isinstance(system, LureSystem)
    np.testing.assert_array_equal(system.C, w["W"].T)


def test_columns_instead_of_rows(w, tmp_path):
    nodes = [node("MatMul", "W h", "z"), node("Tanh", "z", "next")]
    with pytest.raises(UnsupportedError, match="shapes do not fit"):  # a declared column is not taken for a row
        read(tmp_path / "m.onnx", nodes, shape=(N, 1), W=w["W"])
    subject = read(tmp_path / "m.onnx", nodes, shape=(N,), W=w["W"])
    np.testing.assert_array_equal(subject.system.C, w["W"])


@pytest.mark.parametrize("op", ["INT64", "INT32", "BOOL", "FLOAT16", "BFLOAT16"])
def test_a_cast_that_rounds_is_refused_by_name(op, w, tmp_path):
    nodes = [node("Cast", "h", "c1", to=getattr(TensorProto, op)), node("Cast", "c1", "c2", to=TensorProto.DOUBLE)]
    with pytest.raises(UnsupportedError, match=rf"Scan node scan: a Cast to {op} rounds"):
        read(tmp_path / "m.onnx", [*nodes, node("Mul", "c2 half", "next")], half=np.float64(0.5))


@pytest.mark.parametrize("op", ["FLOAT", "DOUBLE"])
def test_casts_between_floats_are_read_through(op, w, tmp_path):
    nodes = [
        *PLAIN,
        node("Cast", "z", "c1", to=getattr(TensorProto, op)),
        node("Cast", "c1", "c2", to=TensorProto.DOUBLE),
    ]
    subject = read(tmp_path / "m.onnx", [*nodes, node("Tanh", "c2", "next")], **w)
    np.testing.assert_array_equal(subject.system.C, w["W"].T)


@pytest.mark.parametrize("to", ["INT64", "BOOL"])
def test_a_cast_is_noticed_by_its_numbers_alone(to, w, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_algebra, "refuse_rounding", lambda *_: None)
    nodes = [node("Cast", "h", "c1", to=getattr(TensorProto, to)), node("Cast", "c1", "c2", to=TensorProto.DOUBLE)]
    with pytest.raises(DisagreementError, match=r"Scan node scan does not compute .* it gives \S+ where the system"):
        read(tmp_path / "m.onnx", [*nodes, node("Mul", "c2 half", "next")], half=np.float64(0.5))


def test_dropout(w, tmp_path):
    plain = [*PLAIN, node("Dropout", "z", "d"), node("Tanh", "d", "next")]
    assert read(tmp_path / "m.onnx", plain, **w).activation == "tanh"
    for mode, fails in ((np.bool_(False), False), (np.bool_(True), True)):
        nodes = [*PLAIN, node("Dropout", "z ratio mode", "d"), node("Tanh", "d", "next")]
        if fails:
            with pytest.raises(UnsupportedError, match="Dropout in training mode"):
                read(tmp_path / "m.onnx", nodes, ratio=np.float32(0.5), mode=mode, **w)
        else:
            assert read(tmp_path / "m.onnx", nodes, ratio=np.float32(0.5), mode=mode, **w).activation == "tanh"


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("Exp", "h", "next")], "it contains the operator Exp"),
        ([node("Tanh", "h", "t"), node("Mul", "t h", "next")], "multiplied or divided"),
        ([node("Tanh", "h", "t"), node("Div", "one t", "next")], "multiplied or divided"),
        ([node("MatMul", "h U", "next")], "shapes do not fit"),
        ([node("Gemm", "h W", "next", transA=1)], "transposed state"),
        ([node("LeakyRelu", "h", "next")], "slope 0.01 instead of 0.1"),
        ([node("LeakyRelu", "h", "next", alpha=0.1000005)], "instead of 0.1"),
        ([node("Add", "h x", "next")], "vectors of 3 and 2 entries"),
        ([node("Add", "h two", "next")], r"constant of shape \(2,\)"),
        ([node("Tanh", "one", "t"), node("Add", "h t", "next")], "Tanh of a constant"),
        ([node("Add", "h absent", "next")], "comes from outside"),
        (
            [node("Tanh", "x", "t"), node("Mul", "h zero", "n"), node("Identity", "t", "next")],
            "depends on its own past",
        ),
        ([node("Identity", "h", "next")], "depends on its own past"),
        ([node("Tanh", "h", "next", domain="my.domain")], "operator my.domain.Tanh"),
        ([node("Tanh", "h", "next", steep=3.0)], "Tanh has the attribute steep"),
        ([node("Add", "h one", "next", axis=1)], "Add has the attribute axis"),
        (
            [node("MatMul", "x U", "a"), node("Gemm", "h V", "g"), node("Add", "a g", "next")],
            "vectors of 3 and 2 entries",
        ),
    ],
)
def test_what_is_no_system_is_refused_by_name(nodes, text, w, tmp_path):
    constants = {"one": np.ones(N), "two": np.ones(2), "zero": np.zeros(N), "V": np.ones((N, 2)), **w}
    with pytest.raises(UnsupportedError, match=text):
        read(tmp_path / "m.onnx", nodes, domains=("my.domain",), **constants)


def test_two_values_that_go_round_together_are_both_states(w, tmp_path):
    """Neither reads its own past, and yet both have a memory."""
    nodes = [node("MatMul", "k W", "z"), node("Tanh", "z", "next"), node("MatMul", "h W", "k_next")]
    subject = read(tmp_path / "m.onnx", nodes, extra=("k",), **w)
    assert subject.system.states == 2 * N
    np.testing.assert_array_equal(subject.system.C, np.hstack([np.zeros((N, N)), w["W"].T]))
    np.testing.assert_array_equal(subject.system.A[N:, :N], w["W"].T)
    assert np.count_nonzero(subject.system.A) == N * N


def test_three_values_that_go_round_are_three_states(w, tmp_path):
    """Each is cut out of the state where it belongs, to be run beside the system."""
    nodes = [
        node("MatMul", "k W", "z"),
        node("Tanh", "z", "next"),
        node("Mul", "m half", "k_next"),
        node("MatMul", "h W", "m_next"),
    ]
    subject = read(tmp_path / "m.onnx", nodes, extra=("k", "m"), half=np.float64(0.5), **w)
    assert subject.system.states == 3 * N
    np.testing.assert_array_equal(subject.system.C, np.hstack([np.zeros((N, N)), w["W"].T, np.zeros((N, N))]))
    np.testing.assert_array_equal(subject.system.A[N : 2 * N, 2 * N :], np.eye(N) / 2)
    np.testing.assert_array_equal(subject.system.A[2 * N :, :N], w["W"].T)


def test_a_memory_that_another_domain_calls_identity_is_not_overlooked(tmp_path):
    nodes = [node("Mul", "h half", "next"), node("Identity", "k", "k_next", domain="my.domain")]
    with pytest.raises(UnsupportedError, match=r"operator my\.domain\.Identity"):
        read(tmp_path / "m.onnx", nodes, extra=("k",), domains=("my.domain",), half=np.float64(0.5))


def test_a_value_that_is_handed_through_is_no_state(w, tmp_path):
    """By any number of identities."""
    nodes = [node("Mul", "h half", "next"), node("Identity", "k", "k1"), node("Identity", "k1", "k_next")]
    subject = read(tmp_path / "m.onnx", nodes, extra=("k",), half=np.float64(0.5))
    np.testing.assert_array_equal(subject.system.A, np.eye(N) / 2)


def test_a_delayed_value_that_is_read_is_a_state_and_one_that_is_not_is_none(w, tmp_path):
    inputs = [node("MatMul", "x U", "k_next")]
    used = read(
        tmp_path / "m.onnx",
        [*inputs, node("Add", "h k", "s"), node("Mul", "s half", "next")],
        extra=("k",),
        half=np.float64(0.5),
        **w,
    )
    np.testing.assert_array_equal(used.system.A, np.block([[np.eye(N) / 2, np.eye(N) / 2], [np.zeros((N, 2 * N))]]))
    np.testing.assert_array_equal(used.F, np.vstack([np.zeros((N, P)), w["U"].T]))
    unused = read(
        tmp_path / "m.onnx", [*inputs, node("Mul", "h half", "next")], extra=("k",), half=np.float64(0.5), **w
    )
    np.testing.assert_array_equal(unused.system.A, np.eye(N) / 2)


def test_a_memory_inside_an_inner_graph_is_not_overlooked(w, tmp_path):
    """The second value reads its past in a branch only; dropped, the first alone would be certified."""
    branch = helper.make_graph([node("Identity", "k", "out")], "branch", [], [info("out", [1, N])])
    nodes = [
        node("Mul", "h half", "next"),
        helper.make_node("If", ["yes"], ["k_next"], then_branch=branch, else_branch=branch),
    ]
    with pytest.raises(UnsupportedError, match="operator If"):
        read(tmp_path / "m.onnx", nodes, extra=("k",), half=np.float64(0.5), yes=np.bool_(True), **w)


def test_a_column_added_to_a_row_is_no_vector(w, tmp_path):
    nodes = [node("Add", "h column", "wide"), node("Tanh", "wide", "next")]
    with pytest.raises(DisagreementError, match="shapes"):
        read(tmp_path / "m.onnx", nodes, column=np.ones((N, 1)))


@pytest.mark.parametrize("field", ["A", "E", "F", "b", "offset", "C", "D"])
def test_a_misread_number_is_noticed(field, w, tmp_path, monkeypatch):
    """Each array of what was read, moved by a thousandth in one place, against the reference evaluator."""
    honest = ChannelMap.of

    def misread(*followed):
        read = honest(*followed)
        system, kinds = read.system, read.kinds
        arrays = {name: getattr(system, name) for name in "ABCD"} | {
            n: getattr(read, n) for n in ("E", "F", "b", "offset")
        }
        moved = np.array(arrays[field])
        moved[(-1, 0) if moved.ndim == 2 else 0] += 1e-3
        arrays[field] = moved
        system = LureSystem(arrays["A"], arrays["B"], arrays["C"], arrays["D"], (system.alpha, system.beta), 1.0)
        return ChannelMap(system, kinds, arrays["E"], arrays["F"], arrays["b"], arrays["offset"])

    monkeypatch.setattr(ChannelMap, "of", misread)
    nodes = [*PLAIN, node("Tanh", "z", "t"), node("Sigmoid", "t", "u"), node("Sum", "t u h xu b", "next")]
    with pytest.raises(DisagreementError, match=r"Scan node scan does not compute.*What is read from the graph is not"):
        read(tmp_path / "m.onnx", nodes, **w)


def test_attributes_that_are_missing(w, tmp_path):
    path = scan(tmp_path / "m.onnx", [*PLAIN, node("Tanh", "z", "next")], **w)
    for gone in ("body", "num_scan_inputs"):
        model = onnx.load(str(path))
        kept = [a for a in model.graph.node[0].attribute if a.name != gone]
        del model.graph.node[0].attribute[:]
        model.graph.node[0].attribute.extend(kept)
        (tmp_path / "n.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(FileFormatError, match="has no body, or does not say"):
            load_subject(tmp_path / "n.onnx")
    for count in (0, 2, 9):
        model = onnx.load(str(path))
        next(a for a in model.graph.node[0].attribute if a.name == "num_scan_inputs").i = count
        (tmp_path / "n.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(StabilityError):
            load_subject(tmp_path / "n.onnx")


@pytest.mark.parametrize("wide", [10**6, 2**40, 6145])
def test_an_absurd_width_costs_nothing(wide, tmp_path):
    with pytest.raises(UnsupportedError, match=r"have \d+ entries, at most 6144"):
        read(tmp_path / "m.onnx", [node("Mul", "h half", "next")], shape=(1, wide), half=np.float64(0.5))


def test_what_a_loop_may_hold_is_counted_to_the_last_entry(w, tmp_path, monkeypatch):
    """``next = tanh(h W) / 2``: the symbols h, x and w, two constants, a product of matrices and one of numbers."""
    nodes = [node("MatMul", "h W", "z"), node("Tanh", "z", "t"), node("Mul", "t half", "next")]
    entries = N * N + P * P + N * N + 1 + N * N + 2 * N * N + N * N
    for room, good in ((entries, True), (entries - 1, False)):
        monkeypatch.setattr(onnx_algebra, "LOOP_ENTRIES", room)
        if good:
            assert read(tmp_path / "m.onnx", nodes, half=np.float64(0.5), **w).inputs == P
        else:
            with pytest.raises(UnsupportedError, match=f"matrices of {entries} entries, at most {room} are followed"):
                read(tmp_path / "m.onnx", nodes, half=np.float64(0.5), **w)


def test_a_body_of_thousands_of_nodes_is_followed_without_recursion(tmp_path):
    chain = [node("Neg", "h" if k == 0 else f"t{k - 1}", f"t{k}") for k in range(3000)]
    system = read(tmp_path / "m.onnx", [*chain, node("Mul", "t2999 half", "next")], half=np.float64(0.5)).system
    assert np.array_equal(system.A, 0.5 * np.eye(3))  # an even number of signs


def test_depth_and_circles_are_one_line(w, tmp_path):
    chain = [node("Tanh", "h" if k == 0 else f"t{k - 1}", f"t{k}") for k in range(3000)]
    with pytest.raises(UnsupportedError, match=r"have \d+ entries, at most 6144"):
        read(tmp_path / "m.onnx", [*chain, node("Identity", "t2999", "next")])
    chain = [node("Neg", "h" if k == 0 else f"t{k - 1}", f"t{k}") for k in range(5000)]
    with pytest.raises(FileFormatError, match="at most 4096 nodes"):
        read(tmp_path / "m.onnx", [*chain, node("Identity", "t4999", "next")])
    circle = [node("Add", "h b2", "b1"), node("Add", "h b1", "b2"), node("Add", "h b1", "next")]
    with pytest.raises(FileFormatError, match="in a circle"):
        read(tmp_path / "m.onnx", circle)


def test_several_loops_are_parts(w, tmp_path):
    path = scan(tmp_path / "m.onnx", [*PLAIN, node("Tanh", "z", "next")], **w)
    model = onnx.load(str(path))
    other = model.graph.node.add()
    other.CopyFrom(model.graph.node[0])
    other.output[:] = ["hh", "YY"]
    onnx.save(model, str(path))
    with pytest.raises(StabilityError, match="2 recurrent nodes.*'h1', 'hh'"):
        load_subject(path)
    subject = load_subject(f"{path}#hh").subject
    assert subject.part == "hh of onnx_graph"
    assert onnx_files.name_of(other) == "scan"
