"""The deadline itself: counted once at the door, shared inward, and it remembers whom it stopped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.search.solvers.deadline import Deadline


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("stability.search.solvers.deadline.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("bad", [-1, -1e-300, math.nan, True, "1", [1.0], 1j, -math.inf])
def test_the_door_refuses_what_is_no_time(bad: object) -> None:
    with pytest.raises(ConfigurationError, match="time_limit must be None or a number of seconds >= 0, got"):
        Deadline.from_limit(bad)  # type: ignore[arg-type]


def test_without_a_limit_the_clock_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> float:
        raise AssertionError("the clock was read")

    monkeypatch.setattr("stability.search.solvers.deadline.monotonic", refuse)
    for limit in (None, math.inf):
        deadline = Deadline.from_limit(limit)
        assert not deadline.over
        assert not deadline.stops("x")
        assert deadline.left() == math.inf
        assert deadline.seconds is None
        assert deadline.share(0.1).left() == math.inf
        assert deadline.stopped == ()


def test_time_runs_out(clock: list[float]) -> None:
    deadline = Deadline.from_limit(np.float64(8.0))
    half = deadline.share(0.5)
    assert (deadline.left(), half.left()) == (8.0, 4.0)
    clock[0] += 4.0
    assert half.over
    assert not deadline.over
    assert half.left() == 0.0
    assert half.seconds == 1e-3
    assert half.stops("first")
    assert not deadline.stops("second")
    clock[0] += 100.0
    assert deadline.over
    assert deadline.left() == 0.0
    assert deadline.stops("third")
    assert deadline.stops("first")
    assert deadline.stopped == ("first", "third")  # what its share stopped, it remembers


def test_a_deadline_is_handed_on_as_it_is(clock: list[float]) -> None:
    deadline = Deadline.from_limit(1)
    assert Deadline.from_limit(deadline) is deadline
    assert Deadline.from_limit(0).over
    assert not Deadline.from_limit(1e-9).over
