"""What counts as evidence in floating point: never rounding, never slow contraction, never what stands still."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.rules.replay import FALL, FLOOR, KEEP, RISE, THETA, Replay, least_gap, replay, why_not_apart

N = 400
ZERO = np.zeros(1)


def run(step, first, second, steps=N, inputs=ZERO):
    first, second = np.atleast_1d(np.float64(first)), np.atleast_1d(np.float64(second))
    return replay(step, first, second, inputs, steps)


def made(gaps=1.0, sizes=1.0, beside=0.0, steps=N):
    """A replay with these distances, constant or given at each step."""
    shape = (steps + 1,)
    beside = np.broadcast_to(np.asarray(beside, dtype=float), (2, *shape)).copy()
    return Replay(np.broadcast_to(gaps, shape) * 1.0, np.broadcast_to(sizes, shape) * 1.0, beside, np.zeros((2, 1)))


class TestReplay:
    def test_distances_sizes_and_companions_of_a_linear_map(self):
        x, y = np.array([3.0, 0.0]), np.array([0.0, 4.0])
        seen = replay(lambda x, u: 0.5 * x, x, y, np.zeros(1), 3)
        assert np.allclose(seen.gaps, 5.0 * 0.5 ** np.arange(4), rtol=1e-15)
        assert seen.sizes.tolist() == [4.0, 2.0, 1.0, 0.5]
        assert np.allclose(seen.beside, 0.5 ** np.arange(4), rtol=1e-12)
        assert seen.last.tolist() == [[0.375, 0.0], [0.0, 0.5]]
        assert least_gap(seen) == 0.5 * seen.gaps[-1]

    def test_companions_start_on_the_line_between_the_two(self):
        seen = []
        replay(lambda x, u: (seen.append(x), x)[1], np.array([1.0]), np.array([3.0]), np.zeros(1), 1)
        assert seen[0][:, 0].tolist() == [1.0, 3.0, 1.0 + 2 * THETA, 3.0 - 2 * THETA]

    def test_inputs_take_turns(self):
        seen = []
        inputs = np.array([[1.0], [2.0], [3.0]])
        replay(lambda x, u: (seen.append(u.copy()), x)[1], np.ones(1), np.zeros(1), inputs, 5)
        assert [u[0, 0] for u in seen] == [1.0, 2.0, 3.0, 1.0, 2.0]
        assert seen[0].shape == (4, 1)

    def test_what_overflows_is_nan_from_there_on(self):
        with np.errstate(all="ignore"):
            seen = replay(lambda x, u: x * 1e200, np.ones(1), -np.ones(1), np.zeros(1), 20)
        assert np.isnan(seen.gaps[5:]).all()
        assert "finite" in why_not_apart(seen, 1.0)


class TestEvidence:
    def test_two_attractors_and_chaos(self):
        assert why_not_apart(run(lambda x, u: np.tanh(3 * x), 1.0, -1.0), 1.0) is None
        logistic = run(lambda x, u: 3.99 * x * (1 - x), 0.3, 0.300001, steps=60)
        assert why_not_apart(dataclasses.replace(logistic, gaps=np.maximum(logistic.gaps, 0.1)), 0.05) is None

    @pytest.mark.parametrize("slow", [1e-16, 1e-13, 1e-11, 1e-9, 1e-6, 1e-4])
    def test_slow_contraction(self, slow):
        for step in (
            lambda x, u: (1 - slow) * x,
            lambda x, u: (1 - slow) * x + 0.9 * slow * np.tanh(x),
            lambda x, u: (1 - slow) * np.stack([0.6 * x[:, 0] + 0.8 * x[:, 1], 0.6 * x[:, 1] - 0.8 * x[:, 0]], 1),
        ):
            seen = run(step, [1.0, 0.5], [-0.3, 0.2], steps=2000)
            assert why_not_apart(seen, 0.5 * seen.gaps.min()) is not None

    def test_what_stands_still(self):
        assert "slow contraction" in why_not_apart(run(lambda x, u: x + 1e-20 * (u - x), 1.0, 0.0), 0.5)

    def test_fast_contraction_into_rounding(self):
        seen = run(lambda x, u: 0.5 * x + 0.1, 1.0, 0.0)
        assert "come closer" in why_not_apart(seen, 1e-3)
        neighbours = run(lambda x, u: x, 2e99, np.nextafter(2e99, np.inf))
        assert "rounding" in why_not_apart(neighbours, 0.5 * neighbours.gaps.min())

    def test_one_run_that_attracts_is_not_enough(self):
        """One side at rest in a fast equilibrium, the other creeping towards it."""
        seen = run(lambda x, u: np.where(x < 0.1, 0.5 * x, x - 1e-9), 0.0, 1.0)
        assert "slow contraction" in why_not_apart(seen, 0.5)


class TestAtTheEdge:
    """Each number of the rule: just on the good side accepted, just beyond refused."""

    def test_gap(self):
        assert why_not_apart(made(gaps=1.0), 1.0) is None
        assert "closer" in why_not_apart(made(gaps=1.0), np.nextafter(1.0, 2))
        assert why_not_apart(made(), 0.0) is not None
        assert why_not_apart(made(), -1.0) is not None

    @pytest.mark.parametrize("size", [0.0, 3.0, 1e6])
    def test_floor_at_every_step(self, size):
        edge = FLOOR * (1.0 + size)
        assert why_not_apart(made(gaps=edge, sizes=size), edge) is None
        assert "rounding" in why_not_apart(made(gaps=edge, sizes=size), edge * (1 - 1e-12))
        for at in (0, N // 3, N):
            sizes = np.full(N + 1, size)
            sizes[at] = size * (1 + 1e-9) + 1e-9
            assert "rounding" in why_not_apart(made(gaps=edge, sizes=sizes), edge)

    def test_companions_that_fall(self):
        last = N + 1 - (N + 1) // 4
        assert why_not_apart(made(beside=FALL), 1.0) is None
        for at, refused in ((0, False), (last - 1, False), (last, True), (N, True)):
            beside = np.full((2, N + 1), FALL)
            beside[1, at] = np.nextafter(FALL, 1)
            assert (why_not_apart(made(beside=beside), 1.0) is not None) is refused

    def test_companions_that_rise(self):
        assert why_not_apart(made(beside=RISE), 1.0) is None
        assert why_not_apart(made(beside=np.nextafter(RISE, 0)), 1.0) is not None
        for one, two, fine in ((RISE, 0.0, True), (0.0, RISE, True), (RISE, 1.0, False), (1.0, FALL, False)):
            beside = np.stack([np.full(N + 1, one), np.full(N + 1, two)])
            assert (why_not_apart(made(beside=beside), 1.0) is None) is fine

    def test_gaps_that_shrink(self):
        for beside, keep in ((FALL, KEEP), (RISE, FALL)):
            gaps = np.ones(N + 1)
            gaps[(N + 1) // 2 :] = keep
            assert why_not_apart(made(gaps=gaps, beside=beside), 1e-3) is None
            gaps[-1] = keep * (1 - 1e-9)
            assert "approach" in why_not_apart(made(gaps=gaps, beside=beside), 1e-3)
        assert KEEP < 1.0 <= KEEP + 1.0001e-6

    def test_short_runs(self):
        assert why_not_apart(made(steps=7), 1.0) is None
        assert "short" in why_not_apart(made(steps=6), 1.0)

    def test_not_finite(self):
        for bad in (np.nan, np.inf):
            seen = made()
            seen.gaps[5] = bad
            assert "finite" in why_not_apart(seen, 1.0)
        seen = made()
        seen.beside[0, N] = np.nan
        assert "slow" in why_not_apart(seen, 1.0)
        sizes = np.ones(N + 1)
        sizes[3] = np.nan
        assert why_not_apart(made(sizes=sizes), 1.0) is not None
