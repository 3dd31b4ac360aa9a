"""Parts of a page that are drawn at the same time: all of them, in order, and no error is lost."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from stability.reports.page import abreast as module
from stability.reports.page.abreast import abreast


def _failing(subject: str) -> str:
    raise ValueError(f"nothing of {subject}")


@pytest.mark.parametrize("processes", [1, 2, 7])
def test_the_results_stand_in_the_order_of_the_builders(processes: int) -> None:
    builders = [lambda subject, k=k: subject * k for k in range(5)]
    assert abreast(builders, "ab", processes) == ["", "ab", "abab", "ababab", "abababab"]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_builder_raises_is_raised_here(processes: int) -> None:
    with pytest.raises(ValueError, match="nothing of it"):
        abreast([str.upper, _failing], "it", processes)


def test_one_process_is_this_one() -> None:
    assert abreast([lambda _: os.getpid()] * 2, None, 1) == [os.getpid()] * 2


def _without_room(*given: object, **options: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_where_processes_have_no_room_this_one_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessPoolExecutor", _without_room)
    assert abreast([lambda _: os.getpid()] * 2, None, 2) == [os.getpid()] * 2
    with pytest.raises(OSError, match="the builder's own"):
        abreast([_out_of_room, str], None, 2)


def test_an_error_of_the_system_in_a_builder_is_its_own() -> None:
    with pytest.raises(OSError, match="the builder's own"):
        abreast([_out_of_room, str], None, 2)


def _out_of_room(subject: object) -> None:
    raise OSError(errno.ENOSPC, "the builder's own")


@pytest.mark.parametrize("victim", range(5))
def test_what_a_killed_process_leaves_this_one_draws(victim: int) -> None:
    here = os.getpid()

    def dying(subject: str) -> str:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return subject

    builders = [dying if k == victim else lambda subject, k=k: subject * k for k in range(5)]
    assert abreast(builders, "ab", 2) == ["ab" if k == victim else "ab" * k for k in range(5)]
