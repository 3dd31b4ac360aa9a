"""The semidefinite programs beside the frequency domain: who is right, and when a status alone would not have been."""

from __future__ import annotations

import numpy as np
import pytest

from stability.search.criteria import cross_check as module
from stability.search.criteria.circle import kyp_criterion
from stability.search.criteria.cross_check import cross_check
from stability.search.criteria.small_gain import circle_criterion
from stability.systems import LureSystem

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
        (name, solver) for name in ("small_gain", "circle") for solver in ("SCS", "CLARABEL")
    ]
    answers = {"small_gain": circle_criterion(system, rate="any"), "circle": kyp_criterion(system, rate="any")}
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


def test_coordinates_far_apart_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """``P`` is found in balanced coordinates; the inequality is judged in those of the system."""
    units = np.array([1e-3, 1e4])
    near = with_gain(0.6)
    system = LureSystem(near.A * units / units[:, None], near.B / units[:, None], near.C * units)
    assert all(o.verified for o in cross_check(system).opinions)
    monkeypatch.setattr(module, "state_scales", lambda loop: np.ones(2))  # what it is for
    assert not all(o.verified for o in cross_check(system).opinions)
