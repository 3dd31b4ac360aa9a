"""The small budget of all campaigns in tests."""

from __future__ import annotations

import functools

import pytest

from stability.analysis.campaign import each
from stability.analysis.campaign.budgets import BUDGETS, Budget
from stability.analysis.training.presets import train_preset

SMALL = Budget(
    samples=20, attacked=20, curved=10, certified=6, gated=2, draws=2, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1),
    epsilons_l2=(0.0, 0.001, 1.0), steps=2, stretch=3, iterations=5, probes=2, trajectories=2, program_states=0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "quick", SMALL)


@pytest.fixture
def brief_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets are trained for two epochs."""
    monkeypatch.setattr(each, "train_preset", functools.partial(train_preset, epochs=2, milestones=()))
