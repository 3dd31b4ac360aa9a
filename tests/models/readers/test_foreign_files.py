"""Files as other tools write them: each is read as the system that it holds, or refused."""

from __future__ import annotations

import collections
import json

import numpy as np
import pytest
import torch
from scipy import io
from torch import nn

from stability.errors import ConfigurationError, FileFormatError, StabilityError
from stability.models.readers import matlab
from stability.models.sources import load_subject

WEIGHTS = nn.GRU(3, 4).state_dict()
LISTS = {name: value.tolist() for name, value in WEIGHTS.items()}
ARRAYS = {name: value.numpy() for name, value in WEIGHTS.items()}
MODELS = {"model": WEIGHTS, "net": WEIGHTS}
STATES = {"state_dict": WEIGHTS, "rng": torch.zeros(3), "optimizer": {"state": {0: torch.ones(2)}}}
WRITTEN = {
    "prefix.pt": {f"module.model.rnn.{name}": value for name, value in WEIGHTS.items()},
    "tensors beside.pt": STATES,
    "defaultdict.pt": collections.defaultdict(list, WEIGHTS),
    "half.pt": {name: value.half() for name, value in WEIGHTS.items()},
    "plain.json": LISTS,
    "inside.json": {"epoch": 3, "state_dict": LISTS},
    "whole numbers.json": {**LISTS, "bias_ih_l0": [0] * 12},
    "vectors of two axes.mat": ARRAYS,
}
REFUSED = {
    "two models.pt": (MODELS, ConfigurationError),
    "arrays.pt": (ARRAYS, FileFormatError),
    "lists.pt": (LISTS, FileFormatError),
    "other names.pt": ({"generator": WEIGHTS}, FileFormatError),
    "list.json": ([1, 2], FileFormatError),
    "ragged.json": ({"weight_hh_l0": [[1], [2, 3]]}, FileFormatError),
    "text.json": ({"weight_hh_l0": ["1"]}, FileFormatError),
    "layers.json": ({"layers": [{"type": "gru"}]}, FileFormatError),
}


def written(folder, name, held):
    path = folder / name
    if path.suffix == ".json":
        path.write_text(json.dumps(held))
    elif path.suffix == ".mat":
        io.savemat(path, held, do_compression=True)
    else:
        torch.save(held, path)
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_weights_are_read_wherever_they_stand(name, tmp_path):
    found = load_subject(written(tmp_path, name, WRITTEN[name])).subject
    np.testing.assert_allclose(found.w_hh, WEIGHTS["weight_hh_l0"], rtol=1e-3 if name == "half.pt" else 0)
    assert (found.kind, found.inputs) == ("gru", 3)


@pytest.mark.parametrize("name", REFUSED)
def test_other_contents_are_refused(name, tmp_path):
    held, error = REFUSED[name]
    with pytest.raises(error):
        load_subject(written(tmp_path, name, held))


@pytest.mark.parametrize("form", ["mat", "json"])
def test_matrices_are_those_of_an_archive(form, tmp_path):
    def read(**held):
        held = {k: np.asarray(v).tolist() if form == "json" else v for k, v in held.items()}
        return load_subject(written(tmp_path, f"m.{form}", held)).subject

    A, ones = 0.1 * np.eye(2), np.ones((2, 1) if form == "mat" else 2)
    own = read(W=A, Win=np.ones((2, 1)), bias=ones, leak=0.5, activation="relu")
    assert (own.activation, own.b.tolist(), own.system.A.tolist()) == ("relu", [1.0, 1.0], [[0.5, 0.0], [0.0, 0.5]])
    net = read(A=A, W=np.eye(2), U=np.ones((2, 1)), slope=[0.0, 2.0], b=ones, dt=1.0)
    assert (net.system.slope, net.b.tolist(), net.system.dt) == ((0.0, 2.0), [1.0, 1.0], 1.0)


@pytest.mark.parametrize(("sample_time", "dt"), [(0.1, 0.1), (0.0, None)])
def test_the_sample_time_of_matlab_is_the_step(sample_time, dt, tmp_path):
    held = {"A": -np.eye(2), "B": np.eye(2), "C": np.eye(2), "D": np.zeros((2, 2)), "Ts": sample_time}
    assert load_subject(written(tmp_path, "m.mat", held)).subject.dt == dt


@pytest.mark.parametrize("kind", ["structure", "cell", "truncated", "large", "7.3", "4", "unknown sample time"])
def test_other_matlab_files_are_refused(kind, tmp_path, monkeypatch):
    cell = np.empty((1, 1), object)
    cell[0, 0] = np.eye(2)
    value = {"structure": {"inside": np.eye(2)}, "cell": cell, "large": np.zeros((200, 200))}.get(kind, np.eye(2))
    path = written(tmp_path, "m.mat", {"A": value, **({"Ts": -1.0} if "sample" in kind else {})})
    if kind == "4":
        io.savemat(path, {"A": value}, format="4")
    monkeypatch.setattr(matlab, "_BYTES", 2**16)
    raw = path.read_bytes()
    path.write_bytes({"truncated": raw[:150], "7.3": raw.replace(b"MATLAB 5.0", b"MATLAB 7.3")}.get(kind, raw))
    with pytest.raises(StabilityError):
        load_subject(path)
