"""Recurrent nodes in the branches of an If, in functions of the file, and with states that a graph takes and gives."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import ConfigurationError, UnsupportedError
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from .graphs import N, P, changed, info, node, save, weights  # noqa: E402

X = info("X", ["T", "B", P])


def branch(*nodes):
    return helper.make_graph(list(nodes), "branch", [], [info(nodes[-1].output[0], None)])


def choice(result, condition, then, otherwise):
    return helper.make_node("If", [condition], [result], then_branch=then, else_branch=otherwise)


def gru(result, recurrent="R"):
    return node("GRU", f"X W {recurrent} B", result, name=result)


def written(path, nodes, rng, inputs=(), **constants):
    held = weights(rng, "GRU") | constants
    flags = [info(name, [], TensorProto.BOOL) for name in ("p", "q") if name not in held]
    return save(path, nodes, [X, *flags, *inputs], "Y", held | {"R2": 2.0 * held["R"], "axis": np.array([1])})


TWO = branch(gru("a")), branch(gru("b"))
OTHERS = branch(gru("a")), branch(gru("b", "R2"))
NESTED = branch(choice("c", "q", *TWO)), branch(gru("d"))
BARE = branch(gru("a")), branch(node("MatMul", "X V", "v"), node("Unsqueeze", "v axis", "b"))


@pytest.mark.parametrize(
    ("branches", "constants", "factor"),
    [
        (TWO, {}, 1.0),
        (NESTED, {}, 1.0),
        (OTHERS, {"p": np.bool_(False)}, 2.0),
        (OTHERS, {"p": np.bool_(True)}, 1.0),
        (BARE, {"p": np.bool_(True)}, 1.0),
        (OTHERS, {}, None),
        (BARE, {}, None),
    ],
)
def test_an_if_is_read_where_both_branches_hold_one_cell_or_the_condition_is_stored(
    branches, constants, factor, tmp_path, rng
) -> None:
    path = written(tmp_path / "m.onnx", [choice("Y", "p", *branches)], rng, V=np.ones((P, N)), **constants)
    if factor is None:
        with pytest.raises(UnsupportedError):
            load_subject(path)
    else:
        plain = load_subject(written(tmp_path / "n.onnx", [gru("Y")], np.random.default_rng(20260101))).subject
        np.testing.assert_allclose(load_subject(path).subject.w_hh, factor * plain.w_hh)


def test_a_node_beside_an_if_that_recurs_is_one_part_of_two(tmp_path, rng) -> None:
    squeeze = node("Squeeze", "Z axis", "flat")
    upper = node("GRU", "flat R R B", "Y", name="upper")
    path = written(tmp_path / "m.onnx", [choice("Z", "p", *TWO), squeeze, upper], rng)
    with pytest.raises(ConfigurationError):
        load_subject(path)
    assert [load_subject(f"{path}#{name}").subject.inputs for name in ("Z", "upper")] == [P, N]


def test_recurrent_nodes_in_a_function_of_the_file_are_refused(tmp_path, rng) -> None:
    def call(model):
        inner = helper.make_function(
            "my.own", "Cell", ["X", "W", "R", "B"], ["Y"], [node("GRU", "X W R B", "Y")], model.opset_import
        )
        model.functions.append(inner)
        model.graph.node[0].CopyFrom(node("Cell", "X W R B", "Y", domain="my.own"))

    path = written(tmp_path / "m.onnx", [gru("Y")], rng)
    with pytest.raises(UnsupportedError):
        load_subject(changed(path, call))


def streaming(path, rng, before, after, start="h0"):
    """A GRU for one step whose state is an input and, as ``h1``, an output."""
    cell = node("GRU", f"X W R B  {start}", "Z last", name="cell")
    nodes = [*before, cell, *after, node("Identity", "Z", "Y")]
    held = weights(rng, "GRU") | {"two": np.float64(2.0), "none": np.array([0]), "axis": np.array([1])}
    ends = {"h1": info("h1", [1, "B", N])}
    return save(path, nodes, [info("X", [1, "B", P]), info("h0", [1, "B", N])], "Y h1", held, declared=ends)


GIVEN = [node("Identity", "last", "h1")]


@pytest.mark.parametrize(
    ("before", "after", "start", "is_read"),
    [
        ([], GIVEN, "h0", True),
        ([node("Squeeze", "h0 none", "s"), node("Unsqueeze", "s none", "t")], GIVEN, "t", True),
        ([], [node("Mul", "last two", "h1")], "h0", False),
        ([], [node("Add", "last h0", "h1")], "h0", False),
        ([node("Mul", "h0 two", "s")], GIVEN, "s", False),
        (
            [node("Tanh", "h0", "s"), node("Concat", "s h0", "t", axis=0), node("Slice", "t none axis none", "u")],
            GIVEN,
            "u",
            False,
        ),
    ],
)
def test_a_state_that_the_graph_changes_between_its_runs_is_refused(
    before, after, start, is_read, tmp_path, rng
) -> None:
    path = streaming(tmp_path / "m.onnx", rng, before, after, start)
    if is_read:
        assert load_subject(path).subject.kind == "gru"
    else:
        with pytest.raises(UnsupportedError):
            load_subject(path)
    assert load_subject(f"{path}#cell").subject.part == "cell of onnx_graph"


KEPT, SWAPPED = node("Concat", "h c", "next", axis=0), node("Concat", "c h", "next", axis=0)
HALVED = [node("Mul", "h half", "less"), node("Concat", "less c", "next", axis=0)]


@pytest.mark.parametrize(("after", "is_read"), [([KEPT], True), ([SWAPPED], False), (HALVED, False)])
@pytest.mark.parametrize("inside", [False, True])
def test_two_states_in_one_value_come_back_as_they_were(after, is_read, inside, tmp_path, rng) -> None:
    taken = [node("Slice", f"state {k} {k + 1} 0", f"{name}0") for k, name in enumerate("hc")]
    nodes = [*taken, node("LSTM", "X W R B  h0 c0", "Y h c", name="cell"), *after]
    if inside:
        inner = [helper.make_graph(nodes, "branch", [], [info("next", None)]) for _ in range(2)]
        nodes = [choice("next", "p", *inner)]
    held = weights(rng, "LSTM") | {"half": np.float64(0.5)} | {str(k): np.array([k]) for k in range(3)}
    inputs = [info("X", [1, "B", P]), info("state", [2, "B", N]), info("p", [], TensorProto.BOOL)]
    path = save(tmp_path / "m.onnx", nodes, inputs, "next", held, declared={"next": info("next", [2, "B", N])})
    if is_read:
        assert load_subject(path).subject.kind == "lstm"
    else:
        with pytest.raises(UnsupportedError):
            load_subject(path)


def test_an_if_whose_state_is_changed_behind_it_is_refused(tmp_path, rng) -> None:
    held, ends = weights(rng, "GRU") | {"half": np.float64(0.5)}, {"next": info("next", [1, "B", N])}
    inner = [
        helper.make_graph([node("GRU", "X W R B  state", "Y h")], "branch", [], [info("h", None)]) for _ in range(2)
    ]
    inputs = [info("X", [1, "B", P]), info("state", [1, "B", N]), info("p", [], TensorProto.BOOL)]
    for after, is_read in ((node("Identity", "last", "next"), True), (node("Mul", "last half", "next"), False)):
        nodes = [choice("last", "p", *inner), after]
        path = save(tmp_path / "m.onnx", nodes, inputs, "next", held, declared=ends)
        if is_read:
            assert load_subject(path).subject.kind == "gru"
        else:
            with pytest.raises(UnsupportedError):
                load_subject(path)


def test_outputs_of_the_upper_layer_are_no_states_of_both(tmp_path, rng) -> None:
    held = weights(rng, "GRU", at="1") | weights(rng, "GRU", p=N, at="2") | {str(k): np.array([k]) for k in range(3)}
    cut = [node("Slice", f"state {k} {k + 1} 0", f"h{k}") for k in range(2)]
    layers = [node("GRU", "X W1 R1 B1  h0", "Y1"), node("Squeeze", "Y1 1", "Z"), node("GRU", "Z W2 R2 B2  h1", "Y2")]
    nodes = [*cut, *layers, node("Squeeze", "Y2 1", "Y")]
    inputs = [info("X", ["T", "B", P]), info("state", [2, "B", N])]
    path = save(tmp_path / "m.onnx", nodes, inputs, "Y", held, declared={"Y": info("Y", ["T", "B", N])})
    assert load_subject(path).subject.levels == 2
