"""Models as files: whole or refused, never unpickled, never half filled."""

from __future__ import annotations

import json
import struct

import pytest
import safetensors.torch
import torch

from stability.errors import ConfigurationError, FileFormatError, NonFiniteError, StabilityError
from stability.models import ElmanRNN, LipschitzRNN, SequenceModel, build, describe, load, save
from stability.models.files import FORMAT, MODEL_FILE, write_tensors


@pytest.fixture
def model():
    return SequenceModel(LipschitzRNN(3, 5, beta=(0.6, 0.7), gamma=0.2), 4, reduction="mean")


@pytest.fixture
def file(model, tmp_path):
    return save(model, tmp_path / "model.safetensors")


def header(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def rewrite(path, change):
    """The same tensors with changed metadata."""
    head, body = header(path)
    change(head)
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def set_model(path, change):
    def apply(head):
        description = json.loads(head["__metadata__"]["model"])
        change(description)
        head["__metadata__"]["model"] = json.dumps(description)

    rewrite(path, apply)


def test_round_trip(model, file):
    again = load(file)
    assert describe(again) == describe(model)
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


def test_run_directory(model, tmp_path):
    assert save(model, tmp_path) == tmp_path / MODEL_FILE
    x = torch.randn(2, 3, 3)
    assert torch.equal(load(tmp_path)(x), model(x))
    assert torch.equal(load(str(tmp_path))(x), model(x))


def test_metadata_is_plain_json(file, model):
    metadata = header(file)[0]["__metadata__"]
    assert metadata["format"] == FORMAT
    assert json.loads(metadata["model"]) == describe(model)


def test_equal_models_give_equal_bytes(file, model, tmp_path):
    """The bytes do not depend on the library's order of metadata, in this process or another."""
    assert {save(model, tmp_path / f"{k}.safetensors").read_bytes() for k in range(20)} == {file.read_bytes()}
    raw = file.read_bytes()
    head, body = header(file)
    assert list(head["__metadata__"]) == sorted(head["__metadata__"])
    assert (len(raw) - len(body)) % 8 == 0
    reference = safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    ours = safetensors.torch.load_file(file)
    assert ours.keys() == reference.keys()
    assert all(torch.equal(ours[name], value) for name, value in reference.items())


def test_tensors_of_every_kind_are_written(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    tensors = {
        "b/ü": base.T,
        "a": base[0],
        "shared": base,
        "flag": torch.tensor([True, False, True]),
        "count": torch.tensor(7),
        "none": torch.zeros(0, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    write_tensors(tmp_path / "x", tensors, {"ü": "ä", "a": '"'})
    again = safetensors.torch.load_file(tmp_path / "x")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], value) for name, value in tensors.items())
    assert header(tmp_path / "x")[0]["__metadata__"] == {"a": '"', "ü": "ä"}
    for few in ({}, {"a": base}):
        write_tensors(tmp_path / "x", few, {})
        assert safetensors.torch.load_file(tmp_path / "x").keys() == few.keys()


def test_saving_replaces_whole_files_only(model, file, tmp_path):
    before = file.read_bytes()
    with torch.no_grad():
        model.head.bias.add_(1.0)
    save(model, file)
    assert file.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


def test_every_truncation_is_refused(file):
    raw = file.read_bytes()
    for size in [*range(0, len(raw), 37), len(raw) - 1]:
        file.write_bytes(raw[:size])
        with pytest.raises(FileFormatError):
            load(file)


def test_every_flipped_header_byte_is_refused_or_harmless(file, model):
    """No byte of the header can make a traceback, or a model with other shapes."""
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    for position in range(0, 8 + size, 3):
        damaged = bytearray(raw)
        damaged[position] ^= 0x15
        file.write_bytes(bytes(damaged))
        try:
            again = load(file)
        except StabilityError:
            continue
        assert {k: v.shape for k, v in again.state_dict().items()} == {
            k: v.shape for k, v in model.state_dict().items()
        }


def test_a_stranger_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(FileFormatError):
        load(path)


HOSTILE = {
    "unknown layer": lambda d: d.update(layer="transformer"),
    "layer is no name": lambda d: d.update(layer=["lipschitz"]),
    "no layer": lambda d: d.pop("layer"),
    "no config": lambda d: d.pop("config"),
    "config is no mapping": lambda d: d.update(config=3),
    "unknown option": lambda d: d["config"].update(colour="red"),
    "missing option": lambda d: d["config"].pop("hidden_size"),
    "bad option": lambda d: d["config"].update(beta="x"),
    "another size": lambda d: d["config"].update(hidden_size=6),
    "huge size": lambda d: d["config"].update(hidden_size=10**9),
    "negative size": lambda d: d["config"].update(hidden_size=-5),
    "another head": lambda d: d.update(output_size=5),
    "no head": lambda d: d.pop("output_size"),
    "bad reduction": lambda d: d.update(reduction="median"),
    "unknown field": lambda d: d.update(code="import os"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_description_that_does_not_fit(case, file):
    set_model(file, HOSTILE[case])
    with pytest.raises(FileFormatError):
        load(file)


def test_renamed_and_missing_tensors(model, tmp_path):
    metadata = {"format": FORMAT, "version": "1", "model": json.dumps(describe(model))}
    path = tmp_path / "m.safetensors"
    state = {k: v.clone() for k, v in model.state_dict().items()}
    safetensors.torch.save_file({k: v for k, v in state.items() if k != "layer.M_A"}, path, metadata)
    with pytest.raises(FileFormatError):
        load(path)
    safetensors.torch.save_file({**state, "extra": torch.zeros(1)}, path, metadata)
    with pytest.raises(FileFormatError):
        load(path)
    safetensors.torch.save_file({**state, "layer.bias": torch.zeros(5, dtype=torch.int64)}, path, metadata)
    with pytest.raises(FileFormatError):
        load(path)
    safetensors.torch.save_file({**state, "layer.bias": torch.zeros(5, 1)}, path, metadata)
    with pytest.raises(FileFormatError):
        load(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights(model, file, value):
    with torch.no_grad():
        model.layer.bias[2] = value
    with pytest.raises(NonFiniteError):
        load(save(model, file))


def test_only_our_models(tmp_path):
    for other in (torch.nn.Linear(2, 2), torch.nn.LSTM(2, 2), None, "model"):
        with pytest.raises(ConfigurationError):
            save(other, tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_users_own_subclass_is_not_written_as_its_parent(tmp_path):
    class Mine(ElmanRNN):
        pass

    with pytest.raises(ConfigurationError):
        save(Mine(2, 3), tmp_path / "m.safetensors")


@pytest.mark.parametrize("description", [None, {}, {"layer": "elman"}, {"layer": "elman", "config": None}, [], "elman"])
def test_build_refuses(description):
    with pytest.raises(ConfigurationError):
        build(description)
