"""User data as a task: the option ``--data``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, FileFormatError, StabilityError

from .arrays import task_from_arrays
from .base import Task, register_task
from .own_sources import read_source, source_digest

OTHER_EACH_TIME = ": a function must give the same data each time, so seed what it draws"


@register_task("data")
def data(*, seed: int = 0, file: str = "", digest: str | None = None, held_out: float | None = None) -> Task:
    """Make a task from user data, as the option ``--data`` does.

    Args:
        seed: seed of the order of the sequences, and of the split.
        file: a ``.npz`` file, a folder, or ``package.module:function``, see ``read_source``: ``x`` and ``y``,
            optionally ``x_test``, ``y_test``, ``classes``, ``lower``, ``upper``, ``lengths`` and ``lengths_test`` as in
            ``task_from_arrays``, or ``mask`` and ``mask_test``; nothing else. Pickled objects are never read.
        digest: SHA-256 that the file must have; ``None``: any.
        held_out: share of the sequences to hold out if the file has no ``x_test``.

    Returns:
        The task.

    Raises:
        ConfigurationError: no file is named.
        FileFormatError: a missing or damaged file, other names than these, another digest, or arrays that make no task.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(folder + "/d.npz", x=np.random.rand(6, 4, 1), y=np.arange(6.0))
        ...     task = data(file=folder + "/d.npz")
        >>> task.kind, task.input_size
        ('values', 1)
    """
    if not isinstance(file, str) or not file or "\0" in file:
        raise ConfigurationError("the task 'data' needs file=FILE.npz (on the command line: --data FILE.npz)")
    read = read_source(file)
    if digest is not None and read.digest != digest:
        raise FileFormatError(
            f"{file} has changed since the run began (SHA-256 is {read.digest[:12]}..., it was "
            f"{str(digest)[:12]}...){OTHER_EACH_TIME if read.place == file else ''}"
        )
    arrays = read.arrays
    try:
        task = task_from_arrays(
            arrays["x"],
            arrays["y"],
            x_test=arrays.get("x_test"),
            y_test=arrays.get("y_test"),
            classes=_names_in(arrays.get("classes")),
            bounds=_bounds_in(arrays),
            held_out=held_out,
            lengths=arrays.get("lengths"),
            lengths_test=arrays.get("lengths_test"),
            loss=read.loss,
            seed=seed,
        )
    except StabilityError as error:
        raise FileFormatError(f"{file if Path(read.place).is_absolute() else read.what}: {error}") from error
    source = {"source": "arrays", "file": read.place, "digest": read.digest, "what": read.what}
    options = {"file": read.place, "digest": read.digest, "held_out": held_out}
    return replace(task, options=options, data={**task.data, **source})


def labelled_sequences(file: str | Path) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return sequences and classes of a ``.npz`` file in its own order and precision, with nothing held out.

    Args:
        file: the source, as for the task ``data``.

    Returns:
        ``x_test`` and ``y_test`` if the file has them, else ``x`` and ``y``, with tokens ``(n, time)`` unchanged; and
        True if the file gives the lengths of the sequences.

    Raises:
        FileFormatError: a missing or damaged file, other names, or arrays other than ``x (n, time, features)``
            floating and ``y (n,)`` integers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(folder + "/d.npz", x=np.zeros((6, 4, 1)), y=np.arange(6))
        ...     x, y, padded = labelled_sequences(folder + "/d.npz")
        >>> x.shape, x.dtype, y[-1], padded
        ((6, 4, 1), dtype('float64'), np.int64(5), False)
    """
    arrays = read_source(file).arrays
    part = "_test" if "x_test" in arrays and "y_test" in arrays else ""
    x, y, padded = arrays["x" + part], arrays["y" + part], "lengths" + part in arrays
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise FileFormatError(f"{file}: y{part} must be (n,) integers, a class each; it is {y.shape} {y.dtype}")
    if x.dtype.kind in "iu" and x.ndim == 2 and 0 not in x.shape and len(x) == len(y):
        return x, y.astype(np.int64), padded
    if x.dtype.kind != "f" or x.dtype.itemsize > 8 or x.ndim != 3 or 0 in x.shape:
        raise FileFormatError(f"{file}: x{part} must be (n, time, features) floating; it is {x.shape} {x.dtype}")
    if len(x) != len(y):
        raise FileFormatError(f"{file}: x{part} has {len(x)} sequences, y{part} {len(y)} classes")
    if not np.isfinite(x).all():
        raise FileFormatError(f"{file}: x{part} holds NaN or infinite entries")
    return x.astype(np.float64) if x.dtype == np.float16 else x, y.astype(np.int64), padded


def data_options(file: str | Path, held_out: float | None = None) -> dict[str, Any]:
    """Return the options of the task ``data`` for a source, including its present digest.

    Raises:
        FileFormatError: no regular file or folder, or one that cannot be read.
        ConfigurationError: a function that cannot be called.
    """
    place, digest = source_digest(file)
    return {"file": place, "digest": digest, "held_out": held_out}


def _bounds_in(arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any] | None:
    lower, upper = arrays.get("lower"), arrays.get("upper")
    if lower is None and upper is None:
        return None
    if lower is None or upper is None:
        raise ConfigurationError("lower and upper must both be given: one of them is missing")
    return lower, upper


def _names_in(value: np.ndarray | None) -> list[str] | None:
    if value is None:
        return None
    if value.ndim != 1 or value.dtype.kind not in "US":
        raise ConfigurationError(f"classes must be a row of names, it has shape {value.shape} and dtype {value.dtype}")
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in value]
