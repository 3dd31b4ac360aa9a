"""The small budget of all campaigns in tests."""

from __future__ import annotations

import pytest

from stability.analysis.campaign.budgets import BUDGETS, Budget

SMALL = Budget(
    samples=20, attacked=20, curved=10, draws=2, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1),
    epsilons_l2=(0.0, 0.001, 1.0), steps=2, stretch=3, iterations=5, probes=2, trajectories=2, program_states=0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
