"""A token classifier that packs its sequences, from its file of tokens to proofs that verify."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stability.reports import cli

from ...models.test_packed import LENGTHS, tokens

MODULE = """
from tests.models.test_packed import Packing


def packed():
    return Packing().eval()


def by_length():
    return Packing(read="mean", lie=1).eval()


def sorted_only():
    return Packing(sorted_only=True).eval()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "packing_nets.py").write_text(MODULE)
    given = tokens().numpy()
    np.savez("tokens.npz", x=given, y=np.array([0, 1, 2, 0, 1]))
    return tmp_path


def test_proofs_of_a_packing_network_verify_and_say_that_lengths_count_as_given(capsys) -> None:
    words = ["radius", "packing_nets:packed", "--data", "tokens.npz", "--time-limit", "0.5", "--proofs", "p"]
    assert cli.run([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["unread"], said["n"]) == (0, 5)
    assert sorted(s["steps"] for s in said["samples"]) == sorted(LENGTHS)
    assert said["correct"] > 0
    assert all(s["radius"] > 0 for s in said["samples"] if s["correct"])
    assert cli.run(["verify", "p", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["proved"] == said["correct"]
    assert all("(length of each sequence taken as given)" in s["statement"] for s in checked["samples"])


def test_what_was_not_examined_is_told_in_the_table(capsys) -> None:
    assert cli.run(["radius", "packing_nets:by_length", "--data", "tokens.npz", "--time-limit", "0.2"]) == 0
    said = capsys.readouterr().out
    assert "packed sequences of 1 to 7 steps: only values are perturbed" in said
    assert "inputs not examined: the model reads more than their packed steps" in said
    assert "not examined" in said.split("input ")[1]


def test_a_network_that_takes_sorted_batches_alone_is_refused_with_what_torch_says(capsys) -> None:
    np.savez("tokens.npz", x=tokens().numpy()[[4, 0, 1, 2, 3]], y=np.array([0, 1, 2, 0, 1]))
    assert cli.run(["radius", "packing_nets:sorted_only", "--data", "tokens.npz"]) == 2
    assert "enforce_sorted" in capsys.readouterr().err
