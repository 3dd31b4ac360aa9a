"""A real Dask scheduler with real workers: killed in the middle, it comes to what one process comes to."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stability.analysis.running import cluster as module
from stability.analysis.running.cluster import Cluster
from stability.analysis.running.places import Lost
from stability.analysis.sweep.description import Sweep
from stability.analysis.sweep.job import Job
from stability.analysis.sweep.rows import JobList
from stability.analysis.sweep.running.runner import run_sweep, sweep_state
from stability.analysis.sweep.running.worker import carry_out
from stability.errors import ConfigurationError, StabilityError
from stability.storage.store import ResultStore

SWEEP = Sweep(
    ["elman"], ["digits"], range(8), train={"hidden": 3, "epochs": 2}, task={"size": 7, "limit": 60, "test_limit": 20},
    analyses={"certificate": {"rate": "any"}},
)  # fmt: skip
PATIENCE = 240.0


def results(out: Path) -> list[str]:
    """Names of the result files, each read whole: the store can be read at any moment."""
    if not (out / "sweep.json").is_file():
        return []
    store = ResultStore.found(out)
    names = [p.name for p in (out / "results").glob("*/*") if not p.name.startswith(".")]
    assert all(store.get(name) is not None for name in names)
    return names


def until(true: Callable[[], bool], log: Callable[[], str]) -> None:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < PATIENCE, log()
        time.sleep(0.02)


def test_killed_in_the_middle_it_finds_what_one_process_finds(tmp_path: Path, cluster: Any, client: Any) -> None:
    for _ in range(2):
        cluster.start_worker()
    out = tmp_path / "store"
    expected = run_sweep(SWEEP, tmp_path / "alone")  # while the workers start
    assert expected.done == 8

    def told() -> str:
        return cluster.logs() + (tmp_path / "client-log").read_text()

    def act() -> None:
        outcome = run_sweep(SWEEP, out, scheduler=cluster.address)
        (tmp_path / "table.json").write_text(json.dumps([outcome.table, outcome.done, outcome.errors]))

    first = client(act)
    until(lambda: len(results(out)) >= 2 or first.ended() is not None, told)
    first.kill()
    second = client(act)
    until(lambda: len(results(out)) >= 4 or second.ended() is not None, told)
    cluster.kill_worker()
    until(lambda: second.ended() is not None, told)
    assert second.ended() == 0, told()
    table, done, errors = json.loads((tmp_path / "table.json").read_text())
    assert not errors
    assert done == 8
    assert json.dumps(table) == json.dumps(expected.table)
    assert sorted(results(out)) == sorted(job.id for job in SWEEP.jobs())  # nothing lost, nothing twice
    assert sweep_state(SWEEP, out)["left"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_deaths_lose_nothing(tmp_path: Path, cluster: Any, client: Any) -> None:
    log, out, number = tmp_path / "log", tmp_path / "store", 400

    def make() -> Any:
        return (
            Job("benchmarks.naps:nap", {"number": k, "seconds": 0.05, "log": str(log)}, memory=1) for k in range(number)
        )

    sweep, draw, deaths = JobList("naps", make), random.Random(19), Counter[str]()
    for _ in range(2):
        cluster.start_worker()
    running = None

    def act() -> None:
        run_sweep(sweep, out, scheduler=cluster.address)

    while sum(deaths.values()) < 50:
        if running is None or running.ended() is not None:
            running = client(act)
        time.sleep(draw.uniform(0.0, 1.5))
        before = set(results(out))
        victim = draw.choice(["client", "client", "worker", "worker", "scheduler"])
        deaths[victim] += 1
        if victim == "client":
            running.kill()
        elif victim == "worker":
            cluster.kill_worker(draw.randrange(len(cluster.workers)))
            cluster.start_worker()
        else:
            cluster.kill_scheduler()
            while cluster.workers:
                cluster.kill_worker()
            running.kill()
            cluster.start_scheduler()
            for _ in range(2):
                cluster.start_worker()
        assert before <= set(results(out))  # what was there stays there
    if running is not None:
        running.kill()
    outcome = run_sweep(sweep, out, scheduler=cluster.address)
    assert outcome.done == number
    assert not outcome.errors
    assert [row["square"] for row in outcome.table] == [k * k for k in range(number)]
    assert sorted(results(out)) == sorted(job.id for job in sweep.jobs())
    twice = [name for name, n in Counter(log.read_text().split()).items() if n > 1]
    assert len(twice) <= 2 * sum(deaths.values())  # only what was at work when somebody died


def job(**more: Any) -> Job:
    return Job("benchmarks.naps:nap", {"number": 1}, **more)


class Around:
    """A Dask client of workers that are only said to be there."""

    status = "running"

    def __init__(self, workers: dict[str, Any]) -> None:
        self.workers, self.sent = workers, []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": self.workers}

    def submit(self, act: Any, *what: Any, **how: Any) -> Any:
        self.sent.append(how)
        return SimpleNamespace(status="pending", cancel=lambda: None, add_done_callback=lambda act: None)


def test_large_jobs_go_to_the_workers_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"memory_limit": 64 * 2**30, "resources": {"GPU": 1.0}}
    around = Around({"small": {"memory_limit": 2**30}, "large": {"memory_limit": 64 * 2**30}, "gpu": gpu})
    place = Cluster(None, around, {}, carry_out)
    for asked in (job(memory=2**20), job(memory=20 * 2**30), job(memory=2**20, gpus=1)):
        place.submit(asked, {})
        place._futures.clear()
    assert [how.get("workers") for how in around.sent] == [None, ["gpu", "large"], ["gpu"]]
    assert around.sent[2]["resources"] == {"GPU": 1}
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "LOOKED", 0.0)
    too_large = job(memory=200 * 2**30)
    place._jobs.clear()
    place.submit(too_large, {})
    ((name, answer),) = place.wait(0.0) + place.wait(0.0)
    assert name == too_large.id
    assert isinstance(answer, Lost)
    assert "needs about 200.0 GB" in answer.why
    assert "largest has 64.0 GB" in answer.why


def test_a_job_whose_worker_is_gone_goes_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED", 0.0)
    around = Around({"a": {"memory_limit": 8 * 2**30}, "b": {"memory_limit": 2**20}})
    place = Cluster(None, around, {}, carry_out)
    place.submit(job(memory=2**30), {})
    around.workers = {"c": {"memory_limit": 8 * 2**30}, "b": {"memory_limit": 2**20}}
    place.wait(0.0)
    assert [how["workers"] for how in around.sent] == [["a"], ["c"]]


def test_an_answer_whose_worker_died_is_asked_for_again() -> None:
    def late(timeout: float) -> None:
        raise TimeoutError

    around = Around({"a": {"memory_limit": 0}})
    place = Cluster(None, around, {}, carry_out)
    place.submit(job(), {})
    place._futures[job().id].status, place._futures[job().id].result = "finished", late
    place._answers.put((job().id, place._futures[job().id]))
    assert place.wait(0.0) == []
    assert len(around.sent) == 2
    assert place.running == 1


def test_what_cannot_be_reached_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    with pytest.raises(ConfigurationError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        run_sweep(SWEEP, tmp_path / "store", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="TLS takes three files"):
        run_sweep(SWEEP, tmp_path / "store", scheduler="tls://127.0.0.1:9", security={"tls_ca_file": "ca.pem"})
    with pytest.raises(ConfigurationError, match="none is named"):
        run_sweep(SWEEP, tmp_path / "store", security={"tls_ca_file": "ca.pem"})
    around = Around({"a": {"memory_limit": 0}})
    around.status = "closed"
    with pytest.raises(StabilityError, match="results so far are kept"):
        run_sweep(SWEEP, tmp_path / "store", client=around)
