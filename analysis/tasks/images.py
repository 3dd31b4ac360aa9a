"""Images as sequences of rows, of groups of 8 pixels, or of pixels, optionally in a fixed random order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice

from .base import Task, check_size, register_task, task_of
from .folders import data_folder, embedded_data
from .idx import read_labelled_images

LAYOUTS = ("rows", "8", "pixels")
PERMUTATION_SEED = 784  # default seed of the fixed pixel order


@register_task("digits")
def digits(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    layout: str | int = "rows",
    size: int = 28,
    permuted: bool = False,
    permutation_seed: int = PERMUTATION_SEED,
    limit: int | None = None,
    test_limit: int | None = None,
) -> Task:
    """Make the task of handwritten digits (MNIST) as sequences, with pixels in [0, 1].

    Without ``data_dir``: the 4,000 + 1,000 real images that ship with the package (both out of MNIST's
    training set). With it: the standard IDX files in that folder (or in its subfolder ``mnist``).

    Args:
        data_dir: folder of ``train-images-idx3-ubyte[.gz]`` and the three other files, also of Fashion-MNIST.
        seed: seed of the choice under ``limit``.
        layout: ``"rows"`` (28 steps of 28 pixels), ``8`` or ``"8"`` (98 steps of 8), ``"pixels"`` (784 steps of 1).
        size: 28, 14 or 7; the smaller images have means of squares of 2 x 2 or 4 x 4 pixels, for quick runs.
        permuted: read the pixels in one fixed random order.
        permutation_seed: seed of that order.
        limit: largest number of training images, chosen at random with class counts as equal as possible.
        test_limit: largest number of test images, chosen in the same way.

    Returns:
        The task: 10 classes, one target per sequence.

    Raises:
        ConfigurationError: a bad option.
        FileFormatError: missing or damaged files.

    Example:
        >>> task = digits(layout="8", limit=20, test_limit=10)
        >>> tuple(task.train[0].shape), task.chance
        ((20, 98, 8), 0.1)
    """
    prepare = image_sequences(layout, size, permuted, permutation_seed)
    parts, source = _embedded() if data_dir is None else _folder(data_dir)
    rng = np.random.default_rng(seed)
    pairs = []
    for (images, labels), name, most in zip(parts, ("limit", "test_limit"), (limit, test_limit)):
        rows = _subset(labels, most, name, rng)
        pairs.append((prepare(images[rows]), torch.from_numpy(labels[rows].astype(np.int64))))
    more: dict[str, Any] = {"options": {"layout": _layout(layout)}, "data": {**source, "seed": seed}}
    return task_of(*pairs, output_size=10, bounds=(0.0, 1.0), prepare=prepare, **more)


def _layout(value: Any) -> str:
    """Return a layout by its name, given as text or number (``layout=8`` on the command line is a number).

    Raises:
        ConfigurationError: an unknown one.
    """
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return as_choice("layout", name, LAYOUTS)


def image_sequences(
    layout: str | int, size: int = 28, permuted: bool = False, permutation_seed: int = PERMUTATION_SEED
) -> Callable[[np.ndarray], Tensor]:
    """Return the function that converts images to sequences, for training, test and further images.

    Args:
        layout: one of ``LAYOUTS``.
        size: side of the images that the network sees.
        permuted: whether pixels are in a fixed random order.
        permutation_seed: seed of that order.

    Returns:
        ``prepare(images)``: ``(n, 28, 28)`` uint8 to ``(n, time, features)`` float32 in [0, 1]. Its attribute
        ``permutation`` is the order, an index array, or ``None``.

    Raises:
        ConfigurationError: a bad option.
    """
    layout = _layout(layout)
    if isinstance(size, bool) or size not in (7, 14, 28):
        raise ConfigurationError(f"size must be 28, 14 or 7, got {size!r}")
    if not isinstance(permuted, bool):
        raise ConfigurationError(f"permuted must be True or False, got {permuted!r}")
    features = {"rows": size, "8": 8, "pixels": 1}[layout]
    if size * size % features:
        raise ConfigurationError(
            f"layout {layout!r} needs a number of pixels divisible by {features}, got {size} x {size}"
        )
    check_size("permutation_seed", permutation_seed, 0, 2**63 - 1)
    order = np.random.default_rng(permutation_seed).permutation(size * size) if permuted else None

    def prepare(images: np.ndarray) -> Tensor:
        if images.ndim != 3 or images.shape[1:] != (28, 28):
            raise FileFormatError(f"images must be (n, 28, 28), got {images.shape}")
        block = 28 // size
        pixels = images.reshape(-1, size, block, size, block).mean((2, 4), dtype=np.float64) / 255.0
        flat = pixels.reshape(len(images), size * size)
        if order is not None:
            flat = flat[:, order]
        return torch.from_numpy(np.ascontiguousarray(flat, dtype=np.float32)).reshape(len(images), -1, features)

    prepare.permutation = order  # type: ignore[attr-defined]
    return prepare


def _embedded() -> tuple[Any, dict[str, Any]]:
    archive = np.load(embedded_data("mnist_small.npz"), allow_pickle=False)
    images, labels, border = archive["images"], archive["labels"], int(archive["train"])
    parts = ((images[:border], labels[:border]), (images[border:], labels[border:]))
    return parts, {"source": "embedded", "what": "MNIST, 5,000 images of the training set (CC BY-SA 3.0)"}


def _folder(data_dir: str | Path) -> tuple[Any, dict[str, Any]]:
    folder = data_folder(data_dir, "mnist")
    parts = (read_labelled_images(folder, "train"), read_labelled_images(folder, "t10k"))
    return parts, {"source": "folder", "folder": str(Path(data_dir).resolve()), "what": "IDX files"}


def _subset(labels: np.ndarray, limit: int | None, name: str, rng: np.random.Generator) -> np.ndarray:
    """Return row numbers: all, or ``limit`` with class counts that differ by at most one if the data allow it."""
    if limit is None:
        return np.arange(len(labels))
    limit = min(check_size(name, limit), len(labels))
    rank = np.empty(len(labels), dtype=np.int64)  # position of each row within its class, in random order
    shuffled = rng.permutation(len(labels))
    for c in np.unique(labels):
        rows = shuffled[labels[shuffled] == c]
        rank[rows] = np.arange(len(rows))
    return rng.permutation(shuffled[np.argsort(rank[shuffled], kind="stable")][:limit])
