"""Cells of the tables of results, read as a browser reads them, against the files that they came from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stability.reports import render
from stability.reports.formatting import count, duration, metric, number, percent, signed
from stability.reports.stored.collect import collect
from stability.reports.vocabulary import NAMES
from stability.statistics import wilson

from ..conftest import make_report_dir
from ..rounded import downwards, upwards
from .test_numbers import Tables

DIGEST = "ab" * 32
WALK = {"name": "walk", "accuracy": 0.25, "sequences": 1200, "taken_for": "run"}
CLASSES = [WALK, {"name": "run", "accuracy": 1.0, "sequences": 7, "taken_for": None}]
PERFORMANCE = {"metric": "accuracy", "value": 0.813, "chance": 0.31, "sequences": 1207, "by_class": CLASSES}
TASK = {
    "name": "data", "test": 1207, "train": 5000, "steps": 40, "input_size": 3,
    "data": {"source": "arrays", "what": "good.npz", "held_out": "its own", "digest": DIGEST, "bounds": "stated"},
}  # fmt: skip


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in which every table has a row: of trained models, one given as a file, and one that failed."""
    # all numbers of a row differ, so that no column can stand for another
    folder = make_report_dir(tmp_path_factory.mktemp("every") / "report")
    given = folder / "models" / "lstm"
    (given / "run.json").unlink()
    (given / "performance.json").write_text(json.dumps(PERFORMANCE))
    changed(given / "analysis.json", source="nets/lstm.pt", task=TASK, input_range=[-1.5, 2.5])
    for k, name in enumerate(("contracting", "lipschitz")):
        analysis = json.loads((folder / "models" / name / "analysis.json").read_text())
        steps = {step: {**said, "seconds": 2.0 + i + k} for i, (step, said) in enumerate(analysis["steps"].items())}
        changed(
            folder / "models" / name / "analysis.json", source=f"trained here: {name}", parameters=4321, steps=steps
        )
        changed(folder / "models" / name / "exponents.json", steps=784 + k)
        hessian = {"lambda_max_residual": 0.01, "lambda_min_residual": 0.002, "n_parameters": 1234}
        changed(folder / "models" / name / "hessian.json", **hessian)
    settings = folder / "report-settings.json"
    names = json.loads(settings.read_text())["models"]
    changed(settings, models=[*names, "gone"], failed={"gone": "it diverged"})
    render(folder)
    return folder


def files(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """A document of every model that has it, by title."""
    out = {}
    for model in (folder / "models").iterdir():
        title = json.loads((model / "analysis.json").read_text())["title"]
        if (model / name).is_file():
            out[title] = json.loads((model / name).read_text())
    return out


def found(document: Any, path: str) -> Any:
    """What stands in a document under a path with dots."""
    for part in path.split("."):
        document = document.get(part)
    return document


def fields(document: str, *columns: tuple[str, str, Callable[[Any], str]]) -> Callable[[Path], list[list[str]]]:
    """What a table must show of one document, a row a model that has it: title, field, how it is written."""

    def rows(folder: Path) -> list[list[str]]:
        there = files(folder, document)
        body = [
            [title, *(show(found(there[title], key)) for _, key, show in columns)] for title in order(folder, there)
        ]
        return [["model", *(title for title, _, _ in columns)], *body]

    return rows


def order(folder: Path, known: Any) -> list[str]:
    names = json.loads((folder / "report-settings.json").read_text())["models"]
    titles = [
        json.loads(p.read_text())["title"] for n in names if (p := folder / "models" / n / "analysis.json").is_file()
    ]
    return [t for t in titles if t in known]


def dynamics(folder: Path) -> list[list[str]]:
    drifts, exponents = files(folder, "drift.json"), files(folder, "exponents.json")
    header = [
        "model", "mean ‖h‖ at first", "at last", "slope of log ‖h‖", "doublings",
        "largest exponent, mean over sequences", "certified bound, log ρ + log(C) / steps", "steps counted",
    ]  # fmt: skip
    body = [
        [
            t, number(drifts[t]["start"]), number(drifts[t]["end"]), signed(drifts[t]["slope"]),
            number(drifts[t]["drift_index"]), signed(exponents[t]["largest"]), signed(exponents[t]["bound"]),
            count(exponents[t].get("steps")),
        ]
        for t in order(folder, drifts)
    ]  # fmt: skip
    return [header, *body]


def training(folder: Path) -> list[list[str]]:
    runs, analyses = files(folder, "run.json"), files(folder, "analysis.json")
    header = [
        "model", "parameters", "epochs", "measured by", "on training data", "on held-out data", "guessing", "time",
        "where it is from",
    ]  # fmt: skip
    body = [
        [
            t, count(analyses[t]["parameters"]), count(r["epochs"]), "accuracy", percent(r["train_metric"]),
            percent(r["test_metric"]), percent(r["chance"]), duration(r["seconds"]),
            analyses[t]["source"].removeprefix("trained here: "),
        ]
        for t in order(folder, runs)
        for r in [runs[t]["result"]]
    ]  # fmt: skip
    return [header, *body]


def margins(folder: Path) -> list[list[str]]:
    certificates = files(folder, "certificate.json")
    criteria = [f["criterion"] for f in next(iter(certificates.values()))["findings"]]
    body = []
    for title in order(folder, certificates):
        cells = []
        for found in certificates[title]["findings"]:
            unsound = found["criterion"] == "theorem1b_published"
            word = (
                ("(holds)" if found["holds"] else "(fails)") if unsound else "✓ holds" if found["holds"] else "✗ fails"
            )
            cells.append(f"{word} {signed(found['margin'])}{'; proves nothing' * unsound}")
        body.append([title, *cells])
    return [["model", *(NAMES[c] for c in criteria)], *body]


def claims(folder: Path) -> list[list[str]]:
    """The further claims as the checker proves them again."""
    words = {"certified": "proved", "refuted": "refuted", "inconclusive": "open"}
    body = [
        [m.title, c["name"].replace("_", " "), words[c["verdict"]], c["statement"]]
        for m in collect(folder).models
        for c in (m.certificate or {})["claims"]
    ]
    assert len(body) >= 2
    return [["model", "claim", "answer", "in full"], *body]


def performance(folder: Path) -> list[list[str]]:
    header = ["model", "data", "measured by", "on the data", "guessing", "sequences"]
    ((title, found),) = files(folder, "performance.json").items()
    shown = [metric(found[key], found["metric"]) for key in ("value", "chance")]
    return [header, [title, "good.npz", "accuracy", *shown, count(found["sequences"])]]


def classes(folder: Path) -> list[list[str]]:
    ((title, found),) = files(folder, "performance.json").items()
    body = [
        [title, c["name"], percent(c["accuracy"]), count(c["sequences"]), c["taken_for"] or "never mistaken"]
        for c in found["by_class"]
    ]
    return [["model", "class", "accuracy", "sequences", "most often taken for"], *body]


def answers(folder: Path) -> list[list[str]]:
    """Certified first, then what is open, then what is refuted; intervals by the formula of the analysis."""
    documents = {name: files(folder, f"{name}.json") for name in ("run", "exponents", "analysis", "performance")}
    reports = {m.title: m for m in collect(folder).models}
    header = [
        "model", "answer", "certified rate", "distance at most half after", "bound after 98 steps, the trained length",
        "mean exponent along the data (95 %)", "held-out accuracy or accuracy on good.npz (95 %)",
        "attacked, ‖δ‖₂ ≤ 0.1 (95 %)", "certified there by a gain", "proof",
    ]  # fmt: skip
    words = {"certified": "✓ certified stable", "inconclusive": "? inconclusive", "refuted": "✗ refuted"}
    body = []
    for title in sorted(reports, key=lambda t: list(words).index(str(reports[t].state))):
        m = reports[title]
        rate, half, bound = "–", "–", "–"
        if m.certificate and m.state == "certified":
            pairs = m.certificate["pairs"]
            (shown,) = re.findall(r"[*] ([0-9.]+)\^k", m.certificate["statement"])
            rate = f"ρ = {shown} per step"
            least = next(k for k in range(1, 10**6) if min(c * r**k for r, c in pairs) < 0.5)
            half, bound = f"{least} steps", f"× {number(float(upwards(min(c * r**98 for r, c in pairs), 3)))}"
        result = documents["run"].get(title, {}).get("result", {})
        share = result.get("test_metric", documents["performance"].get(title, {}).get("value"))
        n = documents["performance"].get(title, {}).get("sequences")
        low, high = (percent(end) for end in wilson(share, n)) if n else ("", "")
        attacked = pd.read_csv(m.folder / "attacks.csv").query("attack == 'strong' and norm == 'l2'")
        attacked = attacked[(attacked.epsilon - 0.1).abs() < 1e-9]
        left, least, most = (percent(attacked[name].item()) for name in ("accuracy", "ci_low", "ci_high"))
        stored = m.folder / "robustness.csv"
        kept = pd.read_csv(stored).query("radius >= 0.1")["certified_accuracy"].max() if stored.is_file() else None
        body.append([
            title, words[str(m.state)], rate, half, bound, signed(documents["exponents"][title]["largest"]),
            percent(share) + (f" ({low.removesuffix(' %')} to {high})" if n else ""),
            f"{left} ({least.removesuffix(' %')} to {most})", percent(kept), "file",
        ])  # fmt: skip
    return [header, *body]


EXPECTED = {
    "The answer": answers,
    "Signed margins": margins,
    "Further claims": claims,
    "Hessian of the training loss": fields(
        "hessian.json",
        ("largest eigenvalue", "lambda_max", number), ("± residual", "lambda_max_residual", number),
        ("smallest eigenvalue", "lambda_min", number), ("± residual", "lambda_min_residual", number),
        ("trace", "trace", number), ("± 95 %", "trace_half_width", number),
        ("condition number", "condition_number", number), ("gradient norm", "gradient_norm", number),
        ("loss", "loss", number),
    ),
    "Lanczos and PyHessian": fields(
        "hessian.json",
        ("largest eigenvalue, Lanczos", "lambda_max", number), ("PyHessian", "pyhessian.lambda_max", number),
        ("± residual", "pyhessian.lambda_max_residual", number),
        ("relative difference", "pyhessian.lambda_max_difference", signed),
        ("trace, Lanczos", "trace", number), ("± 95 %", "trace_half_width", number),
        ("PyHessian", "pyhessian.trace", number), ("± 95 %", "pyhessian.trace_half_width", number),
        ("relative difference", "pyhessian.trace_difference", signed), ("probes", "pyhessian.trace_samples", count),
    ),
    "Gain-based radius": fields(
        "radius.json",
        ("gain to the logits", "gain", number), ("median radius", "median", number),
        ("largest radius", "largest", number), ("samples", "samples", count),
    ),
    "Single inputs": fields(
        "local.json",
        ("inputs", "samples", count), ("classified correctly", "correct", count),
        ("certified radius", "median_radius", downwards), ("attacked radius", "median_attack", number),
        ("certified / attacked", "median_ratio", number), ("mean width of what is not known", "strip", number),
        ("time an input", "seconds", duration),
    ),
    "Norm drift": dynamics,
    "Outcome of training": training,
    "Performance on the data": performance,
    "Accuracy by class": classes,
}  # fmt: skip


@pytest.mark.parametrize("caption", EXPECTED)
def test_every_cell_is_that_of_its_file(folder: Path, caption: str) -> None:
    tables = Tables((folder / "report.html").read_text(encoding="utf-8")).tables
    (shown,) = [rows for name, rows in tables.items() if name.startswith(caption)]
    assert shown == EXPECTED[caption](folder)
