"""Systems stored as ``.npz`` files of plain arrays."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stability.conversion.reservoirs import reservoir_system
from stability.errors import DimensionError, FileFormatError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.storage.archives import archive_members
from stability.storage.limits import NUMBERS
from stability.storage.read_errors import as_file_errors

KEYS = ("A", "B", "C", "W", "D", "slope", "dt", "E", "U", "b", "F", "activation")
RESERVOIR = ("W", "Win", "bias", "leak", "activation", "equation", "Wout", "bout")
_HEADER = 10_000
_PIECE = 2**20
_ONLY_WITH = {("W", "C"): ("B", "D", "slope", "U", "E", "b", "F", "activation"), ("U", "E"): ("b", "F", "activation")}
"""Arrays that would be dropped silently without one of the names on the left."""
_DAMAGED = (
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    RuntimeError,
    SyntaxError,
    MemoryError,
    zlib.error,
    zipfile.BadZipFile,
)


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an archive; each header is checked against its bytes before memory is allocated.

    Raises:
        FileFormatError: missing, damaged, too large, pickled, with a member twice or over another, or a header that
            claims more or less than the file holds.
    """
    members = archive_members(path)
    stray = next((m.filename for m in members if not m.filename.endswith(".npy")), None)
    if stray is not None:
        raise FileFormatError(f"{path} holds {stray[:60]!a}, which is not a .npy array")
    out: dict[str, np.ndarray] = {}
    remaining = NUMBERS
    with as_file_errors(path, "is no whole .npz file of plain arrays", _DAMAGED), zipfile.ZipFile(path) as archive:
        for member in members:
            name = member.filename[: -len(".npy")]
            with archive.open(member) as handle:
                out[name] = _read_array(handle, member.file_size, remaining, f"{ascii(name[:60])[1:-1]} in {path}")
            remaining -= out[name].size
    return out


def read_npy(path: str | Path) -> np.ndarray:
    """Return the array of a ``.npy`` file, with the header checks of an archive's member.

    Raises:
        FileFormatError: missing, damaged, too large, pickled, or of another size than its header claims.
    """
    with as_file_errors(path, "is no whole .npy file of a plain array", _DAMAGED), Path(path).open("rb") as handle:
        return _read_array(handle, Path(path).stat().st_size, NUMBERS, str(path))


def is_state_dict(names: Iterable[str]) -> bool:
    """Return True if the names of an archive are weights of a recurrent layer rather than matrices."""
    return any("weight_hh" in name or "recurrent_kernel" in name for name in names)


def npz_system(path: str | Path) -> LureSystem | DrivenSystem | None:
    """Return the system of a ``.npz`` of matrices without importing torch, see ``npz_subject``.

    Args:
        path: any file.

    Returns:
        The system; ``None`` where the file is anything else.

    Raises:
        FileFormatError: an archive that is damaged, or holds arrays that are neither matrices nor weights.
        StabilityError: matrices that make no system.
    """
    if not zipfile.is_zipfile(path):
        return None
    names = [member.filename for member in archive_members(path)]
    if not names or not all(name.endswith(".npy") for name in names) or is_state_dict(names):
        return None
    return npz_subject(read_npz(path), str(path))


def _read_array(handle: Any, size: int, room: int, where: str) -> np.ndarray:
    """Read one array.

    Args:
        handle: at the beginning of the member.
        size: declared unpacked size of the member in bytes.
        room: numbers that may still be read.
        where: name of the source in error messages.

    Raises:
        FileFormatError: no array of numbers or names, too many of them, or another number of bytes than they need.
    """
    shape, fortran, dtype = _read_header(handle, where)
    count = math.prod(shape)
    if count * dtype.itemsize > size:
        raise FileFormatError(
            f"{where} is truncated: its shape {str(shape)[:60]} needs more than the {size} bytes in the file"
        )
    if count > room or count * dtype.itemsize > 8 * room:
        raise FileFormatError(f"{where} has {count} numbers; the arrays of an archive may hold {NUMBERS} in total")
    flat = np.empty(count, dtype=dtype)
    raw, filled = memoryview(flat.view(np.uint8).data) if flat.nbytes else memoryview(b""), 0
    while filled < flat.nbytes:  # in pieces: nothing is copied twice, and a false claim costs what is there
        piece = handle.read(min(flat.nbytes - filled, _PIECE))
        if not piece:
            raise FileFormatError(f"{where} is truncated")
        raw[filled : filled + len(piece)] = piece
        filled += len(piece)
    if handle.read(1):
        raise FileFormatError(f"{where} holds more bytes than its shape {str(shape)[:60]} needs")
    flat.setflags(write=False)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _read_header(handle: Any, where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, order and type of an array of numbers or names."""
    version = np.lib.format.read_magic(handle)
    if version not in ((1, 0), (2, 0)):
        raise FileFormatError(f"{where} has .npy version {version}; versions 1.0 and 2.0 can be read")
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(head := handle.read(width), "little")
    if length > _HEADER:
        raise FileFormatError(f"{where} has a header of {length} bytes; the limit is {_HEADER}")
    header = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(io.BytesIO(head + handle.read(length)))
    if dtype.hasobject:
        raise FileFormatError(f"{where} holds pickled objects, which are refused: save plain arrays of numbers")
    if dtype.kind not in "biufcUS" or dtype.itemsize > 4 * _HEADER:
        raise FileFormatError(f"{where} must hold numbers or names, got entries of type {str(dtype)[:60]}")
    if any(s < 0 for s in shape):
        raise FileFormatError(f"{where} has a negative size in its shape {str(shape)[:60]}")
    return shape, fortran, dtype


def npz_subject(arrays: Mapping[str, np.ndarray], where: str = "the archive") -> LureSystem | DrivenSystem:
    """Return a system from its matrices; a network if the input matrix exists too.

    ``dx/dt (x+) = A x + B phi(W x + D w + U u + b) + F u``. ``B`` is the identity by default, ``C`` another name of
    ``W``, ``E`` of ``U``; without ``dt`` (or with NaN) time is continuous; without ``W`` the system is linear.
    ``activation`` is ``tanh`` by default, and has a meaning for a network only: without ``U`` the claim is about every
    activation with the slopes ``slope``. With ``Win`` it is a reservoir instead, ``h+ = (1 - leak) h + leak phi(W h +
    Win u + bias)``, of ``W``, ``Win``, optionally ``bias``, ``leak``, ``activation``, ``equation``: see
    ``reservoir_system``. With ``Wout (p, n)``, optionally ``bout``, the input is the reservoir's output, ``u = Wout h +
    bout``: the free-running loop.

    Args:
        arrays: arrays by the names of ``KEYS``.
        where: name of the source in error messages.

    Returns:
        A ``LureSystem``, or a ``DrivenSystem`` where ``U`` (or ``E``) is given.

    Raises:
        DimensionError: ``C`` of another shape than ``A`` and ``B`` ask for.
        FileFormatError: missing, doubled or unknown names, or one that would have no effect.
        StabilityError: matrices that make no system.

    Example:
        >>> npz_subject({"A": -np.eye(2), "W": np.ones((2, 2))}).channels
        2
    """
    if "Win" in arrays:
        return _reservoir(arrays, where)
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown or "A" not in arrays or {"W", "C"} <= set(arrays) or {"U", "E"} <= set(arrays):
        raise FileFormatError(
            f"{where} must hold A and W (or A, B and C), optionally B, D, slope, dt, U, b, F, activation; it holds "
            f"{', '.join(ascii(name)[1:-1] for name in arrays) or 'nothing'}"
        )
    for needed, names in _ONLY_WITH.items():
        unused = [name for name in names if name in arrays]
        if unused and not set(needed) & set(arrays):
            raise FileFormatError(
                f"{where}: {', '.join(unused)} needs {' or '.join(needed)}: add it, or leave {', '.join(unused)} out"
            )
    A, C, E = arrays["A"], arrays.get("W", arrays.get("C")), arrays.get("U", arrays.get("E"))
    dt = arrays.get("dt")
    if dt is not None:
        if dt.size != 1 or dt.dtype.kind not in "fiu":
            raise FileFormatError(f"{where}: dt must be one number, got shape {dt.shape} and dtype {dt.dtype}")
        dt = None if np.isnan(dt.item()) else dt.item()
    if C is None:
        return LureSystem.linear(A, dt)
    B = arrays.get("B", np.eye(A.shape[0]) if A.ndim == 2 and A.shape[0] == A.shape[1] else A)
    if A.ndim == 2 and A.shape[0] == A.shape[1] and A.size and B.ndim == 2 and C.shape != (B.shape[1], A.shape[0]):
        label = "W" if "W" in arrays else "C"
        columns = "column of B" if "B" in arrays else "row of A, since there is no B"
        raise DimensionError(label, (B.shape[1], A.shape[0]), C.shape, f"it needs one row for each {columns}")
    name = _activation(arrays.get("activation"), where)
    slope = arrays.get("slope")
    if slope is None and E is not None:
        slope = activation(name).slope
    system = LureSystem(A, B, C, arrays.get("D"), (0.0, 1.0) if slope is None else slope, dt)
    return system if E is None else DrivenSystem(system, name, E, arrays.get("b"), arrays.get("F"), name=where)


def _reservoir(arrays: Mapping[str, np.ndarray], where: str) -> DrivenSystem:
    """Return an echo state network from the arrays of common libraries."""
    if set(arrays) - set(RESERVOIR) or "W" not in arrays:
        raise FileFormatError(
            f"{where} with Win (a reservoir) must hold W, optionally {', '.join(RESERVOIR[2:])}; it holds "
            f"{', '.join(ascii(name)[1:-1] for name in arrays)}"
        )
    for name in ("bias", "leak", "bout"):
        if name in arrays and arrays[name].dtype.kind not in "fiu":
            raise FileFormatError(f"{where}: {name} must hold real numbers, got dtype {arrays[name].dtype}")
    equation = _activation(arrays["equation"], where) if "equation" in arrays else "internal"
    return reservoir_system(
        arrays["W"], arrays["Win"], arrays.get("bias"), leak=arrays.get("leak", 1.0), Wout=arrays.get("Wout"),
        bout=arrays.get("bout", 0.0), activation=_activation(arrays.get("activation"), where), equation=equation,
        name=where,
    )  # fmt: skip


def _activation(value: np.ndarray | None, where: str) -> str:
    if value is None:
        return "tanh"
    if value.size != 1 or value.dtype.kind not in "US":
        raise FileFormatError(
            f"{where}: activation must be one name for all channels, got shape {value.shape} and dtype {value.dtype}"
        )
    name = value.reshape(-1)[0]
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
