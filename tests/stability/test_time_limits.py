"""A time limit may end a call at any of the moments at which it asks the clock: it answers with its best so far.

The clock here is a countdown: it stands still for a number of readings and is then far beyond every limit. So every
place where time can run out is visited, on any machine, however slow.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, incremental_gain, largest_step, refute, smallest_overshoot, verify
from stability.certificate import Certificate
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.circle import kyp_criterion
from stability.search.criteria.interval import gated_findings
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.nonexpansive import nonexpansive_claim
from stability.search.criteria.small_gain import circle_criterion
from stability.search.criteria.theorem1 import theorem1
from stability.search.gains.stack import stack_gain
from stability.search.input_sets.bounded import bounded
from stability.search.input_sets.regional import regional
from stability.search.solvers.deadline import STOPPED
from stability.systems import DrivenSystem


class Countdown:
    """Stands still for ``readings`` readings, then is an hour later."""

    def __init__(self, readings: float) -> None:
        self.readings, self.asked = readings, 0

    def __call__(self) -> float:
        self.asked += 1
        return 1000.0 + (3600.0 if self.asked > self.readings else 0.0)


@pytest.fixture
def countdown(monkeypatch):
    def start(readings: float) -> Countdown:
        clock = Countdown(readings)
        monkeypatch.setattr("stability.search.solvers.deadline.monotonic", clock)
        return clock

    return start


def system(n: int = 4, gain: float = 0.9, dt: float | None = None) -> LureSystem:
    rng = np.random.default_rng(n)
    flow = LureSystem.recurrent(0.3 * rng.normal(size=(n, n)) - 2.0 * np.eye(n), gain * rng.normal(size=(n, n)))
    return flow if dt is None else flow.euler(dt)


def network(n: int = 4, gain: float = 0.9) -> DrivenSystem:
    return DrivenSystem(system(n, gain, 0.1), "tanh", np.ones((n, 2)), 0.1 * np.ones(n))


def ode() -> DrivenSystem:
    return DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])


def cell() -> GatedCell:
    rng = np.random.default_rng(2)
    return GatedCell("gru", 0.4 * rng.normal(size=(9, 2)), 0.3 * rng.normal(size=(9, 3)), input_low=-1, input_high=1)


def stack() -> LayerStack:
    return LayerStack([network(3), DrivenSystem(system(2, 0.5, 0.1), "tanh", np.ones((2, 3)))])


def open_network() -> DrivenSystem:
    """Neither certified nor refuted, so that all of the search is made."""
    return DrivenSystem(LureSystem([[0.0]], [[1.0]], [[-1.0]], dt=1.0), "tanh", [[1.0]])


def small_cell(gain: float, **box: float) -> GatedCell:
    return GatedCell("gru", [[0.5], [0.0], [0.2]], [[gain], [-2.0 * gain], [2.0 * gain]], **box)


def lstm(m: int = 3, gain: float = 0.3) -> GatedCell:
    rng = np.random.default_rng(m)
    w_ih, w_hh = gain * rng.normal(size=(4 * m, 2)), gain / m**0.5 * rng.normal(size=(4 * m, m))
    return GatedCell("lstm", w_ih, w_hh, input_low=-1.0, input_high=1.0)


def rectified(m: int = 3, gain: float = 0.3) -> DrivenSystem:
    W = gain / m**0.5 * np.random.default_rng(m).normal(size=(m, m))
    return DrivenSystem(LureSystem(0 * W, np.eye(m), W, dt=1.0), "relu", np.ones((m, 2)), np.ones(m))


def running(m: int = 3, gain: float = 2.0) -> DrivenSystem:
    W = gain / m**0.5 * np.random.default_rng(m).normal(size=(m, m))
    return DrivenSystem(LureSystem.recurrent(-np.eye(m), W), "tanh", np.ones((m, 2)), np.ones(m))


BOX = {"input_box": (-0.1, 0.1), "refute": False}
CALLS = {
    "certify a flow": lambda t: certify(system(), refute=False, time_limit=t),
    "certify a network": lambda t: certify(network(), refute=False, time_limit=t),
    "certify beyond every rate": lambda t: certify(system(), rate=50.0, refute=False, time_limit=t),
    "certify by an SDP": lambda t: certify(system(2), criterion="multiplier", solver="cvxpy", tol=1e-2, time_limit=t),
    "certify a cell": lambda t: certify(cell(), refute=False, time_limit=t),
    "certify a stack": lambda t: certify(stack(), refute=False, time_limit=t),
    "certify an LSTM": lambda t: certify(lstm(), refute=False, time_limit=t),
    "certify in a box": lambda t: certify(rectified(gain=3.0), **BOX, time_limit=t),
    "small_gain": lambda t: circle_criterion(system(), time_limit=t),
    "circle": lambda t: kyp_criterion(system(), time_limit=t),
    "theorem 1": lambda t: theorem1([[-3.0, 0.1], [0.0, -3.0]], -np.eye(2), time_limit=t),
    "multiplier": lambda t: multiplier_criterion(system(6), time_limit=t),
    "gated": lambda t: gated_findings(cell(), time_limit=t),
    "gain": lambda t: incremental_gain(system(3), time_limit=t),
    "stack gain": lambda t: stack_gain(stack(), time_limit=t),
    "bounded": lambda t: bounded(network(), time_limit=t),
    "regional": lambda t: regional(ode(), time_limit=t),
    "nonexpansive": lambda t: nonexpansive_claim(LureSystem(0 * np.eye(2), np.eye(2), np.eye(2), dt=1.0), time_limit=t),
    "largest step": lambda t: largest_step(system(2), tol=0.05, time_limit=t),
    "smallest overshoot": lambda t: smallest_overshoot(system(2), 0.3, time_limit=t),
}

SEARCHES = {
    "certify or refute a flow": lambda t: certify(system(gain=9.0), time_limit=t),
    "certify or refute a stack": lambda t: certify(
        LayerStack([small_cell(0.1, input_low=-1, input_high=1), small_cell(1.0)]), input_range=(-1, 1), time_limit=t
    ),
    "refute a flow": lambda t: refute(system(gain=1.5), time_limit=t),
    "refute a network": lambda t: refute(open_network(), effort=0.05, time_limit=t),
    "refute a cell": lambda t: refute(small_cell(0.5), time_limit=t),
    "refute a stack": lambda t: refute(
        LayerStack([small_cell(0.1), small_cell(1.0)]), input_range=(-1, 1), time_limit=t
    ),
}


def certificates(answer: object) -> list[Certificate]:
    found = answer if isinstance(answer, Certificate) else getattr(answer, "certificate", None)
    return [found] if isinstance(found, Certificate) else []


@pytest.mark.parametrize("name", CALLS)
def test_time_may_run_out_at_any_moment(name, countdown):
    clock = countdown(math.inf)
    whole = certificates(CALLS[name](60.0))
    asked = clock.asked
    assert asked >= 2, "the clock is asked at the door and at least once more"
    cut = 0
    for readings in sorted({1, 3, max(asked // 3, 1), asked - 1}):
        countdown(readings)
        for certificate in certificates(CALLS[name](60.0)):
            assert verify(certificate).valid or certificate.verdict is Verdict.INCONCLUSIVE
            cut += "cut" in certificate.meta
            if "cut" not in certificate.meta:  # the last reading was none that decides: then nothing is missing
                near = {name: getattr(whole[0], name) for name in ("rate", "overshoot")}  # a solver's sums may differ
                near = {name: value and pytest.approx(value, rel=1e-6) for name, value in near.items()}
                assert {name: getattr(certificate, name) for name in near} == near
    assert cut >= len(whole)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_for_counter_examples_may_run_out_of_time(name, countdown):
    """The findings so far are the answer; it is proved or none, and once the time is over little happens."""
    whole = SEARCHES[name](None)
    clock = countdown(math.inf)
    SEARCHES[name](60.0)
    asked = clock.asked
    assert asked > 5
    for readings in (1, 3, asked // 10, asked // 2):
        clock = countdown(readings)
        answer = SEARCHES[name](60.0)
        assert clock.asked < readings + 60, "it goes on although the time is over"
        assert answer.evidence in ("none", whole.evidence)
        if isinstance(answer, Certificate):
            assert verify(answer).valid or answer.evidence == "none"
            assert answer.meta["cut"] or answer.evidence == "proved"


def test_the_rate_grows_with_the_time_and_says_when_it_was_cut(countdown):
    clock = countdown(math.inf)
    whole = multiplier_criterion(system(6), time_limit=1.0)
    asked, rates = clock.asked, []
    for readings in range(1, asked, max(asked // 12, 1)):
        countdown(readings)
        found = multiplier_criterion(system(6), time_limit=1.0)
        if found.holds:
            assert check_lmi(system(6), found.witness["P"], found.witness["L"], found.rate)[0]
            assert STOPPED in found.detail
            rates.append(found.rate)
    assert len(rates) > 5
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(whole.rate, rel=1e-6)
    assert STOPPED not in whole.detail


def test_without_a_limit_the_answer_does_not_depend_on_the_clock(monkeypatch, tmp_path: Path):
    """A clock that leaps an hour at every reading stands for a machine under any load."""
    files = []
    for leap in (0.0, 3600.0):
        now = [1000.0]

        def clock(now: list[float] = now, leap: float = leap) -> float:
            now[0] += leap
            return now[0]

        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", clock)
            patch.setattr("stability.search.solvers.deadline.monotonic", clock)
            patch.setattr("time.perf_counter", clock)
            made = [CALLS[name](None) for name in CALLS if name.startswith("certify") and "SDP" not in name]
        for k, certificate in enumerate(made):
            assert "cut" not in certificate.meta
            timeless = {key: value for key, value in certificate.meta.items() if key != "seconds"}
            object.__setattr__(certificate, "meta", timeless)
            files.append(certificate.save(tmp_path / f"{leap:g}-{k}.json").read_bytes())
    half = len(files) // 2
    assert files[:half] == files[half:]


LARGE = {
    "LSTM": lambda m: lstm(m, 0.2),
    "GRU": lambda m: GatedCell("gru", *(0.01 * np.ones((3 * m, k)) for k in (2, m)), input_low=-1.0, input_high=1.0),
    "stack of LSTM": lambda m: LayerStack([lstm(m), GatedCell("lstm", *2 * [0.2 / m**0.5 * np.ones((4 * m, m))])]),
    "ReLU": rectified,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_thousand_units_end_in_time(name):
    """The searches for boxes and sets of states ask for the time that a round of theirs takes."""
    subject = LARGE[name](1000)
    started = time.monotonic()
    certificate = certify(subject, input_box=(-0.5, 0.5), time_limit=4.0)
    assert certificate.verdict is Verdict.CERTIFIED or certificate.meta["cut"]
    assert time.monotonic() - started < 3 * 4.0  # twice that is for what else runs on the machine
