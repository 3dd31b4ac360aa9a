"""Frames of speech, and the data that ship: pieces follow each other, frequencies are standardised, licences."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stability.analysis.studies.cases import own_data
from stability.analysis.tasks import make_task
from stability.analysis.tasks.recordings import log_spectra
from stability.errors import ConfigurationError, FileFormatError


def test_the_target_is_the_next_frame_of_a_recording():
    task = make_task("frames", data_dir=own_data(), steps=9, limit=50, test_limit=20)
    x, y = task.train
    assert (x.shape, y.shape, task.reduction, task.kind) == ((50, 9, 129), (50, 9, 129), "all", "values")
    assert torch.equal(x[:, 1:], y[:, :-1])
    whole = torch.cat([x, y[:, -1:]], 1)
    torch.testing.assert_close(whole.mean((0, 1)), torch.zeros(129), atol=1e-4, rtol=0)
    torch.testing.assert_close(whole.std((0, 1), correction=0), torch.ones(129), atol=1e-3, rtol=0)
    error = (task.test[1] - task.test[0]).double().square().mean().item()
    assert task.chance == pytest.approx(error)
    again = make_task("frames", data_dir=own_data(), steps=9, limit=50, test_limit=20, seed=1)
    assert not torch.equal(again.train[0], x)


def test_frames_are_of_the_recordings_without_their_padding():
    """The first frame of a piece of nine is found among the spectra of the recordings themselves."""
    task = make_task("frames", data_dir=own_data(), steps=9, limit=1000, test_limit=1000)
    spoken = make_task("spoken", data_dir=own_data(), length=16_000)
    frames = []
    for row in spoken.train[0][:, :, 0].numpy():
        samples = row[(row != 0).argmax() :]
        found = log_spectra(samples, 256, 128)
        frames += [found[k : k + 10] for k in range(0, len(found) - 9, 10)] if len(samples) >= 256 else []
    assert len(task.train[0]) == len(frames)
    pieces = torch.stack([torch.from_numpy(f) for f in frames])
    scaled = (pieces - pieces.mean((0, 1))) / pieces.std((0, 1), correction=0)
    mine = sorted(scaled[:, 0, 40].tolist())
    torch.testing.assert_close(torch.tensor(mine), task.train[0][:, 0, 40].sort()[0], atol=1e-3, rtol=0)


def test_what_it_refuses(tmp_path):
    with pytest.raises(ConfigurationError, match="data_dir"):
        make_task("frames")
    with pytest.raises(ConfigurationError, match="steps"):
        make_task("frames", data_dir=own_data(), steps=0)
    with pytest.raises(FileFormatError, match="no recording is as long"):
        make_task("frames", data_dir=own_data(), steps=500)


def test_the_data_that_ship_have_licences():
    folder = Path(own_data())
    text = make_task("characters", data_dir=folder, limit=5, test_limit=5)
    spoken = make_task("spoken", data_dir=folder)
    assert text.output_size == 61
    assert (len(spoken.train[0]), len(spoken.test[0])) == (60, 60)
    assert torch.bincount(spoken.test[1]).tolist() == [6] * 10
    licences = {p.name for p in folder.rglob("*LICENSE*")}
    assert licences == {"MNIST-LICENSE.md", "TEXT-LICENSE.md", "FSDD-LICENSE.md"}
