"""Recovery times against the bound itself in exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stability import DrivenSystem, LureSystem, certify
from stability.certificate import Certificate
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.recovery import memory_horizon, recovery_time

MAP = LureSystem([[0.5]], [[0.0]], [[0.0]], dt=1.0)
FLOW = LureSystem([[-0.5]], [[0.0]], [[0.0]])


def proved(rate: float, overshoot: float, name: str = "contraction", **data) -> Claim:
    proof = Proof("multiplier_lmi", {"overshoot": overshoot, **data})
    return Claim(name, "", Verdict.CERTIFIED, proof, rate)


def test_it_is_the_first_step_at_which_the_bound_is_below() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rate, overshoot = float(1 - 10 ** rng.uniform(-2, -0.1)), float(10 ** rng.uniform(0, 4))
        size, tol = (float(10 ** rng.uniform(-3, 2)) for _ in range(2))
        k = recovery_time(Certificate(MAP, proved(rate, overshoot)), size, tol).time
        assert isinstance(k, int)
        start = Fraction(overshoot) * Fraction(size)
        assert start * Fraction(rate) ** k < Fraction(tol)
        assert k == 0 or start * Fraction(rate) ** (k - 1) >= Fraction(tol) * (1 - Fraction(1, 10**9))


def test_a_bound_that_meets_the_tolerance_is_not_below_it() -> None:
    assert recovery_time(Certificate(MAP, proved(0.5, 1.0)), 1.0, 0.25).time == 3
    assert recovery_time(Certificate(MAP, proved(0.0, 4.0)), 1.0, 0.25).time == 1


def test_flows_take_time_and_not_steps() -> None:
    found = recovery_time(Certificate(FLOW, proved(0.5, 3.0)), 2.0, 0.01)
    assert found.time == pytest.approx(2 * math.log(600), rel=1e-12)
    assert 6.0 * math.exp(-0.5 * found.time) <= 0.01


def test_of_several_proved_pairs_the_first_to_get_there_counts() -> None:
    fast, calm = proved(0.5, 1000.0), proved(0.9, 1.0)
    both = Certificate(MAP, fast, claims=(calm, proved(0.1, 1.0, "other")))
    assert recovery_time(both, 1.0, 0.5).time == recovery_time(Certificate(MAP, calm), 1.0, 0.5).time == 7
    assert recovery_time(both, 1.0, 1e-9).time == recovery_time(Certificate(MAP, fast), 1.0, 1e-9).time


def test_a_rate_in_the_infinity_norm_pays_for_the_euclidean_one() -> None:
    three = LureSystem(0.5 * np.eye(4), np.zeros((4, 1)), np.zeros((1, 4)), dt=1.0)
    claim = replace(proved(0.5, 1.0), proof=Proof("interval_jacobian", {"overshoot": 1.0}))
    assert recovery_time(Certificate(three, claim), 1.0, 0.6).time == 2  # 2 |d|, halved twice


def test_nothing_is_forgotten_without_a_proof() -> None:
    unstable = certify(LureSystem([[1.5]], [[0.0]], [[0.0]], dt=1.0))
    assert unstable.recovery_time() is None
    assert unstable.memory_horizon() is None
    for size, tol in ((0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, math.inf), (True, 1.0)):
        with pytest.raises(ConfigurationError, match="positive number"):
            recovery_time(unstable, size, tol)


def test_two_pasts_agree_after_the_memory_horizon() -> None:
    """A network of two units that has read anything forgets it but for the tolerance under equal inputs."""
    W = np.array([[0.6, -0.3], [0.4, 0.5]])
    network = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), W, dt=1.0), "tanh", np.ones((2, 1)))
    certificate = certify(network)
    horizon = certificate.memory_horizon(0.01)
    assert horizon == memory_horizon(certificate, 0.01)
    assert 2 * math.sqrt(2) * 0.99 <= horizon.size <= 2.83
    rng, far = np.random.default_rng(1), []
    for _ in range(50):
        ends = rng.choice([-1.0, 1.0], size=(2, 2))  # the ends of what tanh gives, nearly
        for u in rng.uniform(-1, 1, size=(int(horizon.time), 1)):
            ends = np.stack([network.advance(h, u) for h in ends])
        far.append(float(np.linalg.norm(ends[0] - ends[1])))
    assert max(far) < 0.01


def test_claims_about_a_box_say_from_when_on() -> None:
    box = proved(0.5, 1.0, "driven_contraction", r=np.array([3.0, 4.0]), share=0.0, room=0.0, steps=6)
    found = Certificate(MAP, box).memory_horizon(1.0)
    assert found.since == 7
    assert found.size == pytest.approx(10.0)
    assert found.size >= 10.0
    rows = np.array([[3.0, 4.0, 2.0, 1.0, 0.0]])
    later = proved(0.5, 1.0, "driven_contraction", r=np.ones(2), share=0.0, room=0.0, steps=6, backward=rows)
    assert recovery_time(Certificate(MAP, later)).since == 7 + 3 * 5
    leaky = proved(0.5, 1.0, "driven_contraction", r=np.array([3.0]), share=0.5, room=0.1, steps=6)
    assert recovery_time(Certificate(MAP, leaky)).since is None
