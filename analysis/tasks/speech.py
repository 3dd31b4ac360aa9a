"""Spoken digits: raw speech as long sequences, from ``.wav`` files or one ``.npz`` bundle."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.arrays import read_npz

from .base import Pair, Task, check_size, register_task, task_of
from .recordings import read_wave

TEST_TAKES = 5  # takes 0 to 4 of every speaker and digit are the usual test part
RATE = 8000
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
    """Spoken digits (Free Spoken Digit Dataset, 8 kHz, 16 bit), raw samples in [-1, 1].

    The folder holds the recordings as ``{digit}_{speaker}_{take}.wav``, or one ``.npz`` with ``samples`` (all
    recordings end to end), ``offsets``, ``digit`` and ``take``. Takes 0 to 4 are the test part. A recording
    longer than ``length`` loses its end; a shorter one gets silence in front, so that the last step is always
    speech.

    Args:
        data_dir: the folder (or one with a subfolder ``fsdd``).
        seed: of the choice under the limits.
        length: samples of a sequence, a multiple of ``frame``.
        frame: samples that one time step sees (1: as raw as can be).
        limit: how many training recordings at most.
        test_limit: how many test recordings at most.

    Returns:
        The task: 10 classes, one per sequence.

    Raises:
        ConfigurationError: a bad option or no folder.
        FileFormatError: missing or damaged data.
    """
    check_size("length", length)
    check_size("frame", frame)
    if length % frame:
        raise ConfigurationError(f"length must be a multiple of frame, got {length} and {frame}")
    if data_dir is None:
        raise ConfigurationError("task 'spoken' needs data_dir, a folder of .wav files or with one .npz bundle")
    place = Path(data_dir)
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is no folder")
    place = place / "fsdd" if (place / "fsdd").is_dir() else place
    bundles = sorted(place.glob("*.npz"))
    records, digit, take = _bundle(bundles[0]) if bundles else _waves(place)
    rng = np.random.default_rng(seed)
    parts: list[Pair] = []
    for name, chosen, cap in (
        ("training", take >= TEST_TAKES, limit),
        ("test", take < TEST_TAKES, test_limit),
    ):
        rows = np.flatnonzero(chosen)
        if len(rows) == 0:
            raise FileFormatError(
                f"{place} has no {name} recordings (takes 0 to {TEST_TAKES - 1} test, the others train)"
            )
        if cap is not None:
            rows = rng.permutation(rows)[: check_size("limit", cap)]
        x = np.zeros((len(rows), length), dtype=np.float32)
        for i, row in enumerate(rows):
            piece = records[row][:length]
            x[i, length - len(piece) :] = piece / np.float32(32768)
        y = torch.from_numpy(digit[rows].astype(np.int64))
        parts.append((torch.from_numpy(x).reshape(len(rows), length // frame, frame), y))
    source = {"source": "folder", "folder": str(Path(data_dir).resolve()), "what": "spoken digits", "seed": seed}
    return task_of(*parts, output_size=10, bounds=(-1.0, 1.0), data=source)


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
    found = [(match, path) for path in sorted(place.glob("*.wav")) if (match := NAME.fullmatch(path.name))]
    if not found:
        raise FileFormatError(f"{place} has neither an .npz bundle nor files named digit_speaker_take.wav")
    records = [read_wave(path, RATE) for _, path in found]
    return records, np.array([int(m[1]) for m, _ in found]), np.array([int(m[3]) for m, _ in found])
