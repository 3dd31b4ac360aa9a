"""Where witnesses are looked for, whether they can happen, and that what is tried is counted."""

from __future__ import annotations

import numpy as np
import pytest

from stability import Verdict, certify, refute, verify
from stability.errors import ConfigurationError, DimensionError
from stability.search.counterexamples.reachability_in_use import inputs_in_range, states_reachable
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import ANYWHERE, InputRange, input_range
from stability.systems import DrivenSystem, LureSystem

ZERO_TO_ONE = input_range((0, 1), 2)


def plain(W, E=None, b=None, name="tanh"):
    W = np.atleast_2d(np.asarray(W, dtype=float))
    n = len(W)
    system = LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0)
    return DrivenSystem(system, name, np.eye(n) if E is None else E, b)


class TestRange:
    def test_draws_lie_inside_corners_among_them(self, rng):
        box = input_range(([0.0, -1.0], [1.0, 3.0]), 2)
        u = box.draw(rng, (40, 3), 2)
        assert u.shape == (40, 3, 2)
        assert box.contains(u)
        assert np.isin(u[1::2], [0.0, 1.0, -1.0, 3.0]).all()
        assert not np.isin(u[2::2], [0.0, 1.0, -1.0, 3.0]).any()
        assert (u[0] == 0.0).all()
        assert (input_range((2, 3), 1).draw(rng, (4,), 1)[0] == 2.0).all()

    def test_anywhere(self, rng):
        u = ANYWHERE.draw(rng, (30,), 4)
        assert (u[0] == 0).all()
        assert np.abs(u[-5:]).mean() > 10 * np.abs(u[1:6]).mean()
        assert ANYWHERE.contains(np.array([1e300]))
        assert not ANYWHERE.bounded
        assert np.array_equal(ANYWHERE.clip(u), u)

    def test_membership_at_the_edge(self):
        assert ZERO_TO_ONE.contains(np.array([0.0, 1.0]))
        assert not ZERO_TO_ONE.contains(np.array([0.0, np.nextafter(1.0, 2)]))
        assert not ZERO_TO_ONE.contains(np.array([[0.5, 0.5], [-5e-324, 0.5]]))
        assert ZERO_TO_ONE.clip(np.array([-1.0, 5.0])).tolist() == [0.0, 1.0]

    @pytest.mark.parametrize("bad", [1, "x", (0,), (1, 0), (0, np.inf), (np.nan, 1), (0, [[1.0]]), ([0, 0, 0], 1)])
    def test_bad_ranges(self, bad):
        with pytest.raises((ConfigurationError, DimensionError)):
            refute(plain(0.5 * np.eye(2)), input_range=bad)

    @pytest.mark.parametrize(
        "bad", [{"horizon": -1}, {"horizon": 1.5}, {"horizon": True}, {"effort": 0}, {"effort": np.inf}, {"start": "x"}]
    )
    def test_bad_options(self, bad):
        with pytest.raises(ConfigurationError):
            refute(plain(0.5), **bad)
        with pytest.raises(DimensionError):
            refute(plain(0.5), start=np.zeros(2))


class TestInTheRangeFirst:
    def test_a_witness_in_the_range_is_preferred(self):
        """``tanh(3 x + u)`` has three equilibria for ``|u| < 1.5`` or so: in [0, 1], and elsewhere."""
        answer = refute(plain(3.0, b=[0.0]), input_range=(0.25, 0.5), horizon=50)
        assert answer.evidence == "proved"
        assert answer.input_in_data_range is True
        assert 0.25 <= answer.proof.data["input"].min() <= answer.proof.data["input"].max() <= 0.5

    def test_else_anywhere(self):
        """Biased so far that only inputs near -9 bring the unit to where it is steep."""
        far = plain(3.0, E=[[1.0]], b=[9.0])
        answer = refute(far, input_range=(0, 1))
        assert answer.evidence == "proved"
        assert answer.input_in_data_range is False
        assert refute(far).input_in_data_range is None

    def test_a_witness_for_every_input_lies_in_the_range(self):
        assert inputs_in_range({"eigenvalue": (1.0, 0.0)}, ZERO_TO_ONE) is True
        assert inputs_in_range({"input": np.array([0.5, 2.0])}, ZERO_TO_ONE) is False
        assert inputs_in_range({"input": np.array([0.5, 2.0])}, ANYWHERE) is None

    def test_certify_hands_it_on(self, tmp_path):
        far = plain(3.0, E=[[1.0]], b=[9.0])
        certificate = certify(far, input_range=(0, 1), horizon=20)
        assert certificate.verdict is Verdict.REFUTED
        assert certificate.meta["witness"]["input_in_data_range"] is False
        assert verify(certificate.save(tmp_path / "c.json")).valid
        assert "witness" not in certify(far).meta


class TestReach:
    def test_a_leaky_state_grows_by_a_step_at_a_time(self):
        """``x+ = x + tanh(...)``: from zero at most ``t`` after ``t`` steps."""
        leaky = DrivenSystem(LureSystem(np.eye(1), np.eye(1), [[0.0]], dt=1.0), "tanh", [[1.0]])
        for state, horizon, answer in ((10.0, 9, False), (10.0, 10, None), (-10.5, 10, False), (3.0, 100, True)):
            data = {"state": np.array([state]), "input": np.array([100.0])}
            found = states_reachable(leaky, data, ANYWHERE, None, horizon)
            assert found is answer or (answer is None and found is True)
        data = {"state": np.array([5.0]), "input": np.array([0.0])}
        assert states_reachable(leaky, data, ANYWHERE, None, 20) is None
        assert states_reachable(leaky, data, ANYWHERE, np.array([5.0]), 0) is True
        assert states_reachable(leaky, data, ANYWHERE, np.array([-20.0]), 3) is None

    def test_inputs_that_enter_the_state(self):
        driven = DrivenSystem(LureSystem.linear([[0.5]], 1.0), "tanh", np.zeros((0, 1)), F=[[2.0]])
        data = {"state": np.array([4.5]), "input": np.array([1.0])}
        assert states_reachable(driven, data, input_range((-1, 1), 1), None, 500) is False
        assert states_reachable(driven, data, ANYWHERE, None, 500) is None

    def test_every_state_counts(self):
        bistable = plain(3.0, E=[[1.0]])
        data = {"state1": np.array([0.9]), "state2": np.array([-1.5]), "input": np.zeros(1)}
        assert states_reachable(bistable, data, ANYWHERE, None, 5) is False
        orbit = {"first": np.array([[0.0], [9.0]]), "input": np.zeros((1, 1))}
        assert states_reachable(bistable, orbit, ANYWHERE, None, 5) is True

    def test_a_difference_is_at_most_twice_a_state(self):
        bistable = plain(3.0)
        for d, answer in ((1.9, None), (2.1, False)):
            assert states_reachable(bistable, {"difference": np.array([d])}, ANYWHERE, None, 5) is answer

    def test_not_known(self):
        data = {"state": np.zeros(1), "input": np.zeros(1)}
        assert states_reachable(plain(3.0), data, ANYWHERE, None, None) is None
        flow = DrivenSystem(LureSystem.recurrent([[-1.0]], [[2.0]]), "tanh", [[0.0]])
        assert states_reachable(flow, data, ANYWHERE, None, 10) is None


class TestContractingByConstruction:
    """Systems of the kind that rounding, or slowness, once made look apart: not refuted."""

    @pytest.mark.parametrize("seed", range(2))
    def test_triangular(self, seed):
        r, n = np.random.default_rng(seed), 12
        W = np.triu(r.normal(size=(n, n)), 1)
        W[np.diag_indices(n)] = r.uniform(-0.99, 0.99, n)
        assert refute(plain(W), effort=0.5).evidence == "none"

    @pytest.mark.parametrize("margin", [1e-9, 1e-12])
    def test_orthogonal(self, margin):
        q = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
        assert refute(plain((1 - margin) * q), effort=0.3).evidence == "none"

    @pytest.mark.parametrize("e", [1e-13, 1e-9])
    def test_leaky(self, e):
        W = np.random.default_rng(310).normal(size=(4, 4))
        W *= 0.9 / np.linalg.norm(W, 2)
        system = LureSystem((1 - e) * np.eye(4), e * np.eye(4), W, dt=1.0)
        assert refute(DrivenSystem(system, "tanh", np.eye(4)), effort=0.3).evidence == "none"

    @pytest.mark.parametrize("dt", [1e-14])
    def test_small_steps(self, dt):
        flow = LureSystem.recurrent(-2 * np.eye(2), [[0.5, 0.1], [-0.3, 0.4]])
        assert refute(DrivenSystem(flow.euler(dt), "tanh", np.eye(2)), effort=0.3).evidence == "none"


class TestCounted:
    def test_the_clock_is_not_asked(self, monkeypatch):
        def never():
            raise AssertionError("a search without a limit reads no clock")

        monkeypatch.setattr("stability.search.solvers.deadline.monotonic", never)
        W = 0.6 * np.random.default_rng(1).normal(size=(4, 4))
        first = refute(plain(W), effort=0.3)
        again = refute(plain(W), effort=0.3, time_limit=Deadline())
        assert first.statement == again.statement
        assert first.detail == again.detail

    def test_out_of_time_is_an_answer(self):
        assert refute(plain(0.6 * np.eye(3)), time_limit=0).proof is None


def test_a_range_is_a_box():
    assert InputRange(np.zeros(1), np.ones(1)).bounded
