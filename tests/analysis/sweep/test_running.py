"""A sweep comes to the same wherever it runs, goes on where it was, and does nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stability.analysis.running.places import Processes
from stability.analysis.sweep import job as jobs
from stability.analysis.sweep.description import Sweep
from stability.analysis.sweep.job import Job
from stability.analysis.sweep.rows import JobList
from stability.analysis.sweep.running.runner import SweepOutcome, SweepProgress, run_sweep, sweep_state
from stability.analysis.sweep.running.table import over_trainings, store_frame
from stability.analysis.sweep.running.worker import REFUSED, Ticket, carry_out
from stability.certificate import Certificate
from stability.models import load
from stability.storage.store import ResultStore, name_of
from stability.verification import verify

SWEEP = Sweep(
    ["elman", "gru"], ["digits"], [0, 1], train={"hidden": 3, "epochs": 1},
    task={"size": 7, "limit": 30, "test_limit": 20},
    analyses={"certificate": {"rate": "any"}, "attacks": {"samples": 20, "part": 10, "epsilons": [0.0, 0.1]}},
)  # fmt: skip


def naps(folder: Path, count: int, **more: Any) -> JobList:
    def make() -> Iterator[Job]:
        for k in range(count):
            yield Job("benchmarks.naps:nap", {"number": k, "log": str(folder / "log"), **more})

    return JobList("naps", make)


def done(folder: Path) -> Counter[str]:
    return Counter((folder / "log").read_text().split())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepOutcome]:
    out = tmp_path_factory.mktemp("sweep") / "store"
    return out, run_sweep(SWEEP, out)


def test_a_row_a_training_in_the_order_of_the_description(here: tuple[Path, SweepOutcome]) -> None:
    _, outcome = here
    assert (outcome.jobs, outcome.done, outcome.failed, outcome.lost) == (12, 12, 0, 0)
    assert [(r["model"], r["seed"]) for r in outcome.table] == [("elman", 0), ("elman", 1), ("gru", 0), ("gru", 1)]
    for row in outcome.table:
        assert row["attacks.n"] == 20
        assert row["attacks.accuracy_at_0"] == pytest.approx(row["test_metric"])
        assert row["attacks.accuracy_at_0.1"] <= row["attacks.accuracy_at_0"]
        assert row["verdict"] in ("certified", "refuted", "inconclusive")
        assert not {"seconds", "host", "job"} & row.keys()


def test_its_files_are_those_of_a_run(here: tuple[Path, SweepOutcome], tmp_path: Path) -> None:
    out, outcome = here
    rows = list(SWEEP.rows())
    found = ResultStore.found(out).get(rows[0].job.id)
    assert found is not None
    for name, raw in found.members.items():
        (tmp_path / name).write_bytes(raw)
    assert sum(p.numel() for p in load(tmp_path).parameters()) == outcome.table[0]["parameters"]
    certificate = Certificate.load(tmp_path / "certificate.json")
    assert str(certificate.verdict) == outcome.table[0]["verdict"]
    assert verify(certificate).valid == (certificate.proof is not None)


def test_a_pool_finds_the_same_bits(here: tuple[Path, SweepOutcome], tmp_path: Path) -> None:
    outcome = run_sweep(SWEEP, tmp_path / "store", workers=2)
    assert not outcome.errors
    assert json.dumps(outcome.table) == json.dumps(here[1].table)


def test_a_store_that_is_there_is_not_computed_again(here: tuple[Path, SweepOutcome], monkeypatch) -> None:
    out, outcome = here
    monkeypatch.setattr("stability.analysis.sweep.running.runner.carry_out", None)
    assert run_sweep(SWEEP, out).table == outcome.table
    more = Sweep(**{**vars(SWEEP), "seeds": [1]})  # a part of it is there, too
    assert run_sweep(more, out).table == tuple(row for row in outcome.table if row["seed"] == 1)
    assert sweep_state(SWEEP, out)["left"] == 0


def test_everything_in_one_frame(here: tuple[Path, SweepOutcome]) -> None:
    out, outcome = here
    frame = store_frame(out)
    assert list(frame["seed"]) == [0, 1, 0, 1]
    assert list(frame["attacks.accuracy_at_0.1"]) == [row["attacks.accuracy_at_0.1"] for row in outcome.table]
    assert list(frame["test_loss"]) == [row["test_loss"] for row in outcome.table]
    groups = over_trainings(list(outcome.table), ["model", "task"])
    assert [g["trainings"] for g in groups] == [2, 2]
    losses = [row["test_loss"] for row in outcome.table[:2]]
    assert groups[0]["test_loss"] == pytest.approx(sum(losses) / 2)
    assert groups[0]["test_loss.low"] < min(losses)  # Student's factor for two is above twelve


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_it_goes_on_where_it_was(tmp_path: Path, workers: int) -> None:
    class Stop(Exception):
        pass

    def stop(state: SweepProgress) -> None:
        if state.done >= 4:
            raise Stop

    sweep = naps(tmp_path, 12)
    with pytest.raises(Stop):
        run_sweep(sweep, tmp_path / "store", workers=workers, progress=stop)
    assert 4 <= sweep_state(sweep, tmp_path / "store")["done"] < 12
    outcome = run_sweep(sweep, tmp_path / "store", workers=workers)
    assert outcome.done == 12
    assert [row["square"] for row in outcome.table] == [k * k for k in range(12)]
    assert done(tmp_path) == Counter(str(k) for k in range(12))


def test_a_torn_file_is_found_and_its_job_done_again(tmp_path: Path) -> None:
    sweep, out = naps(tmp_path, 6), tmp_path / "store"
    first = run_sweep(sweep, out)
    paths = [out / name_of(job.id, "done") for job in sweep.jobs()]
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].write_bytes(b"")
    paths[4].unlink()
    assert sweep_state(sweep, out)["torn"] == 2
    again = run_sweep(sweep, out)
    assert again.table == first.table
    assert done(tmp_path) == Counter({"0": 1, "1": 2, "2": 2, "3": 1, "4": 2, "5": 1})


def test_failures_are_kept_and_tried_again_when_asked(tmp_path: Path) -> None:
    trouble, out = tmp_path / "trouble", tmp_path / "store"
    trouble.touch()
    mixed = [
        Job("benchmarks.naps:stumble", {"number": 1, "while": str(trouble)}), *naps(tmp_path, 1).jobs(),
        Job("benchmarks.naps:nap", {}),
    ]  # fmt: skip
    sweep = JobList("mixed", lambda: iter(mixed))
    outcome = run_sweep(sweep, out)
    assert (outcome.done, outcome.failed) == (1, 2)
    assert outcome.table[0]["error"] == "UnsupportedError: there is 1"
    assert "KeyError" in outcome.table[2]["error"]
    trouble.unlink()
    assert run_sweep(sweep, out).failed == 2  # not tried again unless that is asked for
    outcome = run_sweep(sweep, out, retry_failed=True)
    assert (outcome.done, outcome.failed) == (2, 1)
    assert outcome.table[0]["number"] == 1
    assert "error" not in outcome.table[0]
    assert sweep_state(sweep, out)["failed"] == 1


def test_the_plan_follows_the_code_of_ones_own_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = naps(tmp_path, 3)
    run_sweep(sweep, tmp_path / "store")
    monkeypatch.setattr("stability.analysis.sweep.job.module_version", lambda name: "changed")
    jobs.code_of.cache_clear()
    try:
        assert sweep_state(sweep, tmp_path / "store")["left"] == 3
        assert run_sweep(sweep, tmp_path / "store").done == 3
    finally:
        jobs.code_of.cache_clear()
    assert done(tmp_path) == Counter({"0": 2, "1": 2, "2": 2})


def test_another_code_is_refused_by_who_would_compute(tmp_path: Path) -> None:
    store = ResultStore.made(tmp_path / "store")
    (job,) = naps(tmp_path, 1).jobs()
    ticket = Ticket({**job.spec, "code": "0.0.1"}, store.place.location, store.token)
    answer = carry_out(ticket.plain())
    assert answer["how"] == REFUSED
    assert "0.0.1" in answer["why"]
    assert not (tmp_path / "log").exists()


def test_who_does_not_see_the_store_sends_results_back(
    here: tuple[Path, SweepOutcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of other machines: results travel with the answers, what jobs build on travels with the jobs."""
    seen: list[str] = []

    def far_away(ticket: Any, tell: Any) -> Any:
        answer = carry_out({**ticket, "store": str(tmp_path / "not here")}, tell)
        seen.append(answer["how"])
        return answer

    monkeypatch.setattr("stability.analysis.sweep.running.runner.carry_out", far_away)
    outcome = run_sweep(SWEEP, tmp_path / "store")
    assert json.dumps(outcome.table) == json.dumps(here[1].table)
    assert Counter(seen) == {"carried": 12, "blind": 8}  # attacks are told at first without their network
    assert not (tmp_path / "not here").exists()


def test_another_store_at_the_same_place_is_not_taken_for_it(tmp_path: Path) -> None:
    (job,) = naps(tmp_path, 1).jobs()
    other = ResultStore.made(tmp_path / "store")
    answer = carry_out(Ticket(job.spec, other.place.location, "another token").plain())
    assert answer["how"] == "carried"
    assert other.get(job.id) is None


def test_what_does_not_fit_into_memory_together_runs_one_after_the_other() -> None:
    with Processes(carry_out, 4) as place:
        small = [Job("benchmarks.naps:nap", {"number": k}, memory=1) for k in range(2)]
        large = Job("benchmarks.naps:nap", {"number": 9}, memory=2**60)
        wide = Job("benchmarks.naps:nap", {"number": 9}, threads=2**10)
        assert place.has_room(large)  # alone, whatever the estimate says
        place._jobs[small[0].id] = small[0]
        place._pool._running[None] = ("", None)
        assert place.has_room(small[1])
        assert not place.has_room(large)
        assert not place.has_room(wide)
        on_gpu = Job("benchmarks.naps:nap", {"number": 8}, gpus=1)
        assert place.has_room(on_gpu)
        place._jobs[on_gpu.id] = on_gpu
        assert not place.has_room(Job("benchmarks.naps:nap", {"number": 7}, gpus=1))
        place._pool._running.clear()
