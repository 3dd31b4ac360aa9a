"""``stability compare``: theory and proofs beside what was measured, in the table, the file and the figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from stability.models import LSTM, ContractingRNN, Mamba2, RotRNN, SequenceModel, save
from stability.reports import cli


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    torch.manual_seed(0)
    layers = {
        "rotrnn": RotRNN(2, 8, heads=2),
        "contracting": ContractingRNN(2, 8, rate=0.9),
        "lstm": LSTM(2, 4),
        "mamba2": Mamba2(2, 8),
    }
    return [str(save(SequenceModel(layer, 2), tmp_path / f"{name}.safetensors")) for name, layer in layers.items()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--factor", "1000000000"],
            "1000000000 times as long sequences .* the limit is 2\\^27: use a factor of",
        ),
        (
            ["--samples", "1000000000"],
            "1000000000 sequences of 100 steps .* the limit is 2\\^27: use smaller --samples",
        ),
        (["--factor", "9" * 18, "--extension", "zero", "--samples", "2"], "the limit is 2\\^27"),
    ],
)
def test_sizes_are_refused_in_one_line_before_memory_is_taken(
    models: list[str],
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stability.reports.cli.compare._margins", lambda *_: pytest.fail("certified first"))
    assert cli.run(["compare", *models, *options]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error.replace("\n", " "))
    assert "Error" not in error


def test_theory_and_bounds_stand_beside_the_norms(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--samples", "400", "--steps", "20", "--factor", "2", "--extension", "noise"]
    assert cli.run(["compare", *models, *options, "--json", "--out", str(out)]) == 0
    rows = {m["model"]: m for m in json.loads(capsys.readouterr().out)["models"]}
    table = pd.read_csv(out / "norms.csv")
    for name, row in rows.items():
        own = table[table.model == name].set_index("t")
        assert row["rms_at_end_of_sequence"] == pytest.approx(own.loc[20, "rms"])
        for field, column, t in (
            ("expected_rms_at_end_of_sequence", "expected", 20),
            ("bound_at_end_of_sequence", "envelope", 20),
            ("bound_at_last", "envelope", 40),
        ):
            value = own.loc[t, column]
            assert row[field] == (None if pd.isna(value) else pytest.approx(value))
        if row["bound_at_last"] is not None:
            assert (own["mean"] <= own["envelope"]).all()
            assert (own["q90"] <= own["envelope"]).all()
    assert rows["rotrnn"]["rms_at_end_of_sequence"] == pytest.approx(
        rows["rotrnn"]["expected_rms_at_end_of_sequence"], rel=0.1
    )
    assert rows["rotrnn"]["bound_at_last"] is not None
    assert rows["contracting"]["bound_at_last"] is not None
    assert rows["contracting"]["expected_rms_at_end_of_sequence"] is None
    assert "certified contraction" in rows["contracting"]["theory"]["envelope"]
    assert rows["mamba2"]["bound_at_last"] >= rows["mamba2"]["state_bound"] > 0
    assert rows["mamba2"]["horizon_median"] <= rows["mamba2"]["horizon_largest"]
    assert not any("state_bound" in row for name, row in rows.items() if name != "mamba2")
    assert rows["lstm"]["bound_at_last"] is rows["lstm"]["expected_rms_at_end_of_sequence"] is None
