"""What stands between the nodes of a chain, where time and batch lie, and what a node may say of itself."""

from __future__ import annotations

import numpy as np
import pytest

from stability.errors import ConfigurationError, DisagreementError, FileFormatError, StabilityError, UnsupportedError
from stability.models.onnx import parts as onnx_files
from stability.models.sources import load_subject

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def node(op, inputs, outputs, **options):
    return helper.make_node(op, inputs.split(), outputs.split(), **options)


def write(path, nodes, shape, constants):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("X", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info("Y", TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


def chain(path, rng, between, *, layouts=(0, 0), directions=1, shape=("T", "B", 2), **constants):
    """Two GRU nodes of three units, with something between ``Y1`` and ``Z``."""
    way = ("forward", "bidirectional")[directions - 1]
    for k, width in (("1", 2), ("2", 3 * directions)):
        constants |= {
            f"W{k}": rng.normal(size=(directions, 9, width)),
            f"R{k}": rng.normal(size=(directions, 9, 3)),
            f"B{k}": rng.normal(size=(directions, 18)),
        }
    lower = node("GRU", "X W1 R1 B1", "Y1", name="lower", hidden_size=3, direction=way, layout=layouts[0])
    upper = node("GRU", "Z W2 R2 B2", "Y", name="upper", hidden_size=3, direction=way, layout=layouts[1])
    return write(path, [lower, *between, upper], shape, constants)


def between(*steps):
    """Operators one after the other, from ``Y1`` to ``Z``: ``(op, further input, options)``."""
    names = ["Y1", *(f"s{k}" for k in range(len(steps) - 1)), "Z"]
    return [
        node(op, f"{names[k]} {further}", names[k + 1], **options) for k, (op, further, options) in enumerate(steps)
    ]


PLAIN = {
    "time first": (between(("Squeeze", "axes", {})), {"axes": [1]}, {}),
    "batch first": (between(("Squeeze", "axes", {})), {"axes": [2]}, {"layouts": (1, 1)}),
    "both directions": (
        between(("Transpose", "", {"perm": [0, 2, 1, 3]}), ("Reshape", "to", {})),
        {"to": [0, 0, -1]},
        {"directions": 2},
    ),
    "both directions, batch first": (
        between(("Reshape", "to", {})),
        {"to": [0, 0, -1]},
        {"directions": 2, "layouts": (1, 1)},
    ),
    "single precision": (
        between(
            ("Squeeze", "axes", {}), ("Cast", "", {"to": TensorProto.FLOAT}), ("Cast", "", {"to": TensorProto.DOUBLE})
        ),
        {"axes": [1]},
        {},
    ),
    "dropout that is switched off": (between(("Squeeze", "axes", {}), ("Dropout", "", {})), {"axes": [1]}, {}),
    "an axis more and an axis less": (
        between(("Squeeze", "axes", {}), ("Unsqueeze", "axes", {}), ("Squeeze", "axes", {}), ("Identity", "", {})),
        {"axes": [1]},
        {},
    ),
    "steps and samples in one axis and apart again": (
        between(("Squeeze", "axes", {}), ("Flatten", "", {"axis": 2}), ("Reshape", "to", {})),
        {"axes": [1], "to": [3, 2, 3]},
        {"shape": (3, 2, 2)},
    ),
    "a batch of two": (between(("Reshape", "to", {})), {"to": [-1, 2, 3]}, {"shape": ("T", 2, 2)}),
    "three steps": (between(("Reshape", "to", {})), {"to": [3, -1, 3]}, {"shape": (3, "B", 2)}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_outputs_that_are_handed_on_as_they_are_make_a_stack(name, tmp_path, rng):
    nodes, constants, options = PLAIN[name]
    path = chain(tmp_path / "m.onnx", rng, nodes, **options, **{k: np.array(v) for k, v in constants.items()})
    stack = load_subject(path).subject
    assert (stack.levels, stack.directions) == (2, options.get("directions", 1))


OTHER = {
    "directions behind the features": (
        between(("Transpose", "", {"perm": [0, 1, 3, 2]}), ("Reshape", "to", {})),
        {"to": [0, 0, -1]},
        {"directions": 2, "layouts": (1, 1)},
    ),
    "steps and samples in one axis": (between(("Reshape", "to", {})), {"to": [-1, 2, 3]}, {}),
    "one row too many": (between(("Squeeze", "axes", {}), ("Unsqueeze", "first", {})), {"axes": [1], "first": [0]}, {}),
    "time and batch changed": (
        between(("Squeeze", "axes", {}), ("Transpose", "", {"perm": [1, 0, 2]})),
        {"axes": [2]},
        {"layouts": (1, 1)},
    ),
}


def test_a_direction_that_is_not_said_is_forward(tmp_path, rng):
    path = chain(tmp_path / "m.onnx", rng, between(("Squeeze", "axes", {})), axes=np.array([1]))
    for silent in (["lower"], ["lower", "upper"]):
        model = onnx.load(str(path))
        for made in model.graph.node:
            kept = [a for a in made.attribute if made.name not in silent or a.name not in ("direction", "layout")]
            del made.attribute[:]
            made.attribute.extend(kept)
        (tmp_path / "n.onnx").write_bytes(model.SerializeToString())
        assert load_subject(tmp_path / "n.onnx").subject.levels == 2


@pytest.mark.parametrize("name", OTHER)
def test_outputs_that_are_rearranged_make_none(name, tmp_path, rng):
    nodes, constants, options = OTHER[name]
    path = chain(tmp_path / "m.onnx", rng, nodes, **options, **{k: np.array(v) for k, v in constants.items()})
    with pytest.raises(DisagreementError, match="between the nodes lower and upper the outputs are not handed on"):
        load_subject(path)


@pytest.mark.parametrize("layouts", [(0, 1), (1, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_node_that_takes_the_batch_for_the_time_makes_no_stack(layouts, turned, tmp_path, rng):
    """The upper node would run over the samples: what it computes is not the stack."""
    nodes = between(("Squeeze", "axes", {}), *[("Transpose", "", {"perm": [1, 0, 2]})] * turned)
    path = chain(tmp_path / "m.onnx", rng, nodes, layouts=layouts, axes=np.array([1 + layouts[0]]))
    with pytest.raises(UnsupportedError, match="mixes nodes that read the time first and nodes that read the batch"):
        load_subject(path)
    assert load_subject(f"{path}#upper").subject.kind == "gru"


SAID = {
    "RNN": {"activations": ["Tanh"], "direction": "reverse", "hidden_size": 3, "layout": 1, "output_sequence": 1},
    "GRU": {"activations": ["Sigmoid", "Tanh"], "linear_before_reset": 1, "layout": 1, "output_sequence": 0},
    "LSTM": {"activations": ["Sigmoid", "Tanh", "Tanh"], "input_forget": 0, "layout": 0},
}


@pytest.mark.parametrize("op", GATES)
def test_what_a_node_may_say_is_read_and_anything_else_is_refused(op, tmp_path, rng):
    rows = GATES[op] * 3
    w = {"W": rng.normal(size=(1, rows, 2)), "R": rng.normal(size=(1, rows, 3))}
    for options in ({}, *({name: value} for name, value in SAID[op].items())):
        path = write(tmp_path / "m.onnx", [node(op, "X W R", "Y", name="cell", **options)], ("T", 1, 2), w)
        source = load_subject(path)
        assert (source.subject.inputs, source.subject.name) == (2, f"ONNX {op}")
        assert (source.info["part"], source.info["nodes"]) == ("cell", op)
    for name in ("outputsequence", "LAYOUT", "Hidden_size", "activation_beta", "XXdirectionXX"):
        path = write(tmp_path / "m.onnx", [node(op, "X W R", "Y", name="cell", **{name: 1})], ("T", 1, 2), w)
        with pytest.raises(UnsupportedError, match=f"{op} node cell has the attributes '{name}'"):
            load_subject(path)


def test_something_in_a_circle_or_of_another_domain_makes_no_chain(tmp_path, rng):
    circle = [node("Identity", "a", "Z"), node("Identity", "Z", "a")]
    other = [node("Squeeze", "Y1 axes", "Z", domain="my.own")]
    with pytest.raises(FileFormatError, match="in a circle"):
        load_subject(chain(tmp_path / "m.onnx", rng, circle, axes=np.array([1])))
    with pytest.raises(ConfigurationError, match="2 recurrent nodes that form no plain chain"):
        load_subject(chain(tmp_path / "m.onnx", rng, other, axes=np.array([1])))


def test_hundreds_of_shapes_in_between_are_followed(tmp_path, rng):
    nodes = between(("Squeeze", "axes", {}), *[("Identity", "", {})] * 300)
    assert load_subject(chain(tmp_path / "m.onnx", rng, nodes, axes=np.array([1]))).subject.levels == 2


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_both_names_of_the_standard_mean_the_standard(domain, tmp_path, rng):
    w = {"V": rng.normal(size=(9, 2, 1)), "R": rng.normal(size=(1, 9, 3))}
    nodes = [
        node("Transpose", "V", "W", perm=[2, 0, 1]),
        node("GRU", "X W R", "Y", name="cell", domain=domain),
    ]
    subject = load_subject(write(tmp_path / "m.onnx", nodes, ("T", 1, 2), w)).subject
    np.testing.assert_array_equal(subject.w_ih, w["V"][[*range(3, 6), *range(3), *range(6, 9)], :, 0])


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_file_that_says_itself_what_an_operator_of_the_standard_does_is_refused(domain, tmp_path, rng):
    """The runtime would take the body that the file gives; here the operator would be read by its name."""
    w = {"W": rng.normal(size=(1, 9, 2)), "R": rng.normal(size=(1, 9, 3))}
    path = write(tmp_path / "m.onnx", [node("GRU", "X W R", "Y", name="cell")], ("T", 1, 2), w)
    model = onnx.load(str(path))
    standard = [helper.make_opsetid("", 17)]
    for name, home in (("Helper", "my.own"), ("GRU", domain)):
        body = [node("Neg", "X", "Y")]
        model.functions.append(helper.make_function(home, name, ["X", "W", "R"], ["Y"], body, standard))
        path.write_bytes(model.SerializeToString())
        if name == "Helper":
            assert load_subject(path).subject.kind == "gru"
        else:
            with pytest.raises(FileFormatError, match=r"m\.onnx defines the standard operator 'GRU' itself"):
                load_subject(path)


def test_the_file_is_named_where_it_holds_nothing_recurrent_or_too_much(tmp_path, rng):
    path = write(tmp_path / "m.onnx", [node("Tanh", "X", "Y")], ("T", 1, 2), {})
    with pytest.raises(FileFormatError, match=r"m\.onnx has no RNN, LSTM, GRU, Scan or Loop node"):
        load_subject(path)
    path = chain(tmp_path / "m.onnx", rng, [node("Relu", "Y1", "Z")])
    with pytest.raises(ConfigurationError, match=r"m\.onnx has 2 recurrent nodes"):
        load_subject(path)
    path = chain(tmp_path / "m.onnx", rng, between(("Squeeze", "axes", {})), layouts=(0, 1), axes=np.array([1]))
    with pytest.raises(UnsupportedError, match=r"m\.onnx mixes nodes that read"):
        load_subject(path)


@pytest.mark.parametrize("gap", [{"R": None}, {"W": None}])
def test_a_node_without_its_weights_is_refused(gap, tmp_path, rng):
    w = {"W": rng.normal(size=(1, 9, 2)), "R": rng.normal(size=(1, 9, 3))}
    names = ["" if name in gap else name for name in ("X", "W", "R")]
    path = write(tmp_path / "m.onnx", [helper.make_node("GRU", names, ["Y"], name="cell")], ("T", 1, 2), w)
    with pytest.raises(FileFormatError, match="GRU node cell: W and R must be stored arrays with three axes"):
        load_subject(path)


@pytest.mark.parametrize("op", GATES)
def test_weights_of_single_precision_are_added_in_double(op, tmp_path, rng):
    rows = GATES[op] * 3
    w = {"W": (1, rows, 2), "R": (1, rows, 3), "B": (1, 2 * rows)}
    w = {name: rng.normal(size=shape).astype(np.float32) for name, shape in w.items()}
    subject = load_subject(write(tmp_path / "m.onnx", [node(op, "X W R B", "Y", name="cell")], ("T", 1, 2), w)).subject
    given = w["B"][0].astype(np.float64)
    if op == "RNN":
        np.testing.assert_array_equal(subject.b, given[:3] + given[3:])
        np.testing.assert_array_equal(subject.system.C, w["R"][0])
    else:
        np.testing.assert_array_equal(np.sort([*subject.b_ih, *subject.b_hh]), np.sort(given))
        np.testing.assert_array_equal(np.sort(subject.w_hh, axis=0), np.sort(w["R"][0].astype(np.float64), axis=0))


@pytest.mark.parametrize("op", GATES)
def test_a_single_unit_is_a_cell(op, tmp_path, rng):
    w = {"W": rng.normal(size=(1, GATES[op], 2)), "R": rng.normal(size=(1, GATES[op], 1))}
    subject = load_subject(write(tmp_path / "m.onnx", [node(op, "X W R", "Y", name="cell")], ("T", 1, 2), w)).subject
    assert getattr(subject, "hidden", 1) == 1


def test_a_shape_that_is_computed_from_the_outputs_is_run_and_one_in_a_circle_is_not(tmp_path, rng):
    """What exporters write where steps and samples are not known."""
    nodes = [
        node("Shape", "Y1", "shape"),
        node("Gather", "shape first", "outer", axis=0),
        node("Concat", "outer rest", "to", axis=0),
        node("Reshape", "Y1 to", "Z"),
    ]
    constants = {"first": np.array([0, 2]), "rest": np.array([-1])}
    assert load_subject(chain(tmp_path / "m.onnx", rng, nodes, **constants)).subject.levels == 2
    nodes[0], constants["first"] = node("Shape", "X", "shape"), np.array([0, 1])
    assert load_subject(chain(tmp_path / "m.onnx", rng, nodes, **constants)).subject.levels == 2
    circle = [node("Add", "to shape", "a"), node("Neg", "a", "to"), node("Shape", "Y1", "shape")]
    with pytest.raises(StabilityError):
        load_subject(chain(tmp_path / "m.onnx", rng, [*circle, node("Reshape", "Y1 to", "Z")]))


def test_the_limit_of_layers_holds_to_the_last_one(tmp_path, rng, monkeypatch):
    path = chain(tmp_path / "m.onnx", rng, between(("Squeeze", "axes", {})), axes=np.array([1]))
    monkeypatch.setattr(onnx_files, "LAYERS", 2)
    assert load_subject(path).subject.levels == 2
    monkeypatch.setattr(onnx_files, "LAYERS", 1)
    with pytest.raises(FileFormatError, match="at most 1 "):
        load_subject(path)
