"""Folds of several trainings and of other metrics, and their template."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from stability.reports.formatting import verdict_word
from stability.reports.names import breakable
from stability.reports.page.method import method
from stability.reports.page.parts import Table
from stability.reports.page.results import more_results
from stability.reports.stored.collect import collect
from stability.storage.documents import file_digest

from ..conftest import seal
from .folds import rows, tables


def test_several_trainings_are_told_by_their_mean_and_interval(small_dir: Path) -> None:
    models = small_dir / "models"
    settings = json.loads((small_dir / "report-settings.json").read_text())
    again = shutil.copytree(models / "contracting", models / "contracting-seed-1")
    digests = {p.name: file_digest(p / "analysis.json") for p in (models / "contracting", again)}
    settings["trainings"] = {"runs": {"contracting": list(digests)}, "digests": digests}
    (small_dir / "report-settings.json").write_text(json.dumps(settings))
    levels = pd.read_csv(models / "contracting" / "noise.csv")["level"].unique()
    told = [("noise", "white", level, 0.5, 0.4, 0.6, 0.45, 0.55) for level in levels]
    told += [("hessian.lambda_max", "", None, 40.0, 37.5, 42.5, 39.0, 41.0)]
    told += [("run.result.test_metric", "", None, 0.905, 0.8, 1.0, 0.9, 0.91)]
    table = pd.DataFrame(told, columns=["what", "group", "at", "mean", "low", "high", "least", "largest"])
    table.assign(model="contracting", n=2).to_csv(small_dir / "trainings.csv", index=False)
    found = tables(small_dir)
    (row,) = rows(found["Means over several trainings"]).values()
    assert [row[name].text for name in ("trainings", "verdicts", "on held-out data", "least to largest")] == [
        "2", f"2 {verdict_word('certified')}", "90.5 % ± 10.5 %", "90.0 % to 91.0 %",
    ]  # fmt: skip
    assert row["top Hessian eigenvalue"].text == "40 ± 2.5"
    (heat,) = rows(found["Accuracy, %"]).values()
    assert {cell.text for column, cell in heat.items() if column.startswith("noise")} == {"50"}
    (models / "contracting-seed-1" / "analysis.json").write_text("{}")
    shown = tables(small_dir)["Means over several trainings"]
    assert "on held-out data" not in shown.header
    assert "other results than those of contracting-seed-1" in shown.note


def test_a_regression_is_never_called_accuracy(small_dir: Path) -> None:
    folder = small_dir / "models" / "contracting"
    run = json.loads((folder / "run.json").read_text())
    run["result"] |= {"metric": "mse", "train_metric": 0.169, "test_metric": 0.172, "chance": 0.167}
    (folder / "run.json").write_text(json.dumps(run))
    for name in ("noise", "attacks"):
        (folder / f"{name}.csv").unlink()
    scores = pd.DataFrame({"noise": "white", "metric": "mse", "level": [0.0, 0.1], "score": [0.172, 0.34]})
    scores.assign(ci_low=0.3, ci_high=0.4, n=9).to_csv(folder / "noise_scores.csv", index=False)
    seal(folder)
    found = tables(small_dir)
    (row,) = rows(found["Networks and training"]).values()
    assert [row[name].text for name in ("training data", "held-out data", "best guess")] == ["0.169", "0.172", "0.167"]
    (row,) = rows(found["Mean squared error"]).values()
    assert [(column, cell.text, cell.tone) for column, cell in row.items()][1:] == [("noise σ 0.1", "0.34", "")]
    assert not any("ccuracy" in f"{t.caption} {t.header}" for t in found.values())


def test_the_template_writes_every_cell_once_and_no_style(report_dir: Path) -> None:
    env = Environment(
        loader=PackageLoader("stability.reports.page", "templates"), autoescape=True, undefined=StrictUndefined
    )
    env.filters["breakable"] = breakable
    template = env.from_string('{% from "fold.html.j2" import fold %}{% for f in folds %}{{ fold(f) }}{% endfor %}')
    report = collect(report_dir)
    folds = [*more_results(report), *method(report)]
    assert len({fold.anchor for fold in folds}) == len(folds) >= 10
    text = template.render(folds=folds)
    assert text.count("<details") == len(folds)
    assert not re.search(r"\sstyle=|<style|<script", text)
    told = [
        html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", text, re.S)
    ]
    shown = [part for fold in folds for part in fold.parts if isinstance(part, Table)]
    assert told == [cell for t in shown for cell in (*t.header, *(c.text for row in t.rows for c in row))]
    hints = re.findall(r'title="([^"]*)"', text)
    assert [html.unescape(h) for h in hints] == [c.hint for t in shown for row in t.rows for c in row if c.hint]
