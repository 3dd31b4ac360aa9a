"""Masks of the entries of an input that may change, from ``--mask FILE``."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError, FileFormatError, NonFiniteError
from stability.storage.arrays import read_npy, read_npz

Array = np.ndarray


def open_mask(path: Path, shape: tuple[int, ...] | None = None) -> Array:
    """Read the perturbation mask from a file.

    Args:
        path: a ``.npy`` file, or a ``.npz`` file whose array ``mask``, or whose only one, is meant: of true and false,
            or of ones and zeros; true or one where an entry may change.
        shape: ``(time, features)`` of the inputs; ``None`` before they are known.

    Returns:
        Boolean, of this shape.

    Raises:
        FileFormatError: missing, damaged, neither of these kinds of file, or an archive of several other arrays.
        DimensionError: another shape.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: entries that are no zeros and ones, or zeros alone.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(folder + "/m.npy", np.array([[1, 0], [0, 1]]))
        ...     open_mask(Path(folder + "/m.npy"), (2, 2))
        array([[ True, False],
               [False,  True]])
    """
    mask = _read(path)
    if mask.dtype.kind not in "biuf":
        raise ConfigurationError(f"--mask {path}: expected booleans, or ones and zeros, got {mask.dtype}")
    if shape is not None and mask.shape != shape:
        hint = "one entry for each of an input, (time, features), the same for all inputs"
        raise DimensionError(f"--mask {path}", shape, mask.shape, hint)
    if mask.dtype.kind == "f" and not np.isfinite(mask).all():
        raise NonFiniteError(f"--mask {path}")
    if not np.isin(mask, (0, 1)).all():
        raise ConfigurationError(f"--mask {path}: expected only 0 and 1 (1: the entry may change)")
    if not mask.any():
        raise ConfigurationError(f"--mask {path}: at least one entry must be 1 (may change)")
    return mask.astype(np.bool_)


def _read(path: Path) -> Array:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            raise FileFormatError(f"--mask {path} is no regular file: save a mask by numpy.save(FILE, mask)")
        with path.open("rb") as handle:
            packed = handle.read(4).startswith(b"PK")
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not packed:
        return read_npy(path)
    arrays: dict[str, Any] = read_npz(path)
    if "mask" not in arrays and len(arrays) != 1:
        held = ", ".join(ascii(key)[1:-1] for key in arrays) or "nothing"
        raise FileFormatError(f"--mask {path}: expected an array named mask, or a single array; it holds {held}")
    return arrays["mask"] if "mask" in arrays else next(iter(arrays.values()))
