"""The tube of bends: Taylor's polynomials leave what they say, no run leaves the tube, and no forged weights pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.claims import Proof
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.ellipsoid_tube import nominal_run
from stability.kernel.reachability.gated_tube import bent_tube, linear_part
from stability.kernel.reachability.network_stages import Stages, stages_of
from stability.kernel.reachability.taylor_remainder import hessians, remainder_slopes
from stability.kernel.systems.classifier import Classifier
from stability.proposals import propose
from stability.systems import DrivenSystem, LureSystem

MADE = classifiers(1)
RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 2))
GATES = ("lstm", "gru", "gru, reset before", "stack")


def parts(net: Stages, x: np.ndarray) -> list:
    run = nominal_run(net, x)
    return linear_part(net, x, run, np.ones(x.shape), [np.ones(len(at.out)) for at in run])


@pytest.mark.parametrize("name", MADE)
def test_what_a_polynomial_leaves_is_bounded(name):
    for stage in stages_of(MADE[name]).stages:
        m, zero = len(stage.C), np.zeros(len(stage.C))
        rows, reach = RNG.normal(size=m), RNG.uniform(0.01, 1.5, m)
        H, theta, slope = (
            hessians(stage, rows, zero),
            remainder_slopes(stage, rows, zero, reach),
            stage.tangents(rows, zero)[0],
        )
        v = np.concatenate([RNG.uniform(-1, 1, (300, m)), RNG.choice([-1.0, 1.0], (100, m))]) * reach
        unit = lambda a, H=H: a.reshape(len(a), H.blocks, H.units).sum(axis=1)  # noqa: E731
        at = v.reshape(len(v), H.blocks, H.units)
        bends = sum(one * at[:, i] * at[:, j] for (i, j), one in H.entries.items())
        left = unit(stage.values(rows + v)[0] - stage.values(rows)[0] - slope * v) - bends
        room = unit(theta * np.abs(v))
        assert (np.abs(left) <= room + 1e-13).all()
        assert not H.entries or (np.abs(left) > 0.05 * room).any()  # of that size


@pytest.mark.parametrize("name", MADE)
def test_no_run_leaves_the_tube(name):
    net = stages_of(MADE[name])
    stages, radius, inside = parts(net, X), 0.08, 0.0
    tube = bent_tube(net, stages, radius)
    assert tube is not None
    u = RNG.normal(size=(400, *X.shape))
    u *= radius / np.linalg.norm(u.reshape(400, -1), axis=1)[:, None, None]
    runs = nominal_run(net, X + u)
    d = np.zeros((400, net.states))
    for k, (at, way, of) in enumerate(zip(runs, tube.ways, stages)):
        entry = [] if not of.stage.fresh else [u[:, k // len(net.stages)]]
        d = np.concatenate([d, *entry], axis=1)
        assert (np.abs(at.rows - way.rows) <= way.reach).all()
        moved = at.out - of.at.out
        d = d @ of.G.T  # the linear part: what is left of the difference lies in Q
        after = tube.Q if k == len(runs) - 1 else None
        if after is not None:
            e = moved - d
            scale = np.sqrt(np.einsum("ii->i", after)) + 1e-300
            inner = after / np.outer(scale, scale) + 1e-9 * np.eye(len(after))
            inside = ((e / scale) * np.linalg.solve(inner, (e / scale).T).T).sum(axis=1).max()
    assert inside <= 1.0
    assert (np.abs(moved) <= tube.sides() + 1e-15).all()


def test_the_tube_of_one_unit_is_what_its_bends_can_do():
    """Two steps of one unit, the first input moves, all terms have one sign: ellipsoids add up like numbers."""
    z = float(np.arctanh(3.0**-0.5))  # there the third derivative is zero, and the polynomial of second order exact
    unit = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.0]], dt=1.0), "tanh", [[1.0]])
    net = stages_of(Classifier(unit, [[1.0], [-1.0]]))
    x, free, radius = np.array([[z], [z - np.tanh(z)]]), np.array([[1.0], [0.0]]), 0.02
    run = nominal_run(net, x)
    tube = bent_tube(net, linear_part(net, x, run, free, [np.ones(1)] * 2), radius)
    assert tube is not None
    u = np.linspace(-radius, radius, 201)
    slope = 1.0 - np.tanh(z) ** 2
    bent = np.abs(np.tanh(z + np.tanh(z + u) - np.tanh(z)) - np.tanh(z) - slope * slope * u).max()
    assert bent <= float(np.sqrt(tube.Q[0, 0])) <= 1.002 * bent


@pytest.mark.parametrize("name", GATES)
def test_weights_prove_a_ball_and_nothing_that_is_forged(name):
    made, rule = MADE[name], RULES["local_ellipsoids"]
    net, label = stages_of(made), int(made.logits(X[None]).argmax())
    columns = sum(len(stage.A) for stage in net.stages)
    data = {"x": X, "label": label, "norm": "l2", "weights": np.ones((len(X), columns))}
    low, claim = 1.0, propose(made, "local_ellipsoids", {**data, "radius": 1.0})
    while not rule(made, claim)[0] and low > 1e-4:
        low /= 1.3
        claim = propose(made, "local_ellipsoids", {**data, "radius": low})
    assert rule(made, claim)[0]
    assert not attacked(made, X, label, low)
    forged = [
        {"radius": 1.4 * low}, {"label": (label + 1) % 3}, {"weights": -data["weights"]},
        {"weights": data["weights"][:, 1:]}, {"T": np.ones((len(X), sum(len(s.C) for s in net.stages)))},
        {"tau": np.full(len(X), 0.5)}, {"x": X + 0.5},
    ]  # fmt: skip
    for change in forged:
        given = {**data, "radius": low, **change}
        if rule(made, replace(claim, proof=Proof("local_ellipsoids", given), value=given["radius"]))[0]:
            assert set(change) == {"x"}  # another input, of the same class as it happens
            assert not attacked(made, X + 0.5, label, low)
