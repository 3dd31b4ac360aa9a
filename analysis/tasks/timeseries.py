"""Time series of the UCR and UEA archives, from their ``.ts`` files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, FileFormatError, StabilityError

from .arrays import task_from_arrays
from .base import Task, register_task
from .folders import data_folder, read_text, single_file

MAX_BYTES = 512 * 2**20  # size limit of a ``.ts`` file in bytes
TRAIN = "_TRAIN.ts"


@register_task("ucr")
def ucr(*, data_dir: str | Path | None = None, seed: int = 0, problem: str = "", scale: bool = True) -> Task:
    """Make a task from a problem of the UCR and UEA archives (Dau et al. 2019, Bagnall et al. 2018).

    Args:
        data_dir: folder with ``NAME_TRAIN.ts`` and ``NAME_TEST.ts`` (or one with a subfolder ``NAME``).
        seed: seed of the order of the sequences.
        problem: NAME, where the folder has several.
        scale: subtract the mean and divide by the standard deviation of each feature over the training part.

    Returns:
        The task: one class, or one value, per sequence; shorter sequences are padded as by ``task_from_arrays``.

    Raises:
        ConfigurationError: no folder, or several problems to choose from.
        FileFormatError: missing or damaged files, missing values or time stamps in them.
    """
    if data_dir is None:
        raise ConfigurationError("task 'ucr' needs data_dir, a folder with NAME_TRAIN.ts and NAME_TEST.ts")
    place = data_folder(data_dir, problem or ".")
    path = single_file(place, f"*{TRAIN}", problem or None, "problem")
    x, y, classes = read_ts(path)
    test = path.with_name(path.name.removesuffix(TRAIN) + "_TEST.ts")
    x_test, y_test, other = read_ts(test)
    if classes != other or x[0].shape[1] != x_test[0].shape[1]:
        raise FileFormatError(f"{test} has other classes or features than {path.name}")
    if scale:
        steps = np.concatenate(x)
        spread = np.where(steps.std(axis=0) > 0, steps.std(axis=0), 1.0)
        x, x_test = ([(row - steps.mean(axis=0)) / spread for row in part] for part in (x, x_test))
    longest = max(len(row) for row in (*x, *x_test))
    (x, own), (x_test, own_test) = _padded(x, longest), _padded(x_test, longest)
    equal = min(*own, *own_test) == longest
    lengths: dict[str, Any] = {} if equal else {"lengths": own, "lengths_test": own_test}
    try:
        task = task_from_arrays(x, y, x_test=x_test, y_test=y_test, classes=classes, seed=seed, **lengths)
    except StabilityError as error:
        raise FileFormatError(f"{path}: {error}") from error
    what = path.name.removesuffix(TRAIN)
    return replace(task, data={"source": "folder", "folder": str(place.resolve()), "what": what, "seed": seed})


def _padded(rows: list[np.ndarray], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences as one array ``(n, longest, features)``, and their lengths."""
    out = [np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows]
    return np.stack(out), np.array([len(row) for row in rows])


def read_ts(path: Path) -> tuple[list[np.ndarray], np.ndarray, list[str] | None]:
    """Read a ``.ts`` file.

    Args:
        path: the file: lines ``@name value``, a line ``@data``, then a line for each sequence: its features separated
            by colons, the values of a feature by commas, the label last.

    Returns:
        Sequences, each ``(length, features)`` float64; labels, int64 or float64; names of the classes in the order of
        the header, ``None`` for values.

    Raises:
        FileFormatError: missing, damaged, with time stamps or missing values.
    """
    lines = [line.strip() for line in read_text(path, MAX_BYTES).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    start = next((k for k, line in enumerate(lines) if line.lower() == "@data"), len(lines))
    header = dict((line[1:].lower() + " ").split(" ", 1) for line in lines[:start])
    names = next((line.split()[2:] for line in lines[:start] if line.lower().startswith("@classlabel true")), None)
    if header.get("timestamps", "").strip() == "true":
        raise FileFormatError(f"{path} has time stamps, expected sequences sampled at equal times")
    if not lines[start + 1 :]:
        raise FileFormatError(f"{path} is no .ts file: it needs a line @data and sequences after it")
    rows, labels = [], []
    for number, line in enumerate(lines[start + 1 :], start=1):
        *columns, label = line.split(":")
        try:
            rows.append(np.array([column.split(",") for column in columns], dtype=np.float64).T)
            labels.append(float(label) if names is None else names.index(label.strip()))
        except ValueError as error:
            raise FileFormatError(
                f"{path}: sequence {number} has a missing value or an unknown label: {error}"
            ) from None
        if rows[-1].ndim != 2 or rows[-1].shape[1] != rows[0].shape[1] or not np.isfinite(rows[-1]).all():
            raise FileFormatError(
                f"{path}: sequence {number} has another number of features, or values that are not finite"
            )
    return rows, np.array(labels, dtype=np.float64 if names is None else np.int64), names
