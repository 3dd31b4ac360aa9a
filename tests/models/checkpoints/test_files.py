"""Files of checkpoints: shards, precisions, layouts that only the settings tell apart, and hostile content."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stability.errors import FileFormatError, NonFiniteError, UnsupportedError
from stability.models.checkpoints import open_checkpoint, stored_tensors

D, CHANNELS, STATES, RANK = 4, 6, 3, 2
P = "backbone.layers.{}."
SHAPES = {
    "norm.weight": (D,),
    "mixer.in_proj.weight": (2 * CHANNELS, D),
    "mixer.conv1d.weight": (CHANNELS, 1, 4),
    "mixer.x_proj.weight": (RANK + 2 * STATES, CHANNELS),
    "mixer.dt_proj.weight": (CHANNELS, RANK),
    "mixer.dt_proj.bias": (CHANNELS,),
    "mixer.A_log": (CHANNELS, STATES),
}
MAMBA = {"model_type": "mamba", "layer_norm_epsilon": 1e-5}


def mamba(layers: int = 1, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Random Mamba layers, and an attention layer behind them."""
    tensors = {
        P.format(i) + name: torch.randn(shape).to(dtype) for i in range(layers) for name, shape in SHAPES.items()
    }
    return tensors | {P.format(layers) + "mixer.q_proj.weight": torch.randn(2, 2).to(dtype)}


def write(folder: Path, tensors: dict[str, torch.Tensor], config: dict | None = MAMBA) -> Path:
    save_file(tensors, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_is_read_exactly(dtype, tmp_path) -> None:
    tensors = mamba(dtype=dtype)
    layer = open_checkpoint(write(tmp_path, tensors)).layers[0].build()
    assert np.array_equal(layer.gate.log_rate, tensors[P.format(0) + "mixer.A_log"].double().numpy())
    assert layer.part == "backbone.layers.0.mixer of mamba"


def test_shards_and_torch_files_hold_the_same_layers(tmp_path) -> None:
    tensors = mamba(2)
    names = [sorted(tensors)[i::2] for i in range(2)]
    for i, part in enumerate(names):
        save_file({name: tensors[name] for name in part}, tmp_path / f"part-{i}.safetensors")
    index = {"weight_map": {name: f"part-{i}.safetensors" for i, part in enumerate(names) for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text('{"model_type": "mamba", "time_step_limit": [0.0, Infinity]}')
    torch.save({"model": tensors, "optimizer": {"state": {}}}, tmp_path / "all.pt")
    sharded, single = open_checkpoint(tmp_path), open_checkpoint(tmp_path / "all.pt")
    assert [(i, kind) for i, kind, _ in sharded] == [(0, "Mamba"), (1, "Mamba")]
    assert sharded.skipped == single.skipped == {2: "attention"}
    for one, other in zip(sharded, single, strict=True):
        assert one.build().gate.equals(other.build().gate)
        assert one.build().injection.equals(other.build().injection)
    before = sharded.layers[0].build().digest
    assert open_checkpoint(tmp_path.rename(tmp_path.with_name("moved"))).layers[0].build().digest == before


def test_only_the_tensors_of_one_layer_are_read(tmp_path, monkeypatch) -> None:
    read = []
    original = stored_tensors.read_tensors
    monkeypatch.setattr(stored_tensors, "read_tensors", lambda path, names: read.extend(names) or original(path, names))
    checkpoint = open_checkpoint(write(tmp_path, mamba(3)))
    assert not read
    checkpoint.layers[1].build()
    assert read
    assert all(name.startswith(P.format(1)) for name in read)


def test_mamba_and_falcon_mamba_are_told_apart_by_the_settings_alone(tmp_path) -> None:
    folder = write(tmp_path, mamba(), None)
    with pytest.raises(UnsupportedError, match="FalconMamba"):
        open_checkpoint(folder)
    plain, normalized = (open_checkpoint(folder, config={"model_type": f"{x}mamba"}) for x in ("", "falcon_"))
    assert (plain.layers[0].type, normalized.layers[0].type) == ("Mamba", "FalconMamba")
    steps = [checkpoint.layers[0].build().gate.step[1] for checkpoint in (plain, normalized)]
    assert (steps[0] != steps[1]).all()


def unlike(**changes: torch.Tensor | None):
    """Write a Mamba with other tensors, ``None`` for none."""

    def make(folder: Path) -> Path:
        tensors = mamba() | {P.format(0) + name.replace("__", "."): value for name, value in changes.items()}
        return write(folder, {name: value for name, value in tensors.items() if value is not None})

    return make


def index_of(weight_map: object):
    def make(folder: Path) -> Path:
        write(folder, mamba())
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return folder

    return make


def shard_elsewhere(folder: Path) -> Path:
    write(folder, mamba())
    inner = folder / "inner"
    inner.mkdir()
    shards = dict.fromkeys(mamba(), "../model.safetensors")
    (inner / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return config(json.dumps(MAMBA))(inner, tensors=False)


def raw(name: str, content: bytes, folder: Path) -> Path:
    (folder / name).write_bytes(content)
    return folder


def code_in_a_pickle(folder: Path) -> Path:
    class Run:
        def __reduce__(self):
            return (Path.touch, (folder / "ran",))

    return raw("model.pt", pickle.dumps(Run()), folder)


def wide_stride(folder: Path) -> Path:
    wide = torch.zeros(1, 1).expand(CHANNELS, STATES)
    torch.save(mamba() | {P.format(0) + "mixer.A_log": wide}, folder / "model.pt")
    return config(json.dumps(MAMBA))(folder, tensors=False)


def config(text: str):
    def make(folder: Path, tensors: bool = True) -> Path:
        if tensors:
            write(folder, mamba())
        (folder / "config.json").write_text(text)
        return folder

    return make


HOSTILE = {
    "nothing": (lambda folder: folder, FileFormatError),
    "missing": (lambda folder: folder / "model.safetensors", FileFormatError),
    "empty": (lambda folder: raw("model.safetensors", b"", folder), FileFormatError),
    "long header": (lambda folder: raw("model.safetensors", struct.pack("<Q", 2**60) + b"{}", folder), FileFormatError),
    "two files": (lambda folder: raw("b.npz", b"", raw("a.npz", b"", folder)), FileFormatError),
    "no archive": (lambda folder: raw("model.npz", b"no", folder), FileFormatError),
    "code": (code_in_a_pickle, FileFormatError),
    "stride": (wide_stride, FileFormatError),
    "shard elsewhere": (shard_elsewhere, FileFormatError),
    "missing shard": (index_of({"x": "part.safetensors"}), FileFormatError),
    "no map": (index_of([]), FileFormatError),
    "settings are no object": (config("[]"), FileFormatError),
    "settings are damaged": (config('{"model_type": "mamba"'), FileFormatError),
    "settings twice": (config('{"model_type": "mamba", "model_type": "falcon_mamba"}'), FileFormatError),
    "odd type": (config('{"model_type": ["mamba"]}'), UnsupportedError),
    "unknown family": (config('{"model_type": "mamba9"}'), UnsupportedError),
    "another activation": (config('{"model_type": "mamba", "hidden_act": "relu"}'), UnsupportedError),
    "no layer": (lambda folder: write(folder, {"weight": torch.ones(2)}), UnsupportedError),
    "two models": (
        lambda folder: write(folder, mamba() | {f"ema.{name}": value for name, value in mamba().items()}),
        UnsupportedError,
    ),
    "RWKV": (lambda folder: write(folder, {"blocks.0.att.k_k": torch.ones(2)}), UnsupportedError),
    "unknown layout": (lambda folder: write(folder, {"layers.0.ssm.A_log": torch.ones(2)}), UnsupportedError),
    "quantized": (unlike(mixer__in_proj__weight=torch.ones(2 * CHANNELS, D, dtype=torch.int8)), UnsupportedError),
    "NaN": (unlike(mixer__A_log=torch.full((CHANNELS, STATES), torch.nan)), NonFiniteError),
    "no kernel": (unlike(mixer__conv1d__weight=None), FileFormatError),
    "scalar": (unlike(mixer__A_log=torch.tensor(1.0)), FileFormatError),
    "empty tensor": (unlike(mixer__A_log=torch.ones(0, STATES)), FileFormatError),
    "few rows": (unlike(mixer__in_proj__weight=torch.ones(CHANNELS - 1, D)), FileFormatError),
    "wide kernel": (unlike(mixer__conv1d__weight=torch.ones(CHANNELS + 1, 1, 4)), FileFormatError),
    "narrow norm": (unlike(norm__weight=torch.ones(D - 1)), FileFormatError),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_unknown_files_are_refused(name, tmp_path) -> None:
    make, error = HOSTILE[name]
    path = make(tmp_path)
    with pytest.raises(error) as raised:
        open_checkpoint(path).layers[0].build()
    assert len(str(raised.value)) < 600
    assert not (tmp_path / "ran").exists()
