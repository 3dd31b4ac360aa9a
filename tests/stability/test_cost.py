"""Announced cost of a certificate against its real cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import stability.cost as costs
from stability import LureSystem, certify
from stability.cost import certification_cost, cost_notice
from stability.kernel.systems.gated_cell import GatedCell


def loop(n: int) -> LureSystem:
    rng = np.random.default_rng(0)
    return LureSystem.recurrent(-2.0 * np.eye(n), rng.normal(size=(n, n)) / (2 * n**0.5))


def test_memory_of_a_proof_is_within_what_is_said_and_not_far_below() -> None:
    system = loop(600)
    cost = certification_cost(system)
    assert cost is not None
    tracemalloc.start()
    certify(system, rate="any", refute=False, criterion="multiplier", solver="riccati")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.1 * cost.memory < peak < 1.1 * cost.memory


def test_time_grows_with_the_cube_and_memory_with_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(costs.time, "perf_counter", lambda: float(next(ticks)))
    small, large = (certification_cost(LureSystem.linear(-np.eye(n))) for n in (100, 200))
    assert small is not None
    assert large is not None
    assert large.seconds / small.seconds == pytest.approx(8.0)
    assert large.best == pytest.approx(costs.ATTEMPTS * large.seconds)
    assert large.memory / small.memory == pytest.approx(4.0)


def test_small_systems_are_not_talked_about_and_large_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cost_notice(loop(8)) == ""
    assert certification_cost(GatedCell("gru", np.zeros((6, 1)), np.zeros((6, 2)))) is None
    monkeypatch.setattr(costs, "LARGE", 8)
    assert cost_notice(loop(8), time_limit=30.0).startswith("8 states: about ")
    assert "stopped after 30 s" in cost_notice(loop(8), time_limit=30.0)
    monkeypatch.setattr(costs, "free_memory", lambda: 100)
    assert "more memory than is free" in cost_notice(loop(8))
    assert costs.Cost(1, 10, None, 1.0, 2.0).fits
