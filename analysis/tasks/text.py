"""Next-character prediction on any text file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError

from .base import Pair, Task, check_fraction, check_size, register_task, task_of

MAX_BYTES = 64 * 2**20
MAX_SYMBOLS = 256


@register_task("characters")
def characters(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    file: str | None = None,
    steps: int = 64,
    limit: int = 4000,
    test_limit: int = 1000,
    test_fraction: float = 0.1,
) -> Task:
    """Predict the next character of a text, at every step; characters are one-hot.

    The last ``test_fraction`` of the text is the test part; both are cut into pieces of ``steps`` characters
    that do not overlap, of which ``limit`` and ``test_limit`` are chosen at random. The alphabet is that of
    the whole file.

    Args:
        data_dir: folder with one ``.txt`` file (UTF-8), or the file itself.
        seed: of the choice of pieces.
        file: its name, when the folder has several.
        steps: length of a piece.
        limit: how many training pieces at most.
        test_limit: how many test pieces at most.
        test_fraction: which share of the text is for testing.

    Returns:
        The task: one class per step; chance is the share of the most frequent character.

    Raises:
        ConfigurationError: a bad option, no folder, or several texts to choose from.
        FileFormatError: no text, not UTF-8, too long, too short, or more than 256 different characters.
    """
    check_size("steps", steps)
    check_size("limit", limit)
    check_size("test_limit", test_limit)
    check_fraction("test_fraction", test_fraction)
    if data_dir is None:
        raise ConfigurationError("task 'characters' needs data_dir, a folder with a .txt file")
    path = _find(Path(data_dir), file)
    text = _read(path)
    alphabet = sorted(set(text))
    if len(alphabet) > MAX_SYMBOLS:
        raise FileFormatError(f"{path} has {len(alphabet)} different characters; at most {MAX_SYMBOLS} are handled")
    code = {c: i for i, c in enumerate(alphabet)}
    codes = np.fromiter((code[c] for c in text), dtype=np.int64, count=len(text))
    border = len(codes) - int(len(codes) * test_fraction)
    rng = np.random.default_rng(seed)
    train = _pieces(path, codes[:border], steps, limit, len(alphabet), rng)
    test = _pieces(path, codes[border:], steps, test_limit, len(alphabet), rng)
    source = {"source": "folder", "folder": str(Path(data_dir).resolve()), "what": path.name}
    return task_of(
        train,
        test,
        output_size=len(alphabet),
        bounds=(0.0, 1.0),
        data={**source, "alphabet": "".join(alphabet), "seed": seed},
    )


def _find(place: Path, file: str | None) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is neither a folder nor a file")
    if file is not None:
        return place / file
    found = sorted(place.glob("*.txt"))
    if not found:
        raise FileFormatError(f"{place} has no .txt file")
    if len(found) > 1:
        raise ConfigurationError(
            f"{place} has several texts; choose one with file=: {', '.join(p.name for p in found[:8])}"
        )
    return found[0]


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise FileFormatError(f"{path} is no regular file")
        if path.stat().st_size > MAX_BYTES:
            raise FileFormatError(f"{path} has {path.stat().st_size} bytes; at most {MAX_BYTES} are read")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _pieces(path: Path, codes: np.ndarray, steps: int, limit: int, symbols: int, rng: np.random.Generator) -> Pair:
    count = (len(codes) - 1) // steps
    if count < 1:
        raise FileFormatError(
            f"{path} is too short: a part of it has {len(codes)} characters, a piece needs {steps + 1}"
        )
    starts = steps * rng.permutation(count)[:limit]
    windows = codes[starts[:, None] + np.arange(steps + 1)]
    x = np.eye(symbols, dtype=np.float32)[windows[:, :-1]]
    return torch.from_numpy(x), torch.from_numpy(windows[:, 1:].copy())
