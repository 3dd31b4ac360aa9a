"""Weights in files of torch and in safetensors that mean harm: refused in one line, in bounded memory and time."""

from __future__ import annotations

import json
import struct
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from stability.models import ElmanRNN, files

from .hostile import Cases, Maker, is_refused

CASES = Cases()


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


def lstm(**more: Any) -> OrderedDict[str, Any]:
    state: OrderedDict[str, Any] = OrderedDict(torch.nn.LSTM(2, 3).state_dict())
    state.update(more)
    return state


def quietly(make: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


CASES.table(
    lambda folder, state: saved(folder / "m.pt", state),
    {
        "layer of eleven digits": lambda: lstm(weight_hh_l99999999999=torch.zeros(12, 3)),
        "layer 9999": lambda: lstm(weight_hh_l9999=torch.zeros(12, 3)),
        "sparse": lambda: lstm(weight_hh_l0=torch.eye(12, 3).to_sparse()),
        "sparse of absurd size": lambda: lstm(
            weight_hh_l0=quietly(lambda: torch.sparse_coo_tensor([[0], [0]], [1.0], (2**30, 2**28)))
        ),
        "meta": lambda: lstm(weight_hh_l0=torch.empty(4 * 10**5, 10**5, device="meta")),
        "expanded": lambda: lstm(weight_hh_l0=torch.zeros(1, 1).expand(4 * 10**5, 10**5)),
        "quantised": lambda: lstm(
            weight_hh_l0=quietly(lambda: torch.quantize_per_tensor(torch.ones(12, 3), 0.1, 0, torch.qint8))
        ),
        "complex": lambda: lstm(weight_hh_l0=torch.zeros(12, 3, dtype=torch.complex64)),
        "bias of another length": lambda: lstm(bias_ih_l0=torch.zeros(13)),
        "further weight": lambda: lstm(gate_scale=torch.zeros(3)),
        "key that steers": lambda: {"\x1b]0;owned\x07\u202e": torch.zeros(3)},
        "key of a million letters": lambda: lstm(**{"x" * 10**6: torch.zeros(3)}),
    },
)


@CASES.case
def pt_cut(folder: Path) -> Path:
    path = saved(folder / "m.pt", lstm())
    path.write_bytes(path.read_bytes()[:-40])
    return path


def tensors(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def entry(shape: list[int], start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end], **more}


CASES.table(
    lambda folder, given: tensors(folder / "m.safetensors", *given),
    {
        "deep header": lambda: (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",),
        "long_header": lambda: (b"{" + b" " * 2**26 + b"}",),
        "wide header": lambda: (b'{"a":[' + b"0," * (6 * 2**20) + b"0]}",),
        "claims more": lambda: ({"weight_hh_l0": entry([2**30, 2**30], 0, 144)}, bytes(144)),
        "integer of a million digits": lambda: (b'{"a":' + b"9" * 10**6 + b"}",),
    },
    slow="long_header",
)


def described(folder: Path, description: Any, numbers: int = 4) -> Path:
    text = description if isinstance(description, str) else json.dumps(description)
    metadata = {"format": files.FORMAT, "version": str(files.VERSION), "model": text}
    header = {"__metadata__": metadata, "w": entry([numbers], 0, 4 * numbers)}
    return tensors(folder / "m.safetensors", header, bytes(4 * numbers))


PART = {"layer": "elman", "config": {"input_size": 4, "hidden_size": 4}}
WIDE = {"layer": "lru", "input_size": 4, "width": 4, "depth": 10**6, "output_size": 2}
CASES.table(
    lambda folder, given: described(folder, *given),
    {
        "a_million_layers": lambda: (
            {"layer": "lstm", "config": {"input_size": 4, "hidden_size": 4, "num_layers": 10**6}},
            2**20,
        ),
        "a_million_deep_layers": lambda: ({"layer": "deep", "config": WIDE}, 2**20),
        "wide_stack": lambda: ({"layer": "stack", "config": {"layers": [PART] * 50_000}},),
        "deep_stack": lambda: ('{"layer": "stack", "config": {"layers": [' * 50 + "]}}" * 50,),
        # as many numbers as a vector has, asked for a layer whose start is a matrix of so many rows and columns
        "wide_and_thin": lambda: (
            {"layer": "householder", "config": {"input_size": 1, "hidden_size": 2**19, "reflections": 1}},
            2**20,
        ),
    },
    slow="a_million_layers a_million_deep_layers wide_stack wide_and_thin",
)


@CASES.case
def own_unknown_metadata(folder: Path) -> Path:
    path = files.save(ElmanRNN(2, 3), folder / "m.safetensors")
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header["__metadata__"]["activation"] = "sinh"
    return tensors(path, header, raw[8 + length :])


@pytest.mark.parametrize("maker", CASES.parameters())
def test_one_line_in_bounded_memory_and_time(maker: Maker, tmp_path: Path) -> None:
    assert is_refused(maker(tmp_path))
