"""Readers of user data: an archive, a folder of arrays, or a function."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import unmasked
from stability.storage.arrays import read_npy, read_npz
from stability.storage.documents import file_digest
from stability.user_code import names_code

from ...models.factories import named_value, running_user_code
from .lengths import lengths_of_mask, padded

KEYS = ("x", "y", "x_test", "y_test", "classes", "lower", "upper", "lengths", "lengths_test", "mask", "mask_test")
FORM = "x (n, time, features) floating, y (n,) integers for classes or (n,), (n, k) floats for values"
_MEANT = {f"{k}{end}": k.lower() for k in "xXyY" for end in ("", "_train", "train")}
_PARTS = ("train.npz", "test.npz")


_HELD: dict[str, Source] = {}


@dataclass(frozen=True)
class Source:
    """Arrays read from a source of user data.

    Attributes:
        arrays: arrays by the names of ``KEYS``; masks are converted to lengths.
        digest: SHA-256 of a file's bytes, or of the types, shapes and bytes of a function's arrays.
        place: name for reading it again: a path, or ``package.module:function``.
        what: name for readers.
        loss: loss function returned with the arrays, or ``None``.
    """

    arrays: Mapping[str, Any]
    digest: str
    place: str
    what: str
    loss: Callable[..., Any] | None = None


def read_source(spec: str | Path) -> Source:
    """Read user data.

    Args:
        spec: a ``.npz`` file with arrays of the names of ``KEYS``; a folder with ``x.npy``, ``y.npy`` ... of these
            names, or with ``train.npz`` and ``test.npz``; or ``package.module:function``, which is called without
            arguments and gives such a mapping (also with ``loss``), ``(x, y)`` or ``(x, y, x_test, y_test)``.

    Returns:
        The arrays.

    Raises:
        FileFormatError: missing, damaged, or with other names.
        ConfigurationError: a function that raises, or gives something else.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(folder + "/x.npy", np.zeros((6, 4, 1)))
        ...     np.save(folder + "/y.npy", np.arange(6))
        ...     sorted(read_source(folder).arrays)
        ['x', 'y']
    """
    name = str(spec)
    if not name or "\0" in name:
        raise ConfigurationError("the task 'data' needs file=FILE.npz (on the command line: --data FILE.npz)")
    if name in _HELD:
        return _HELD[name]
    path = Path(name)
    if not path.exists() and names_code(name):
        return _from_function(name)
    if path.is_dir():
        return _from_folder(path)
    digest = archive_digest(path)
    return Source(checked(read_npz(path), name), digest, str(path.resolve()), path.name)


def source_digest(spec: str | Path) -> tuple[str, str]:
    """Return place and digest of a source; the arrays of a file are not read."""
    path = Path(str(spec))
    if "\0" in str(spec):
        raise FileFormatError("--data names a .npz file, a folder of arrays, or package.module:function")
    if path.is_dir() or (not path.exists() and names_code(str(spec))):
        source = read_source(spec)
        return source.place, source.digest
    return str(path.resolve()), archive_digest(path)


def archive_digest(path: Path) -> str:
    """Return the SHA-256 of a ``.npz`` file.

    Raises:
        FileFormatError: no regular file, or none of this kind.
    """
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


def checked(arrays: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check the names of arrays and convert masks to lengths.

    Args:
        arrays: arrays by name.
        where: name of their source in error messages.

    Raises:
        FileFormatError: a name that is missing or unknown, or a mask with gaps.
    """
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        held = ", ".join(ascii(key)[1:-1] for key in arrays) or "nothing"
        other = [f"{k} as {new}" for k in arrays if (new := _MEANT.get(k)) in missing]
        hint = f": save {', '.join(other)}" if other else ""
        raise FileFormatError(f"{where} lacks {' and '.join(missing)}: data are {FORM}; it holds {held}{hint}")
    for key in arrays:
        if key not in KEYS:
            why = f"the known names are {', '.join(KEYS)}"
            raise FileFormatError(f"{where} holds '{ascii(key)[1:-1]}', which is not read: {why}")
    out = {key: value for key, value in arrays.items() if not key.startswith("mask")}
    for key in ("mask", "mask_test"):
        if arrays.get(key) is not None:
            lengths_key = key.replace("mask", "lengths")
            if lengths_key in out:
                raise FileFormatError(f"{where} holds {key} and {lengths_key}, which mean the same: remove one of them")
            try:
                out[lengths_key] = lengths_of_mask(key, arrays[key])
            except ConfigurationError as error:
                raise FileFormatError(f"{where}: {error}") from error
    return out


def _from_folder(path: Path) -> Source:
    names = sorted(p.name for p in path.iterdir() if p.suffix in (".npy", ".npz"))
    digest, arrays = hashlib.sha256(), {}
    if set(names) == set(_PARTS):
        for name, end in zip(_PARTS, ("", "_test")):
            digest.update(archive_digest(path / name).encode())
            for key, value in read_npz(path / name).items():
                arrays[f"{key}{end}" if key in ("x", "y", "lengths", "mask") else key] = value
    else:
        packed = [name for name in names if name.endswith(".npz")]
        if packed:
            raise FileFormatError(f"{path} holds {packed[0]}: name that file, or save train.npz and test.npz in it")
        for name in names:
            arrays[name.removesuffix(".npy")] = _array_file(path / name)
            digest.update(f"{name}{file_digest(path / name)}".encode())
    return Source(checked(arrays, str(path)), digest.hexdigest(), str(path.resolve()), f"{path.resolve().name}/")


def _array_file(path: Path) -> np.ndarray:
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
        raise FileFormatError(f"{path} is no regular file")
    return read_npy(path)


def _from_function(name: str) -> Source:
    with running_user_code(name, "cannot be used as data"):
        value = named_value(name)
        value = value() if callable(value) else value
    return _from_arrays(_by_name(value, name), name, name)


@contextmanager
def in_memory(arrays: Mapping[str, Any]) -> Iterator[str]:
    """Register arrays of this process as a source for the time of a block.

    Args:
        arrays: arrays by the names of ``KEYS``, and ``loss``.

    Yields:
        The name by which ``read_source`` finds them.
    """
    place = f"<arrays {id(arrays):x}>"
    _HELD[place] = _from_arrays(dict(arrays), place, "arrays")
    try:
        yield place
    finally:
        del _HELD[place]


def _from_arrays(entries: dict[str, Any], name: str, what: str) -> Source:
    loss = entries.pop("loss", None)
    if loss is not None and not callable(loss):
        raise ConfigurationError(f"{what}: the loss must be a function (outputs, targets) -> number")
    for part in ("", "_test"):
        rows = entries.get("x" + part)
        if isinstance(rows, (list, tuple)) and len({len(row) for row in rows}) > 1:
            entries["x" + part], entries["lengths" + part] = padded(rows)
    arrays = {key: _plain(key, value, what) for key, value in entries.items() if value is not None}
    digest = hashlib.sha256()
    for key, array in sorted(arrays.items()):
        digest.update(f"{key} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return Source(checked(arrays, what), digest.hexdigest(), name, what, loss)


def _by_name(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    if isinstance(value, (tuple, list)) and len(value) in (2, 4):
        return dict(zip(("x", "y", "x_test", "y_test"), value))
    raise ConfigurationError(
        f"{name} must return a mapping with x and y, (x, y) or (x, y, x_test, y_test), got a {type(value).__name__}"
    )


def _plain(key: str, value: Any, name: str) -> np.ndarray:
    unmasked(f"{name}: {key}", value)
    try:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigurationError(f"{name}: {key} must be an array: {' '.join(str(error).split())[:120]}") from error
    if array.dtype.kind not in "biufUS":
        raise ConfigurationError(f"{name}: {key} must hold numbers, it has dtype {array.dtype}")
    return array
