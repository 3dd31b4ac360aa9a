"""Tensors and settings of checkpoints: a folder, a file, or a file in shards; tensors are read one at a time."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import FileFormatError, NonFiniteError, UnsupportedError
from stability.storage.archives import archive_members
from stability.storage.arrays import read_npz
from stability.storage.documents import parse_json, read_json
from stability.storage.read_errors import as_file_errors

from ..readers.checkpoints import read_torch_file
from ..readers.safetensors import read_tensors, tensor_names

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
NAMES = ("model.safetensors", "pytorch_model.bin")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz")
CONFIG = "config.json"
CONFIG_BYTES = 2**24
"""Most bytes of ``config.json``; published ones have a few thousand."""
NESTING = 4
"""Most levels of dictionaries around the tensors of a file."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Types that float64 or complex128 represents exactly. Integers and 8-bit floats are codes of a quantization."""
_INFINITY = re.compile(rb"(?<=[\[\s:,])(-?Infinity|NaN)(?=[\s,\]}])")
ALL = slice(None)
Read = Callable[..., np.ndarray]
"""Function that reads a tensor, or the rows ``slice`` of it."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings in ``config.json``, or an empty dictionary where there is none.

    Raises:
        FileFormatError: damaged, too large, or no JSON object.
    """
    path = folder / CONFIG
    with as_file_errors(path):
        if not path.exists():
            return {}
        if not path.is_file() or path.stat().st_size > CONFIG_BYTES:
            raise FileFormatError(f"{path} is no regular file of at most {CONFIG_BYTES} bytes")
        raw = _INFINITY.sub(rb'"\1"', path.read_bytes())  # transformers writes time_step_limit as [0.0, Infinity]
    document = parse_json(raw, path)
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} must hold a JSON object, got {type(document).__name__}")
    return document


def find_files(path: Path) -> tuple[Path, list[Path]]:
    """Return the folder of a checkpoint and its files of tensors.

    Raises:
        FileFormatError: nothing there, several files without an index, or an index that names files elsewhere.
    """
    with as_file_errors(path):
        if not path.is_dir():
            return path.parent, [path]
        index = next((path / name for name in INDEXES if (path / name).exists()), None)
        found = [path / name for name in NAMES if (path / name).exists()][:1]
        found = found or sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES)
    if index is not None:
        document = read_json(index)
        shards = document.get("weight_map") if isinstance(document, dict) else None
        if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
            raise FileFormatError(f"{index} has no weight_map from tensor names to file names")
        names = sorted(set(shards.values()))
        odd = next((name for name in names if Path(name).name != name or Path(name).suffix not in SUFFIXES), None)
        if odd is not None:
            raise FileFormatError(f"{index} names {odd[:60]!a}, which is no file of tensors in its folder")
        return path, [path / name for name in names]
    if len(found) != 1:
        raise FileFormatError(f"{path} holds {len(found)} files of tensors and no index: name one of them")
    return path, found


def stored_tensors(files: list[Path]) -> dict[str, Read]:
    """Return a function for every tensor of the files that reads it, by its name with dots between the parts.

    Raises:
        FileFormatError: damaged files, files of another kind, or a name that stands twice.
    """
    tensors: dict[str, Read] = {}
    for path in files:
        for name, read in _tensors_of(path):
            name = name.replace("/", ".").replace(".forget_gate.", ".")
            if tensors.setdefault(name, read) is not read:
                raise FileFormatError(f"{path} holds {name[:60]!a}, which stands twice")
    return tensors


def _tensors_of(path: Path) -> Iterator[tuple[str, Read]]:
    if path.suffix == ".safetensors":
        for name in tensor_names(path):
            yield name, partial(_from_safetensors, path, name)
    elif path.suffix == ".npz":
        for name, array in read_npz(path).items():
            yield name, partial(_as_numbers, array, name)
    else:
        with as_file_errors(path):
            is_archive = zipfile.is_zipfile(path)
        content = read_torch_file(path, archive_members(path) if is_archive else None)
        if not isinstance(content, Mapping):
            raise FileFormatError(f"{path} holds no dictionary of tensors: save model.state_dict()")
        for name, tensor in _leaves(content):
            yield name, partial(_as_numbers, tensor, name)


def _leaves(content: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, (Tensor, np.ndarray)):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping) and depth < NESTING:
            yield from _leaves(value, f"{prefix}{key}.", depth + 1)


def _from_safetensors(path: Path, name: str, rows: slice = ALL) -> np.ndarray:
    return _as_numbers(read_tensors(path, [name])[name], name, rows)


def _as_numbers(value: Any, name: str, rows: slice = ALL) -> np.ndarray:
    """Return rows of a tensor in float64 or complex128, exactly.

    Raises:
        UnsupportedError: integers or codes of a quantization.
        FileFormatError: no dense tensor, or more numbers than the file holds.
        NonFiniteError: NaN or infinite entries.
    """
    tensor = torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) and value.dtype.kind in "fciu" else value
    if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided or tensor.is_meta:
        raise FileFormatError(f"{name[:100]!a} is no dense tensor of numbers")
    if tensor.dtype not in DTYPES:
        raise UnsupportedError(f"{name[:100]!a} is stored as {tensor.dtype}: give the checkpoint before quantization")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise FileFormatError(f"{name[:100]!a} claims {tuple(tensor.shape)}, more numbers than the file holds")
    tensor = tensor[rows] if tensor.ndim else tensor
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    array = tensor.detach().to(wide).resolve_conj().numpy()
    if not np.isfinite(array).all():
        raise NonFiniteError(name[:100])
    return array
