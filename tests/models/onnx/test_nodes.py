"""RNN, GRU and LSTM nodes: every number of the cells, every refusal, and what stands between the nodes of a chain."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import DisagreementError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.format.serialization import digest_of
from stability.kernel.systems.layer_stack import LayerStack
from stability.models.adapters import weights as described
from stability.models.onnx import parts as onnx_files
from stability.models.onnx import sizes as onnx_sizes
from stability.models.onnx.graph import Graph
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)


def write(path, nodes, shape=("T", 1, 2), opset=17, **constants):
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [info("X", shape)], [info("Y", None)], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), str(path))
    return path


def weights(rng, op, *, m=3, p=2, directions=1, at=""):
    rows = GATES[op] * m
    return {
        f"W{at}": rng.normal(size=(directions, rows, p)),
        f"R{at}": rng.normal(size=(directions, rows, m)),
        f"B{at}": rng.normal(size=(directions, 2 * rows)),
    }


def cell(op, inputs="X W R B", outputs="Y", name="cell", **options):
    return helper.make_node(op, ["" if i == "-" else i for i in inputs.split()], outputs.split(), name=name, **options)


def blocks(array, order):
    return np.concatenate([np.split(array, len(order))[k] for k in order])


ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_gates_in_torchs_order_to_the_last_bit(op, direction, tmp_path, rng):
    directions = 2 if direction == "bidirectional" else 1
    w = weights(rng, op, directions=directions)
    subject = load_subject(write(tmp_path / "m.onnx", [cell(op, hidden_size=3, direction=direction)], **w)).subject
    parts = subject.layers if directions == 2 else (subject,)
    names = [f"ONNX {op} forward", f"ONNX {op} backward"] if directions == 2 else [f"ONNX {op}"]
    assert [part.name for part in parts] == names
    if directions == 2:
        assert (subject.levels, subject.directions, subject.name) == (1, 2, f"ONNX {op}")
    for k, part in enumerate(parts):
        rows = GATES[op] * 3
        np.testing.assert_array_equal(part.w_ih, blocks(w["W"][k], ORDER[op]))
        np.testing.assert_array_equal(part.w_hh, blocks(w["R"][k], ORDER[op]))
        np.testing.assert_array_equal(part.b_ih, blocks(w["B"][k, :rows], ORDER[op]))
        np.testing.assert_array_equal(part.b_hh, blocks(w["B"][k, rows:], ORDER[op]))
        assert part.kind == op.lower()
        assert part.reset_after is (op == "LSTM")
    assert subject.part == ""


@pytest.mark.parametrize("after", [0, 1])
def test_where_the_reset_gate_acts(after, tmp_path, rng):
    node = cell("GRU", hidden_size=3, linear_before_reset=after)
    subject = load_subject(write(tmp_path / "m.onnx", [node], **weights(rng, "GRU"))).subject
    assert subject.reset_after is bool(after)


def test_activations_of_each_direction_of_an_rnn(tmp_path, rng):
    w = weights(rng, "RNN", directions=2)
    node = cell("RNN", hidden_size=3, direction="bidirectional", activations=["Relu", "Sigmoid"])
    forward, backward = load_subject(write(tmp_path / "m.onnx", [node], **w)).subject.layers
    assert (forward.activation, backward.activation) == ("relu", "sigmoid")
    np.testing.assert_array_equal(forward.system.C, w["R"][0])
    np.testing.assert_array_equal(backward.system.C, w["R"][1])
    np.testing.assert_array_equal(backward.E, w["W"][1])
    np.testing.assert_array_equal(backward.b, w["B"][1, :3] + w["B"][1, 3:])


def test_without_a_bias(tmp_path, rng):
    w = weights(rng, "LSTM")
    subject = load_subject(
        write(tmp_path / "m.onnx", [cell("LSTM", "X W R", hidden_size=3)], W=w["W"], R=w["R"])
    ).subject
    assert not subject.b_ih.any()
    assert not subject.b_hh.any()


@pytest.mark.parametrize(
    ("op", "options", "error", "text"),
    [
        ("RNN", {"clip": 0.0}, UnsupportedError, "clips"),
        ("GRU", {"clip": 5.0}, UnsupportedError, "clips"),
        ("LSTM", {"input_forget": 1}, UnsupportedError, "couples"),
        ("LSTM", {"linear_before_reset": 1}, UnsupportedError, "attributes 'linear_before_reset'"),
        ("RNN", {"steepness": 2.0}, UnsupportedError, "attributes 'steepness'"),
        ("RNN", {"activation_alpha": [2.0]}, UnsupportedError, "attributes 'activation_alpha'"),
        ("RNN", {"activations": ["Elu"]}, UnsupportedError, "activation elu; known"),
        ("RNN", {"activations": ["Tanh", "Tanh"]}, FileFormatError, "2 activations, 1 a direction"),
        ("GRU", {"activations": ["Sigmoid"]}, FileFormatError, "1 activations, 2 a direction"),
        ("GRU", {"activations": ["Tanh", "Tanh"]}, UnsupportedError, "'tanh', 'tanh', not sigmoid, tanh"),
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Relu"]}, UnsupportedError, "'relu'"),
        ("GRU", {"direction": "sideways"}, FileFormatError, "direction 'sideways'"),
        ("GRU", {"direction": "bidirectional"}, FileFormatError, "do not fit together"),
        ("GRU", {"hidden_size": 4}, FileFormatError, "do not fit together"),
    ],
)
def test_what_is_another_cell_is_refused(op, options, error, text, tmp_path, rng):
    node = cell(op, **{"hidden_size": 3, **options})
    with pytest.raises(error, match=text):
        load_subject(write(tmp_path / "m.onnx", [node], **weights(rng, op)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"W": np.ones((1, 9))}, "three axes"),
        ({"R": np.ones((9, 3))}, "three axes"),
        ({"W": np.ones((1, 8, 2))}, "do not fit"),
        ({"R": np.ones((1, 9, 4))}, "do not fit"),
        ({"R": np.ones((1, 0, 0)), "W": np.ones((1, 0, 2))}, "do not fit"),
        ({"B": np.ones((1, 17))}, "do not fit"),
        ({"B": np.ones((2, 18))}, "do not fit"),
    ],
)
def test_weights_of_other_shapes(change, text, tmp_path, rng):
    with pytest.raises(FileFormatError, match=text):
        load_subject(write(tmp_path / "m.onnx", [cell("GRU")], **(weights(rng, "GRU") | change)))


def test_peepholes_of_zero_are_none_and_computed_weights_are_refused(tmp_path, rng):
    w = weights(rng, "LSTM")
    node = cell("LSTM", "X W R B - - - P", hidden_size=3)
    assert load_subject(write(tmp_path / "m.onnx", [node], P=np.zeros((1, 9)), **w)).subject.kind == "lstm"
    with pytest.raises(UnsupportedError, match="peepholes"):
        load_subject(write(tmp_path / "m.onnx", [node], P=np.ones((1, 9)), **w))
    made = helper.make_node("Exp", ["W"], ["V"])
    with pytest.raises(UnsupportedError, match="computed in the graph"):
        load_subject(write(tmp_path / "m.onnx", [made, cell("LSTM", "X V R B", hidden_size=3)], **w))


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_misread_gates_are_noticed_by_their_numbers(op, tmp_path, rng, monkeypatch):
    honest = described.GatedCell

    def misread(kind, w_ih, w_hh, *rest, **options):
        return honest(kind, w_ih, np.roll(w_hh, 3, axis=0), *rest, **options)

    monkeypatch.setattr(described, "GatedCell", misread)
    for direction in ("forward", "reverse"):
        node = cell(op, hidden_size=3, direction=direction)
        with pytest.raises(DisagreementError, match=rf"{op} node cell does not compute.*What is read from the graph"):
            load_subject(write(tmp_path / "m.onnx", [node], **weights(rng, op)))


@pytest.mark.parametrize("after", [0, 1])
def test_a_misread_reset_gate_is_noticed(after, tmp_path, rng, monkeypatch):
    honest = described.GatedCell
    monkeypatch.setattr(
        described, "GatedCell", lambda *a, reset_after, name: honest(*a, reset_after=not reset_after, name=name)
    )
    node = cell("GRU", hidden_size=3, linear_before_reset=after)
    with pytest.raises(DisagreementError):
        load_subject(write(tmp_path / "m.onnx", [node], **weights(rng, "GRU")))


def chain(path, rng, between, *, op="GRU", ways=("forward", "forward"), p2=3, **constants):
    directions = 2 if ways[0] == "bidirectional" else 1
    nodes = [
        cell(op, "X W1 R1 B1", "Y1", "lower", hidden_size=3, direction=ways[0]),
        *between,
        cell(op, "Z W2 R2 B2", "Y", "upper", hidden_size=3, direction=ways[1]),
    ]
    w = weights(rng, op, directions=directions, at="1") | weights(rng, op, p=p2, directions=directions, at="2")
    return write(path, nodes, **w, **constants)


SQUEEZE = [helper.make_node("Squeeze", ["Y1", "axes"], ["Z"])]
SIDE_BY_SIDE = [
    helper.make_node("Transpose", ["Y1"], ["T1"], perm=[0, 2, 1, 3]),
    helper.make_node("Reshape", ["T1", "target"], ["Z"]),
]


def test_a_chain_to_the_last_bit(tmp_path, rng):
    path = chain(tmp_path / "m.onnx", rng, SQUEEZE, axes=np.array([1]))
    source = load_subject(path)
    stack = source.subject
    assert isinstance(stack, LayerStack)
    assert (stack.levels, stack.directions, stack.name) == (2, 1, "ONNX GRU")
    assert source.info["part"] == "lower, upper"
    assert source.info["nodes"] == "chain"
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    for k, layer in enumerate(stack.layers, start=1):
        np.testing.assert_array_equal(layer.w_hh, blocks(stored[f"R{k}"][0], ORDER["GRU"]))
    both = chain(tmp_path / "b.onnx", rng, SIDE_BY_SIDE, ways=("bidirectional",) * 2, p2=6, target=np.array([0, 0, -1]))
    assert (load_subject(both).subject.levels, load_subject(both).subject.directions) == (2, 2)
    back = load_subject(chain(tmp_path / "r.onnx", rng, SQUEEZE, ways=("reverse",) * 2, axes=np.array([1]))).subject
    assert back.directions == 1


def test_what_mixes_directions_is_no_stack(tmp_path, rng):
    with pytest.raises(UnsupportedError, match="mixes nodes of the directions forward, reverse"):
        load_subject(chain(tmp_path / "m.onnx", rng, SQUEEZE, ways=("forward", "reverse"), axes=np.array([1])))


@pytest.mark.parametrize(
    ("between", "options", "constants"),
    [
        (
            [helper.make_node("Reshape", ["Y1", "target"], ["Z"])],
            {"ways": ("bidirectional",) * 2, "p2": 6},
            {"target": [0, -1, 6]},
        ),
        (
            [
                helper.make_node("Transpose", ["Y1"], ["T1"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", ["T1", "target"], ["Z"]),
            ],
            {"ways": ("bidirectional",) * 2, "p2": 6},
            {"target": [0, 0, -1]},
        ),
        (
            [
                helper.make_node("Squeeze", ["Y1", "axes"], ["S1"]),
                helper.make_node("Transpose", ["S1"], ["Z"], perm=[1, 0, 2]),
            ],
            {},
            {"axes": [1]},
        ),
    ],
)
def test_features_in_another_order_are_no_stack(between, options, constants, tmp_path, rng):
    arrays = {k: np.array(v) for k, v in constants.items()}
    path = chain(tmp_path / "m.onnx", rng, between, shape=("T", "B", 2), **options, **arrays)
    with pytest.raises(DisagreementError, match="between the nodes lower and upper the outputs are not handed on"):
        load_subject(path)


@pytest.mark.parametrize("to", ["INT64", "FLOAT16"])
def test_a_cast_between_nodes_is_refused(to, tmp_path, rng):
    between = [
        helper.make_node("Squeeze", ["Y1", "axes"], ["S1"]),
        helper.make_node("Cast", ["S1"], ["C1"], to=getattr(TensorProto, to)),
        helper.make_node("Cast", ["C1"], ["Z"], to=TensorProto.DOUBLE),
    ]
    with pytest.raises(UnsupportedError, match=f"between the nodes lower and upper: a Cast to {to}"):
        load_subject(chain(tmp_path / "m.onnx", rng, between, axes=np.array([1])))


def test_a_cast_between_nodes_is_noticed_by_its_numbers(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(onnx_files, "refuse_rounding", lambda *_: None)
    between = [
        helper.make_node("Squeeze", ["Y1", "axes"], ["S1"]),
        helper.make_node("Cast", ["S1"], ["C1"], to=TensorProto.INT64),
        helper.make_node("Cast", ["C1"], ["Z"], to=TensorProto.DOUBLE),
    ]
    with pytest.raises(DisagreementError, match="not handed on"):
        load_subject(chain(tmp_path / "m.onnx", rng, between, axes=np.array([1])))


def test_something_between_the_nodes_is_no_chain_and_parts_are_named(tmp_path, rng):
    between = [helper.make_node("Squeeze", ["Y1", "axes"], ["S1"]), helper.make_node("Relu", ["S1"], ["Z"])]
    path = chain(tmp_path / "m.onnx", rng, between, axes=np.array([1]))
    with pytest.raises(
        StabilityError, match="2 recurrent nodes that form no plain chain: name one of 'lower', 'upper'"
    ):
        load_subject(path)
    assert load_subject(f"{path}#upper").subject.part == "upper of onnx_graph"
    with pytest.raises(StabilityError, match="no recurrent node 'middle'; it has 'lower', 'upper'"):
        load_subject(f"{path}#middle")


def test_nodes_of_another_domain_are_not_those_of_the_standard(tmp_path, rng):
    with pytest.raises(FileFormatError, match="no RNN, LSTM, GRU"):
        load_subject(write(tmp_path / "m.onnx", [cell("GRU", domain="my.own", hidden_size=3)], **weights(rng, "GRU")))


def make_graph(nodes, **constants):
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    return Graph(helper.make_graph(nodes, "g", [info("X", [2, None])], [], stored), None, [helper.make_opsetid("", 17)])


def test_folding_constants():
    graph = make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Transpose", ["c"], ["d"]),
            helper.make_node("Add", ["c", "X"], ["e"]),
            helper.make_node("Tanh", ["a"], ["f"]),
            helper.make_node("Neg", ["a"], ["g"], domain="my.own"),
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.float64(2.5))),
        ],
        a=np.ones((2, 3)),
        b=np.arange(3.0),
    )
    np.testing.assert_array_equal(graph.constant("d"), (np.ones((2, 3)) + np.arange(3.0)).T)
    assert graph.constant("k") == 2.5
    assert [graph.constant(name) for name in ("e", "f", "g", "X", "absent")] == [None] * 5
    assert graph.sizes("X", (7, 8)) == (2, 8)
    assert graph.sizes("X", (7, 8, 9)) == (7, 8, 9)
    assert graph.sizes("absent", (7,)) == (7,)
    inner = Graph(helper.make_graph([], "inner", [], []), graph)
    np.testing.assert_array_equal(inner.constant("c"), graph.constant("c"))
    assert inner.opsets == graph.opsets


def test_running_a_piece():
    graph = make_graph(
        [
            helper.make_node("Mul", ["X", "a"], ["y"]),
            helper.make_node("Tanh", ["y"], ["z"]),
            helper.make_node("Add", ["z", "q"], ["v"]),
        ],
        a=np.array([2.0, 3.0]),
    )
    (z,) = graph.run(["z"], {"X": np.array([[0.1, 0.2]])})
    np.testing.assert_allclose(z, np.tanh([[0.2, 0.6]]), atol=1e-15)
    (z,) = graph.run(["z"], {"y": np.array([[0.5, 0.5]])})
    np.testing.assert_allclose(z, np.tanh([[0.5, 0.5]]), atol=1e-15)
    with pytest.raises(UnsupportedError, match="the value X comes from outside"):
        graph.run(["z"], {})
    with pytest.raises(UnsupportedError, match="the value q comes from outside"):
        graph.run(["v"], {"X": np.ones((1, 2))})
    with pytest.raises(UnsupportedError, match="reference evaluator cannot run it"):
        graph.run(["z"], {"X": np.ones((1, 5))})


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([helper.make_node("ConstantOfShape", ["n"], ["c"])], {"n": [1, 60000, 60000]}),
        ([helper.make_node("Expand", ["one", "n"], ["c"])], {"n": [60000, 60000], "one": [1.0]}),
        ([helper.make_node("Add", ["tall", "wide"], ["c"])], {"tall": np.ones((9000, 1)), "wide": np.ones((1, 9000))}),
        (
            [helper.make_node("Concat", [f"c{k}"] * 2 if k else ["one"] * 2, [f"c{k + 1}"], axis=0) for k in range(41)]
            + [helper.make_node("Identity", ["c41"], ["c"])],
            {"one": np.ones(2)},
        ),
    ],
)
def test_constants_that_unfold_are_refused_before_they_do(nodes, constants, monkeypatch):
    monkeypatch.setattr(onnx_sizes, "UNFOLDED", 2**12)
    graph = make_graph(nodes, **{k: np.asarray(v) for k, v in constants.items()})
    with pytest.raises(FileFormatError, match=r"unfolds to \d+ entries; of constants a graph may have 4096"):
        graph.constant("c")


def test_constants_up_to_the_limit_are_read(monkeypatch):
    monkeypatch.setattr(onnx_sizes, "UNFOLDED", 64)
    for n, good in ((8, True), (9, False)):
        graph = make_graph([helper.make_node("ConstantOfShape", ["n"], ["c"])], n=np.array([n, 8]))
        if good:
            assert graph.constant("c").shape == (8, 8)
        else:
            with pytest.raises(FileFormatError):
                graph.constant("c")


def test_a_chain_of_thousands_is_followed_without_recursion(tmp_path, rng):
    nodes = [helper.make_node("Identity", ["W" if k == 0 else f"i{k - 1}"], [f"i{k}"]) for k in range(3000)]
    stored = weights(rng, "GRU")
    far = write(tmp_path / "far.onnx", [*nodes, cell("GRU", "X i2999 R B", hidden_size=3)], **stored)
    near = write(tmp_path / "near.onnx", [cell("GRU", "X W R B", hidden_size=3)], **stored)
    assert digest_of(load_subject(far).subject) == digest_of(load_subject(near).subject)
