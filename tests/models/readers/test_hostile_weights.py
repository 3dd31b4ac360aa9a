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


@CASES.case
def pt_layer_of_eleven_digits(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l99999999999=torch.zeros(12, 3)))


@CASES.case
def pt_layer_9999(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l9999=torch.zeros(12, 3)))


@CASES.case
def pt_sparse(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l0=torch.eye(12, 3).to_sparse()))


@CASES.case
def pt_sparse_of_absurd_size(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = torch.sparse_coo_tensor([[0], [0]], [1.0], (2**30, 2**28))
    return saved(folder / "m.pt", lstm(weight_hh_l0=wide))


@CASES.case
def pt_meta(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l0=torch.empty(4 * 10**5, 10**5, device="meta")))


@CASES.case
def pt_expanded(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l0=torch.zeros(1, 1).expand(4 * 10**5, 10**5)))


@CASES.case
def pt_quantised(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return saved(
            folder / "m.pt", lstm(weight_hh_l0=torch.quantize_per_tensor(torch.ones(12, 3), 0.1, 0, torch.qint8))
        )


@CASES.case
def pt_complex(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(weight_hh_l0=torch.zeros(12, 3, dtype=torch.complex64)))


@CASES.case
def pt_text_in_the_place_of_a_tensor(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(bias_ih_l0="zeros"))


@CASES.case
def pt_bias_of_another_length(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(bias_ih_l0=torch.zeros(13)))


@CASES.case
def pt_further_weight(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(gate_scale=torch.zeros(3)))


@CASES.case
def pt_two_models(folder: Path) -> Path:
    return saved(folder / "m.pt", {"model": lstm(), "state_dict": lstm()})


@CASES.case
def pt_key_that_steers(folder: Path) -> Path:
    return saved(folder / "m.pt", {"\x1b]0;owned\x07\u202e": torch.zeros(3)})


@CASES.case
def pt_key_of_a_million_letters(folder: Path) -> Path:
    return saved(folder / "m.pt", lstm(**{"x" * 10**6: torch.zeros(3)}))


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


@CASES.case
def safetensors_deep_header(folder: Path) -> Path:
    return tensors(folder / "m.safetensors", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@CASES.slow
def safetensors_long_header(folder: Path) -> Path:
    return tensors(folder / "m.safetensors", b"{" + b" " * 2**26 + b"}")


@CASES.case
def safetensors_wide_header(folder: Path) -> Path:
    return tensors(folder / "m.safetensors", b'{"a":[' + b"0," * (6 * 2**20) + b"0]}")


@CASES.case
def safetensors_claims_more(folder: Path) -> Path:
    return tensors(folder / "m.safetensors", {"weight_hh_l0": entry([2**30, 2**30], 0, 144)}, bytes(144))


@CASES.case
def safetensors_integer_of_a_million_digits(folder: Path) -> Path:
    return tensors(folder / "m.safetensors", b'{"a":' + b"9" * 10**6 + b"}")


def described(folder: Path, description: Any, numbers: int = 4) -> Path:
    text = description if isinstance(description, str) else json.dumps(description)
    metadata = {"format": files.FORMAT, "version": str(files.VERSION), "model": text}
    header = {"__metadata__": metadata, "w": entry([numbers], 0, 4 * numbers)}
    return tensors(folder / "m.safetensors", header, bytes(4 * numbers))


@CASES.slow
def own_model_of_a_million_layers(folder: Path) -> Path:
    config = {"input_size": 4, "hidden_size": 4, "num_layers": 10**6}
    return described(folder, {"layer": "lstm", "config": config}, 2**20)


@CASES.slow
def own_deep_network_of_a_million_layers(folder: Path) -> Path:
    config = {"layer": "lru", "input_size": 4, "width": 4, "depth": 10**6, "output_size": 2}
    return described(folder, {"layer": "deep", "config": config}, 2**20)


@CASES.slow
def own_wide_stack(folder: Path) -> Path:
    part = {"layer": "elman", "config": {"input_size": 4, "hidden_size": 4}}
    return described(folder, {"layer": "stack", "config": {"layers": [part] * 50_000}})


@CASES.case
def own_deep_stack(folder: Path) -> Path:
    inner = '{"layer": "stack", "config": {"layers": ['
    return described(folder, inner * 50 + "]}}" * 50)


@CASES.slow
def own_wide_and_thin(folder: Path) -> Path:
    """Make as many numbers as a vector has, for a layer whose start is a matrix of so many rows and columns."""
    config = {"input_size": 1, "hidden_size": 2**19, "reflections": 1}
    return described(folder, {"layer": "householder", "config": config}, 2**20)


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
