"""The excerpts of the generation task: as described, repeatable, and learnable."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis.tasks import make_task
from stability.analysis.tasks.excerpts import EXCERPTS, plucked_notes
from stability.errors import ConfigurationError
from stability.models import HouseholderRNN, SequenceModel


def test_excerpts_are_normalised_and_repeatable():
    task = make_task("generation", seed=3)
    x, y = task.train
    assert x.shape == (EXCERPTS, 800, EXCERPTS)
    assert y.shape == (EXCERPTS, 800, 1)
    torch.testing.assert_close(y.mean(1), torch.zeros(EXCERPTS, 1), rtol=0, atol=1e-5)
    torch.testing.assert_close(y.square().mean(1), torch.ones(EXCERPTS, 1), rtol=0, atol=1e-5)
    assert task.metric(torch.zeros_like(y), y) == pytest.approx(task.chance, abs=1e-5)
    again = make_task("generation", **task.options, seed=3)
    assert torch.equal(again.train[1], y)
    assert not torch.equal(make_task("generation", seed=4).train[1], y)
    assert torch.equal(x[:, 0], torch.eye(EXCERPTS))


def test_excerpts_are_consecutive_pieces_of_one_recording():
    whole = plucked_notes(0, EXCERPTS * 400)
    for k in range(EXCERPTS):
        _, y = make_task("generation", steps=400, excerpt=k).train
        piece = whole[400 * k : 400 * (k + 1)]
        piece = (piece - piece.mean()) / piece.std()
        np.testing.assert_allclose(y[0, :, 0].numpy(), piece, atol=1e-5)


def test_signal_has_the_spectrum_of_notes():
    signal = plucked_notes(1, 4000)
    power = np.abs(np.fft.rfft(signal * np.hanning(4000))) ** 2
    frequency = np.fft.rfftfreq(4000, 1 / 44_100)
    assert power[frequency > 10_000].sum() < 0.01 * power.sum()  # harmonics fall off
    peaks = np.sort(power)[::-1]
    assert peaks[:100].sum() > 0.8 * power.sum()  # lines, not noise


def test_a_network_learns_an_excerpt():
    task = make_task("generation", steps=40, excerpt=0)
    x, y = task.train
    model = SequenceModel(HouseholderRNN(1, 16, reflections=16, activation="tanh"), 1, reduction="all")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(250):
        optimizer.zero_grad()
        loss = task.loss(model(x), y)
        loss.backward()
        optimizer.step()
    assert task.metric(model(x), y) < 0.3 * task.chance


def test_bad_options_are_refused():
    for options in ({"excerpt": 5}, {"excerpt": -1}, {"excerpt": True}, {"steps": 0}, {"steps": 2.5}):
        with pytest.raises(ConfigurationError):
            make_task("generation", **options)
    with pytest.raises(ConfigurationError, match="data_dir"):
        make_task("generation", data_dir=".")
