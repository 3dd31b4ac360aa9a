"""Frames of speech: from the short-time spectra so far, the next one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from stability.errors import FileFormatError

from .base import Pair, Task, check_size, register_task, task_of
from .recordings import log_spectra
from .speech import spoken

LONGEST = 16_000  # samples of a recording that are read
WINDOW, HOP = 256, 128


@register_task("frames")
def frames(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    steps: int = 12,
    limit: int = 2000,
    test_limit: int = 500,
) -> Task:
    """The next frame of spoken digits (Free Spoken Digit Dataset), in log-magnitudes at 129 frequencies.

    The protocol of speech prediction on TIMIT (Wisdom et al. 2016): 8 kHz, Hann windows of 256 samples every 128.
    Recordings are cut into pieces of ``steps + 1`` frames that do not overlap; what is left at an end is not used. Each
    frequency is brought to mean 0 and variance 1 over the training part, so that naming its mean has an error near 1.

    Args:
        data_dir: as for ``spoken``.
        seed: of the choice of pieces.
        steps: frames of a sequence.
        limit: how many training pieces at most.
        test_limit: how many test pieces at most.

    Returns:
        The task: 129 values at every step; chance is the error of repeating the present frame.

    Raises:
        ConfigurationError: a bad option or no folder.
        FileFormatError: missing or damaged data, or none long enough.
    """
    check_size("steps", steps)
    recordings = spoken(data_dir=data_dir, seed=seed, length=LONGEST)
    rng = np.random.default_rng(seed)
    parts = [
        _pieces(x[:, :, 0].numpy(), steps + 1, check_size(name, most), rng)
        for (x, _), name, most in ((recordings.train, "limit", limit), (recordings.test, "test_limit", test_limit))
    ]
    mean, deviation = parts[0].mean((0, 1)), parts[0].std((0, 1)) + 1e-6
    train, test = (_pair((part - mean) / deviation) for part in parts)
    chance = float((test[1] - test[0]).double().square().mean())
    return task_of(train, test, chance=chance, data={**recordings.data, "what": "frames of spoken digits"})


def _pieces(recordings: np.ndarray, length: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """``(n, length, 129)`` of the recordings, whose silence in front is padding."""
    found = []
    for row in recordings:
        samples = row[np.argmax(row != 0) :]
        if len(samples) >= WINDOW + (length - 1) * HOP:
            whole = log_spectra(samples, WINDOW, HOP)
            count = len(whole) // length
            found.append(whole[: count * length].reshape(count, length, -1))
    if not found:
        raise FileFormatError(f"no recording is as long as {length} frames")
    pieces = np.concatenate(found)
    return pieces[rng.permutation(len(pieces))[:most]]


def _pair(pieces: np.ndarray) -> Pair:
    values = torch.from_numpy(np.ascontiguousarray(pieces, dtype=np.float32))
    return values[:, :-1].contiguous(), values[:, 1:].contiguous()
