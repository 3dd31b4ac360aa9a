"""Eigenvalue problems cannot be stopped half-way: none begins that does not fit in the time left."""

from __future__ import annotations

import numpy as np

from stability.search.counterexamples import constant_slopes as slopes
from stability.search.counterexamples import lure as network
from stability.search.counterexamples.constant_slopes import search_slopes
from stability.search.counterexamples.refutation import RefutationTask
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem


def stable(n: int) -> LureSystem:
    W = np.random.default_rng(0).normal(size=(n, n)) / np.sqrt(n)
    return LureSystem.recurrent(-np.eye(n), 0.5 * W)


def test_one_start_is_tried_where_there_is_no_time_for_others(monkeypatch) -> None:
    tried, leading = [], slopes.leading_excess
    monkeypatch.setattr(slopes, "leading_excess", lambda system, K: tried.append(K) or leading(system, K))
    deadline = Deadline.from_limit(1e-3).named("refutation")
    found = search_slopes(stable(120), rng=np.random.default_rng(0), deadline=deadline)
    assert len(tried) == 1
    assert np.isfinite(found.excess)
    assert deadline.stopped == ("refutation",)
    tried.clear()
    search_slopes(stable(12), rng=np.random.default_rng(0), deadline=Deadline(), starts=0)
    assert len(tried) >= 3


def test_a_network_is_left_after_what_is_decided_at_once(monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(network, "search_slopes", lambda *args, **more: asked.append(1))
    driven = DrivenSystem(stable(120), "tanh", np.ones((120, 1)))
    answer = network.search_network(RefutationTask(driven, 0, Deadline.from_limit(1e-3)))
    assert answer.proof is None
    assert not asked
