"""Certificates of checkpoints with gated linear layers on the command line."""

import json

import pytest
import torch

from stability.checkpoint_certificate import CheckpointCertificate
from stability.errors import ConfigurationError, FileFormatError
from stability.models import LRU, GatedDeltaNet, Mamba, Mamba2, MinGRU, SequenceModel, save
from stability.reports.cli import run
from stability.verification import verify

LAYER = {"layer", "type", "verdict", "state_bound", "gain", "decay_max", "horizon", "accumulators"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Return a file of a network of four gated linear layers."""
    torch.manual_seed(0)
    layers = [Mamba(3, 8), Mamba2(8, 8, state_size=4), GatedDeltaNet(8, 8, key_size=4), MinGRU(8, 8)]
    folder = tmp_path_factory.mktemp("nets")
    for layer in layers:
        save(SequenceModel(layer, 2), folder / f"{layer.type_name}.safetensors")
    return folder


def certified(capsys, *words):
    code = run(["certify", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_certify_and_verify_a_file_of_weights(weights, tmp_path, capsys):
    for path in sorted(weights.iterdir()):
        out = tmp_path / f"{path.stem}.json"
        code, document = certified(capsys, path, "-o", out)
        assert (code, document["verdict"], document["kind"]) == (0, "certified", "gated_linear")
        assert all(set(layer) >= LAYER and layer["state_bound"] > 0 for layer in document["layers"])
        assert run(["verify", str(out), "--weights", str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["valid"]
        assert not verify(out).valid  # the file holds no weights


def test_other_weights_and_changed_files_are_refused(weights, tmp_path, capsys):
    path, other = weights / "Mamba.safetensors", tmp_path / "other.safetensors"
    torch.manual_seed(1)
    save(SequenceModel(Mamba(3, 8), 2), other)
    out = tmp_path / "certificate.json"
    certified(capsys, path, "-o", out)
    assert not verify(out, weights=other).valid
    text = out.read_text()
    value = f'"value": {CheckpointCertificate.load(out).layers[0].claims[0].value}'
    assert value in text
    out.write_text(text.replace(value, '"value": 1.0', 1))
    with pytest.raises(FileFormatError):
        CheckpointCertificate.load(out)


def test_a_smaller_bound_with_a_new_seal_is_refused(weights, tmp_path, capsys):
    from dataclasses import replace

    from stability.kernel.format.claims import Proof

    path = weights / "Mamba-2.safetensors"
    out = tmp_path / "certificate.json"
    certified(capsys, path, "-o", out)
    loaded = CheckpointCertificate.load(out)
    (layer,) = loaded.layers
    for i, claim in enumerate(layer.claims):
        data = {key: value * 0.9 for key, value in claim.proof.data.items()}
        forged = replace(claim, proof=Proof(claim.proof.kind, data), value=claim.value * 0.9)
        claims = (*layer.claims[:i], forged, *layer.claims[i + 1 :])
        CheckpointCertificate(loaded.name, (replace(layer, claims=claims),)).save(out)
        assert not verify(out, weights=path).valid


def test_repeated_layers_and_other_methods_are_refused(weights, tmp_path, capsys):
    path, out = weights / "minGRU.safetensors", tmp_path / "certificate.json"
    certified(capsys, path, "-o", out)
    loaded = CheckpointCertificate.load(out)
    twice = CheckpointCertificate(loaded.name, loaded.layers * 2)
    assert verify(loaded, weights=path).valid
    assert not verify(twice, weights=path).valid
    with pytest.raises(ConfigurationError):
        verify(loaded, weights=path, method="exact")


def test_runs_of_checkpoints_have_a_bound_or_a_reason(weights, tmp_path, capsys):
    for path in sorted(weights.iterdir()):
        out = tmp_path / f"{path.stem}.json"
        (layer,) = certified(capsys, path, "--arithmetic", "float32", "-o", out)[1]["layers"]
        assert 0.0 < layer["as_it_runs"] < layer["state_bound"]
        assert verify(out, weights=path).valid
        document = certified(capsys, path, "--arithmetic", "float8_e5m2")[1]
        assert document["layers"][0]["as_it_runs"] is None
        assert document["meta"]["as_it_runs"]["0"]
    assert run(["certify", str(path), "--arithmetic", "float32"]) == 0
    assert "float32 stays within" in capsys.readouterr().out


def test_options_of_checkpoints(weights, tmp_path, capsys):
    save(SequenceModel(LRU(2, 4), 2), tmp_path / "lru.safetensors")
    assert run(["certify", str(tmp_path / "lru.safetensors"), "--layers", "0"]) == 2
    assert run(["certify", str(weights / "minGRU.safetensors"), "--layers", "3"]) == 2
    assert run(["certify", str(weights / "minGRU.safetensors"), "--layers", "a"]) == 2
    assert run(["certify", str(weights / "minGRU.safetensors"), "--layers", "0", "--input-set", "box"]) == 2
    assert run(["certify", str(weights / "minGRU.safetensors"), "--rate", "0.9"]) == 2
    code, document = certified(capsys, weights / "minGRU.safetensors", "--layers", "0")
    assert (code, len(document["layers"])) == (0, 1)
