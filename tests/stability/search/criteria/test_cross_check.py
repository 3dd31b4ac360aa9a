"""The semidefinite programs beside the frequency domain: who is right, and when a status alone would not have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stability.kernel.systems.layer_stack import LayerStack
from stability.search.criteria import cross_check as module
from stability.search.criteria.circle import circle_criterion
from stability.search.criteria.cross_check import CrossCheck, cross_check
from stability.search.criteria.kyp import kyp_criterion
from stability.search.solvers.semidefinite import SolverAnswer
from stability.systems import DrivenSystem, LureSystem

A = np.array([[-2.0, 0.5], [-0.3, -1.5]])
W = np.array([[0.4, -1.0], [0.7, 0.2]])


def with_gain(gain: float, dt: float | None = None) -> LureSystem:
    """A system whose loop has this gain; the circle criterion holds below one."""
    one = LureSystem.recurrent(A, W)
    unit = 1.0 - (circle_criterion(one, rate="any").margin or 0.0)
    system = LureSystem.recurrent(A, gain / unit * W)
    return system if dt is None else system.euler(dt)


@pytest.mark.parametrize("dt", [None, 0.05])
@pytest.mark.parametrize("gain", [0.6, 1.6])
def test_far_from_the_boundary_solvers_and_frequency_domain_agree(gain: float, dt: float | None) -> None:
    system = with_gain(gain, dt)
    found = cross_check(system)
    assert [(o.criterion, o.solver) for o in found.opinions] == [
        (name, solver) for name in ("circle", "kyp") for solver in ("SCS", "CLARABEL")
    ]
    answers = {"circle": circle_criterion(system, rate="any"), "kyp": kyp_criterion(system, rate="any")}
    for o in found.opinions:
        assert o.holds == o.says == o.verified == answers[o.criterion].holds
        assert o.frequency_margin == pytest.approx(answers[o.criterion].margin, rel=1e-6)
        assert o.agrees is True
        assert o.wrong is False
    assert (found.asked, found.wrong) == (4, 0)


def test_just_outside_a_splitting_solver_says_yes_and_an_interior_point_method_no() -> None:
    scs, clarabel, *_ = cross_check(with_gain(1.0 + 1e-7)).opinions
    assert (scs.solver, scs.says, scs.verified, scs.holds, scs.agrees, scs.wrong) == (
        "SCS",
        True,
        False,
        False,
        False,
        True,
    )
    assert clarabel.says is not True
    assert not clarabel.wrong


def test_what_a_status_is_worth_is_judged_by_the_inequality_and_the_frequency_domain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside, outside = with_gain(0.5), with_gain(2.0)

    def answering(*word: Any) -> None:
        monkeypatch.setattr(module, "pose_strictly", lambda *args, **options: SolverAnswer(*word))

    answering("optimal", -np.eye(2), 1.0)  # no P > 0 at all
    assert all(o.says and not o.verified and o.wrong for o in cross_check(inside).opinions)
    answering("optimal", None, None)
    assert all(o.wrong for o in cross_check(inside).opinions)
    answering("infeasible", None, None)
    assert all(o.wrong and o.agrees is False for o in cross_check(inside).opinions)
    assert cross_check(outside).opinions[0].wrong is False
    answering("failed: broke down", np.eye(2), 1.0)
    found = cross_check(inside)
    assert all(o.wrong is None and o.says is None and not o.verified for o in found.opinions)
    assert (found.asked, found.wrong) == (0, 0)


def test_coordinates_far_apart_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """``P`` is found in balanced coordinates; the inequality is judged in those of the system."""
    units = np.array([1e-3, 1e4])
    near = with_gain(0.6)
    system = LureSystem(near.A * units / units[:, None], near.B / units[:, None], near.C * units)
    assert all(o.verified for o in cross_check(system).opinions)
    monkeypatch.setattr(module, "state_scales", lambda loop: np.ones(2))  # what it is for
    assert not all(o.verified for o in cross_check(system).opinions)


def test_what_cannot_be_asked_says_why_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a solver was asked")

    monkeypatch.setattr(module, "pose_strictly", refuse)

    def statuses(found: CrossCheck) -> set[str]:
        assert found.asked == 0
        return {o.status for o in found.opinions}

    large = LureSystem.recurrent(-2.0 * np.eye(65), np.zeros((65, 65)))
    assert statuses(cross_check(large)) == {"not run: 65 states, at most 64 are asked"}
    assert statuses(cross_check(with_gain(0.5), largest=1)) == {"not run: 2 states, at most 1 are asked"}
    assert statuses(cross_check(LureSystem.linear([[-1.0]]))) == {"not run: nothing nonlinear"}


def test_a_search_that_was_cut_short_has_no_word() -> None:
    """Far inside and far outside the solver would be right; after one step its status is no answer of its own."""
    for gain in (0.5, 2.0):
        scs = [o for o in cross_check(with_gain(gain), steps=1).opinions if o.solver == "SCS"]
        assert len(scs) == 2
        for o in scs:
            assert o.status.endswith("stopped early")
            assert o.says is o.agrees is o.wrong is None
            assert not o.verified


def test_layers_of_a_stack_are_asked_one_by_one_and_no_time_is_no_error() -> None:
    cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
    found = cross_check(LayerStack([cell, cell]))
    assert [o.layer for o in found.opinions] == [0] * 4 + [1] * 4
    assert all(o.verified for o in found.opinions)
    late = cross_check(cell, time_limit=0.0)
    assert {o.status for o in late.opinions} == {"time limit"}
    assert late.asked == 0
