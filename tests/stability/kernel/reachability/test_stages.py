"""Stages of a step: together they are the step, and their slopes make the exact difference of two runs."""

from __future__ import annotations

import numpy as np
import pytest
from local_specimens import classifiers, plain

from stability.errors import UnsupportedError
from stability.kernel.reachability.ellipsoid_tube import nominal_run
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.systems import DrivenSystem, LureSystem

MADE = classifiers()


@pytest.mark.parametrize("name", MADE)
def test_the_stages_are_the_network(name):
    made, x = MADE[name], np.random.default_rng(0).normal(size=(4, 5, 2))
    net = stages_of(made)
    end = nominal_run(net, x)[-1].out
    steps = 5.0 if made.reduction == "mean" else 1.0
    assert np.allclose(end @ net.head.T / steps + made.bias, made.logits(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MADE)
def test_two_runs_differ_by_slopes_of_the_ranges(name):
    rng = np.random.default_rng(2)
    net = stages_of(MADE[name])
    for stage in net.stages:
        y = 0.7 * rng.normal(size=(300, stage.A.shape[1]))
        d = rng.normal(size=y.shape) * rng.choice([1e-4, 0.1, 1.0], (300, 1))
        one, two = stage.nominal(y), stage.nominal(y + d)
        v = d @ stage.C.T
        low, high = stage.slopes(one.rows, np.abs(v))
        ends = np.minimum(low * v, high * v), np.maximum(low * v, high * v)
        positive, negative = np.maximum(stage.B, 0.0), np.minimum(stage.B, 0.0)
        least = ends[0] @ positive.T + ends[1] @ negative.T
        most = ends[1] @ positive.T + ends[0] @ negative.T
        change = two.out - one.out - d @ stage.A.T
        assert (change >= least - 1e-9).all()
        assert (change <= most + 1e-9).all()
        tight, other = stage.slopes(one.rows, 1e-7 * np.abs(v))
        assert (other - tight).max() < 1e-4  # in the limit the slopes are one


@pytest.mark.parametrize("name", MADE)
def test_what_floats_miss_is_inside_the_bounds(name):
    """Against the same stage in extended precision."""
    rng = np.random.default_rng(4)
    for stage in stages_of(MADE[name]).stages:
        y = rng.normal(size=(20, stage.A.shape[1]))
        at = stage.nominal(y)
        wide = np.longdouble
        rows = y.astype(wide) @ stage.C.T.astype(wide) + stage.bias.astype(wide)
        assert (np.abs(at.rows - rows) <= at.offset).all()
        assert (at.error < 1e-12 * (1.0 + np.abs(y).sum(axis=1, keepdims=True)) * (1.0 + np.abs(stage.B).sum())).all()
        exact = y.astype(wide) @ stage.A.T.astype(wide) + stage.values(rows)[0] @ stage.B.T.astype(wide)
        assert (np.abs(at.out - exact) <= at.error).all()


def test_channels_in_a_loop_are_refused():
    loop = LureSystem([[0.1]], [[1.0, 1.0]], [[1.0], [1.0]], [[0.0, 0.2], [0.2, 0.0]], dt=1.0)
    with pytest.raises(UnsupportedError, match="loop"):
        stages_of(Classifier(DrivenSystem(loop, "tanh", np.ones((2, 1))), [[1.0], [0.0]]))
    assert len(stages_of(Classifier(plain(np.random.default_rng(0)), np.eye(3))).stages) == 1
