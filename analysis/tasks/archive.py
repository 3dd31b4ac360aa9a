"""Data of one's own from a ``.npz`` file: what ``--data FILE.npz`` names."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, FileFormatError, StabilityError
from stability.storage.arrays import read_npz
from stability.storage.documents import file_digest

from .arrays import task_from_arrays
from .base import Task, register_task

KEYS = ("x", "y", "x_test", "y_test", "classes", "lower", "upper", "lengths", "lengths_test")
FORM = "x (n, time, features) floating, y (n,) integers for classes or (n,), (n, k) floats for values"
_MEANT = {f"{k}{end}": k.lower() for k in "xXyY" for end in ("", "_train", "train")}
_REFUSED = {"mask": "sequences of unequal length are told by lengths, (n,): how many of its first steps are its own"}


@register_task("data")
def data(*, seed: int = 0, file: str = "", digest: str | None = None, held_out: float | None = None) -> Task:
    """Data of one's own from a ``.npz`` file: what ``--data FILE.npz`` names.

    Args:
        seed: of the order of the sequences, and of the split.
        file: the archive, with ``x`` and ``y``, optionally ``x_test``, ``y_test``, ``classes``, ``lower``, ``upper``,
            ``lengths`` and ``lengths_test`` as in ``task_from_arrays``; nothing else. Pickled objects are never read.
        digest: SHA-256 that the file must have; ``None``: any.
        held_out: share to be held out where the file has no ``x_test``.

    Returns:
        The task.

    Raises:
        ConfigurationError: no file is named.
        FileFormatError: missing, damaged, with other names than these, another file than ``digest`` says, or arrays
            that make no task.

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
    path = Path(file)
    found = _digest(path)
    if digest is not None and found != digest:
        raise FileFormatError(
            f"{file} is not the data that this was begun with (SHA-256 {found[:12]}..., it was {str(digest)[:12]}...)"
        )
    arrays = _arrays_of(path)
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
            seed=seed,
        )
    except StabilityError as error:
        raise FileFormatError(f"{file}: {error}") from error
    source = {"source": "arrays", "file": str(path.resolve()), "digest": found, "what": path.name}
    options = {"file": str(path.resolve()), "digest": found, "held_out": held_out}
    return replace(task, options=options, data={**task.data, **source})


def _arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive, those that are needed and those that are known.

    Raises:
        FileFormatError: missing, damaged, or with other names.
    """
    arrays = read_npz(path)
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        held = ", ".join(ascii(key)[1:-1] for key in arrays) or "nothing"
        other = [f"{k} as {new}" for k in arrays if (new := _MEANT.get(k)) in missing]
        hint = f": save {', '.join(other)}" if other else ""
        raise FileFormatError(f"{path} lacks {' and '.join(missing)}: data are {FORM}; it holds {held}{hint}")
    for key in arrays:
        if key not in KEYS:
            why = _REFUSED.get(key, f"the known names are {', '.join(KEYS)}")
            raise FileFormatError(f"{path} holds '{ascii(key)[1:-1]}', which is not read: {why}")
    return arrays


def labelled_sequences(file: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Sequences and classes of a ``.npz`` file as they stand in it: in its order, in its precision, nothing held out.

    Args:
        file: the archive, as for the task ``data``.

    Returns:
        ``x_test`` and ``y_test`` where the file has them, else ``x`` and ``y``.

    Raises:
        FileFormatError: missing, damaged, with other names, or arrays of another kind than ``x (n, time, features)``
            floating and ``y (n,)`` integers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(folder + "/d.npz", x=np.zeros((6, 4, 1)), y=np.arange(6))
        ...     x, y = labelled_sequences(folder + "/d.npz")
        >>> x.shape, x.dtype, y[-1]
        ((6, 4, 1), dtype('float64'), np.int64(5))
    """
    path = Path(file)
    _digest(path)
    arrays = _arrays_of(path)
    part = "_test" if "x_test" in arrays and "y_test" in arrays else ""
    x, y = arrays["x" + part], arrays["y" + part]
    if "lengths" + part in arrays:
        raise FileFormatError(f"{file}: its sequences have unequal lengths, one question here is about one length")
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise FileFormatError(f"{file}: y{part} must be (n,) integers, a class each; it is {y.shape} {y.dtype}")
    if x.dtype.kind != "f" or x.dtype.itemsize > 8 or x.ndim != 3 or 0 in x.shape:
        raise FileFormatError(f"{file}: x{part} must be (n, time, features) floating; it is {x.shape} {x.dtype}")
    if len(x) != len(y):
        raise FileFormatError(f"{file}: x{part} has {len(x)} sequences, y{part} {len(y)} classes")
    if not np.isfinite(x).all():
        raise FileFormatError(f"{file}: x{part} holds NaN or infinite entries")
    return x.astype(np.float64) if x.dtype == np.float16 else x, y.astype(np.int64)


def data_options(file: str | Path, held_out: float | None = None) -> dict[str, Any]:
    """Options of the task ``data`` for this file as it is now, its digest included.

    Raises:
        FileFormatError: no regular file, or one that cannot be read.
    """
    path = Path(file)
    if "\0" in str(file):
        raise FileFormatError("--data names a .npz file")
    return {"file": str(path.resolve()), "digest": _digest(path), "held_out": held_out}


def _digest(path: Path) -> str:
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not regular:  # a pipe would be waited for without end
        raise FileFormatError(f"{path} is no regular file: data are a .npz file with {FORM}")
    with path.open("rb") as handle:
        if not handle.read(4).startswith(b"PK"):
            raise FileFormatError(f"{path} is no .npz file: save numpy.savez(FILE, x=x, y=y) with {FORM}")
    return file_digest(path)


def _bounds_in(arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any] | None:
    lower, upper = arrays.get("lower"), arrays.get("upper")
    if lower is None and upper is None:
        return None
    if lower is None or upper is None:
        raise ConfigurationError("lower and upper come together: one of them is missing")
    return lower, upper


def _names_in(value: np.ndarray | None) -> list[str] | None:
    if value is None:
        return None
    if value.ndim != 1 or value.dtype.kind not in "US":
        raise ConfigurationError(f"classes must be a row of names, it has shape {value.shape} and dtype {value.dtype}")
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in value]
