"""Whole networks of checkpoints, and floors beside their weights."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stability.checkpoint_certificate import CheckpointCertificate
from stability.errors import FileFormatError, UnsupportedError
from stability.models import Mamba, Mamba2
from stability.models.checkpoint_network import load_network
from stability.reports.cli import run
from stability.search.gated_linear import certify_checkpoint
from stability.verification import verify

TOKENS, WIDTH = 20, 16
KINDS = {
    "mamba": (Mamba, {"state_size": 4, "rank": 3}, {}),
    "mamba2": (Mamba2, {"state_size": 4, "groups": 2}, {"n_groups": 2}),
}


def write(folder, name):
    """Write a checkpoint of two layers in the layout of transformers; return its blocks, embedding and last norm."""
    torch.manual_seed(0)
    kind, options, settings = KINDS[name]
    blocks = [kind(WIDTH, WIDTH, **options) for _ in range(2)]
    tensors = {"backbone.embeddings.weight": torch.randn(TOKENS, WIDTH), "backbone.norm_f.weight": torch.rand(WIDTH)}
    for i, block in enumerate(blocks):
        with torch.no_grad():
            block.mixer.in_proj.weight.mul_(4.0)
        tensors |= {f"backbone.layers.{i}.{key}": value for key, value in block.state_dict().items()}
    folder.mkdir()
    save_file({key: value.contiguous().clone() for key, value in tensors.items()}, folder / "model.safetensors")
    config = {"model_type": name, "layer_norm_epsilon": 1e-5, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    return blocks, tensors["backbone.embeddings.weight"], tensors["backbone.norm_f.weight"]


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


@pytest.mark.parametrize("name", KINDS)
def test_a_network_is_read_floored_certified_and_verified(name, tmp_path, capsys):
    folder, out, file = tmp_path / "net", tmp_path / "floored", tmp_path / "tokens.npz"
    blocks, embedding, last = write(folder, name)
    tokens = torch.randint(TOKENS, (10, 40))
    np.savez(file, tokens=tokens.numpy())
    x = embedding[tokens]
    for block in blocks:
        x = block(x)[0]
    torch.testing.assert_close(load_network(folder)(tokens), norm(x, last) @ embedding.T, rtol=1e-5, atol=1e-5)

    words = ["repair", str(folder), "--floor", "0.1", "--data", str(file), "--out", str(out), "--json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert run(words) == 2  # the folder holds files now
    floors = json.loads((out / "floors.json").read_text())["floors"]
    x = embedding[tokens]
    for i, block in enumerate(blocks):
        block.set_floors(torch.tensor(floors[f"backbone.layers.{i}.mixer"]))
        x = block(x)[0]
    floored = load_network(out)(tokens)
    torch.testing.assert_close(floored, norm(x, last) @ embedding.T, rtol=1e-5, atol=1e-5)
    held_out = torch.nn.functional.cross_entropy(floored[8:, :-1].flatten(0, 1), tokens[8:, 1:].flatten())
    assert document["loss"]["after"] == pytest.approx(held_out.item(), rel=1e-5)
    assert document["loss"]["after"] != document["loss"]["before"]

    before, after = certify_checkpoint(folder), certify_checkpoint(out)
    for layer, old, new in zip(document["layers"], before.layers, after.layers):
        for when, claims in (("before", old), ("after", new)):
            assert layer["horizon"][when] == {key: claims.summary()["horizon"][key] for key in ("median", "max")}
        assert new.horizons().max() < old.horizons().max()
    path = after.save(tmp_path / "certificate.json")
    assert verify(path, weights=out).valid
    assert not verify(path, weights=folder).valid
    floors["backbone.layers.1.mixer"][0] += 1e-6
    (out / "floors.json").write_text(json.dumps({"format": "stability-floors", "version": 1, "floors": floors}))
    assert not verify(CheckpointCertificate.load(path), weights=out).valid


@pytest.mark.parametrize(
    "floors",
    [
        {"backbone.layers.0.mixer": [-1.0] * 4},
        {"backbone.layers.0.mixer": [0.1] * 3},
        {"backbone.layers.0.mixer": ["a"] * 4},
        {"backbone.layers.0.mixer": [[0.1] * 4]},
        {"backbone.layers.7.mixer": [0.1] * 4},
        [],
    ],
)
def test_a_bad_file_of_floors_is_refused(floors, tmp_path):
    write(tmp_path / "net", "mamba2")
    document = {"format": "stability-floors", "version": 1, "floors": floors}
    (tmp_path / "net" / "floors.json").write_text(json.dumps(document))
    with pytest.raises(FileFormatError):
        certify_checkpoint(tmp_path / "net")


def test_a_text_is_read_by_bytes_only_where_every_byte_is_a_token(tmp_path, capsys):
    write(tmp_path / "net", "mamba")
    (tmp_path / "text.txt").write_bytes(bytes(range(TOKENS)) * 40)
    words = ["repair", str(tmp_path / "net"), "--json", "--text"]
    assert run([*words, str(tmp_path / "text.txt")]) == 0
    (tmp_path / "text.txt").write_text("letters are no tokens of this model" * 20)
    assert run([*words, str(tmp_path / "text.txt")]) == 2
    capsys.readouterr()


def test_other_layers_and_variants_are_refused(tmp_path):
    write(tmp_path / "net", "mamba2")
    config = json.loads((tmp_path / "net" / "config.json").read_text())
    (tmp_path / "net" / "config.json").write_text(json.dumps({**config, "time_step_limit": [0.5, 1.0]}))
    with pytest.raises(UnsupportedError):
        load_network(tmp_path / "net")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["Mamba with biases", "FalconMamba", "Mamba-2 with biases", "Jamba", "RecurrentGemma"])
def test_logits_are_those_of_transformers(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # it would be imported, and is not needed
    pytest.importorskip("transformers")
    from .test_transformers_models import MODELS, tiny_model

    torch.manual_seed(0)
    model = tiny_model(*MODELS[name])
    model.save_pretrained(tmp_path)
    tokens = torch.randint(1, 40, (2, 40))
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits
        torch.testing.assert_close(load_network(tmp_path)(tokens), expected, rtol=1e-5, atol=2e-5)
