"""Jobs in this process and on a local cluster: same outcomes, no failure is lost."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stability.analysis.jobs import Outcome, cluster, run_jobs, worker_count
from stability.errors import ConfigurationError, UnsupportedError


def _work(job: Any, tell: Any) -> Any:
    tell(f"begins in {os.environ.get('OMP_NUM_THREADS')}")
    kind, number = job
    if kind == "mistaken":
        raise UnsupportedError("no such thing")
    if kind == "broken":
        raise KeyError(number)
    if kind == "leaves":
        sys.exit(3)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "killed once" and not Path(number).exists():
        Path(number).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "sleeps":
        time.sleep(number)
    if kind == "class":
        return type(number).__name__
    sys.stdout.write("printed by a job\n")
    return number


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster(2) as made:
        yield made


def outcomes(jobs: dict[str, Any], client: Any = None, **more: Any) -> dict[str, Outcome]:
    return {o.name: o for o in run_jobs(_work, jobs, client=client, **more)}


@pytest.mark.parametrize("distributed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_failed_job_is_reported_and_stops_no_other(
    request: pytest.FixtureRequest, distributed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STABILITY_TRACEBACK", raising=False)
    jobs = {"a": ("good", 1), "b": ("mistaken", 0), "c": ("broken", "key"), "d": ("leaves", 0), "e": ("good", 2)}
    news: list[tuple[str, str]] = []
    client = request.getfixturevalue("client") if distributed else None
    found = outcomes(jobs, client, news=lambda *told: news.append(told))
    assert {name: o.value for name, o in found.items()} == {"a": 1, "b": None, "c": None, "d": None, "e": 2}
    errors = {name: o.error for name, o in found.items()}
    assert errors["a"] is errors["e"] is None
    assert errors["b"] == "no such thing"
    assert "KeyError" in str(errors["c"])
    assert "sys.exit(3)" in str(errors["d"])
    assert sorted(name for name, text in news if text.startswith("begins")) == sorted(jobs)


@pytest.mark.slow
def test_jobs_may_add_jobs_and_workers_have_one_thread(client: Any) -> None:
    news: list[str] = []

    def done(outcome: Outcome) -> dict[str, Any] | None:
        return {"b": ("good", 2), "c": ("good", 3)} if outcome.name == "a" else None

    found = outcomes({"a": ("good", 1)}, client, done=done, news=lambda name, text: news.append(text))
    assert {name: o.value for name, o in found.items()} == {"a": 1, "b": 2, "c": 3}
    assert news == ["begins in 1"] * 3
    assert outcomes({"a": ("good", 1)}, done=done).keys() == found.keys()


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_job_tried_again(client: Any, tmp_path: Path) -> None:
    found = outcomes({"a": ("killed once", str(tmp_path / "mark")), "b": ("good", 2)}, client)
    assert (found["a"].error, found["a"].value, found["b"].value) == (None, str(tmp_path / "mark"), 2)


@pytest.mark.slow
def test_a_job_that_kills_every_worker_fails(client: Any) -> None:
    found = outcomes({"a": ("killed", 0), "b": ("good", 2)}, client)
    assert "was killed" in str(found["a"].error)
    assert found["b"].value == 2


@pytest.mark.slow
def test_classes_of_the_working_directory_reach_the_workers(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_classes.py").write_text("class Mine:\n    pass\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        mine = importlib.import_module("my_own_classes").Mine
    monkeypatch.chdir(tmp_path)

    class Local:
        pass

    found = outcomes({"a": ("class", mine()), "b": ("class", Local())}, client)
    assert (found["a"].value, found["b"].value) == ("Mine", "Local")


@pytest.mark.slow
def test_an_interruption_ends_a_sleeping_job() -> None:
    def stop(name: str, text: str) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), cluster(2) as client:
        run_jobs(_work, {"a": ("sleeps", 3600.0), "b": ("sleeps", 3600.0)}, client=client, news=stop)
    assert time.monotonic() - begun < 120


def test_without_distributed_jobs_run_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with cluster(4) as client:
        assert client is None
        assert worker_count(client) == 1
    with pytest.raises(ConfigurationError), cluster(1, "tcp://127.0.0.1:9"):
        pass


@pytest.mark.slow
def test_a_gpu_that_no_worker_has_is_an_error(client: Any) -> None:
    with pytest.raises(ConfigurationError):
        outcomes({"a": ("good", 1)}, client, gpus=1)
