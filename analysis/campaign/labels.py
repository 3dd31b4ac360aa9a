"""Display names and folder names of models given as paths."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path


def titles_for(paths: Sequence[str]) -> list[str]:
    """Return display names of models given as paths: the last part of the path, numbered when already used.

    Example:
        >>> titles_for(["runs/a/lstm", "nets/my cell.npz", "runs/b/lstm"])
        ['lstm', 'my cell', 'lstm (2)']
    """
    out: list[str] = []
    for path in paths:
        name = Path(path).name
        name = Path(path).resolve().name if name in ("", "..") else name
        stem = name.removesuffix(".safetensors").removesuffix(".npz") or "model"
        out.append(_numbered(stem, " ({})", lambda title: title in out))
    return out


def names_for(paths: Sequence[str]) -> list[str]:
    """Return folder names of models given as paths: ASCII letters, digits, ``-`` and ``_``.

    Unique also where the file system takes upper and lower case for the same.

    Example:
        >>> names_for(["runs/a/lstm", "nets/../my cell.npz", "runs/b/LSTM", '"><script>', "模型"])
        ['lstm', 'my-cell', 'LSTM-2', 'script', 'model']
    """
    out: list[str] = []
    for title in titles_for(paths):
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r" \(\d+\)$", "", title))[:40].strip("-") or "model"
        out.append(_numbered(stem, "-{}", lambda name: name.lower() in [n.lower() for n in out]))
    return out


def _numbered(stem: str, ending: str, is_taken: Callable[[str], bool]) -> str:
    """Return the first unused name among the stem and the stem with 2, 3, ..."""
    names = itertools.chain([stem], (stem + ending.format(count) for count in itertools.count(2)))
    return next(name for name in names if not is_taken(name))
