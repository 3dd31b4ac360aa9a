"""Sequences of tokens for language models: from arrays, or from a text by a tokenizer or by its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.storage.arrays import read_npz

from .folders import read_bytes, read_text

STEPS = 256
"""Tokens of a sequence that is cut from a text."""
BYTES = 256
"""Size of the vocabulary of all bytes."""


def read_tokens(
    path: str | Path, vocabulary: int, *, steps: int = STEPS, tokenizer: str | Path | None = None
) -> Tensor:
    """Read sequences of tokens.

    Args:
        path: a ``.npz`` file with one array of integers ``(n, time)``, or a text.
        vocabulary: number of tokens that the model knows.
        steps: tokens per sequence cut from a text; the remainder is dropped.
        tokenizer: file ``tokenizer.json`` for a text, read by the package ``tokenizers``. Without it a token is a byte,
            for models with at most 256 tokens.

    Returns:
        ``(n, time)`` int64.

    Raises:
        FileFormatError: a file that cannot be read, or tokens that the model does not know.
        ConfigurationError: a text that is too short, or a tokenizer for an array.
        UnsupportedError: a text for a model with more than 256 tokens without a tokenizer, or no ``tokenizers``.

    Example:
        >>> import tempfile
        >>> file = tempfile.mkdtemp() + "/text.txt"
        >>> _ = Path(file).write_text("abcdef")
        >>> read_tokens(file, 256, steps=3)
        tensor([[ 97,  98,  99],
                [100, 101, 102]])
    """
    path = Path(path)
    if path.suffix == ".npz":
        if tokenizer is not None:
            raise ConfigurationError(f"a tokenizer reads a text, and {path} holds arrays")
        tokens = _array(path)
    elif tokenizer is not None:
        tokens = _cut(np.asarray(_encoded(path, Path(tokenizer)), dtype=np.int64), steps, path)
    elif vocabulary <= BYTES:
        tokens = _cut(np.frombuffer(read_bytes(path), dtype=np.uint8).astype(np.int64), steps, path)
    else:
        raise UnsupportedError(
            f"the model has {vocabulary} tokens, so {path} needs a tokenizer: name its tokenizer.json with --tokenizer"
        )
    if not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise FileFormatError(f"{path} holds tokens {tokens.min()} to {tokens.max()}; the model has {vocabulary}")
    return torch.from_numpy(tokens)


def _array(path: Path) -> np.ndarray:
    arrays = [value for value in read_npz(path).values() if value.ndim == 2 and value.dtype.kind in "iu"]
    if len(arrays) != 1 or arrays[0].shape[1] < 2:
        raise FileFormatError(f"{path} must hold one array of integers (n, time) with at least two tokens a sequence")
    return arrays[0].astype(np.int64)


def _cut(tokens: np.ndarray, steps: int, path: Path) -> np.ndarray:
    count = len(tokens) // steps
    if count < 1:
        raise ConfigurationError(f"{path} has {len(tokens)} tokens, and a sequence needs {steps}")
    return tokens[: count * steps].reshape(count, steps)


def _encoded(path: Path, tokenizer: Path) -> list[int]:
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found] - optional
    except ImportError as error:
        raise UnsupportedError(f"{tokenizer} is read by the package tokenizers: pip install tokenizers") from error
    content: Any = read_text(tokenizer)
    try:
        return Tokenizer.from_str(content).encode(read_text(path), add_special_tokens=False).ids
    except Exception as error:  # the package raises bare Exceptions for files that it cannot read
        raise FileFormatError(f"{tokenizer} is no tokenizer: {str(error)[:200]}") from error
