"""After its deadline a call begins no long step: the clock here counts factorisations, spectra and simulated steps.

So time is work, on any machine, and what a call does beyond its limit is counted exactly: the check of what was found
by then, and no more of the search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, incremental_gain, refute, verify
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.search.criteria.circle import kyp_criterion
from stability.search.gains.stack import stack_gain
from stability.search.solvers import riccati
from stability.search.solvers.deadline import TOO_LATE
from stability.systems import DrivenSystem

LONG = ("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "qr", "solve", "svd")
MORE = 45
"""Long steps that may follow the end: rules prove again what was found, overshoots are bracketed."""


class Work:
    """A clock whose seconds are the long steps begun."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self) -> float:
        return float(self.steps)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.steps += 1
            return function(*args, **kwargs)

        return wrapped


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    clock = Work()
    for name in LONG:
        monkeypatch.setattr(np.linalg, name, clock.counted(getattr(np.linalg, name)))
    monkeypatch.setattr(DrivenSystem, "advance", clock.counted(DrivenSystem.advance))
    monkeypatch.setattr(GatedCell, "_parts", clock.counted(GatedCell._parts))
    monkeypatch.setattr(riccati, "_LU", clock.counted(riccati._LU))
    monkeypatch.setattr("stability.search.solvers.deadline.monotonic", clock)
    return clock


def flow(n: int = 7, gain: float = 0.9, D: float = 0.0, slope: Any = (0.0, 1.0)) -> LureSystem:
    rng = np.random.default_rng(n)
    A, W = 0.3 * rng.normal(size=(n, n)) - 2.0 * np.eye(n), gain * rng.normal(size=(n, n))
    return LureSystem(A, np.eye(n), W, D * rng.normal(size=(n, n)) / n, slope)


def network(system: LureSystem) -> DrivenSystem:
    return DrivenSystem(system, "tanh", np.ones((system.channels, 2)), 0.1 * np.ones(system.channels))


def cell(kind: str, gain: float = 0.3, box: bool = True) -> GatedCell:
    rng, gates = np.random.default_rng(2), 4 if kind == "lstm" else 3
    ends = {"input_low": -1.0, "input_high": 1.0} if box else {}
    return GatedCell(kind, gain * rng.normal(size=(gates * 5, 2)), gain * rng.normal(size=(gates * 5, 5)), **ends)


def stack(gain: float = 0.5) -> LayerStack:
    upper = flow(4, gain).euler(0.1)
    return LayerStack([network(flow(5, gain).euler(0.1)), DrivenSystem(upper, "tanh", np.ones((4, 5)))])


KINDS: dict[str, Callable[[], Any]] = {
    "flow": flow,
    "unstable flow": lambda: flow(gain=9.0),
    "direct term": lambda: flow(D=0.5),
    "slopes of their own": lambda: flow(slope=(np.linspace(-0.2, 0.0, 7), np.linspace(0.3, 1.0, 7))),
    "network": lambda: network(flow()),
    "network near the boundary": lambda: network(flow(gain=1.2).euler(0.1)),
    "lstm": lambda: cell("lstm"),
    "gru that does not contract": lambda: cell("gru", 3.0),
    "stack": stack,
    "stack of cells": lambda: LayerStack([cell("gru"), GatedCell("gru", np.ones((3, 5)), np.ones((3, 1)))]),
}


LIMITS = (0, 300)


@pytest.mark.parametrize("name", KINDS)
def test_certify_begins_nothing_after_its_end(name: str, work: Work) -> None:
    for limit in LIMITS:
        subject, work.steps = KINDS[name](), 0
        certificate = certify(subject, time_limit=float(limit))
        assert work.steps <= limit + MORE
        assert limit or certificate.evidence != "proved" or certificate.verdict is Verdict.REFUTED
        assert verify(certificate).valid or certificate.evidence == "none"


@pytest.mark.parametrize("name", KINDS)
def test_a_search_for_witnesses_begins_nothing_after_its_end(name: str, work: Work) -> None:
    for limit in LIMITS:
        subject, work.steps = KINDS[name](), 0
        refute(subject, time_limit=float(limit))
        assert work.steps <= limit + MORE


@pytest.mark.parametrize("name", KINDS)
def test_a_gain_begins_nothing_after_its_end(name: str, work: Work) -> None:
    for limit in (0, 60):
        subject, work.steps = KINDS[name](), 0
        if isinstance(subject, (GatedCell, LayerStack)):
            stack_gain(subject, time_limit=float(limit))
        else:
            incremental_gain(subject, solver="riccati", time_limit=float(limit))
        assert work.steps <= limit + MORE


def test_a_step_of_known_cost_is_not_begun_without_the_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds are enough for each spectrum of this size, not where ``G + G^H`` is singular."""
    seen: list[int] = []

    def crossings(system: Any, R: Any) -> Any:
        seen.append(2 * system.states + len(R))
        return np.zeros(0)

    monkeypatch.setattr("stability.search.solvers.positive_real._crossings", crossings)
    monkeypatch.setattr("stability.search.solvers.deadline.monotonic", lambda: 0.0)
    system = LureSystem(-np.eye(200), np.eye(200), 0.1 * np.eye(200))
    with_time = kyp_criterion(system, rate="any", time_limit=600.0)
    assert with_time.holds
    assert seen == [600]
    without = kyp_criterion(system, rate="any", time_limit=2.0)
    assert not without.holds
    assert TOO_LATE in without.detail
    assert seen == [600]
