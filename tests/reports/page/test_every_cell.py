"""Cells of the folded tables against the files that they came from."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stability.analysis.campaign.budgets import Budget
from stability.reports.formatting import count, number, percent, signed
from stability.reports.page.method import left_out
from stability.reports.page.results import more_results
from stability.reports.stored.collect import collect
from stability.reports.stored.protocol import PROTOCOLS
from stability.reports.vocabulary import NAMES
from stability.storage.artifacts import ARTIFACTS

from ..conftest import make_report_dir, seal
from .folds import numbers, rows, tables

CLASSES = [
    {"name": "walk", "accuracy": 0.25, "sequences": 1200, "taken_for": "run"},
    {"name": "run", "accuracy": 1.0, "sequences": 7, "taken_for": None},
]
DATA = {"source": "arrays", "what": "good.npz", "held_out": "its own", "digest": "ab" * 32, "bounds": "stated"}
TASK = {"name": "data", "test": 1207, "train": 5000, "steps": 40, "input_size": 3, "data": DATA}


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def document(model: Path, name: str) -> dict[str, Any]:
    return json.loads((model / f"{name}.json").read_text()) if (model / f"{name}.json").is_file() else {}


def title(model: Path) -> str:
    return document(model, "analysis")["title"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trained models and one given with its data; all numbers of a row differ."""
    folder = make_report_dir(tmp_path_factory.mktemp("every") / "report")
    given = folder / "models" / "lstm"
    (given / "run.json").unlink()
    found = {"metric": "accuracy", "value": 0.813, "chance": 0.31, "sequences": 1207, "by_class": CLASSES}
    (given / "performance.json").write_text(json.dumps(found))
    change(given / "analysis.json", source="nets/lstm.pt", task=TASK, input_range=[-1.5, 2.5])
    for k, name in enumerate(("contracting", "lipschitz")):
        change(folder / "models" / name / "exponents.json", steps=784 + k)
        hessian = {"lambda_max_residual": 0.01, "lambda_min_residual": 0.002 + k, "n_parameters": 3210 + k}
        change(folder / "models" / name / "hessian.json", **hessian, converged=not k)
        recovery = {"size": 1.5, "tol": 0.01, "median": 31 + k, "worst": 77, "recovered": 0.9, "runs": 32, "limit": 500}
        (folder / "models" / name / "recovery.json").write_text(json.dumps(recovery))
        change(folder / "models" / "contracting" / "radius.json", gain=31.0321, median=0.040389)
        attacks = pd.read_csv(folder / "models" / name / "attacks.csv")
        attacks.loc[attacks.attack == "deepfool", "accuracy"] *= 0.9
        attacks.to_csv(folder / "models" / name / "attacks.csv", index=False)
    for model in (folder / "models").iterdir():
        seal(model)
    return folder


FIELDS = {
    "Hessian of the training loss": {
        "largest eigenvalue": ("hessian", "lambda_max", number),
        "smallest eigenvalue": ("hessian", "lambda_min", number),
        "gradient norm": ("hessian", "gradient_norm", number),
        "loss": ("hessian", "loss", number),
    },
    "Lyapunov exponents and state norm": {
        "largest exponent per step": ("exponents", "largest", signed),
        "mean norm of the first state": ("drift", "start", number),
        "of the last state": ("drift", "end", number),
        "log2 of largest / smallest norm": ("drift", "drift_index", number),
    },
    "Growth of small differences on single test sequences": {
        "steps that stretch some difference": ("growth", "stretching", percent),
        "steps in which the fastest direction grows": ("growth", "growing", percent),
        "sequences over which it grows": ("growth", "grown", percent),
    },
    "Recovery from a disturbance of the state": {
        "size": ("recovery", "size", number),
        "forgotten below": ("recovery", "tol", number),
        "steps, median of runs": ("recovery", "median", count),
        "steps, slowest run": ("recovery", "worst", count),
        "runs that recovered": ("recovery", "recovered", percent),
    },
    "Certified radii": {
        "inputs": ("radius", "samples", count),
        "attack succeeds at, median": ("local", "median_attack", number),
        "certified / attacked": ("local", "median_ratio", number),
        "inputs, one by one": ("local", "samples", count),
        "of these correct": ("local", "correct", count),
    },
    "Networks and training": {
        "parameters": ("analysis", "parameters", count),
        "training data": ("run", "train_metric", percent),
        "held-out data": ("run", "test_metric", percent),
        "best guess": ("run", "chance", percent),
    },
}


@pytest.mark.parametrize("caption", FIELDS)
def test_every_cell_is_that_of_its_file(folder: Path, caption: str) -> None:
    shown, columns = rows(tables(folder)[caption]), FIELDS[caption]
    models = {title(m): m for m in (folder / "models").iterdir() if any(document(m, d) for d, *_ in columns.values())}
    assert set(shown) == {
        t for t, m in models.items() if any(document(m, d) for d, *_ in columns.values() if d != "analysis")
    }
    for name, row in shown.items():
        for column, (stem, key, show) in columns.items():
            found = document(models[name], stem)
            expected = show((found.get("result") or {}).get(key) if stem == "run" else found.get(key))
            assert row[column].text.split(" ± ")[0] == expected, (name, column)


def test_an_end_of_the_spectrum_that_did_not_converge_says_so_with_its_residual(folder: Path) -> None:
    shown = rows(tables(folder)["Hessian of the training loss"])
    assert {name: "not converged" in row["smallest eigenvalue"].text for name, row in shown.items()} == {
        "Contracting RNN": False, "Lipschitz RNN": True,
    }  # fmt: skip
    assert not any("not converged" in row["largest eigenvalue"].text for row in shown.values())
    assert [row["parameters"].text for row in shown.values()] == [count(3210), f"{count(3210)} ({count(3211)} stored)"]


FRAMES = {
    "noise σ": ("noise", "white", 1),
    "salt, pepper": ("noise", "salt_pepper", 100),
    "weights": ("noise", "parameters", 100),
}
ATTACKS = {"L2": "l2", "L∞": "linf"}


def test_accuracies_under_disturbances_are_those_of_the_long_tables(folder: Path) -> None:
    shown = rows(tables(folder)["Accuracy, %"])
    kinds = set()
    for model in (folder / "models").iterdir():
        noise, attacks = (pd.read_csv(model / f"{stem}.csv") for stem in ("noise", "attacks"))
        for column, cell in list(shown[title(model)].items())[2:]:
            kind, size = re.fullmatch(r"(.*?) ([\d.]+)(?: %)?", column).groups()  # type: ignore[union-attr]
            kinds.add(kind)
            if kind in ATTACKS:
                frame = attacks[(attacks.attack == "strong") & (attacks.norm == ATTACKS[kind])].rename(
                    columns={"epsilon": "level"}
                )
                scale = 1
            else:
                _, name, scale = FRAMES[kind]
                frame = noise[noise.noise == name]
            row = frame.iloc[(frame.level * scale - float(size)).abs().argmin()]
            assert abs(float(cell.text) - 100 * row.accuracy) <= 0.5, (title(model), column)
            assert cell.hint.startswith(percent(row.accuracy))
            assert cell.hint.endswith(f"{percent(row.ci_low)} to {percent(row.ci_high)}")
    assert kinds == {*FRAMES, *ATTACKS}


def test_signs_of_criteria_are_those_of_the_findings(folder: Path) -> None:
    shown = rows(tables(folder)["Criteria for stability"])
    for model in (folder / "models").iterdir():
        for found in document(model, "certificate")["findings"]:
            cell = shown[title(model)][NAMES[found["criterion"]]]
            unsound = found["criterion"] == "theorem1b_published"
            assert cell.text == ("({})" if unsound else "{}").format("✓" if found["holds"] else "✗")
            assert (cell.tone == "quiet") == unsound
            assert cell.hint.startswith(signed(found["margin"]))


def test_classes_and_wrong_solvers_are_those_of_their_files(folder: Path) -> None:
    found = tables(folder)
    assert [[cell.text for cell in row[1:]] for row in found["Accuracy by class"].rows] == [
        ["walk", "25.0 %", count(1200), "run"], ["run", "100 %", "7", "never mistaken"],
    ]  # fmt: skip
    told = " ".join(p for fold in more_results(collect(folder)) for p in fold.parts if isinstance(p, str))
    assert "1 of 1 solver statuses were wrong: small gain of Lipschitz RNN (SCS: optimal_inaccurate)." in told


def test_what_is_certified_is_rounded_on_the_safe_side(folder: Path) -> None:
    found = tables(folder)
    radii, exponents = rows(found["Certified radii"]), rows(found["Lyapunov exponents and state norm"])
    claims = {(row[0].text, row[3].text): row[2].text for row in found["Further proved claims"].rows}
    seen = 0
    for m in collect(folder).models:
        local, radius = document(m.folder, "local"), document(m.folder, "radius")
        assert numbers(radii[m.title]["certified one by one, median"].text)[0] <= Decimal(local["median_radius"])
        if radius:
            assert numbers(radii[m.title]["gain to the logits"].text)[0] >= Decimal(repr(radius["gain"]))
            assert numbers(radii[m.title]["certified by the gain, median"].text)[0] <= Decimal(repr(radius["median"]))
        bound = exponents[m.title]["certified upper bound"].text
        if m.state == "certified":
            assert m.certificate
            steps = document(m.folder, "exponents")["steps"]
            least = min(math.log(rate) + math.log(overshoot) / steps for rate, overshoot in m.certificate["pairs"])
            assert 0 <= float(numbers(bound)[0]) - least <= 0.01 * abs(least)
        else:
            assert bound == "–"
        for claim in (m.certificate or {})["claims"]:
            (text,) = [
                t for (name, said), t in claims.items() if name == m.title and claim["statement"].endswith(said[1:])
            ]
            if claim["value"] is not None:
                seen += 1
                assert numbers(text)[-1] >= Decimal(claim["value"])
    assert seen


def test_nothing_is_shown_of_files_that_changed(tmp_path: Path) -> None:
    folder = make_report_dir(tmp_path / "report")
    for model in (folder / "models").iterdir():
        (model / "model.safetensors").write_bytes(b"weights")
        seal(model)
    changed, stale = folder / "models" / "contracting", folder / "models" / "lstm"
    for name in ("attacks.csv", "exponents.json", "hessian.json"):
        (changed / name).write_text((changed / name).read_text() + " ")
    (stale / "model.safetensors").write_bytes(b"others")
    found = tables(folder)
    assert not any("LSTM" in row[0].text for caption, table in found.items() for row in table.rows)
    assert "Contracting RNN" not in rows(found["Hessian of the training loss"])
    assert rows(found["Lyapunov exponents and state norm"])["Contracting RNN"]["largest exponent per step"].text == "–"
    heat = rows(found["Accuracy, %"])["Contracting RNN"]
    assert all((cell.text == "–") == column.startswith("L") for column, cell in list(heat.items())[1:])
    told = left_out(collect(folder))
    assert all(name in told for name in ("attacks.csv", "exponents.json", "hessian.json"))


def test_protocols_tell_numbers_that_runs_record(folder: Path) -> None:
    for path in [path for parts in PROTOCOLS.values() for path, _ in parts if path]:
        stem, name = path.split(".")
        known = [{*a.fields, *a.columns} for a in ARTIFACTS if a.stem == stem]
        known += [{f.name for f in dataclasses.fields(Budget)}] * (stem == "budget")
        assert any(name in names for names in known), path
    told = rows(tables(folder)["Measurements"])
    assert told["growth along the data"]["how it was measured"].text.startswith("6 test sequences, 28 steps")
    assert told["attacks"]["how it was measured"].text.startswith("256 test sequences")
    assert "single inputs" in told
