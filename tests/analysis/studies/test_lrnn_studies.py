"""The formulas of the studies of the Lipschitz RNN paper, each against a second way to say it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from stability.analysis.studies import errata, lrnn_pendulum, lrnn_robustness, lrnn_spectra
from stability.analysis.studies.lrnn_certified import conditions
from stability.analysis.studies.networks import confirmed, counted, mean, networks, verdict
from stability.analysis.tasks import make_task
from stability.certification import certify
from stability.models import LipschitzRNN
from stability.systems import LureSystem


@pytest.mark.parametrize(("size", "beta", "seed"), [(6, 0.5, 0), (9, 0.7, 3), (5, 1.0, 1)])
def test_real_parts_and_bounds_are_those_of_the_matrix(size, beta, seed):
    found = lrnn_spectra.extremes(size, beta, seed)
    G = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).numpy() / size**0.5
    S = (1 - beta) * (G + G.T) + beta * (G - G.T) - 0.001 * np.eye(size)
    real = np.linalg.eigvals(S).real
    assert (found["low"], found["high"]) == pytest.approx((real.min(), real.max()))
    ends = np.linalg.eigvalsh((S + S.T) / 2)
    assert (found["corrected_low"], found["corrected_high"]) == pytest.approx((ends[0], ends[-1]))
    assert found["printed_high"] + 0.001 == pytest.approx((found["corrected_high"] + 0.001) / 2)


def test_lemma_2_is_of_gradient_descent_and_not_of_adam():
    powers = {
        name: lrnn_spectra.exponent({b: lrnn_spectra.step_change(name, b) for b in (0.98, 0.99)})
        for name in lrnn_spectra.OPTIMIZERS
    }
    assert powers["SGD"] == pytest.approx(2.0, abs=0.1)
    assert powers["Adam"] == pytest.approx(1.0, abs=0.2)


def test_a_gradient_step_is_proportional_to_its_size():
    small, large = (lrnn_spectra.step_change("SGD", 0.95, lr=lr) for lr in (1e-4, 2e-4))
    assert large / small == pytest.approx(2.0, rel=1e-3)


def test_the_field_is_the_limit_of_the_layers_own_steps():
    torch.manual_seed(0)
    layer = LipschitzRNN(2, 2, beta=0.7, gamma=0.3, dt=1e-4, init_std=0.7).double()
    h = torch.randn(5, 2, dtype=torch.float64)
    after = layer.step(torch.zeros(5, 2, dtype=torch.float64), h)[1]
    field = lrnn_pendulum.vector_field(layer, h.numpy())
    assert field == pytest.approx((after - h).detach().numpy() / 1e-4, rel=1e-9)


def test_a_path_follows_its_field():
    """Of a linear decay, whose solution is known; and one that runs away ends in the box."""
    layer = LipschitzRNN(1, 2, beta=1.0, gamma=(0.5, 0.0), init_std=0.0).double()
    torch.nn.init.zeros_(layer.bias)
    points = lrnn_pendulum.path(layer, np.array([1.0, -2.0]), 30)
    times = lrnn_pendulum.DT * np.arange(31)
    assert points == pytest.approx(np.exp(-0.5 * times)[:, None] * np.array([1.0, -2.0]), rel=1e-6)
    away = LipschitzRNN.from_matrices(
        torch.eye(2).double(), torch.eye(2).double(), torch.eye(2).double(), beta=0.5, gamma=0
    )
    torch.nn.init.zeros_(away.bias)
    assert len(lrnn_pendulum.path(away, np.array([1.0, 1.0]), 500)) < 60


def test_what_paths_show():
    assert lrnn_pendulum.seen({"spread_of_ends": 0.5, "farthest": 1.0}) == "paths stay and do not meet"


@pytest.mark.parametrize(("case", "count"), [(errata.theorem1b, 1), (errata.lemma4, 1), (errata.pivoted, 1)])
def test_counter_examples_contradict_what_is_printed(case, count):
    rows = case(count)
    assert rows
    assert all(row["printed_is_wrong"] for row in rows)


def test_conditions_after_the_theorem():
    """(a) holds by 3 - 1 = 2; a matrix W of norm 4 breaks it, and symmetric negative it meets (b)."""
    eye = torch.eye(2).double()
    for W, a, b in ((-eye, True, True), (-4 * eye, False, True), (4 * eye, False, False)):
        found = conditions(LipschitzRNN.from_matrices(-3 * eye, W, eye, beta=0.5, gamma=0.0))
        assert (found["theorem1a"]["holds"], found["theorem1b"]["holds"]) == (a, b)
        assert found["theorem1a"]["margin"] == pytest.approx(3 - float(W.norm(2) / 2**0.5))


def test_a_row_of_the_robustness_table(monkeypatch):
    """Every number is there, and what the paper says of a column is compared with both rivals."""
    task = make_task("digits", layout="8", limit=24, test_limit=12)
    torch.manual_seed(0)
    model = networks(6, 0.1)["antisymmetric"](task)
    part = lrnn_robustness.measure(model, task, {"curved": 8, "attacked": 6}, 0)
    assert set(part) == {"lambda_max", "trace", "kappa", "pgd", "deepfool_l2", "deepfool_linf", "sweeps"}
    assert {kind: len(values) for kind, values in part["sweeps"].items()} == dict.fromkeys(lrnn_robustness.LEVELS, 5)
    part |= {"accuracy": 0.5, "train_loss": 1.0, "seconds": 1.0, "verdict": "refuted"}
    ours, worse = (lrnn_robustness._row(name, [part]) for name in ("Lipschitz, Euler", "neural ODE"))
    better = {**lrnn_robustness._row("antisymmetric", [part]), "trace": worse["trace"] + 1}
    line = {c.what: c for c in lrnn_robustness._compared([ours, {**worse, "trace": worse["trace"] + 1}, better])}
    assert line["its trace"].ours.startswith("yes")
    assert line["largest eigenvalue of the Hessian"].ours.startswith("no")  # equal is not smaller


def test_verdicts_are_counted_in_one_order():
    assert counted(["refuted", "certified", "refuted"]) == "1 certified, 2 refuted"
    assert mean([None, 2.0]) == 2.0
    torch.manual_seed(0)
    assert verdict(
        networks(4, 0.1)["contracting"](make_task("digits", layout="8", limit=20, test_limit=10)).layer, 0
    ) == ("certified")


def test_an_open_question_is_no_missing_verdict():
    """Nothing is claimed, so that the checker has nothing to prove; a claim that it refuses is no verdict."""
    A = [[-0.2, 0.0], [0.0, -0.2]]
    certificate = certify(LureSystem.recurrent(A, [[0.0, 1.0], [-1.0, -0.5]]), criterion="theorem1a", refute=False)
    assert confirmed(certificate) == "inconclusive"
    good = certify(LureSystem.recurrent([[-2.0]], [[1.0]]))
    assert confirmed(good) == "certified"
    assert confirmed(dataclasses.replace(good, rate=5.0)) == "no verdict"
