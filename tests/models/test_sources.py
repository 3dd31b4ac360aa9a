"""Every form of a model file becomes the same subject as the module it came from; bad files get one clear line."""

from __future__ import annotations

import io
import struct
import sys
import textwrap

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from stability.certification import certify
from stability.errors import ConfigurationError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.format.serialization import encode
from stability.models import DeepNetwork, ElmanRNN, LipschitzRNN, SequenceModel, save
from stability.models.adapters.modules import recurrent_subject
from stability.models.sources import load_module, load_subject
from stability.systems import DrivenSystem, LureSystem


def same(first, second) -> bool:
    """Equal to the last bit, names and places aside."""

    def bare(value):
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in ("name", "part")}
        return [bare(v) for v in value] if isinstance(value, list) else value

    return bare(encode(first)) == bare(encode(second))


MODULES = {
    "gru": lambda: nn.GRU(3, 4, 2),
    "lstm": lambda: nn.LSTM(3, 4, bidirectional=True),
    "lstm cell": lambda: nn.LSTMCell(3, 4, bias=False),
    "head": lambda: nn.ModuleDict({"rnn": nn.LSTM(3, 4), "head": nn.Linear(4, 2)}),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("form", ["pt", "legacy", "checkpoint", "safetensors", "npz", "odd suffix"])
def test_a_state_dict_is_its_module(name, form, tmp_path):
    module = MODULES[name]()
    state = module.state_dict()
    path = tmp_path / ("model.bin" if form == "odd suffix" else f"model.{form.split()[0]}")
    if form in ("pt", "odd suffix"):
        torch.save(state, path)
    elif form == "legacy":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    elif form == "checkpoint":
        torch.save({"epoch": 3, "state_dict": state, "optimizer": {"lr": 0.1}}, path)
    elif form == "safetensors":
        safetensors.torch.save_file(state, path)
    else:
        np.savez(path, **{k: v.numpy() for k, v in state.items()})
    source = load_subject(path)
    expected = recurrent_subject(module["rnn"] if name == "head" else module)
    assert same(source.subject, expected)
    assert source.info["cell"] == name.replace("head", "lstm").split()[0]


def test_the_activation_of_an_rnn_is_asked_for(tmp_path):
    module = nn.RNN(3, 4, nonlinearity="relu")
    torch.save(module.state_dict(), tmp_path / "m.pt")
    with pytest.raises(ConfigurationError):
        load_subject(tmp_path / "m.pt")
    assert same(load_subject(tmp_path / "m.pt", cell="rnn_relu").subject, recurrent_subject(module))
    assert load_subject(tmp_path / "m.pt", cell="rnn").subject.activation == "tanh"
    with pytest.raises(ConfigurationError):
        load_subject(tmp_path / "m.pt", cell="gru")
    with pytest.raises(ConfigurationError):
        load_subject(tmp_path / "m.pt", cell="elman")


def test_one_of_several_parts_is_named_after_the_file(tmp_path):
    model = nn.ModuleDict({"encoder": nn.GRU(3, 4), "decoder": nn.LSTM(4, 5)})
    torch.save(model.state_dict(), tmp_path / "m.pt")
    with pytest.raises(ConfigurationError):
        load_subject(tmp_path / "m.pt")
    assert same(load_subject(f"{tmp_path}/m.pt#decoder").subject, recurrent_subject(model["decoder"]))
    with pytest.raises(ConfigurationError):
        load_subject(f"{tmp_path}/m.pt#head")


@pytest.mark.parametrize("layer", [ElmanRNN(2, 4), LipschitzRNN(2, 4)])
def test_our_own_files_and_run_directories(layer, tmp_path):
    model = SequenceModel(layer, 3)
    save(model, tmp_path / "m.safetensors")
    (tmp_path / "run").mkdir()
    save(model, tmp_path / "run")
    for where in ("m.safetensors", "run"):
        source = load_subject(tmp_path / where)
        assert isinstance(source.module, SequenceModel)
        assert same(source.subject, layer.driven())
    if isinstance(layer, LipschitzRNN):
        assert load_subject(tmp_path / "run", continuous=True).subject.system.dt is None
    else:
        with pytest.raises(UnsupportedError):
            load_subject(tmp_path / "run", continuous=True)


def test_a_network_without_a_system_is_read_as_a_module(tmp_path):
    path = save(DeepNetwork(2, 3, layer="gru", hidden_size=4, width=4), tmp_path / "m.safetensors")
    with pytest.raises(UnsupportedError):
        load_subject(path)
    assert isinstance(load_module(path), DeepNetwork)
    torch.save(nn.LSTM(2, 3).state_dict(), tmp_path / "weights.pt")
    assert load_module(tmp_path / "weights.pt") is None


@pytest.mark.parametrize("beginning", [b"\x80\x02", b"PK", b"\x08\x02"])
def test_a_safetensors_file_is_known_whatever_the_length_of_its_header(beginning, tmp_path):
    """The file begins with that length: it may begin like a pickle, a zip archive or a protocol buffer."""
    raw = save(ElmanRNN(2, 4), tmp_path / "plain.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    wanted = int.from_bytes(beginning, "little")
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<Q", wanted) + raw[8 : 8 + length].ljust(wanted) + raw[8 + length :])
    assert path.read_bytes().startswith(beginning)
    assert isinstance(load_subject(path).module, ElmanRNN)


def test_npz_forms(tmp_path, rng):
    A, W, U, b = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=3)
    np.savez(tmp_path / "bare.npz", A=A, W=W, slope=[0.0, 0.25])
    bare = load_subject(tmp_path / "bare.npz").subject
    assert isinstance(bare, LureSystem)
    assert (bare.dt, bare.slope) == (None, (0.0, 0.25))
    np.testing.assert_array_equal(bare.B, np.eye(3))
    np.savez_compressed(tmp_path / "net.npz", A=A, W=W, U=U, b=b, dt=1.0, activation="relu")
    net = load_subject(tmp_path / "net.npz").subject
    assert isinstance(net, DrivenSystem)
    assert (net.activation, net.system.dt) == ("relu", 1.0)
    np.savez(tmp_path / "lin.npz", A=A)
    assert load_subject(tmp_path / "lin.npz").subject.channels == 0
    for bad in (
        {"W": W},
        {"A": A, "W": W, "C": W},
        {"A": A, "weights": W},
        {"A": A, "W": W, "dt": [1.0, 2.0]},
    ):
        np.savez(tmp_path / "bad.npz", **bad)
        with pytest.raises(FileFormatError):
            load_subject(tmp_path / "bad.npz")
    np.savez(tmp_path / "tall.npz", A=np.zeros((10**6, 1)), W=W)
    with pytest.raises(StabilityError):
        load_subject(tmp_path / "tall.npz")


def test_a_factory(tmp_path, monkeypatch):
    (tmp_path / "my_networks_here.py").write_text(
        textwrap.dedent("""
        import torch
        def make():
            return torch.nn.Sequential(torch.nn.GRU(3, 4))
        ready = torch.nn.LSTM(2, 3)
        def broken():
            raise RuntimeError("no weights today")
        def nothing():
            return 7
    """)
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load_subject("my_networks_here:make").subject.kind == "gru"
    assert isinstance(load_subject("my_networks_here:ready").module, nn.LSTM)
    with pytest.raises(ConfigurationError):
        load_subject("my_networks_here:broken")
    for bad in ("my_networks_here:absent", "no_such_module_at_all:make"):
        with pytest.raises(ConfigurationError):
            load_subject(bad)
    with pytest.raises(UnsupportedError):
        load_subject("my_networks_here:nothing")
    assert sys.path == before


def good_bytes(form: str) -> bytes:
    buffer = io.BytesIO()
    module = nn.GRU(3, 8)
    if form == "safetensors":
        return safetensors.torch.save(module.state_dict())
    if form == "npz":
        np.savez(buffer, A=-np.eye(8), W=np.ones((8, 8)))
    else:
        torch.save(module.state_dict(), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["safetensors", "npz", "pt"])
@pytest.mark.parametrize("keep", [1, 8, 9, 60, 0.5, 0.95])
def test_truncated_files(form, keep, tmp_path):
    data = good_bytes(form)
    (tmp_path / "m").write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
    with pytest.raises(FileFormatError) as caught:
        load_subject(tmp_path / "m")
    assert "\n" not in str(caught.value)


def compressed_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, A=-np.eye(8), W=np.ones((8, 8)))
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["safetensors", "npz", "compressed npz", "pt"])
def test_damaged_bytes_are_never_more_than_refused(form, tmp_path, rng):
    data = compressed_npz() if form == "compressed npz" else good_bytes(form)
    messages = []
    for _ in range(150):
        broken = bytearray(data)
        for place in rng.integers(0, len(data) if rng.random() < 0.5 else min(len(data), 400), 3):
            broken[place] = rng.integers(0, 256)
        (tmp_path / "m").write_bytes(broken)
        try:
            load_subject(tmp_path / "m")
        except StabilityError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert not [m for m in messages if "\n" in m]


def test_parametrised_state_dicts_are_explained(tmp_path):
    module = nn.RNN(3, 4)
    nn.utils.parametrizations.orthogonal(module, "weight_hh_l0")
    torch.save(module.state_dict(), tmp_path / "m.pt")
    with pytest.raises(UnsupportedError):
        load_subject(tmp_path / "m.pt", cell="rnn")


@pytest.mark.parametrize("spec", ["", "absent.pt", "no/such/dir", "a\0b", "./absent:thing"])
def test_names_of_nothing(spec):
    with pytest.raises(StabilityError):
        load_subject(spec)


def test_a_directory_that_is_no_run(tmp_path):
    with pytest.raises(FileFormatError):
        load_subject(tmp_path)


def test_what_was_loaded_can_be_certified(tmp_path) -> None:
    torch.manual_seed(0)
    cell = torch.nn.RNN(2, 3)
    with torch.no_grad():
        cell.weight_hh_l0.mul_(0.5)
    torch.save(cell.state_dict(), tmp_path / "rnn.pt")
    found = certify(load_subject(tmp_path / "rnn.pt", cell="rnn_tanh"))
    assert (found.verdict, found.rate) == (certify(cell).verdict, certify(cell).rate)
