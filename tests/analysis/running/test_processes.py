"""Jobs in processes: none is lost in silence, and what cannot travel stays here."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import pytest

from stability.analysis.running.jobs import run_jobs
from stability.analysis.running.pool import FORKS


def _silent(job: str, tell) -> None:
    if job == "silent":
        os._exit(0)
    if job == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "leaves":
        sys.exit(0)
    if job == "raises":
        raise KeyError("a")


def _tell_class(job, tell) -> None:
    tell(type(job).__name__)


def _tell_imported(module: str, tell) -> None:
    tell(str(module in sys.modules))


def test_a_process_that_ends_without_a_word_is_no_success_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STABILITY_TRACEBACK", raising=False)
    jobs = {"a": "silent", "b": "good", "c": "killed"}
    outcomes = {o.name: o.error for o in run_jobs(_silent, jobs, processes=2)}
    assert outcomes["b"] is None
    assert outcomes["a"] == "its process ended without a word (exit code 0)"
    assert str(outcomes["c"]).startswith("its process was ended by SIGKILL, as happens for want of memory")
    here = {o.name: o.error for o in run_jobs(_silent, {"d": "leaves", "e": "raises"}, processes=1)}
    assert here["d"] == "the model's code ended the program (sys.exit(0))"
    assert str(here["e"]).startswith("unexpected KeyError: 'a' (at ")


def test_classes_from_where_the_command_was_given_reach_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``package.module:factory`` has them: importable while the model was loaded, and not afterwards."""
    (tmp_path / "of_my_own.py").write_text("class Mine:\n    pass\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        mine = importlib.import_module("of_my_own").Mine
    monkeypatch.chdir(tmp_path)
    news: list[tuple[str, str]] = []
    run_jobs(_tell_class, {"a": mine(), "b": mine()}, processes=2, news=lambda *item: news.append(item))
    assert sorted(news) == [("a", "Mine"), ("b", "Mine")]


@pytest.mark.skipif(not FORKS, reason="each job has a process of its own that imports what it needs")
def test_what_jobs_import_is_there_already_and_what_is_not_installed_stops_none() -> None:
    news: list[tuple[str, str]] = []
    jobs = {name: name for name in ("colorsys", "nturl2path")}
    outcomes = run_jobs(_tell_imported, jobs, news=lambda *item: news.append(item), modules=["no_such", "colorsys"])
    assert [o.error for o in outcomes] == [None, None]
    assert sorted(news) == [("colorsys", "True"), ("nturl2path", "False")]


def test_a_job_that_no_process_can_take_is_done_here() -> None:
    class Local:
        pass

    news: list[str] = []
    outcomes = run_jobs(
        _tell_class, {"a": Local(), "b": Local()}, processes=2, news=lambda name, text: news.append(text)
    )
    assert [o.error for o in outcomes] == [None, None]
    assert news == ["Local", "Local"]
