"""Heads on the mean: the proofs of both sides together stand on no more boxes than a check looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gated_specimens import drawn, searched

from stability.local import gated_means, passes
from stability.local.refining import Refining
from stability.rules.registry import RULES


def test_the_proofs_of_both_sides_together_stand_on_no_more_than_a_check_looks_at(monkeypatch):
    net, x = drawn("lstm", 2, 0)
    net = replace(net, reduction="mean")
    seen, old = list[tuple[int, int]](), gated_means.passes

    def watched(made: Refining, *told: Any, others: int = 0, **more: Any) -> passes.Proved:
        found = old(made, *told, others=others, **more)
        seen.append((others, found.size))
        return found

    monkeypatch.setattr(gated_means, "passes", watched)
    whole, _ = searched(net, x)
    assert whole is not None
    (none, first), (others, second) = seen
    assert (none, others) == (0, first)
    assert min(first, second) > 1000
    most = first + second // 2
    monkeypatch.setattr(passes, "ROOM", most / passes._CHECKED)
    seen.clear()
    claim, _ = searched(net, x)
    assert claim is not None
    assert seen[0] == (0, first)
    assert 0 < seen[1][1] <= most - first
    assert RULES["local_cells"](net, claim)[0]
    assert 0.2 * whole.value < claim.value < 0.9 * whole.value


@pytest.mark.parametrize("others", [pytest.param(0, marks=pytest.mark.slow), 10**9])
def test_the_first_pass_always_counts(others, monkeypatch):
    """Else nothing would be known where another part has taken all."""
    net, x = drawn("lstm", 2, 0)
    net = replace(net, reduction="mean")
    old = gated_means.passes
    found = list[passes.Proved]()

    def watched(made: Refining, *told: Any, **more: Any) -> passes.Proved:
        found.append(old(made, *told, **(more | {"others": others})))
        return found[-1]

    monkeypatch.setattr(gated_means, "passes", watched)
    searched(net, x)
    assert all(each.told for each in found)
    assert (found[0].size > 1000) == (not others)
