"""Valid files of every kind that the toolkit reads, to begin with; each a folder of a few files and a command on it."""

from __future__ import annotations

import gzip
import json
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["KINDS", "Kind", "Specimen", "seeds_of"]

Specimen = Mapping[str, bytes]
"""Files by their path in the folder."""


@dataclass(frozen=True)
class Kind:
    """How files of a kind are read.

    Attributes:
        arguments: of the command line; ``@`` stands for the folder or the file.
        codes: exit codes that are an answer.
        main: the file that the command is given; empty for the folder.
        weight: how often it is drawn.
        make: fills an empty folder, in one or several ways (its number is given).
        ways: how many.
    """

    arguments: tuple[str, ...]
    codes: tuple[int, ...]
    main: str
    weight: float
    make: Callable[[Path, int], Any]
    ways: int = 1


def _systems(folder: Path, way: int) -> Any:
    from stability.systems import DrivenSystem, LureSystem

    rng = np.random.default_rng(way)
    n = 3
    W = 0.4 * rng.normal(size=(n, n))
    if way == 0:
        return LureSystem.recurrent(-2 * np.eye(n), W)
    if way == 1:
        return DrivenSystem(LureSystem.recurrent(-2 * np.eye(n), W), "tanh", np.ones((n, 1)), np.zeros(n))
    if way == 2:
        return LureSystem(0.3 * np.eye(n), np.eye(n), W, slope=(0.0, 1.0), dt=1.0)
    if way == 3:
        return DrivenSystem(LureSystem(0.1 * np.eye(1), np.eye(1), [[3.0]], dt=1.0), "tanh", [[1.0]])
    import torch

    from stability.models.sources import load_subject

    torch.manual_seed(way)
    cell = torch.nn.GRU(2, 3) if way == 4 else torch.nn.LSTM(2, 2, num_layers=2)
    torch.save(cell.state_dict(), folder / "weights.pt")
    subject = load_subject(folder / "weights.pt").subject
    (folder / "weights.pt").unlink()
    return subject.with_inputs(-1.0, 1.0)


def _certificate(folder: Path, way: int) -> None:
    from stability.certification import certify

    certify(_systems(folder, way), time_limit=20).save(folder / "c.json")


def _npz(folder: Path, way: int) -> None:
    rng = np.random.default_rng(way)
    arrays: dict[str, Any] = {"A": -2 * np.eye(3), "W": 0.5 * rng.normal(size=(3, 3))}
    if way == 1:
        arrays |= {"U": np.ones((3, 2)), "b": np.zeros(3), "activation": "tanh", "dt": 0.1, "F": np.ones((3, 2))}
    if way == 2:
        arrays |= {"B": np.eye(3), "D": np.zeros((3, 3)), "slope": np.array([[0.0] * 3, [0.5] * 3]), "dt": np.nan}
    np.savez(folder / "m.npz", **arrays)  # type: ignore[arg-type]


def _torch(folder: Path, way: int) -> None:
    import torch

    torch.manual_seed(way)
    if way == 0:
        state: Any = torch.nn.GRU(2, 3).state_dict()
    elif way == 1:
        state = {"state_dict": torch.nn.LSTM(2, 2, num_layers=2, bidirectional=True).state_dict(), "epoch": 3}
    else:
        whole = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(2, 2), "head": torch.nn.Linear(2, 2)})
        state = whole.half().state_dict()
    torch.save(state, folder / "m.pt", _use_new_zipfile_serialization=way != 0)


def _safetensors(folder: Path, way: int) -> None:
    import safetensors.torch
    import torch

    torch.manual_seed(way)
    safetensors.torch.save_file(
        (torch.nn.GRU(2, 3) if way else torch.nn.LSTM(2, 2)).state_dict(), folder / "m.safetensors"
    )


def _own(folder: Path, way: int) -> None:
    import torch

    from stability.models import ElmanRNN, LipschitzRNN, SequenceModel, build, save

    torch.manual_seed(way)
    elman = {"layer": "elman", "config": {"input_size": 2, "hidden_size": 2}}
    made: Any = (
        SequenceModel(ElmanRNN(2, 3), 2),
        LipschitzRNN(2, 3),
        build({"layer": "stack", "config": {"layers": [elman, elman]}}),
        build({"layer": "lstm", "config": {"input_size": 2, "hidden_size": 2}}),
        build({"layer": "rotrnn", "config": {"input_size": 2, "hidden_size": 4, "heads": 2}}),
        build({"layer": "householder", "config": {"input_size": 2, "hidden_size": 3, "reflections": 2}}),
    )[way]
    save(made, folder / "m.safetensors")


def _onnx(folder: Path, way: int) -> None:
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node
    rng = np.random.default_rng(way)
    values: dict[str, Any] = {}
    if way < 2:
        gates = (3, 4)[way]
        values = {k: 0.3 * rng.normal(size=(1, gates * 3, m)).astype(np.float32) for k, m in (("W", 2), ("R", 3))}
        values["axes"] = np.array([0])
        values["Wrow"] = values.pop("W")[0]
        kind = ("GRU", "LSTM")[way]
        nodes = [node("Unsqueeze", ["Wrow", "axes"], ["W"]), node(kind, ["X", "W", "R"], ["Y"], hidden_size=3)]
    else:
        inner = [
            node("Gemm", ["h", "V", "b"], ["z"], transB=1), node("MatMul", ["x", "U"], ["u"]),
            node("Add", ["z", "u"], ["s"]), node("Tanh", ["s"], ["t"]), node("Mul", ["t", "half"], ["hn"]),
            node("Identity", ["hn"], ["y"]),
        ]  # fmt: skip
        ends = [helper.make_tensor_value_info(k, TensorProto.FLOAT, (1, 3 if k == "h" else 2)) for k in ("h", "x")]
        body = helper.make_graph(inner, "body", ends, [helper.make_empty_tensor_value_info(k) for k in ("hn", "y")])
        numbers = {"V": (3, 3), "U": (2, 3), "b": (3,)}
        values = {k: 0.3 * rng.normal(size=s).astype(np.float32) for k, s in numbers.items()}
        values |= {"half": np.float32(0.5), "h0": np.zeros((1, 3), np.float32)}
        nodes = [node("Scan", ["h0", "X"], ["hh", "Y"], body=body, num_scan_inputs=1)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [5, 1, 2])],
        [helper.make_empty_tensor_value_info("Y")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "m.onnx").write_bytes(model.SerializeToString())


def _task() -> Any:
    from stability.analysis.tasks import make_task

    return make_task("digits", size=7, limit=40, test_limit=20)


def _run(folder: Path, way: int) -> None:
    import torch

    from stability.analysis import SpectrumTracker, train
    from stability.models import ElmanRNN, LipschitzRNN, SequenceModel

    task = _task()
    torch.manual_seed(way)
    model = SequenceModel((LipschitzRNN if way else ElmanRNN)(task.input_size, 4), task.output_size)
    tracker = SpectrumTracker(model, every=1, margins=["theorem1"] if way else [])
    train(model, task, epochs=1, batch_size=20, tracker=tracker, out=folder, patience=2 if way else None)


def _report(folder: Path, way: int) -> None:
    import torch

    from stability.analysis.campaign.budgets import AnalysisSettings, Budget
    from stability.analysis.campaign.pipeline import analyse
    from stability.models import ElmanRNN, SequenceModel

    torch.manual_seed(3)
    budget = Budget(
        samples=10, attacked=10, curved=10, draws=2, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1),
        epsilons_l2=(0.0, 1.0), steps=2, stretch=2, iterations=4, probes=2, trajectories=1,
    )  # fmt: skip
    run = folder / "models" / "m"
    _run(run, 0)
    model = SequenceModel(ElmanRNN(7, 4), 10)
    analyse(run, model, AnalysisSettings(budget), model=model, task=_task(), title="T", source="s")
    document = json.loads((run / "analysis.json").read_text())
    document.pop("files", None)  # what a digest tells changed is not read at all
    (run / "analysis.json").write_text(json.dumps(document))
    for unread in ("checkpoint.pt",):
        (run / unread).unlink(missing_ok=True)
    settings = {"title": "T", "models": ["m"], "seconds": 2.0, "environment": {"versions": {"python": "3.11"}}}
    (folder / "report-settings.json").write_text(json.dumps(settings))


def _images(folder: Path, way: int) -> None:
    rng = np.random.default_rng(way)
    for part in ("train", "t10k"):
        images, labels = rng.integers(0, 256, size=(20, 28, 28), dtype=np.uint8), np.arange(20, dtype=np.uint8) % 10
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            raw = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
            name = f"{part}-{kind}-ubyte" + (".gz" if way else "")
            (folder / name).write_bytes(gzip.compress(raw, mtime=0) if way else raw)


_CERTIFY = ("certify", "@", "--json", "--time-limit", "2")
_TRAIN = ("train", "--data-dir", "@", "--model", "elman", "--hidden", "2", "--epochs", "1", "--task-set", "limit=10",
          "--task-set", "test_limit=5", "--task-set", "size=7", "--out", "out", "-q")  # fmt: skip
KINDS: dict[str, Kind] = {
    "certificate": Kind(("verify", "@", "--json"), (0, 1, 2), "c.json", 3, _certificate, 6),
    "npz": Kind(_CERTIFY, (0, 1, 2, 3), "m.npz", 2, _npz, 3),
    "torch": Kind(_CERTIFY, (0, 1, 2, 3), "m.pt", 3, _torch, 3),
    "safetensors": Kind(_CERTIFY, (0, 1, 2, 3), "m.safetensors", 1.5, _safetensors, 2),
    "own": Kind(_CERTIFY, (0, 1, 2, 3), "m.safetensors", 2, _own, 6),
    "onnx": Kind(_CERTIFY, (0, 1, 2, 3), "m.onnx", 3, _onnx, 3),
    "redraw": Kind(("report", "--redraw", "@", "--json"), (0, 2), "", 2, _report),
    "resume": Kind(("train", "--resume", "@", "--epochs", "2", "-q"), (0, 2), "", 2, _run, 2),
    "images": Kind(_TRAIN, (0, 2), "", 0.5, _images, 2),
}


def seeds_of(kind: Kind) -> list[Specimen]:
    """The valid files of a kind."""
    found: list[Specimen] = []
    for way in range(kind.ways):
        with tempfile.TemporaryDirectory() as folder:
            kind.make(Path(folder), way)
            files = sorted(p for p in Path(folder).rglob("*") if p.is_file())
            found.append({str(p.relative_to(folder)): p.read_bytes() for p in files})
    return found
