"""Radii of every answer of a sequence: those of the sequence cut there, and never above what an attack finds."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import attack_scores, certified_radius, task_from_arrays
from stability.analysis.radius import certified
from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.models import LRU, LSTM, ContractingRNN, ElmanRNN, RotRNN, SequenceModel, UnitaryRNN
from stability.search.gains.lure import incremental_gain

T, F, C = 5, 2, 3
LAYERS = {
    "elman": lambda: ElmanRNN(F, 6),
    "contracting": lambda: ContractingRNN(F, 6),
    "unitary": lambda: UnitaryRNN(F, 6),
    "rotrnn": lambda: RotRNN(F, 6, heads=2),
    "lru": lambda: LRU(F, 6),
}


def networks(kind):
    """With a head on every output, and with the same one on the last."""
    torch.manual_seed(1)
    every = SequenceModel(LAYERS[kind](), C, "all")
    last = copy.deepcopy(every)
    last.reduction = "last"
    return every, last


def sequences(n=8):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, T, F, generator=generator), torch.randint(C, (n, T), generator=generator)


@pytest.mark.parametrize("kind", LAYERS)
def test_an_answers_radius_is_that_of_the_sequence_up_to_there(kind):
    every, last = networks(kind)
    x, y = sequences()
    certificate = certify(every.layer) if kind == "contracting" else None
    found = certified_radius(every, x, y, certificate=certificate)
    for t in range(T):
        cut = certified_radius(last, x[:, : t + 1], y[:, t], certificate=certificate)
        if kind == "unitary":  # one proof serves every step: the best one for the last
            assert (found.radius[:, t] <= cut.radius * (1 + 1e-12)).all()
            assert ((found.radius[:, t] > 0) == (cut.radius > 0)).all()
            continue
        np.testing.assert_allclose(found.radius_linf[:, t], cut.radius_linf, rtol=1e-12)
        np.testing.assert_allclose(found.margin[:, t], cut.margin, rtol=1e-12)
    assert (found.radius > 0).any()
    np.testing.assert_allclose(found.radius[:, -1], cut.radius, rtol=1e-12)
    assert found.gain == pytest.approx(cut.gain, rel=1e-12)


def test_a_gain_proved_for_the_whole_length_serves_every_answer():
    every, last = networks("contracting")
    x, y = sequences()
    gain = incremental_gain(every.layer.driven(), output=every.head.weight.detach().numpy(), horizon=T, measure="final")
    found = certified_radius(every, x, y, gain=gain)
    for t in (1, T - 1):
        cut = certified_radius(last, x[:, : t + 1], y[:, t], gain=gain)
        np.testing.assert_allclose(found.radius[:, t], cut.radius, rtol=1e-12)


@pytest.mark.parametrize("kind", ["contracting", "elman"])
def test_no_attack_gets_below_what_is_certified(kind):
    every, _ = networks(kind)
    x, y = sequences(24)
    task = task_from_arrays(x, y, bounds=(-9.0, 9.0), held_out=None)
    with torch.no_grad():
        y = every(x).argmax(-1)
    y[:, 0] = -100
    y[:12, 3:] = -100  # padding of the first half
    found = certified_radius(every, x, y)
    radii = [0.0, *np.quantile(found.radius[y.numpy() >= 0], [0.2, 0.5, 0.8])]
    attacked = attack_scores(every, x, y, task=task, epsilons=radii, norm="l2", steps=20, bounds=None)
    for radius, score in zip(attacked.sizes, attacked.score):
        assert score >= found.accuracy_at(radius)
    assert found.accuracy_at(0.0) == 1.0


@pytest.mark.parametrize("kind", ["rotrnn", "lru"])
def test_of_a_linear_recurrence_it_is_the_distance_to_the_boundary(kind):
    every, _ = networks(kind)
    x, y = sequences(3)
    found = certified_radius(every, x, y)
    every.double()
    for (row, t), radius in np.ndenumerate(found.radius):
        z = x[[row]].double().requires_grad_()
        logits = every(z)[0, t]
        away = [logits[y[row, t]] - logits[k] for k in range(C) if k != int(y[row, t])]
        slopes = [float(torch.autograd.grad(gap, z, retain_graph=True)[0].norm()) for gap in away]
        nearest = min(gap.item() / slope for gap, slope in zip(away, slopes))
        assert radius == pytest.approx(max(nearest, 0.0), rel=1e-6, abs=1e-9)


def test_shares_are_of_each_sequences_own_answers():
    every, _ = networks("elman")
    x, y = sequences(2)
    with torch.no_grad():
        y = every(x).argmax(-1)
    y[0, 1:] = -100
    y[1, 0] = (y[1, 0] + 1) % C  # a mistake
    found = certified_radius(every, x, y)
    assert np.isnan(found.radius[0, 1:]).all()
    assert found.radius[1, 0] == 0
    assert found.accuracy_at(0.0) == pytest.approx((1 + (T - 1) / T) / 2)
    frame = found.frame()
    assert frame[["sample", "step"]].to_numpy().tolist() == [[0, 0], *([1, t] for t in range(T))]
    assert frame["radius"].tolist() == found.radius[~np.isnan(found.radius)].tolist()


def test_what_has_no_radius_at_every_step_is_refused():
    x, y = sequences()
    every, last = networks("elman")
    for wrong in (
        SequenceModel(RotRNN(F, 4, heads=1, bidirectional=True), C, "all"),
        SequenceModel(LSTM(F, 4), C, "all"),
    ):
        with pytest.raises(UnsupportedError):
            certified_radius(wrong, x, y)
    start = SequenceModel(RotRNN(F, 4, heads=1, stationary_start=True), C, "all")
    with pytest.raises(UnsupportedError):  # its first input counts otherwise than the later ones
        certified_radius(start, x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(last, x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(SequenceModel(ElmanRNN(F, 2), 2000, "all"), x, y)
    with pytest.raises(DimensionError):
        certified_radius(nn.Flatten(), x, y, gain=1.0)
    with pytest.raises(ConfigurationError):
        certified_radius(every, x, torch.full_like(y, -100))
    with pytest.raises(ConfigurationError):
        certified_radius(every, x, y + C)
    with pytest.raises(DimensionError):
        certified_radius(every, x, y[:, 1:])


def test_a_radius_is_a_little_less_than_the_gap_over_the_gain():
    gaps = np.array([[np.inf, 1.0, 2.0], [3.0, np.inf, 0.5]])
    found = certified._radii(gaps, np.array([0, 1]), 0, 2.0, None)
    assert (found < gaps.min(axis=1) / (2.0 * np.sqrt(2.0))).all()
    np.testing.assert_allclose(found, gaps.min(axis=1) / (2.0 * np.sqrt(2.0)), rtol=1e-8)
