"""Regions of attraction: trajectories from certified initial states stay and converge; larger regions are refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.linalg import solve_continuous_are, solve_discrete_are

from stability import Claim, ConfigurationError, DimensionError, Verdict, certify, regional, verify
from stability.systems import ControlLoop
from stability.verification import verify_claim

Array = np.ndarray


def unstable_loop(rng, discrete: bool) -> ControlLoop:
    """Random plant with unstable eigenvalues, one or two saturated actuators and linear-quadratic state feedback."""
    n, m = int(rng.integers(2, 5)), int(rng.integers(1, 3))
    A, B = rng.normal(size=(n, n)), rng.normal(size=(n, m))
    A -= np.eye(n) * (np.linalg.eigvals(A).real.max() - rng.uniform(0.1, 0.6))
    if discrete:
        A, B = np.eye(n) + 0.1 * A, 0.1 * B
    X = (solve_discrete_are if discrete else solve_continuous_are)(A, B, np.eye(n), np.eye(m))
    K = np.linalg.solve(np.eye(m) + B.T @ X @ B, B.T @ X @ A) if discrete else B.T @ X
    return ControlLoop(A, B, -K, dt=0.1 if discrete else None)


def pendulum() -> ControlLoop:
    """Euler steps of a pendulum, ``sin``, with two tanh units that read angle and speed, and a saturated torque."""
    A, n = np.array([[1.0, 0.02, 0.0, 0.0], [0.0, 0.73, 0.0, 0.0], [0.0] * 4, [0.0] * 4]), 4
    B = np.zeros((n, 4))
    B[1, 0], B[2, 1], B[3, 2], B[1, 3] = 0.39, 1.0, 1.0, 0.37
    C = np.array([[1.0, 0, 0, 0], [0.3, 0.04, 0.1, 0], [0.3, 0.04, 0, -0.1], [0.0] * 4])
    D = np.zeros((4, 4))
    D[3, 1:3] = -6.0, -6.0
    return ControlLoop(A, B, C, D, slope=["sin", "tanh", "tanh", "saturation"], dt=0.02)


def chain() -> ControlLoop:
    """The sine reads the tanh alone."""
    return ControlLoop([[1.2]], [[0.0, -0.5]], [[1.0], [0.0]], [[0.0, 0.0], [2.0, 0.0]], slope=["tanh", "sin"], dt=1.0)


def surface(data, rng, count: int) -> Array:
    directions = rng.normal(size=(count, len(data["P"])))
    return directions * np.sqrt(data["level"] / size(data, directions))[:, None]


def size(data, x: Array) -> Array:
    return np.einsum("...i,ij,...j->...", x, data["P"], x)


def simulate(loop: ControlLoop, x: Array) -> Array:
    """One step, or a time of 0.02 by the Runge-Kutta rule."""
    if loop.is_discrete:
        return loop.advance(x)
    k1 = loop.advance(x)
    k2 = loop.advance(x + 0.01 * k1)
    k3 = loop.advance(x + 0.01 * k2)
    return x + 0.02 / 6 * (k1 + 2 * k2 + 2 * k3 + loop.advance(x + 0.02 * k3))


def check(loop: ControlLoop, rng, box: Array | None = None) -> None:
    claim = regional(loop, box=box)
    assert claim.verdict is Verdict.CERTIFIED, claim.statement
    assert verify_claim(loop, claim).valid
    data = claim.proof.data
    corners = data["box"] * rng.choice([-1.0, 1.0], size=(50, loop.states))
    assert (size(data, corners) <= data["level"]).all()
    many = surface(data, rng, 3000)  # the adversary takes those whose V falls least
    worst = many[np.argsort(size(data, simulate(loop, many)))[-100:]]
    x = np.concatenate([worst, many[:100], corners, rng.random((100, 1)) * many[100:200]])
    first = size(data, x)
    for k in range(1, 400):
        x = simulate(loop, x)
        decay = data["rate"] ** (2 * k) if loop.is_discrete else np.exp(-0.04 * data["rate"] * k)
        assert (size(data, x) <= decay * first * (1 + 1e-6)).all()


@pytest.mark.parametrize("seed", range(20))
def test_starts_in_the_region_of_an_unstable_plant_stay_and_converge(seed):
    rng = np.random.default_rng(seed)
    check(unstable_loop(rng, discrete=seed % 5 < 3), rng)


def test_a_pendulum_with_a_recurrent_controller_returns(rng):
    assert certify(pendulum()).verdict is not Verdict.CERTIFIED  # no claim for all states
    check(pendulum(), rng, np.array([1.0, 4.0, 0.0, 0.0]))
    check(chain(), rng)


def test_the_scalar_region_is_nearly_the_largest_there_is():
    """``x+ = 1.2 x - 0.5 sat(2 x)`` returns from ``|x| < 0.5 / 0.2``."""
    loop = ControlLoop([[1.2]], [[-0.5]], [[2.0]], dt=1.0)
    data = regional(loop, rate=0.999).proof.data
    radius = np.sqrt(data["level"] / data["P"][0, 0])
    assert 0.98 * 2.5 < data["box"][0] <= radius <= 2.5


def test_a_forged_region_is_refused(tmp_path):
    loop = pendulum()
    claim = regional(loop)
    held = dataclasses.replace(certify(loop), claims=(claim,))
    assert next(c for c in verify(held.save(tmp_path / "loop.json")).checks if c.claim == "attraction").valid
    changes = [("level", 1.001), ("box", 1.001), ("G", 1.01), ("G", 0.9), ("reach", 0.99), ("rate", 0.9), ("L", 0.5)]
    assert [name for name, factor in changes if not is_refused(loop, claim, name, factor)] == []
    assert is_refused(chain(), regional(chain()), "reach", np.array([1.0, 0.99]))


def is_refused(loop: ControlLoop, claim: Claim, name: str, factor: float | Array) -> bool:
    assert claim.proof
    assert verify_claim(loop, claim).valid
    data = {**claim.proof.data, name: claim.proof.data[name] * factor}
    proof = dataclasses.replace(claim.proof, data=data)
    return not verify_claim(loop, dataclasses.replace(claim, value=data["rate"], proof=proof)).valid


@pytest.mark.parametrize("name", ["tanh", "sin", "saturation", "deadzone", "leaky_relu", "identity"])
def test_sectors_contain_all_quotients(name):
    loop = ControlLoop([[0.5]], [[1.0]], [[1.0]], slope=name, dt=1.0)
    for reach in np.geomspace(1e-3, 30.0, 60):
        z = np.concatenate([np.linspace(-reach, reach, 400), [reach]])[:, None]
        quotients = (loop.advance(z) - 0.5 * z) / z
        (low,), (high,) = loop.sectors(np.array([reach]))
        assert low <= quotients.min() + 1e-15
        assert high >= quotients.max() - 1e-15


def test_without_a_stable_equilibrium_or_faster_than_it_there_is_no_region():
    assert regional(ControlLoop([[1.5]], [[-0.1]], [[1.0]], dt=1.0)).verdict is Verdict.INCONCLUSIVE
    loop = ControlLoop([[1.5]], [[-0.5, -0.5]], [[1.0]] * 2, slope=["tanh", "saturation"], dt=1.0)  # linear part 0.5
    assert regional(loop, rate=0.4).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ControlLoop([[0.5]], [[1.0]], [[1.0]], slope=["sigmoid"]), ConfigurationError),
        (lambda: ControlLoop([[0.5]], [[1.0]], [[1.0]], slope=["tanh", "sin"]), (ConfigurationError, DimensionError)),
        (lambda: regional(pendulum(), box=[1.0]), DimensionError),
        (lambda: regional(pendulum(), box=[0.0] * 4), ConfigurationError),
        (lambda: regional(pendulum(), input=[1.0]), ConfigurationError),
    ],
)
def test_bad_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()
