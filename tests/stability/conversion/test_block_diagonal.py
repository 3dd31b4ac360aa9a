"""Networks side by side: the step is theirs, each on its own states and inputs."""

from __future__ import annotations

import numpy as np
import pytest

from stability import certify
from stability.conversion.block_diagonal import block_diagonal_network
from stability.errors import UnsupportedError
from stability.systems import DrivenSystem, LureSystem


def drawn(seed: int, n: int, p: int, method: str | None, size: float = 0.5) -> DrivenSystem:
    rng = np.random.default_rng(seed)
    C, E, b = size * rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=(n, p)), rng.normal(size=n)
    if method is None:
        return DrivenSystem(LureSystem(0.2 * np.eye(n), np.eye(n), C, dt=1.0), "tanh", E, b, rng.normal(size=(n, p)))
    system = LureSystem(-np.eye(n), np.eye(n), C).discretise(method, 0.1)
    times = system.channels // n
    return DrivenSystem(system, "tanh", np.tile(E, (times, 1)), np.tile(b, times))


@pytest.mark.parametrize("method", [None, "euler", "midpoint"])
def test_every_part_takes_its_own_step(method):
    parts, rng = [drawn(0, 2, 1, method), drawn(1, 3, 2, method)], np.random.default_rng(2)
    joint = block_diagonal_network(parts)
    assert (joint.states, joint.inputs) == (5, 3)
    for x, u in zip(rng.normal(size=(5, 5)), rng.normal(size=(5, 3))):
        alone = [parts[0].advance(x[:2], u[:1]), parts[1].advance(x[2:], u[1:])]
        np.testing.assert_allclose(joint.advance(x, u), np.concatenate(alone), atol=1e-14)


def test_the_slowest_part_decides():
    def linear(*values: float) -> DrivenSystem:
        n = len(values)
        return DrivenSystem(LureSystem.linear(np.diag(values), dt=1.0), "identity", np.zeros((0, n)), F=np.eye(n))

    assert certify(block_diagonal_network([linear(0.5, -0.9), linear(0.1)])).rate == pytest.approx(0.9)
    assert certify(block_diagonal_network([linear(0.5), linear(0.1, 1.2)])).verdict == "refuted"


def test_networks_of_several_kinds_are_refused():
    relu = DrivenSystem(LureSystem([[0.1]], [[1.0]], [[1.0]], dt=1.0), "relu", [[1.0]])
    for other in (relu, drawn(0, 2, 1, "euler")):
        with pytest.raises(UnsupportedError, match="same step size"):
            block_diagonal_network([drawn(0, 2, 1, None), other])
    odd = LureSystem([[-1.0]], [[1.0]], [[1.0]]).midpoint(0.1)
    with pytest.raises(UnsupportedError, match="same input"):
        block_diagonal_network([DrivenSystem(odd, "tanh", [[1.0], [2.0]])])
