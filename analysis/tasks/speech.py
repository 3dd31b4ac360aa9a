"""Spoken digits: raw speech as long sequences, from ``.wav`` files or one ``.npz`` bundle."""

from __future__ import annotations

import io
import re
import wave
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.arrays import read_npz

from .base import Pair, Task, check_size, register_task, task_of
from .folders import data_folder, embedded_data, read_bytes

TEST_TAKES = 5  # takes 0 to 4 of every speaker and digit are the usual test part
RATE = 8000  # samples per second
NAME = re.compile(r"(\d)_(\w+)_(\d+)\.wav")


@register_task("spoken")
def spoken(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    length: int = 4096,
    frame: int = 1,
    limit: int | None = None,
    test_limit: int | None = None,
) -> Task:
    """Make the task of spoken digits (Free Spoken Digit Dataset, 8 kHz, 16 bit), raw samples in [-1, 1].

    The folder holds the recordings as ``{digit}_{speaker}_{take}.wav``, or one ``.npz`` with ``samples`` (all
    recordings concatenated), ``offsets``, ``digit`` and ``take``. Takes 0 to 4 are the test part. Longer recordings
    are cut after ``length`` samples; shorter ones start with silence, so that the last step is always speech.

    Args:
        data_dir: the folder (or one with a subfolder ``fsdd``); ``None``: 120 recordings that ship with the package.
        seed: seed of the choice under the limits.
        length: samples of a sequence, a multiple of ``frame``.
        frame: samples per time step.
        limit: largest number of training recordings.
        test_limit: largest number of test recordings.

    Returns:
        The task: 10 classes, one per sequence.

    Raises:
        ConfigurationError: a bad option.
        FileFormatError: missing or damaged data.

    Example:
        >>> task = spoken(length=64, frame=8, limit=5, test_limit=5)
        >>> tuple(task.train[0].shape), task.output_size
        ((5, 8, 8), 10)
    """
    check_size("length", length)
    if length % check_size("frame", frame):
        raise ConfigurationError(f"length must be a multiple of frame, got {length} and {frame}")
    place = data_folder(embedded_data() if data_dir is None else data_dir, "fsdd")
    bundles = sorted(place.glob("*.npz"))
    records, digit, take = _bundle(bundles[0]) if bundles else _waves(place)
    rng = np.random.default_rng(seed)

    def part(name: str, mask: np.ndarray, most: int | None) -> Pair:
        rows = np.flatnonzero(mask)
        if len(rows) == 0:
            split = f"takes 0 to {TEST_TAKES - 1} test, the others train"
            raise FileFormatError(f"{place} has no {name} recordings ({split})")
        if most is not None:
            rows = rng.permutation(rows)[: check_size("limit", most)]
        x = np.zeros((len(rows), length), dtype=np.float32)
        for out, row in zip(x, rows):
            piece = records[row][:length]
            out[length - len(piece) :] = piece / np.float32(32768)
        return torch.from_numpy(x).reshape(len(rows), -1, frame), torch.from_numpy(digit[rows].astype(np.int64))

    train, test = part("training", take >= TEST_TAKES, limit), part("test", take < TEST_TAKES, test_limit)
    where = (
        {"source": "embedded"} if data_dir is None else {"source": "folder", "folder": str(Path(data_dir).resolve())}
    )
    return task_of(
        train, test, output_size=10, bounds=(-1.0, 1.0), data={**where, "what": "spoken digits", "seed": seed}
    )


def _bundle(path: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    arrays = read_npz(path)
    try:
        samples, offsets, digit, take = (arrays[name] for name in ("samples", "offsets", "digit", "take"))
    except KeyError as error:
        raise FileFormatError(f"{path} lacks an array: {error}") from error
    integers = all(a.dtype.kind in "iu" and a.ndim == 1 for a in (offsets, digit, take))
    good = samples.dtype == np.int16 and samples.ndim == 1 and integers and len(offsets) > 1
    good = good and len(digit) == len(take) == len(offsets) - 1
    if not good or offsets[0] < 0 or offsets[-1] > len(samples) or (np.diff(offsets.astype(np.int64)) <= 0).any():
        raise FileFormatError(f"{path}: samples, offsets, digit and take do not fit together")
    if digit.min() < 0 or digit.max() > 9:
        raise FileFormatError(f"{path}: a label is {digit.max()}, the classes are 0 to 9")
    return [samples[a:b] for a, b in pairwise(offsets)], digit, take.astype(np.int64)


def _waves(place: Path) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    recordings = [(match, path) for path in sorted(place.glob("*.wav")) if (match := NAME.fullmatch(path.name))]
    if not recordings:
        raise FileFormatError(f"{place} has neither an .npz bundle nor files named digit_speaker_take.wav")
    return (
        [_wave(path) for _, path in recordings],
        np.array([int(m[1]) for m, _ in recordings]),
        np.array([int(m[3]) for m, _ in recordings]),
    )


def _wave(path: Path) -> np.ndarray:
    """Read a ``.wav`` file of one channel, 16 bits, 8 kHz as int16."""
    try:
        with wave.open(io.BytesIO(read_bytes(path)), "rb") as file:
            kind, raw = file.getparams(), file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error, RuntimeError) as error:  # RuntimeError: a chunk longer than the file
        raise FileFormatError(f"{path} is no readable .wav file: {str(error) or 'it ends early'}") from error
    if kind[:3] != (1, 2, RATE) or len(raw) < 2 or len(raw) % 2:
        raise FileFormatError(f"{path} must hold samples of one channel with 16 bits at {RATE} Hz")
    return np.frombuffer(raw, dtype="<i2")
