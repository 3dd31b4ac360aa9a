"""Lower limits (floors) of the steps of a checkpoint's layers, in ``floors.json`` beside its weights.

The tensors of the checkpoint stay as they are. A program that runs the checkpoint without the floors computes another
function, about which certificates of the floored checkpoint say nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.documents import read_json
from stability.storage.writing import write_text

from .layer_weights import FLOOR
from .stored_tensors import ALL, CONFIG, Read, find_files

FILE, FORMAT, VERSION = "floors.json", "stability-floors", 1
NOTE = (
    "floors[PATH] holds one number per channel or head of the recurrent layer PATH. Its step is "
    "dt = max(floor, softplus(p)), in the decay and in the injected value. The floors and all certificates made with "
    "them hold only for a program that applies them."
)


def floor_tensors(folder: Path, tensors: Mapping[str, Read]) -> dict[str, Read]:
    """Return readers of the floors in ``floors.json``, by the names ``PATH.dt_floor``; none without such a file.

    Raises:
        FileFormatError: a damaged file, negative or infinite numbers, or a layer that the checkpoint does not have.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    document = read_json(path)
    floors = document.get("floors") if isinstance(document, dict) else None
    if not isinstance(floors, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise FileFormatError(f"{path} is no file of floors in format version {VERSION}")
    found: dict[str, Read] = {}
    for layer, values in floors.items():
        array = _as_floors(values)
        name = f"{layer}.{FLOOR}" if layer else FLOOR
        if array is None or name in tensors or name.removesuffix(FLOOR) + "A_log" not in tensors:
            raise FileFormatError(f"{path}: {layer[:100]!a} is no layer with steps, or its floors are no numbers >= 0")
        found[name] = partial(_rows, array)
    return found


def _as_floors(values: object) -> np.ndarray | None:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and (np.isfinite(array) & (array >= 0.0)).all() else None


def _rows(array: np.ndarray, rows: slice = ALL) -> np.ndarray:
    return array[rows]


def write_floored(checkpoint: str | Path, out: str | Path, floors: Mapping[str, np.ndarray], quantile: float) -> Path:
    """Copy the weights and settings of a checkpoint, with floors beside them.

    Args:
        checkpoint: folder or file.
        out: folder that is made; an existing one must be empty.
        floors: floors of the layers, by their paths.
        quantile: quantile of the steps on data that the floors are.

    Returns:
        The folder.

    Raises:
        ConfigurationError: ``out`` holds files.
    """
    source, out = Path(checkpoint), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"{out} exists and is no empty folder: name another one")
    folder, files = find_files(source)
    out.mkdir(parents=True, exist_ok=True)
    extra = [entry for entry in folder.iterdir() if entry.suffix in (".json", ".txt", ".model") and entry.is_file()]
    names = extra if source.is_dir() else [entry for entry in extra if entry.name == CONFIG]
    for file in {*files, *names} - {folder / FILE}:
        shutil.copy2(file, out / file.name)
    rounded = {path: np.asarray(values, np.float32).astype(float).tolist() for path, values in floors.items()}
    document = {"format": FORMAT, "version": VERSION, "note": NOTE, "quantile": quantile, "floors": rounded}
    write_text(out / FILE, json.dumps(document, indent=1) + "\n")
    return out
