"""Systems as ``.npz`` files of plain arrays, read without trusting what their headers claim."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stability.activations import activation
from stability.errors import DimensionError, FileFormatError
from stability.systems import DrivenSystem, LureSystem

__all__ = ["KEYS", "npz_subject", "read_npz"]

KEYS = ("A", "B", "C", "W", "D", "slope", "dt", "E", "U", "b", "F", "activation")
MAX_BYTES = 512 * 1024**2
_ONLY_WITH = {
    ("W", "C"): ("B", "D", "slope", "U", "E", "b", "F", "activation"),
    ("U", "E"): ("b", "F", "activation"),
}
"""What would be dropped in silence without one of the names on the left."""
_DAMAGED = (
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    RuntimeError,
    SyntaxError,
    MemoryError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
)


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an archive, each header checked against the bytes behind it before memory is taken.

    Raises:
        FileFormatError: missing, damaged, too large, pickled, with a member twice, or a header that claims more or less
            than the file holds.
    """
    out = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [m.filename for m in members]
            odd = [n for n in names if not n.endswith(".npy") or names.count(n) > 1]
            if odd:
                what = "twice" if odd[0].endswith(".npy") else "which is no array"
                raise FileFormatError(f"{path} holds {odd[0]!a}, {what}")
            if sum(m.file_size for m in members) > MAX_BYTES:
                raise FileFormatError(f"{path} claims more than {MAX_BYTES // 1024**2} MiB of arrays")
            for member in members:
                name = member.filename[: -len(".npy")]
                with archive.open(member) as handle:
                    out[name] = _read_array(handle, member.file_size, f"{ascii(name)[1:-1]} in {path}")
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except FileFormatError:
        raise
    except _DAMAGED as error:
        raise FileFormatError(f"{path} is not a whole .npz file of plain arrays ({error})") from error
    return out


def _read_array(handle: Any, size: int, where: str) -> np.ndarray:
    version = np.lib.format.read_magic(handle)
    if version not in ((1, 0), (2, 0)):
        raise FileFormatError(f"{where} has .npy version {version}, which is not read here")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(handle)
    if dtype.hasobject:
        raise FileFormatError(f"{where} holds pickled objects, which are never read here")
    count = int(np.prod([int(s) for s in shape], dtype=object)) if shape else 1
    if count < 0 or count * dtype.itemsize > size:
        raise FileFormatError(f"{where} claims the shape {shape}, more than the {size} bytes of the file hold")
    raw = handle.read(count * dtype.itemsize)
    if len(raw) != count * dtype.itemsize:
        raise FileFormatError(f"{where} is truncated")
    if handle.read(1):
        raise FileFormatError(f"{where} holds more bytes than its shape {shape} needs")
    flat = np.frombuffer(raw, dtype=dtype, count=count)
    return flat.reshape(shape, order="F" if fortran else "C")


def npz_subject(arrays: Mapping[str, np.ndarray], where: str = "the archive") -> LureSystem | DrivenSystem:
    """A system from its matrices; a network where the input matrix is there too.

    ``dx/dt (x+) = A x + B phi(W x + D w + U u + b) + F u``. ``B`` is the identity by default, ``C`` another name of
    ``W``, ``E`` of ``U``; without ``dt`` (or with NaN) time is continuous; without ``W`` the system is linear.
    ``activation`` is ``tanh`` by default, and has a meaning for a network only: without ``U`` the claim is about every
    activation with the slopes ``slope``.

    Args:
        arrays: by name, as in ``KEYS``.
        where: what errors call it.

    Returns:
        A ``LureSystem``, or a ``DrivenSystem`` where ``U`` (or ``E``) is given.

    Raises:
        FileFormatError: missing, doubled or unknown names, or one that would have no effect.
        StabilityError: matrices that make no system.

    Example:
        >>> npz_subject({"A": -np.eye(2), "W": np.ones((2, 2))}).channels
        2
    """
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown or "A" not in arrays or {"W", "C"} <= set(arrays) or {"U", "E"} <= set(arrays):
        raise FileFormatError(
            f"{where} must hold A and W, optionally B, D, slope, dt, U, b, F, activation; it holds "
            f"{', '.join(ascii(name)[1:-1] for name in arrays) or 'nothing'}"
        )
    for needed, names in _ONLY_WITH.items():
        idle = [name for name in names if name in arrays]
        if idle and not set(needed) & set(arrays):
            raise FileFormatError(
                f"{where}: without {needed[0]} there is no effect of {', '.join(idle)}: add {needed[0]} or leave that "
                "out"
            )
    A, C, E = arrays["A"], arrays.get("W", arrays.get("C")), arrays.get("U", arrays.get("E"))
    dt = arrays.get("dt")
    if dt is not None:
        if dt.size != 1 or dt.dtype.kind not in "fiu":
            raise FileFormatError(f"{where}: dt must be one number, it has shape {dt.shape} and dtype {dt.dtype}")
        dt = None if np.isnan(dt.item()) else dt.item()
    if C is None:
        return LureSystem.linear(A, dt)
    B = arrays.get("B", np.eye(A.shape[0]) if A.ndim == 2 and A.shape[0] == A.shape[1] else A)
    if A.ndim == 2 and A.shape[0] == A.shape[1] and A.size and B.ndim == 2 and C.shape != (B.shape[1], A.shape[0]):
        own = "W" if "W" in arrays else "C"
        columns = "column of B" if "B" in arrays else "row of A, for there is no B"
        raise DimensionError(own, (B.shape[1], A.shape[0]), C.shape, f"it has a row for each {columns}")
    name = _activation(arrays.get("activation"), where)
    slope = arrays.get("slope")
    if slope is None and E is not None:
        slope = activation(name).slope
    system = LureSystem(A, B, C, arrays.get("D"), (0.0, 1.0) if slope is None else slope, dt)
    return system if E is None else DrivenSystem(system, name, E, arrays.get("b"), arrays.get("F"), name=where)


def _activation(value: np.ndarray | None, where: str) -> str:
    if value is None:
        return "tanh"
    if value.size != 1 or value.dtype.kind not in "US":
        raise FileFormatError(
            f"{where}: activation must be one name, the same for every channel; it has shape {value.shape} and dtype "
            f"{value.dtype}"
        )
    name = value.reshape(-1)[0]
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
