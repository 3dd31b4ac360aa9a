"""A report directory as ``stability report`` leaves it, of invented numbers: what is tested is drawing."""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stability.certificate import Certificate, Finding
from stability.certification import certify
from stability.kernel.format.claims import Verdict
from stability.reports import render
from stability.storage.documents import file_digest
from stability.systems import LureSystem

MODELS = {
    "contracting": ("Contracting RNN", Verdict.CERTIFIED),
    "lipschitz": ("Lipschitz RNN", Verdict.INCONCLUSIVE),
    "lstm": ("LSTM <gated & long>", Verdict.REFUTED),
}
SYSTEMS = {
    Verdict.CERTIFIED: LureSystem([[0.5, 0.8], [0.0, 0.4]], np.eye(2), 0.1 * np.eye(2), dt=1.0),
    Verdict.INCONCLUSIVE: LureSystem(np.diag([0.5, 0.4]), np.eye(2), 0.9 * np.eye(2), dt=1.0),
    Verdict.REFUTED: LureSystem(np.zeros((2, 2)), np.eye(2), [[1.2, 0.5], [-0.5, 1.2]], dt=1.0),
}
OPINIONS = {
    "states": 32, "asked": 1, "wrong": 1,
    "opinions": [
        {
            "criterion": "small_gain", "solver": "SCS", "status": "optimal_inaccurate", "says": True, "margin": -0.011,
            "verified": False, "holds": False, "frequency_margin": -0.5, "agrees": False, "wrong": True,
            "seconds": 3.5, "layer": None,
        },
        {"criterion": "circle", "solver": "", "status": "not run: 65 states", "says": None, "wrong": None, "layer": 2},
    ],
}  # fmt: skip


@functools.cache
def proved(verdict: Verdict) -> Certificate:
    """A certificate that verifies, with this verdict."""
    out = certify(SYSTEMS[verdict], refute=verdict is Verdict.REFUTED)
    assert out.verdict is verdict
    return out


def certificate(verdict: Verdict) -> Certificate:
    """The same with invented findings: the checker has nothing to do with them."""
    certified = verdict is Verdict.CERTIFIED
    return dataclasses.replace(
        proved(verdict),
        findings=(
            Finding("theorem1a", certified, 0.031 if certified else -2.4, "sigma_min - sigma_max"),
            Finding("theorem1b_published", True, 0.004, "as published"),
            Finding("small_gain", False, -11.3, "gain 12.3"),
            Finding("multiplier", certified, 0.2 if certified else -0.07, "largest eigenvalue"),
        ),
    )


def _write_model(folder: Path, name: str, title: str, verdict: Verdict, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    certificate(verdict).save(folder / "certificate.json")
    accuracy = 0.93 + 0.02 * rng.random()
    if name == "lipschitz":
        (folder / "cross_check.json").write_text(json.dumps(OPINIONS))
    steps = {s: {"status": "done", "seconds": 1.5} for s in ("certificate", "noise", "attacks", "norms", "lyapunov")}
    steps["hessian"] = (
        {"status": "unavailable", "reason": "a test of missing results"}
        if name == "lstm"
        else {"status": "done", "seconds": 9.0}
    )
    model = {"layer": name, "config": {"input_size": 8, "hidden_size": 32}, "output_size": 10, "reduction": "last"}
    result = {
        "epochs": 8, "train_loss": 0.2, "test_loss": 0.3, "train_metric": 0.96, "test_metric": accuracy,
        "metric": "accuracy", "chance": 0.1, "seconds": 61.2, "interrupted": False,
    }  # fmt: skip
    run = {"format": "stability-run", "version": 1, "kind": "train", "model": model, "result": result}
    run["task"] = {"name": "digits", "options": {"layout": "chunks"}, "data": {"what": "an invented set"}}
    run["training"] = {"epochs": 8, "lr": 0.003, "batch_size": 64, "seed": 0}
    run["environment"] = {"versions": {"python": "3.11"}, "seed": 0}
    (folder / "run.json").write_text(json.dumps(run))
    analysis = {"format": "stability-analysis", "version": 1, "title": title, "discrete": True}
    (folder / "analysis.json").write_text(json.dumps({**analysis, "parameters": 3210, "steps": steps}))
    if name != "lstm":
        other = {
            "lambda_max": 41.1, "lambda_max_residual": 0.3, "lambda_max_difference": -0.0024, "trace": 201.0,
            "trace_half_width": 33.1, "trace_difference": 0.058, "trace_samples": 4,
        }  # fmt: skip
        hessian = {
            "lambda_max": 41.2, "lambda_min": -0.8, "trace": 190.0, "trace_standard_error": 4.0,
            "trace_half_width": 12.7, "condition_number": 51.5, "gradient_norm": 0.02, "loss": 0.21,
            "n_parameters": 3210, "pyhessian": other,
        }  # fmt: skip
        (folder / "hessian.json").write_text(json.dumps(hessian))
        x = np.linspace(-2, 42, 120)
        pd.DataFrame({"eigenvalue": x, "density": np.exp(-(x**2)) + 1e-4}).to_csv(folder / "density.csv", index=False)
    epochs = np.arange(1, 9)
    pd.DataFrame(
        {
            "epoch": epochs,
            "train_loss": 2.3 * np.exp(-epochs / 3),
            "train_metric": 1 - 0.8 * np.exp(-epochs / 2),
            "test_loss": 2.3 * np.exp(-epochs / 4),
            "test_metric": accuracy * (1 - 0.8 * np.exp(-epochs / 2)),
            "seconds": 7.0,
        }
    ).to_csv(folder / "metrics.csv", index=False)
    rows, values = [], []
    for step in range(0, 400, 25):
        for matrix in ("A", "W"):
            m = rng.standard_normal((32, 32)) / math.sqrt(32) * (0.4 + step / 400)
            values += [(step, step / 50, matrix, v.real, v.imag) for v in np.linalg.eigvals(m)]
        for quantity, value in (
            ("theorem1a", -0.1 - step / 200),
            ("theorem1b_published", 0.05),
            ("theorem1b_sound", -0.2),
        ):
            rows.append((step, step / 50, "margins", quantity, value))
        for quantity, value in (("prop1_low", -1.2), ("prop1_high", 1.1), ("max_real", 0.5)):
            rows.append((step, step / 50, "A", quantity, value))
    pd.DataFrame(values, columns=["step", "epoch", "matrix", "real", "imag"]).to_csv(
        folder / "eigenvalues.csv", index=False
    )
    pd.DataFrame(rows, columns=["step", "epoch", "matrix", "quantity", "value"]).to_csv(
        folder / "spectra.csv", index=False
    )
    noise = [
        (k, v, accuracy * np.exp(-4 * v))
        for k in ("white", "salt_pepper", "parameters")
        for v in np.linspace(0, 0.4, 7)
    ]
    frame = pd.DataFrame(noise, columns=["noise", "level", "accuracy"])
    frame.assign(ci_low=frame.accuracy - 0.03, ci_high=frame.accuracy + 0.03, n=512).to_csv(
        folder / "noise.csv", index=False
    )
    attacks = [
        (a, n, e, accuracy * np.exp(-9 * e))
        for a, n in (("strong", "linf"), ("strong", "l2"), ("deepfool", "linf"), ("deepfool", "l2"))
        for e in np.linspace(0, 0.3, 7)
    ]
    frame = pd.DataFrame(attacks, columns=["attack", "norm", "epsilon", "accuracy"])
    frame.assign(ci_low=frame.accuracy - 0.03, ci_high=frame.accuracy + 0.03, n=256).to_csv(
        folder / "attacks.csv", index=False
    )
    t = np.arange(1, 981)
    h = 2 * (1 - np.exp(-t / 20.0)) * (1 + 0.1 * rng.random())
    pd.DataFrame({"layer": 0, "t": t, "mean": h, "q10": 0.8 * h, "q50": h, "q90": 1.2 * h}).to_csv(
        folder / "norms.csv", index=False
    )
    sources = {"expected": f"none of {accuracy}: not white", "envelope": "rate and overshoot"}
    (folder / "drift.json").write_text(
        json.dumps(
            {"trained_length": 98, "slope": 1e-5, "drift_index": 0.2, "start": 0.1, "end": 2.0, "sources": sources}
        )
    )
    pd.DataFrame({"index": np.arange(1, 33), "per_step": -0.05 * np.arange(1, 33)}).to_csv(
        folder / "lyapunov.csv", index=False
    )
    (folder / "exponents.json").write_text(json.dumps({"largest": -0.05, "bound": math.log(0.97)}))
    row, t = (grid.ravel() for grid in np.indices((6, 28)))
    local = rng.normal(-0.02, 0.15, 168)
    table = {"sequence": row, "t": t + 1, "stretch": np.exp(local) + 0.1, "exponent": local}
    pd.DataFrame(table).to_csv(folder / "growth.csv", index=False)
    around = np.exp(2j * np.pi * rng.random(400)) * rng.random(400) * 1.3
    what = np.where(np.arange(400) < 368, "data", "slope")
    pd.DataFrame({"what": what, "real": around.real, "imag": around.imag}).to_csv(folder / "jacobians.csv", index=False)
    worst = [
        {"sequence": 4 + k, "mean": 0.0123 * accuracy - 0.01 * k, "step": 7 + k, "stretch": 1.45 - 0.1 * k}
        for k in (0, 1)
    ]
    told = {"stretching": 0.7 * accuracy, "growing": 0.4 * accuracy, "grown": 0.2 * accuracy, "largest": 1.6 * accuracy}
    (folder / "growth.json").write_text(json.dumps({**told, "sequences": 6, "steps": 28, "worst": worst}))
    attacked = 0.5 + rng.random(12)
    share = rng.random(12)
    single = {"index": np.arange(12), "label": np.arange(12) % 3, "correct": 1 * (np.arange(12) != 4)}
    single |= {"radius": np.where(single["correct"], share * attacked, 0.0)}
    single |= {"attack_radius": np.where(single["correct"], attacked, 0.0), "seconds": 0.1}
    pd.DataFrame(single).to_csv(folder / "local.csv", index=False)
    said = {"norm": "l2", "samples": 12, "correct": 11, "proved": 10, "counted": 11, "median_radius": 0.4 * accuracy}
    said |= {"median_attack": 0.77, "median_ratio": 0.51 * accuracy, "strip": 0.21 * accuracy, "seconds": 0.15}
    (folder / "local.json").write_text(json.dumps(said))
    t, feature = (grid.ravel() for grid in np.indices((9, 9)))
    drawn = {"t": t, "feature": feature, "value": rng.random(81), "change": 0.1 * rng.normal(size=81)}
    pd.concat([pd.DataFrame({"sample": k, **drawn}) for k in (3, 7)]).to_csv(folder / "local_inputs.csv", index=False)
    if verdict is Verdict.CERTIFIED:
        r = np.linspace(0, 0.2, 30)
        pd.DataFrame({"radius": r, "certified_accuracy": accuracy * np.exp(-20 * r)}).to_csv(
            folder / "robustness.csv", index=False
        )
        (folder / "radius.json").write_text(
            json.dumps({"gain": 31.0, "median": 0.04, "largest": 0.2, "clean_accuracy": 0.93, "samples": 256})
        )


def seal(folder: Path) -> None:
    """Record the digests of a model's files in its ``analysis.json``, as the analysis does."""
    path = folder / "analysis.json"
    files = {p.name: file_digest(p) for p in folder.iterdir() if p.is_file() and p != path}
    path.write_text(json.dumps({**json.loads(path.read_text()), "files": files}))


def make_report_dir(folder: Path, names: tuple[str, ...] = tuple(MODELS), copies: int = 1) -> Path:
    """Write a report of the named models, each as often as ``copies`` says."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    folders = {f"{name}-{k}" if k else name: (name, k) for k in range(copies) for name in names}
    for there, (name, k) in folders.items():
        title, verdict = MODELS[name]
        _write_model(folder / "models" / there, name, f"{title} {k}" if k else title, verdict, rng)
        seal(folder / "models" / there)
    settings = {
        "format": "stability-report-settings", "version": 1, "title": "Stability of three networks",
        "models": list(folders), "seed": 0, "seconds": 240.0, "processes": 2, "finished": "2026-01-01 12:00",
        "command": "stability report --out here",
        "environment": {"versions": {"python": "3.11", "numpy": "2.4"}, "machine": "two cores"},
    }  # fmt: skip
    (folder / "report-settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(autouse=True, scope="session")
def numbers_alone() -> Iterator[None]:
    """Write figures as CSV alone: the other formats take six times as long as the rest of a page."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FORMATS", "QUICK_FORMATS"):
            patch.setattr(f"stability.reports.page.html.{name}", ("csv",))
        yield


@pytest.fixture
def report_dir(tmp_path: Path) -> Path:
    """Three models, one of each verdict."""
    return make_report_dir(tmp_path / "report")


@pytest.fixture
def small_dir(tmp_path: Path) -> Path:
    """One certified model: quick to draw."""
    return make_report_dir(tmp_path / "report", ("contracting",))


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of twelve models, drawn once for all processes of a test run; only to be looked at."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp().parent if parallel else tmp_path_factory.mktemp("drawn")
    folder = base / "drawn-report"
    with (base / "drawn-report.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "report.html").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            render(make_report_dir(folder, copies=4))
    return folder


@pytest.fixture
def own_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a module of networks and a file of data that fit."""
    from stability.analysis.campaign.budgets import BUDGETS  # what loads torch stays out of the tests that only draw

    from .own_nets import MODULE, SMALL, arrays

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    (tmp_path / "ownnets.py").write_text(MODULE)
    np.savez(tmp_path / "good.npz", **arrays(classes=np.array(["walk", "run", "sit"])))
    yield tmp_path
    sys.modules.pop("ownnets", None)
