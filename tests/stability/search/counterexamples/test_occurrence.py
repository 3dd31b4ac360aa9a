"""Places of witnesses, their feasibility, and the count of the attempts."""

from __future__ import annotations

import numpy as np
import pytest

from stability import Verdict, certify, refute, verify
from stability.search.counterexamples.reachability_in_use import inputs_in_range, states_reachable
from stability.search.trajectories.input_range import ANYWHERE, input_range
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

    @pytest.mark.parametrize("e", [1e-9])
    def test_leaky(self, e):
        W = np.random.default_rng(310).normal(size=(4, 4))
        W *= 0.9 / np.linalg.norm(W, 2)
        system = LureSystem((1 - e) * np.eye(4), e * np.eye(4), W, dt=1.0)
        assert refute(DrivenSystem(system, "tanh", np.eye(4)), effort=0.3).evidence == "none"
