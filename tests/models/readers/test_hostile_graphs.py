"""ONNX graphs that mean harm: refused in one line, in bounded memory and time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stability.errors import FileFormatError
from stability.models.onnx import wire

from .hostile import Cases, Maker, is_refused

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

CASES = Cases()


def graph(path: Path, nodes: list[Any], **constants: Any) -> Path:
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [5, 1, 2])]
    outputs = [helper.make_empty_tensor_value_info("Y")]
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, stored), opset_imports=[
        helper.make_opsetid("", 17)
    ])  # fmt: skip
    path.write_bytes(made.SerializeToString())
    return path


def gru(weight: str = "W") -> Any:
    return helper.make_node("GRU", ["X", weight, "R"], ["Y"], hidden_size=3)


def gru_weights() -> dict[str, Any]:
    return {"W": np.full((1, 9, 2), 0.1, np.float32), "R": np.full((1, 9, 3), 0.1, np.float32)}


def bombs() -> dict[str, tuple[list[Any], dict[str, Any]]]:
    node = helper.make_node
    doubling = [node("Concat", [f"c{k}", f"c{k}"], [f"c{k + 1}"], axis=0) for k in range(41)]
    outer = [node("Unsqueeze", ["line", "axis"], ["tall"]), node("Mul", ["tall", "line"], ["big"])]
    gather = [node("Gather", ["square", "many"], ["big"], axis=0)]
    return {
        "concat": (doubling, {"c0": np.ones((1, 9, 2), np.float32)}),
        "shape": ([node("ConstantOfShape", ["n"], ["c41"])], {"n": np.array([1, 60000, 60000])}),
        "expand": ([node("Expand", ["one", "n"], ["c41"])], {"one": np.float32(1), "n": np.array([2**20, 2**20])}),
        "outer": ([*outer, node("Identity", ["big"], ["c41"])], {
            "line": np.ones(2**15, np.float32), "axis": np.array([1])
        }),
        "gather": ([*gather, node("Identity", ["big"], ["c41"])], {
            "square": np.ones((2, 2**14), np.float32), "many": np.zeros(2**16, np.int64)
        }),
        "tile": ([node("Tile", ["one", "n"], ["c41"])], {"one": np.ones(1, np.float32), "n": np.array([2**40])}),
        "range": ([node("Range", ["zero", "far", "step"], ["c41"])], {
            "zero": np.float32(0), "far": np.float32(2**40), "step": np.float32(1)
        }),
        "split": ([node("Split", ["one"], ["c41"], num_outputs=2**40)], {"one": np.ones(4, np.float32)}),
        "cast": ([node("Cast", ["one"], ["c41"], to=TensorProto.STRING)], {"one": np.ones(2**20, np.float32)}),
    }  # fmt: skip


for _name, (_nodes, _constants) in bombs().items():

    def _bomb(folder: Path, nodes: Any = _nodes, constants: Any = _constants) -> Path:
        return graph(folder / "m.onnx", [*nodes, gru("c41")], **constants, R=gru_weights()["R"])

    _bomb.__name__ = f"onnx_{_name}"
    CASES.case(_bomb)


def scan(path: Path, nodes: list[Any], shape: Any = (1, 3), **options: Any) -> Path:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("h", "x")]
    body = helper.make_graph(nodes, "body", values, [helper.make_empty_tensor_value_info(n) for n in ("hn", "y")])
    made = helper.make_node("Scan", ["h0", "X"], ["hh", "Y"], body=body, **{"num_scan_inputs": 1, **options})
    return graph(path, [made], h0=np.zeros((1, 3), np.float32))


@CASES.case
def onnx_scan_of_2_to_40(folder: Path) -> Path:
    return scan(
        folder / "m.onnx", [helper.make_node("Tanh", ["h"], ["hn"]), helper.make_node("Tanh", ["h"], ["y"])], (1, 2**40)
    )


@CASES.slow
def onnx_scan_of_three_thousand_wide_tanh(folder: Path) -> Path:
    nodes = [helper.make_node("Tanh", [f"t{k}" if k else "h"], [f"t{k + 1}"]) for k in range(3000)]
    nodes += [helper.make_node("Identity", ["t3000"], ["hn"]), helper.make_node("Identity", ["h"], ["y"])]
    return scan(folder / "m.onnx", nodes, (1, 4000))


@CASES.case
def onnx_scan_in_a_circle(folder: Path) -> Path:
    nodes = [helper.make_node("Identity", ["b"], ["a"]), helper.make_node("Identity", ["a"], ["b"])]
    return scan(folder / "m.onnx", [*nodes, helper.make_node("Identity", ["a"], ["hn"])])


@CASES.case
def onnx_scan_without_body(folder: Path) -> Path:
    return graph(folder / "m.onnx", [helper.make_node("Scan", ["X"], ["Y"], num_scan_inputs=1)])


@CASES.case
def onnx_scan_that_reads_text(folder: Path) -> Path:
    return scan(folder / "m.onnx", [helper.make_node("Tanh", ["h"], ["hn"])], num_scan_inputs="many")


@CASES.case
def onnx_scan_that_runs_tile(folder: Path) -> Path:
    """Make a scan with a part that the state does not depend on, but that must be run: the sizes of a reshape."""
    nodes = [
        helper.make_node("Tile", ["x", "n"], ["huge"]), helper.make_node("Reshape", ["h", "huge"], ["same"]),
        helper.make_node("Tanh", ["same"], ["hn"]), helper.make_node("Identity", ["h"], ["y"]),
        helper.make_node("Constant", [], ["n"], value_ints=[1, 2**38]),
    ]  # fmt: skip
    return scan(folder / "m.onnx", nodes)


@CASES.case
def onnx_value_made_twice(folder: Path) -> Path:
    again = helper.make_node("Identity", ["X"], ["W"])
    return graph(folder / "m.onnx", [again, gru()], **gru_weights())


@CASES.case
def onnx_attribute_twice(folder: Path) -> Path:
    node = gru()
    node.attribute.append(helper.make_attribute("hidden_size", 4))
    return graph(folder / "m.onnx", [node], **gru_weights())


@CASES.case
def onnx_attribute_of_another_type(folder: Path) -> Path:
    node = helper.make_node("GRU", ["X", "W", "R"], ["Y"], hidden_size="three", direction=5)
    return graph(folder / "m.onnx", [node], **gru_weights())


@CASES.case
def onnx_own_tanh(folder: Path) -> Path:
    path = graph(folder / "m.onnx", [gru()], **gru_weights())
    model = onnx.load(str(path))
    model.functions.append(
        helper.make_function("", "GRU", ["X", "W", "R"], ["Y"], [helper.make_node("Identity", ["X"], ["Y"])], [
            helper.make_opsetid("", 17)
        ])
    )  # fmt: skip
    path.write_bytes(model.SerializeToString())
    return path


@CASES.case
def onnx_declared_2_to_40_steps(folder: Path) -> Path:
    nodes = [gru(), helper.make_node("Squeeze", ["Y", "axes"], ["Z"])]
    nodes.append(helper.make_node("GRU", ["Z", "W2", "R"], ["V"], hidden_size=3))
    path = graph(folder / "m.onnx", nodes, **gru_weights(), W2=np.full((1, 9, 3), 0.1, np.float32), axes=np.array([1]))
    model = onnx.load(str(path))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("X", TensorProto.FLOAT, [2**40, 1, 2]))
    path.write_bytes(model.SerializeToString())
    return path


@CASES.slow
def onnx_empty_nodes(folder: Path) -> Path:
    """Two bytes a node."""
    inside = b"\x0a\x00" * 10**6
    (folder / "m.onnx").write_bytes(b"\x08\x08\x3a" + varint(len(inside)) + inside)
    return folder / "m.onnx"


@CASES.slow
def onnx_packed_zeros(folder: Path) -> Path:
    """One byte for each integer of eight."""
    tensor = b"\x3a" + varint(2**27) + bytes(2**27)
    inside = b"\x2a" + varint(len(tensor)) + tensor
    (folder / "m.onnx").write_bytes(b"\x08\x08\x3a" + varint(len(inside)) + inside)
    return folder / "m.onnx"


@CASES.case
def onnx_graphs_in_graphs(folder: Path) -> Path:
    inside = b""
    for _ in range(40):  # graph: node: attribute: graph
        attribute = b"\x32" + varint(len(inside)) + inside
        node = b"\x2a" + varint(len(attribute)) + attribute
        inside = b"\x0a" + varint(len(node)) + node
    (folder / "m.onnx").write_bytes(b"\x08\x08\x3a" + varint(len(inside)) + inside)
    return folder / "m.onnx"


@CASES.case
def onnx_data_in_a_pipe(folder: Path) -> Path:
    path = graph(folder / "m.onnx", [gru()], **gru_weights())
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="pipe")
    os.mkfifo(folder / "pipe")
    path.write_bytes(model.SerializeToString())
    return path


@CASES.case
def onnx_data_of_three_gigabytes(folder: Path) -> Path:
    path = onnx_data_in_a_pipe(folder)
    (folder / "pipe").unlink()
    with (folder / "pipe").open("wb") as handle:
        handle.truncate(3 * 2**30)
    return path


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


@pytest.mark.parametrize("maker", CASES.parameters())
def test_one_line_in_bounded_memory_and_time(maker: Maker, tmp_path: Path) -> None:
    assert is_refused(maker(tmp_path))


def test_messages_inside_the_least_known_ones_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices of a node hold messages of their own: each costs memory, so each counts."""
    if not hasattr(onnx.NodeProto(), "device_configurations"):
        pytest.skip("this onnx has no devices of nodes")
    monkeypatch.setattr(wire, "GRAPH_FIELDS", 1000)

    def message(number: int, inside: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(inside)) + inside

    for entries, good in ((900, True), (1001, False)):
        sharding = message(2, b"\x1a\x00" * entries)
        raw = message(7, message(1, message(10, sharding)))
        assert len(onnx.load_model_from_string(raw).graph.node[0].device_configurations[0].sharding_spec) == 1
        if good:
            wire.check_message(raw, onnx.ModelProto.DESCRIPTOR, tmp_path)
        else:
            with pytest.raises(FileFormatError):
                wire.check_message(raw, onnx.ModelProto.DESCRIPTOR, tmp_path)
