"""Sweeps over radii: they never rise, believe no attack, and their intervals are scipy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stability.analysis.attacks import gradient as attacks
from stability.analysis.attacks.gradient import ATTACKS
from stability.analysis.attacks.sweep import attack_sweep
from stability.analysis.attacks.threat import AttackResult
from stability.errors import ConfigurationError
from stability.statistics import wilson


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_sweep_never_rises_and_starts_at_the_clean_accuracy(network, attack):
    model, x, y = network
    mask = torch.ones(6, 3, dtype=torch.bool)
    mask[2] = False
    grid = [0.1, 0, 0.02, 0.05, 0.05, 0.3]
    sweep = attack_sweep(model, x, y, epsilons=grid, attack=attack, mask=mask, seed=2)
    table = sweep.frame()
    assert list(table.columns) == ["attack", "norm", "epsilon", "accuracy", "ci_low", "ci_high", "n", "seed"]
    assert sweep.sizes == (0.0, 0.02, 0.05, 0.1, 0.3)
    assert (np.diff(sweep.accuracy) <= 0).all()
    with torch.no_grad():
        clean = (model(x).argmax(dim=1) == y).double().mean().item()
    assert sweep.accuracy[0] == pytest.approx(clean)
    assert sweep.accuracy[-1] < clean
    for size, share in zip(sweep.sizes, sweep.accuracy):
        assert (sweep.broken_at > size).mean() == pytest.approx(share)
        single = ATTACKS[attack](model, x, y, epsilon=size, mask=mask, seed=2)
        assert share <= single.robust_accuracy + 2.5 / 64  # other random starts, once fewer sequences stand
    assert (table.ci_low <= table.accuracy).all()
    assert (table.accuracy <= table.ci_high).all()
    assert sweep.to_dict()["sizes"] == list(sweep.sizes)


def test_sweep_believes_no_attack(network, monkeypatch):
    model, x, y = network

    def boast(model, x, y, *, epsilon, norm, bounds, mask=None, seed=0):
        far = x.flip(0) if len(x) > 1 else x  # other classes' sequences: outside the ball
        n = len(x)
        yes = torch.ones(n, dtype=torch.bool)
        return AttackResult("boast", norm, epsilon, far, yes, ~yes, torch.zeros(n), 1, 0, ~yes)

    monkeypatch.setitem(attacks.ATTACKS, "boast", boast)
    clean = attack_sweep(model, x, y, epsilons=[0], attack="fgsm").accuracy[0]
    assert attack_sweep(model, x, y, epsilons=[1e-4], attack="boast").accuracy == (clean,)


@given(k=st.integers(0, 50), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(k, confidence):
    ours = wilson(k / 50, 50, confidence)
    theirs = stats.binomtest(k, 50).proportion_ci(confidence, method="wilson")
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("options", [
    {"attack": "magic"}, {"stepz": 3}, {"epsilon": 3}, {"epsilons": []}, {"epsilons": 0.1},
    {"epsilons": [0.1, -0.1]}, {"confidence": 1.0},
])  # fmt: skip
def test_bad_sweeps(network, options):
    with pytest.raises(ConfigurationError):
        attack_sweep(*network, **{"epsilons": [0.1], **options})
