"""Checkpoints on the command line: boxes of inputs, limits of steps, measurements, and the page of a report."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from stability.analysis.gated_layers import measure_layers
from stability.checkpoint_certificate import MARKERS, CheckpointCertificate
from stability.models import Mamba2, MinGRU, SequenceModel, load_network, save
from stability.models.checkpoints.folder import LAYOUTS, open_checkpoint
from stability.reports.cli import run
from stability.systems import InputBox
from stability.verification import verify

TOKENS, WIDTH, SEQUENCE = 20, 16, 24


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Write a language model of two Mamba-2 layers with limits of the step."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("net")
    tensors = {"backbone.embeddings.weight": torch.randn(TOKENS, WIDTH), "backbone.norm_f.weight": torch.rand(WIDTH)}
    for i in range(2):
        block = Mamba2(WIDTH, WIDTH, state_size=4)
        tensors |= {f"backbone.layers.{i}.{key}": value.clone() for key, value in block.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "mamba2", "layer_norm_epsilon": 1e-5, "n_groups": 1}
    (folder / "config.json").write_text(json.dumps(config))
    np.savez(folder / "tokens.npz", tokens=torch.randint(TOKENS, (6, SEQUENCE)).numpy())
    return folder


@pytest.fixture(scope="module")
def limited(network, tmp_path_factory):
    """Write the same model with limits of the step in ``config.json``."""
    folder = tmp_path_factory.mktemp("limited")
    (folder / "model.safetensors").write_bytes((network / "model.safetensors").read_bytes())
    config = json.loads((network / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"time_step_limit": [0.05, 0.5]}))
    return folder


def certified(capsys, *words):
    code = run(["certify", *map(str, words), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if code in (0, 1, 3) else None


def test_the_box_of_the_data_is_in_the_file_and_other_boxes_are_refused(network, tmp_path, capsys):
    out, data = tmp_path / "certificate.json", network / "tokens.npz"
    code, document = certified(capsys, network, "--input-set", "box", "--data", data, "-o", out)
    assert (code, verify(out, weights=network).valid) == (0, True)
    loaded = CheckpointCertificate.load(out)
    tokens = torch.from_numpy(np.load(data)["tokens"])
    for layer, record, row in zip(loaded.layers, measure_layers(load_network(network), [tokens]), document["layers"]):
        assert np.allclose(layer.box.low, record.low, rtol=1e-5, atol=1e-6)
        assert np.allclose(layer.box.high, record.high, rtol=1e-5, atol=1e-6)
        assert "stay in the stored box" in layer.claims[0].statement
        assert row["measured"]["state"] <= row["state_bound"]
        assert row["measured"]["horizon"]["max"] <= row["horizon"]["max"]

    first, second = loaded.layers
    stored = open_checkpoint(network).layers[0]

    def accepted(factor, *, true_digest):
        box = InputBox(first.box.low * factor, first.box.high * factor)
        digest = stored.build("box", box).digest if true_digest else first.digest
        changed = replace(first, box=box, digest=digest)
        CheckpointCertificate(loaded.name, (changed, second)).save(out)
        return verify(out, weights=network).valid

    assert not accepted(1.5, true_digest=False)
    assert not accepted(0.5, true_digest=False)
    assert not accepted(1.5, true_digest=True)
    assert accepted(0.5, true_digest=True)  # bounds for a box hold in a smaller one
    CheckpointCertificate(loaded.name, (replace(first, input_set="norm", box=None), second)).save(out)
    assert not verify(out, weights=network).valid


def test_two_numbers_are_a_box_for_every_layer(network, tmp_path, capsys):
    torch.manual_seed(0)
    save(SequenceModel([MinGRU(2, 8), MinGRU(8, 8)], 2), tmp_path / "own.safetensors")
    for path in (network, tmp_path / "own.safetensors"):
        out = tmp_path / f"{path.stem}.json"
        code, document = certified(capsys, path, "--input-box", "-0.5", "1", "-o", out)
        assert (code, len(document["layers"]), verify(out, weights=path).valid) == (0, 2, True)
        boxes = [layer.box for layer in CheckpointCertificate.load(out).layers]
        assert all(set(box.low) == {-0.5} and set(box.high) == {1.0} for box in boxes)


def test_limits_of_steps_are_kept_and_shorten_the_memory(network, limited, tmp_path, capsys):
    free, out = certified(capsys, limited)[1], tmp_path / "limited.json"
    document = certified(capsys, limited, "--step-limits", "-o", out)[1]
    for one, other in zip(document["layers"], free["layers"]):
        assert (one["step_limits"], other["step_limits"]) == (True, False)
        assert one["horizon"]["max"] < other["horizon"]["max"]
    assert verify(out, weights=limited).valid
    loaded = CheckpointCertificate.load(out)
    assert all("limits of its steps" in layer.claims[0].statement for layer in loaded.layers)
    without = tuple(replace(layer, step_limits=False) for layer in loaded.layers)
    assert not verify(CheckpointCertificate(loaded.name, without), weights=limited).valid
    assert not verify(out, weights=network).valid
    assert run(["certify", str(limited), "--step-limits"]) == 0
    assert "decode token by token" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--step-limits"],
        ["--input-set", "box"],
        ["--input-set", "norm", "--input-box", "0", "1"],
        ["--input-set", "vocabulary"],
        ["--tokenizer", "absent.json"],
        ["-o", "NETWORK/model.safetensors"],
    ],
)
def test_options_without_a_meaning_are_refused(words, network, capsys):
    before = (network / "model.safetensors").read_bytes()
    assert run(["certify", str(network), *(word.replace("NETWORK", str(network)) for word in words)]) == 2
    assert (network / "model.safetensors").read_bytes() == before


def test_the_page_shows_the_numbers_of_the_json(network, tmp_path, capsys):
    words = ["report", str(network), "--data", str(network / "tokens.npz"), "--out", str(tmp_path), "--json"]
    assert run(words) == 0
    printed = json.loads(capsys.readouterr().out)
    document = json.loads((tmp_path / "report.json").read_text())
    assert {key: printed[key] for key in document} == document
    page = (tmp_path / "report.html").read_text()
    rows = re.findall(r"<tr>(<td.*?)</tr>", page, re.DOTALL)
    assert len(rows) == len(document["layers"]) == 2
    for text, layer in zip(rows, document["layers"]):
        cells = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", text)]
        numbers = [float(cell.replace("\u202f", "")) for i, cell in enumerate(cells) if i == 0 or i > 2]
        measured, horizon = layer["measured"], layer["horizon"]
        expected = [layer["layer"], layer["state_bound"], layer["gain"], horizon["median"], horizon["max"]]
        expected += [layer["never"], len(layer["accumulators"]), measured["state"], measured["ratio"]["median"]]
        expected += [measured["horizon"]["median"], measured["horizon"]["max"]]
        assert numbers == pytest.approx(expected, rel=1e-2)
        assert numbers[1] >= layer["state_bound"]
    units = pd.read_csv(tmp_path / "tables/units.csv")
    drawn = pd.read_csv(tmp_path / "figures/horizon.csv")
    assert drawn["value"].tolist() == units["horizon"].tolist()
    assert np.allclose(units["ratio"], units["state_bound"] / units["measured_state"])
    assert verify(tmp_path / "certificate.json", weights=network).valid


def test_every_layout_is_found_by_its_first_tensor():
    assert {layout.keys[0] for layout in LAYOUTS if layout.name != "HGRN"} <= set(MARKERS)


def test_a_torch_file_is_read_once(network, tmp_path, capsys, monkeypatch):
    from stability.models.checkpoints import stored_tensors

    reads, read = [], stored_tensors.read_torch_file
    monkeypatch.setattr(stored_tensors, "read_torch_file", lambda *words: reads.append(1) or read(*words))
    torch.save(load_file(network / "model.safetensors"), tmp_path / "model.pt")
    (tmp_path / "config.json").write_bytes((network / "config.json").read_bytes())
    assert certified(capsys, tmp_path / "model.pt")[0] == 0
    assert len(reads) == 1
    torch.save({"weight_ih_l0": torch.zeros(4, 2), "weight_hh_l0": torch.zeros(4, 4)}, tmp_path / "rnn.pt")
    assert certified(capsys, tmp_path / "rnn.pt", "--cell", "rnn_tanh")[0] == 0
    assert len(reads) == 1  # names of tensors tell that there is no gated linear layer
