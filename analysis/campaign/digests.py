"""Digests of weights in memory and of files on disk, which identify the model of a result."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stability.kernel.format.serialization import digest_of
from stability.storage.documents import file_digest

from ..training.runs import model_description


def file_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the existing files of a folder, by name."""
    return {n: file_digest(folder / n) for n in names if (folder / n).is_file()}


def model_digest(subject: Any) -> str:
    """Return the SHA-256 of a model's architecture and of every stored number.

    Args:
        subject: a module or a system.

    Returns:
        64 hexadecimal digits: equal for equal models, wherever they were loaded from.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer = ElmanRNN(2, 3)
        >>> before = model_digest(layer)
        >>> _ = layer.weight_hh.data.view(-1)[0].mul_(1 + 1e-6)
        >>> before == model_digest(layer)
        False
    """
    if not isinstance(subject, nn.Module):
        return digest_of(subject)
    text = f"{model_description(subject)} {subject!r}"
    out = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode("utf-8", errors="surrogateescape"))
    for name, value in subject.state_dict().items():
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous()
            out.update(f"{name} {value.dtype} {tuple(value.shape)}".encode("utf-8", errors="surrogateescape"))
            if value.numel():  # torch shows no bytes of a tensor without entries
                out.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            out.update(f"{name} {value!r}".encode("utf-8", errors="surrogateescape"))
    return out.hexdigest()
