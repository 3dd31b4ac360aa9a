"""CIFAR-10 as sequences, from the files of its distribution: the binary version or the one for Python."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice

from .base import Pair, Task, check_size, register_task, task_of
from .folders import check_numbers, chosen, data_folder, read_bytes
from .noise_padding import noise_padded

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LAYOUTS = ("rows", "pixels")
SIDE, CHANNELS = 32, 3
PIXELS = SIDE * SIDE
_TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
_NEEDED = """
    PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS
    SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET NONE NEWTRUE NEWFALSE INT BININT BININT1
    BININT2 LONG1 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES UNICODE BINUNICODE SHORT_BINUNICODE GLOBAL
    STACK_GLOBAL REDUCE BUILD
"""
_OPCODES = frozenset(_NEEDED.split())
_MOST_OPCODES = 10**6


@register_task("cifar10")
def cifar10(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    layout: str = "rows",
    grey: bool = False,
    limit: int | None = None,
    test_limit: int | None = None,
    padded_to: int | None = None,
) -> Task:
    """CIFAR-10 (Krizhevsky 2009) as sequences, colours in [0, 1].

    The binary version is read as it is. The batches of the Python version are pickles: no function or class that they
    name is ever looked up. The four names that a batch needs mean inert stand-ins, every other name, and every
    instruction that a batch does not need, is refused before anything is made.

    Args:
        data_dir: folder with ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``, or the same names
            without an ending (or one with a subfolder ``cifar-10-batches-bin`` or ``cifar-10-batches-py``).
        seed: of the choice under the limits.
        layout: ``"rows"`` (32 steps of 32 pixels) or ``"pixels"`` (1,024 steps of one pixel); a pixel is three
            features, its colours.
        grey: one feature a pixel, its luminance ``0.299 R + 0.587 G + 0.114 B`` (Rec. 601).
        limit: how many training images at most, drawn at random.
        test_limit: the same for the test images.
        padded_to: as many steps, those behind the image independent standard Gaussian noise, drawn once: with 1,000
            and ``rows`` the noise-padded CIFAR-10 of B. Chang and others (2019), a limited part of it.

    Returns:
        The task: 10 classes, one target per sequence.

    Raises:
        ConfigurationError: a bad option, or no folder.
        FileFormatError: missing or damaged files.
    """
    as_choice("layout", layout, LAYOUTS)
    if not isinstance(grey, bool):
        raise ConfigurationError(f"grey must be True or False, got {grey!r}")
    place = data_folder(
        data_dir, "cifar10", "the batches of CIFAR-10, binary or Python", "cifar-10-batches-bin", "cifar-10-batches-py"
    )
    binary = (place / "test_batch.bin").is_file()
    rng = np.random.default_rng(seed)
    parts: list[Pair] = []
    for names, name, most in ((_TRAIN, "limit", limit), (("test_batch",), "test_limit", test_limit)):
        read = [_binary(place / f"{n}.bin") if binary else _python(place / n) for n in names]
        images, labels = (np.concatenate(column) for column in zip(*read))
        rows = chosen(len(labels), None if most is None else check_size(name, most), name, rng)
        x = _sequences(images[rows[:1]], layout, grey)
        check_numbers(place, len(rows), max(padded_to or 0, x.shape[1]), x.shape[2])
        x = noise_padded(_sequences(images[rows], layout, grey), padded_to, rng)
        parts.append((x, torch.from_numpy(labels[rows].astype(np.int64))))
    what = "binary version" if binary else "Python version"
    source = {"source": "folder", "folder": str(Path(place).resolve()), "what": f"CIFAR-10, {what}", "seed": seed}
    bounds = (0.0, 1.0) if padded_to is None else None  # noise has none
    return task_of(*parts, output_size=10, bounds=bounds, classes=CLASSES, data=source)


def _sequences(images: np.ndarray, layout: str, grey: bool) -> torch.Tensor:
    """``(n, 3072)`` bytes, colour by colour, to ``(n, time, features)``."""
    pixels = images.reshape(-1, CHANNELS, PIXELS).swapaxes(1, 2).astype(np.float32) / np.float32(255)
    if grey:
        pixels = pixels @ np.array([[0.299], [0.587], [0.114]], dtype=np.float32)
        pixels = np.clip(pixels, 0.0, 1.0)
    steps = SIDE if layout == "rows" else PIXELS
    return torch.from_numpy(np.ascontiguousarray(pixels.reshape(len(images), steps, -1)))


def _checked(path: Path, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if labels.size == 0 or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise FileFormatError(f"{path}: labels must be 0 to 9, and there must be some")
    return images, labels


def _binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Records of a label and 3,072 bytes."""
    body, record = read_bytes(path), 1 + CHANNELS * PIXELS
    if not body or len(body) % record:
        raise FileFormatError(f"{path} has {len(body)} bytes, no whole number of records of {record}")
    table = np.frombuffer(body, dtype=np.uint8).reshape(-1, record)
    return _checked(path, table[:, 1:], table[:, 0])


class _Array:
    """What a pickled array says of itself; nothing is computed with it."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Array):
    def __init__(self, *code: Any) -> None:
        super().__init__()
        self.code = code[0] if code else None


class _Bytes(_Array):
    """Bytes as Python 3 writes them for Python 2: ``encode(text, "latin1")``."""

    def __new__(cls, text: Any = None, coding: Any = None) -> Any:
        if not isinstance(text, str) or coding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("bytes of an unknown coding")
        return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Bytes,
}


class _Inert(pickle.Unpickler):
    """Reads containers, numbers, texts, bytes and arrays; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module[:60]}.{name[:60]}, which no batch has")
        return _STAND_INS[module, name]


def _check_opcodes(body: bytes) -> None:
    """Refuse instructions that no batch has, and places in the memo that would take memory by themselves."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(body)):
        if opcode.name not in _OPCODES:
            raise pickle.UnpicklingError(f"the instruction {opcode.name}, which no batch has")
        if count > _MOST_OPCODES or ("PUT" in opcode.name and int(argument or 0) > _MOST_OPCODES):
            raise pickle.UnpicklingError("more parts than a batch has")


def _python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A pickled dictionary with ``data (n, 3072)`` bytes and a list of ``labels``."""
    body = read_bytes(path)
    try:
        _check_opcodes(body)
        batch = _Inert(io.BytesIO(body), encoding="bytes").load()
    except Exception as error:  # a pickle may fail in any way; it has called nothing but the stand-ins
        raise FileFormatError(f"{path} is no batch of CIFAR-10: {str(error)[:200]}") from error
    entries = batch.items() if type(batch) is dict else ()
    found = {k.decode("latin-1") if isinstance(k, bytes) else k: v for k, v in entries}
    state: Any = getattr(found.get("data"), "state", None)
    labels: Any = found.get("labels")
    good = isinstance(state, tuple) and len(state) == 5 and isinstance(labels, list)
    if not good or not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels):
        raise FileFormatError(f"{path} is no batch of CIFAR-10: it must be a dictionary with data and labels, 0 to 9")
    _, shape, kind, fortran, raw = state
    if getattr(kind, "code", None) not in ("u1", b"u1") or shape != (len(labels), CHANNELS * PIXELS):
        raise FileFormatError(f"{path}: data must be bytes of the shape ({len(labels)}, {CHANNELS * PIXELS})")
    if not isinstance(raw, bytes) or len(raw) != len(labels) * CHANNELS * PIXELS:
        raise FileFormatError(f"{path}: data do not have the bytes that their shape says")
    images = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
    return _checked(path, images, np.array(labels, dtype=np.int64))
