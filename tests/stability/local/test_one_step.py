"""Heads on the mean of a single step, which is its output."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability.local.balls import largest_balls
from stability.rules.registry import RULES, accepted
from tests.stability.local.test_single import network


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_mean_of_one_step_is_its_output(norm):
    """Prices of what runs cost, which means of more steps need, take minutes for the same radius."""
    met = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        net, x = network("tanh", rng, 2), rng.normal(size=(1, 2))
        label, averaged = int(net.logits(x).argmax()), replace(net, reduction="mean")
        (last,), (mean,) = (largest_balls(each, x[None], [label], norm=norm) for each in (net, averaged))
        assert mean.value == last.value
        assert mean.proof.kind == "local_frontier"
        assert "prices" not in mean.proof.data
        assert RULES["local_frontier"](averaged, mean)[0]
        rate = np.linalg.norm(net.recurrent.E, ord=2 if norm == "l2" else np.inf)
        z = np.linspace(-1.0, 1.0, 400_001) * 3.0 * rate  # what the unit may get
        h = (net.recurrent.system.A[0, 0] * 0.2) + net.recurrent.system.B[0, 0] * np.tanh(
            net.recurrent.system.C[0, 0] * 0.2 + float((net.recurrent.E @ x[0])[0] + net.recurrent.b[0]) + z
        )
        other = (h[:, None] * net.weight[:, 0] + net.bias).argmax(axis=1) != label
        if other.any():
            true = np.abs(z[other]).min() / rate
            assert true - 2e-5 <= mean.value <= true
            assert accepted(averaged, "local_frontier", {**mean.proof.data, "radius": 1.0001 * true}) is None
            met += 1
    assert met > 3
