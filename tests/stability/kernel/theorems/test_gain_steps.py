"""Rule ``gain_steps``: what it proves is true, nearly the least, and nothing else is accepted."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from stability.kernel.format.claims import Proof
from stability.kernel.format.theorem_table import worded
from stability.kernel.theorems import gain_steps
from stability.kernel.theorems.gain_steps import check_steps, storages
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stepwise_storage import final_storage
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim


def network(seed: int = 0, n: int = 3, p: int = 2, dt: float | None = 1.0) -> DrivenSystem:
    rng = np.random.default_rng(seed)
    system = LureSystem(0.3 * rng.normal(size=(n, n)), rng.normal(size=(n, n)), 0.5 * rng.normal(size=(n, n)), dt=dt)
    return DrivenSystem(system, "tanh", rng.normal(size=(n, p)))


@pytest.fixture(scope="module")
def proved():
    net = network()
    return net, incremental_gain(net, output=[[1.0, -0.5, 0.25]], horizon=4).claim


def bent(net, claim, **changes):
    data = {**claim.proof.data, **changes}
    return worded(net, dataclasses.replace(claim, proof=Proof("gain_steps", data), value=data["gain"]))


def test_constant_slopes_of_every_corner_stay_below_the_gain():
    """With slopes 0 and 1 that change from step to step the difference is linear: its norm is a lower bound."""
    net, T = network(n=2, p=1), 3
    system, H, worst = net.system, np.eye(2), 0.0
    for flips in itertools.product(itertools.product([0.0, 1.0], repeat=2), repeat=T):
        columns, after = [], np.eye(2)
        for k in reversed(flips):
            slope = np.array(k)
            columns.append(H @ after @ ((system.B * slope) @ net.E + net.F))
            after = after @ system.jacobian(slope)
        worst = max(worst, float(np.linalg.norm(np.hstack(columns), 2)))
    found = incremental_gain(net, output=H, horizon=T)
    assert found.proof.kind == "gain_steps"
    assert worst <= found.value <= 1.25 * worst


@pytest.mark.parametrize("measure", ["final", "l2"])
def test_of_a_linear_map_it_is_the_norm_of_the_convolution(measure, rng):
    n, T = 3, 5
    A, F, H = 0.6 * rng.normal(size=(n, n)), rng.normal(size=(n, 2)), rng.normal(size=(2, n))
    rows = [
        [H @ np.linalg.matrix_power(A, i - j) @ F if j <= i else np.zeros((2, 2)) for j in range(T)] for i in range(T)
    ]
    true = float(np.linalg.norm(np.hstack(rows[-1]) if measure == "final" else np.block(rows), 2))
    found = incremental_gain(LureSystem.linear(A, 1.0), F=F, output=H, horizon=T, measure=measure)
    assert found.proof.kind == "gain_steps"
    assert true <= found.value <= true * (1 + 1e-4)


def test_a_gain_needs_no_stability():
    net = DrivenSystem(LureSystem([[2.0]], [[1.0]], [[1.0]], dt=1.0), "tanh", [[1.0]])
    found = incremental_gain(net, horizon=3)
    assert found.value == pytest.approx(np.sqrt(1 + 9 + 81), rel=1e-4)  # slope 1 throughout
    assert verify_claim(net, found.claim).valid


def test_the_last_storage_bounds_every_direction(proved):
    net, claim = proved
    P = final_storage(net.system, claim.proof.data)
    rng = np.random.default_rng(1)
    for _ in range(200):
        x, y, total = np.zeros(3), np.zeros(3), 0.0
        for _ in range(4):
            u, v = rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-2, 1)
            x, y, total = net.advance(x, u), net.advance(y, v), total + float(((u - v) ** 2).sum())
        assert (x - y) @ P @ (x - y) <= claim.value**2 * total


def test_forgeries_are_refused(proved):
    net, claim = proved
    data = claim.proof.data
    assert verify_claim(net, claim).valid
    L = data["L"]
    bad = [
        {"gain": data["gain"] * 0.999},
        {"gain": -data["gain"]},
        {"L": 0.5 * L},
        {"L": 0.0 * L},
        {"L": -L},
        {"L": L[:-1]},
        {"L": L[:, :-1]},
        {"L": L[None]},
        {"L": L.astype(np.float32)},
        {"L": L[:-1], "horizon": 5},
        {"horizon": 5},
        {"horizon": 3},
        {"L": L[:0], "horizon": 1},
        {"E": 0 * data["E"]},
        {"F": data["F"] + 1.0},
        {"H": 2.0 * data["H"]},
        {"H": np.eye(2)},
        {"slack": -1e-9},
        {"slack": 1.5},
        {"slack": 0.5},
        {"measure": "l2"},
        {"measure": "max"},
    ]
    for changes in bad:
        assert not verify_claim(net, bent(net, claim, **changes)).valid, changes
    assert not verify_claim(net, dataclasses.replace(claim, value=0.9 * claim.value)).valid
    assert not verify_claim(network(1), claim).valid
    flow = DrivenSystem(LureSystem(-np.eye(3), np.eye(3), 0.1 * np.eye(3)), "tanh", net.E)
    assert "not about flows" in verify_claim(flow, bent(flow, claim, F=flow.F)).reason


def test_one_step_too_few_for_a_multiplier_is_named(proved):
    net, claim = proved
    L = claim.proof.data["L"].copy()
    L[2] *= 10.0
    assert "step 3" in verify_claim(net, bent(net, claim, L=L)).reason


def test_the_length_of_a_proof_is_bounded(monkeypatch, proved):
    net, claim = proved
    monkeypatch.setattr(gain_steps, "MOST_STEPS", 3)
    assert "may hold 3 steps" in verify_claim(net, claim).reason
    monkeypatch.setattr(gain_steps, "MOST_STEPS", 4)
    monkeypatch.setattr(gain_steps, "MOST_NUMBERS", 11)
    assert "11 numbers" in verify_claim(net, claim).reason


def test_what_overflows_is_refused_without_a_warning():
    lag = LureSystem.linear([[1e14]], dt=1.0)
    data = np.zeros((4, 0)), np.zeros((0, 1)), np.eye(1), np.eye(1)
    assert len(list(storages(lag, data[0], data[1:3], None, 1.0, 0.0))) == 4
    valid, reason = check_steps(lag, *data, gain=1e14, slack=1e-9, measure="final")
    assert not valid, reason
