"""Every number of the page carries its mark, and leads within two links to file, command and code."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from stability.reports import render
from stability.reports.cli import run
from stability.reports.page.marks import HEURISTIC, MARKS, MEASURED, PROVED
from stability.reports.stored.collect import collect
from stability.verification import verify

from ..conftest import make_report_dir
from .test_numbers import Tables

GIVEN = {  # what is no result: names, sizes, settings, times, digests
    "model", "proof", "criterion", "its unit", "meaning", "claim", "samples", "inputs", "classified correctly",
    "sequences", "time", "time an input", "steps counted", "size", "forgotten below", "runs", "parameters", "epochs",
    "measured by",    "where it is from", "file", "SHA-256", "made by", "probes", "answer", "in full", "data",
    "class", "most often taken for",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose steps say which code made them, of one certified and one refuted model."""
    folder = make_report_dir(tmp_path_factory.mktemp("marks") / "report", ("contracting", "lstm"))
    for path in (folder / "models").glob("*/analysis.json"):
        analysis = json.loads(path.read_text())
        code = {
            "noise": "attacks.steps",
            "attacks": "attacks.steps",
            "hessian": "curvature.density",
            "norms": "dynamics.norms",
        }
        code |= {"local": "radius.single", "lyapunov": "dynamics.lyapunov", "certificate": "campaign.certificate"}
        analysis["steps"]["local"] = {"status": "done", "seconds": 1.0}
        analysis["steps"] = {s: {**v, "code": f"stability.analysis.{code[s]}"} for s, v in analysis["steps"].items()}
        path.write_text(json.dumps(analysis))
    render(folder)
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> Tables:
    return Tables((folder / "report.html").read_text(encoding="utf-8"))


def test_every_number_that_is_a_result_has_a_mark(tables: Tables) -> None:
    settings = ("Time spent", "Programs", "Models, data", "Weights", "What ", "Files")
    unmarked = [
        (caption, tables.tables[caption][0][k], cell)
        for caption, rows in tables.tables.items()
        if not caption.startswith(settings)
        for row, marks in zip(rows[1:], tables.marks[caption][1:], strict=True)
        for k, (cell, mark) in enumerate(zip(row, marks, strict=True))
        if re.search(r"\d", cell) and mark not in MARKS and rows[0][k] not in GIVEN
    ]
    assert unmarked == []
    assert {m for rows in tables.marks.values() for row in rows for m in row} >= set(MARKS)


def test_nothing_but_certificates_is_marked_as_proved(tables: Tables) -> None:
    """Columns that hold what the checker proves; everything else was measured or computed."""
    proved = {
        (next(w for w in re.split(r"[:(]", caption)).strip(), tables.tables[caption][0][k])
        for caption, rows in tables.marks.items()
        for row in rows
        for k, mark in enumerate(row)
        if mark == PROVED
    }
    columns = {title for _, title in proved}
    assert columns == {
        "answer", "certified rate", "distance at most half after", "bound after 98 steps, the trained length",
        "in full",        "certified radius", "certified bound, log ρ + log(C) / steps",
    }  # fmt: skip
    (attacked,) = [c for c in tables.tables if c.startswith("The answer")]
    assert tables.marks[attacked][1][tables.tables[attacked][0].index("attacked, ‖δ‖₂ ≤ 0.1 (95 %)")] == MEASURED
    assert tables.marks[attacked][1][tables.tables[attacked][0].index("certified there by a gain")] == HEURISTIC


def test_an_answer_is_marked_as_proved_only_where_the_checker_proves_it(drawn: Path) -> None:
    read = Tables((drawn / "report.html").read_text(encoding="utf-8"))
    (caption,) = [name for name in read.tables if name.startswith("The answer")]
    marked = {row[0]: marks[1] for row, marks in zip(read.tables[caption], read.marks[caption], strict=True)}
    for model in collect(drawn).models:
        found = verify(model.folder / "certificate.json")
        assert (marked[model.title] == PROVED) == (found.valid and found.evidence == "proved"), model.title


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands that do one step alone, by the verb."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    found = [shlex.split(html.unescape(words)) for words in re.findall(r"Alone: <code>([^<]*)</code>", page)]
    return {words[1]: words[1:] for words in found}


@pytest.mark.slow
def test_the_command_of_a_step_gives_the_numbers_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is run in the page's folder as it stands there; the files it is compared with are the page's."""
    out, models = tmp_path / "report", "contracting,lru"
    assert run(["report", "--quick", "--models", models, "--seed", "3", "--out", str(out), "-q"]) == 0
    settings = json.loads((out / "report-settings.json").read_text())
    assert settings["command"] == f"stability report --quick --models {models} --seed 3 --out {out} -q"
    monkeypatch.chdir(out)
    told = {}
    for verb, words in commands(out).items():
        capsys.readouterr()
        code = run([*words, "--json"])
        told[verb] = json.loads(capsys.readouterr().out)
        assert code == 0, (verb, told[verb])
    assert set(told) == {"certify", "hessian", "noise", "attack", "compare", "radius"}
    folder = out / told["certify"]["model"]  # the first of the page
    certificate = json.loads((folder / "certificate.json").read_text())
    assert (told["certify"]["rate"], told["certify"]["statement"]) == (
        certificate["rate"], certificate["claim"]["statement"],
    )  # fmt: skip
    for verb, table, keys in (
        ("noise", "noise", "noise == 'white'"), ("attack", "attacks", "attack == 'strong' and norm == 'linf'"),
    ):  # fmt: skip
        rows = pd.read_csv(folder / f"{table}.csv").query(keys)
        assert told[verb]["accuracy"] == rows["accuracy"].tolist()
        assert told[verb]["n"] == rows["n"].iloc[0]
    hessian = json.loads((folder / "hessian.json").read_text())
    assert told["hessian"]["lambda_max"] == pytest.approx(hessian["lambda_max"], rel=1e-4)
    assert told["hessian"]["loss"] == pytest.approx(hessian["loss"], rel=1e-9)
    local = json.loads((folder / "local.json").read_text())
    for name in ("median_radius", "median_attack"):
        assert told["radius"][name] == pytest.approx(local[name], rel=1e-9)
    drift = json.loads((folder / "drift.json").read_text())
    (mine,) = [m for m in told["compare"]["models"] if m["path"].endswith(folder.name)]
    assert (mine["doublings"], mine["slope"], mine["norm_at_last"]) == pytest.approx(
        (drift["drift_index"], drift["slope"], drift["end"])
    )
