"""Files as other tools write them: each is read as the system that it holds, or refused for a reason that helps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import io
from torch import nn

from stability.certification import certify
from stability.errors import FileFormatError, StabilityError, UnsupportedError
from stability.models.adapters.modules import recurrent_subject
from stability.models.readers import matlab
from stability.models.sources import load_module, load_subject

FILES = Path(__file__).resolve().parents[1] / "data" / "files"


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.glob("*.ckpt")))
def test_checkpoints_with_objects_beside_the_tensors_give_their_tensors(name):
    torch.manual_seed(0)
    expected, found = recurrent_subject(nn.GRU(3, 5)), load_subject(FILES / name).subject
    assert np.array_equal(found.w_hh, expected.w_hh)


def test_a_state_dict_in_json_is_read():
    state = json.loads((FILES / "gru.json").read_text())
    found = load_subject(FILES / "gru.json").subject
    assert (found.kind, found.inputs) == ("gru", 1)
    assert np.array_equal(found.w_hh, np.array(state["weight_hh_l0"]))


@pytest.mark.parametrize("wrong", ["[1, 2]", '{"weight_hh_l0": [[1], [2, 3]]}', '{"weight_hh_l0": ["1"]}'])
def test_other_json_is_refused(wrong, tmp_path):
    (tmp_path / "m.json").write_text(wrong)
    with pytest.raises(FileFormatError):
        load_subject(tmp_path / "m.json")


def test_matlab_files_hold_the_matrices_of_an_archive(tmp_path):
    found = load_subject(FILES / "lure.mat").subject
    expected = io.loadmat(FILES / "lure.mat")
    for name in "ABCD":
        assert np.array_equal(getattr(found, name), expected[name])
    given = {"W": 0.1 * np.eye(2), "Win": np.ones((2, 1)), "bias": np.ones((2, 1)), "leak": 0.5, "activation": "relu"}
    io.savemat(tmp_path / "own.mat", given, do_compression=True)
    own = load_subject(tmp_path / "own.mat").subject
    vectors = {"slope": [[0.0, 2.0]], "b": np.ones((1, 2)), "dt": 1.0}
    io.savemat(tmp_path / "net.mat", {"A": 0.1 * np.eye(2), "W": np.eye(2), "U": np.ones((2, 1)), **vectors})
    net = load_subject(tmp_path / "net.mat").subject
    assert (net.system.slope, net.b.tolist(), net.system.dt) == ((0.0, 2.0), [1.0, 1.0], 1.0)
    assert own.activation == "relu"
    assert np.array_equal(own.b, [1.0, 1.0])
    assert np.array_equal(own.system.A, 0.5 * np.eye(2))


@pytest.mark.parametrize("kind", ["structure", "truncated", "large", "7.3"])
def test_other_matlab_files_are_refused(kind, tmp_path, monkeypatch):
    path = tmp_path / "m.mat"
    value = {"structure": {"inside": np.eye(2)}, "large": np.zeros((200, 200))}.get(kind, np.eye(2))
    io.savemat(path, {"A": value}, do_compression=True)
    monkeypatch.setattr(matlab, "_BYTES", 2**16)
    raw = path.read_bytes()
    path.write_bytes({"truncated": raw[:150], "7.3": raw.replace(b"MATLAB 5.0", b"MATLAB 7.3")}.get(kind, raw))
    with pytest.raises(FileFormatError):
        load_subject(path)


@pytest.mark.parametrize("name", ["keras_like.npz", "open_with_wout.npz", "whole.pt"])
def test_what_is_refused_names_the_way(name):
    with pytest.raises(FileFormatError) as caught:
        load_subject(FILES / name)
    way = {"keras_like.npz": "recurrent_kernel.T", "open_with_wout.npz": "W + Win @ Wout", "whole.pt": "state_dict()"}
    assert way[name] in str(caught.value)


def test_the_loop_that_a_reservoir_closes_is_read_as_the_message_says(tmp_path):
    held = dict(np.load(FILES / "open_with_wout.npz"))
    W, Win, Wout = (held.pop(name) for name in ("W", "Win", "Wout"))
    np.savez(tmp_path / "closed.npz", W=W + Win @ Wout, Win=np.zeros_like(Win), **held)
    x = np.linspace(-1, 1, len(W))
    pre = W @ x + Win @ (Wout @ x) + held["bias"]
    found = load_subject(tmp_path / "closed.npz").subject
    np.testing.assert_allclose(found.advance(x, np.zeros(1)), 0.5 * x + 0.5 * np.tanh(pre), rtol=1e-12)


STEPS = ("elman_step", "lstm_step", "gru_state_io", "lstm_state_io", "lstm_in_if", "lstm_layout1", "lstm_plain")


@pytest.mark.parametrize("name", STEPS)
def test_one_small_network_is_certified_however_it_is_exported(name):
    pytest.importorskip("onnx")
    found = load_subject(FILES / f"{name}.onnx")
    subject = found.subject if name == "elman_step" else found.subject.with_inputs(-1.0, 1.0)
    assert certify(subject).verdict == "certified"


def test_lengths_at_which_a_node_stops_are_refused():
    pytest.importorskip("onnx")
    with pytest.raises(UnsupportedError):
        load_subject(FILES / "lstm_lengths.onnx")


def test_a_written_lstm_is_the_node_with_its_weights():
    pytest.importorskip("onnx")
    step, node = (load_subject(FILES / f"{name}.onnx").subject for name in ("lstm_step", "lstm_plain"))
    for name in ("w_ih", "w_hh"):
        assert np.array_equal(getattr(step, name), getattr(node, name))


def test_a_mean_of_the_last_ten_outputs_is_no_mean_of_all():
    pytest.importorskip("onnx")
    assert load_module(FILES / "last_ten.onnx") is None
    assert load_subject(FILES / "last_ten.onnx").subject.inputs == 2


def test_the_states_of_a_step_can_be_named():
    pytest.importorskip("onnx")
    named = load_subject(f"{FILES}/lstm_step.onnx#hp=hn,cp=cn").subject
    assert np.array_equal(named.w_hh, load_subject(FILES / "lstm_step.onnx").subject.w_hh)
    with pytest.raises(StabilityError):
        load_subject(f"{FILES}/lstm_step.onnx#hp=cn,cp=hn")


def changed_step(path, change):
    """The LSTM written out as one step, after a change of its nodes by the name of their output."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FILES / "lstm_step.onnx")
    change({node.output[0]: node for node in model.graph.node}, model.graph, onnx.helper)
    onnx.save(model, path)
    return path


def in_a_loop(nodes, graph, helper):
    states = [graph.input[k] for k in (1, 2)]
    flag, count = (helper.make_tensor_value_info(*given, []) for given in (("go", 9), ("it", 7)))
    again = helper.make_tensor_value_info("again", 9, [])
    inner = [helper.make_node("Gather", ["seq", "it"], ["x"], axis=0), *graph.node]
    inner.append(helper.make_node("Identity", ["go"], ["again"]))
    body = helper.make_graph(inner, "body", [count, flag, *states], [again, *graph.output], list(graph.initializer))
    made = helper.make_node("Loop", ["", "on", "h0", "c0"], ["h", "c"], body=body)
    graph.ClearField("node")
    graph.ClearField("initializer")
    for at, name in ((0, "seq"), (1, "h0"), (2, "c0")):
        graph.input[at].name = name
    graph.input.append(helper.make_tensor_value_info("on", 9, []))
    graph.node.append(made)
    for value, name in zip(graph.output, "hc"):
        value.name = name


def test_the_loop_that_converters_write_for_an_lstm_is_read(tmp_path):
    path = changed_step(tmp_path / "m.onnx", in_a_loop)
    expected = load_subject(FILES / "lstm_plain.onnx").subject
    assert np.array_equal(load_subject(path).subject.w_hh, expected.w_hh)


CHANGES = {
    "the output of an old state": lambda nodes, graph, helper: nodes["tc"].input.__setitem__(0, "fc"),
    "no gate": lambda nodes, graph, helper: nodes["fc"].input.__setitem__(0, "hp"),
    "another activation": lambda nodes, graph, helper: setattr(nodes["o"], "op_type", "Relu"),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_other_gates_are_refused(name, tmp_path):
    with pytest.raises(StabilityError):
        load_subject(changed_step(tmp_path / "m.onnx", CHANGES[name]))


def test_branches_that_recur_differently_are_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(FILES / "lstm_in_if.onnx")
    (node,) = model.graph.node
    held = next(tensor for tensor in model.graph.initializer if tensor.name == "R")
    other = onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(held), "R2")
    model.graph.initializer.append(other)
    node.attribute[1].g.node[0].input[2] = "R2"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError):
        load_subject(tmp_path / "m.onnx")
    chosen = onnx.numpy_helper.from_array(np.array(True), "cond")
    model.graph.initializer.append(chosen)
    del model.graph.input[1]
    onnx.save(model, tmp_path / "m.onnx")
    found, plain = load_subject(tmp_path / "m.onnx").subject, load_subject(FILES / "lstm_plain.onnx").subject
    assert np.array_equal(found.w_hh, 2 * plain.w_hh)
