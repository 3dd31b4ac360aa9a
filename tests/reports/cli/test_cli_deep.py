"""Deep networks on the command line: trained, answered part by part, compared; layers that run both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from stability import certify, verify
from stability.models import DeepNetwork, SequenceModel, load, save
from stability.models.rotrnn import RotRNN
from stability.reports import cli

TINY = ["--task-set", "size=7", "--task-set", "limit=30", "--task-set", "test_limit=10", "--epochs", "1", "-q"]


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict]:
    code = cli.run([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_deep_network_is_trained_certified_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, proof = tmp_path / "deep", tmp_path / "c.json"
    options = [part for option in ("layer=rotrnn", "blocks=2", "heads=2", "width=6") for part in ("--set", option)]
    assert cli.run(["train", "--model", "deep", "--hidden", "4", *options, *TINY, "--out", str(run)]) == 0
    model = load(run)
    assert isinstance(model, DeepNetwork)
    assert (model.depth, model.width, model.options, model.reduction) == (2, 6, {"heads": 2}, "mean")
    code, said = answer(capsys, "certify", str(run), "-o", str(proof))
    assert (code, said["verdict"]) == (0, "certified")
    assert verify(proof).valid
    assert set(said["parts"]) == {"blocks.0.layer", "blocks.1.layer"}
    own = [certify(block.layer).rate for block in model.blocks]
    assert [part["rate"] for part in said["parts"].values()] == pytest.approx(own)
    assert said["rate"] == pytest.approx(max(own), rel=1e-6)
    assert "all layers of DeepNetwork, each with its own input" in said["statement"]
    other = save(SequenceModel(RotRNN(7, 4, heads=2), 10), tmp_path / "one.safetensors")
    code, rows = answer(capsys, "compare", str(run), str(other), "--samples", "3", "--factor", "2")
    assert code == 0
    assert all(row["norm_factor"] > 0 for row in rows["models"])


def test_parts_that_are_no_one_system_have_an_answer_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    path = save(DeepNetwork(2, 2, layer="unitary", hidden_size=4, width=3), tmp_path / "u.safetensors")
    assert cli.run(["certify", str(path), "-o", str(tmp_path / "certificates"), "--json"]) == 3
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"].rpartition("#")[2] for line in said] == ["blocks.0.layer", "blocks.1.layer"]
    assert {line["verdict"] for line in said} == {"refuted"}
    assert all(verify(line["certificate"]).valid for line in said)


def test_layers_that_run_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["train", "--model", "rotrnn", "--hidden", "4", "--set", "heads=2", "--set", "bidirectional=true", *TINY]
    assert cli.run([*both, "--out", str(tmp_path / "no")]) == 2
    assert "reduction" in capsys.readouterr().err
    paths = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors")]
    for path, ways in zip(paths, (False, True)):
        save(SequenceModel(RotRNN(2, 4, heads=2, bidirectional=ways), 2, "mean"), path)
    assert cli.run(["compare", *paths]) == 2
    assert "b.safetensors is bidirectional" in capsys.readouterr().err
