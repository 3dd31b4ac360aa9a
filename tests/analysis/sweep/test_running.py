"""A sweep has the same table wherever it runs, continues after an interruption, and computes nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stability.analysis.jobs import cluster
from stability.analysis.sweep import Sweep, SweepOutcome, over_trainings, run_sweep, sweep_state
from stability.certificate import Certificate
from stability.errors import ConfigurationError, FileFormatError, StabilityError
from stability.models import load
from stability.verification import verify

SWEEP = Sweep(
    ["elman", "gru"], ["digits"], [0, 1], train={"hidden": 3, "epochs": 1},
    task={"size": 7, "limit": 30, "test_limit": 20},
    analyses={"certificate": {"rate": "any"}, "attacks": {"samples": 20, "part": 10, "epsilons": [0.0, 0.1]}},
)  # fmt: skip
BARE = Sweep(**{**vars(SWEEP), "models": ["elman"], "seeds": range(4), "analyses": {"certificate": False}})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepOutcome]:
    out = tmp_path_factory.mktemp("sweep") / "store"
    return out, run_sweep(SWEEP, out)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the jobs that are computed."""
    from stability.analysis.sweep import run as module

    seen, real = [], module.compute

    def compute(ticket: Any, tell: Any) -> Any:
        seen.append(ticket["spec"]["kind"])
        return real(ticket, tell)

    monkeypatch.setattr(module, "compute", compute)
    return seen


def test_a_row_a_training_in_the_order_of_the_description(here: tuple[Path, SweepOutcome]) -> None:
    out, outcome = here
    assert (outcome.jobs, outcome.done, outcome.failed, outcome.lost) == (12, 12, 0, 0)
    assert [(r["model"], r["seed"]) for r in outcome.table] == [("elman", 0), ("elman", 1), ("gru", 0), ("gru", 1)]
    for row in outcome.table:
        assert row["attacks.n"] == 20
        assert row["attacks.accuracy_at_0"] == pytest.approx(row["test_metric"])
        assert row["attacks.accuracy_at_0.1"] <= row["attacks.accuracy_at_0"]
        assert row["verdict"] in ("certified", "refuted", "inconclusive")
        assert not {"seconds", "host", "job"} & row.keys()
    table = pd.read_csv(out / "table.csv")
    assert list(table["test_loss"]) == [row["test_loss"] for row in outcome.table]


def test_the_files_of_a_training_are_a_run_directory(here: tuple[Path, SweepOutcome]) -> None:
    out, outcome = here
    run = out / "runs" / next(SWEEP.rows()).job.id
    assert sum(p.numel() for p in load(run).parameters()) == outcome.table[0]["parameters"]
    certificate = Certificate.load(run / "certificate.json")
    assert str(certificate.verdict) == outcome.table[0]["verdict"]
    assert verify(certificate).valid == (certificate.proof is not None)


def test_averages_over_seeds(here: tuple[Path, SweepOutcome]) -> None:
    groups = over_trainings(list(here[1].table), ["model", "task"])
    assert [g["trainings"] for g in groups] == [2, 2]
    losses = [row["test_loss"] for row in here[1].table[:2]]
    assert groups[0]["test_loss"] == pytest.approx(sum(losses) / 2)
    half = 12.706204736432095 * abs(losses[0] - losses[1]) / 2  # Student's quantile for one degree of freedom
    assert groups[0]["test_loss.high"] - groups[0]["test_loss"] == pytest.approx(half)


@pytest.mark.slow
def test_workers_find_the_same_bits(here: tuple[Path, SweepOutcome], tmp_path: Path) -> None:
    with cluster(2) as client:
        outcome = run_sweep(SWEEP, tmp_path / "store", client=client)
    assert not outcome.errors
    assert json.dumps(outcome.table) == json.dumps(here[1].table)


def test_known_results_are_not_computed_again(here: tuple[Path, SweepOutcome], computed: list[str]) -> None:
    out, outcome = here
    assert run_sweep(SWEEP, out).table == outcome.table
    part = Sweep(**{**vars(SWEEP), "seeds": [1]})
    assert run_sweep(part, out).table == tuple(row for row in outcome.table if row["seed"] == 1)
    assert sweep_state(SWEEP, out) == {"jobs": 12, "done": 12, "failed": 0, "left": 0}
    assert computed == []


def test_an_interrupted_sweep_continues(tmp_path: Path, computed: list[str]) -> None:
    def stop(counts: dict[str, int], news: str) -> None:
        if counts["done"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(BARE, tmp_path / "store", progress=stop)
    assert sweep_state(BARE, tmp_path / "store") == {"jobs": 4, "done": 2, "failed": 0, "left": 2}
    assert run_sweep(BARE, tmp_path / "store").done == 4
    assert computed == ["training"] * 4


def test_damaged_results_are_computed_again(here: tuple[Path, SweepOutcome], computed: list[str]) -> None:
    out, outcome = here
    first, second = list(SWEEP.rows())[:2]
    training, part = (out / "results" / f"{job.id}.json" for job in (first.job, second.children[1]))
    training.write_bytes(training.read_bytes()[:100])
    part.write_text(training.with_name(f"{second.job.id}.json").read_text())  # the result of another job
    assert sweep_state(SWEEP, out)["left"] == 2
    assert run_sweep(SWEEP, out).table == outcome.table
    assert computed == ["training", "attacks"]
    (out / "runs" / second.job.id / "model.safetensors").unlink()
    assert sweep_state(SWEEP, out)["left"] == 1
    assert run_sweep(SWEEP, out).table == outcome.table


def test_an_analysis_of_a_changed_network_is_refused(here: tuple[Path, SweepOutcome]) -> None:
    out, _ = here
    row = next(SWEEP.rows())
    network = out / "runs" / row.job.id / "model.safetensors"
    kept = network.read_bytes()
    network.write_bytes(kept[:-1] + b"x")
    (out / "results" / f"{row.children[0].id}.json").unlink()
    with pytest.raises(FileFormatError):
        run_sweep(SWEEP, out)
    network.write_bytes(kept)
    assert run_sweep(SWEEP, out).done == 12


def test_failures_are_kept_and_computed_again_on_request(
    tmp_path: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stability.analysis.sweep import run as module

    def broken(options: Any, inputs: Any) -> Any:
        raise KeyError("trouble") if options["seed"] else StabilityError("no such thing")

    with monkeypatch.context() as patch:
        patch.setattr(module, "train_and_certify", broken)
        outcome = run_sweep(BARE, tmp_path / "store")
    assert (outcome.done, outcome.failed) == (0, 4)
    assert outcome.table[0]["error"] == "StabilityError: no such thing"
    assert "KeyError" in outcome.table[1]["error"]
    assert run_sweep(BARE, tmp_path / "store").failed == 4
    assert len(computed) == 4
    again = run_sweep(BARE, tmp_path / "store", retry_failed=True)
    assert (again.done, again.failed) == (4, 0)
    assert not any("error" in row for row in again.table)


def test_a_worker_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stability.analysis.sweep.run.code_version", lambda: "0.0.1")
    outcome = run_sweep(BARE, tmp_path / "store")
    assert (outcome.done, outcome.failed, outcome.lost) == (0, 0, 4)
    assert "0.0.1" in next(iter(outcome.errors.values()))
    assert sweep_state(BARE, tmp_path / "store")["left"] == 4  # the next run tries again


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError):
        run_sweep(BARE, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(FileFormatError):
        sweep_state(BARE, tmp_path)


def test_an_address_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stability.analysis.jobs.CONNECT_SECONDS", 0.3)
    with pytest.raises(ConfigurationError):
        run_sweep(BARE, tmp_path / "store", scheduler="tcp://127.0.0.1:9")
