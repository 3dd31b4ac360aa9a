"""Torch checkpoints, read without running their code: every object that is no tensor becomes a placeholder."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import _utils

from stability.storage.writing import is_utf8

_REBUILD = ("_rebuild_tensor_v2", "_rebuild_parameter")


class Placeholder:
    """Object of a checkpoint that is no tensor: it ignores its arguments, its state and its items."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = __init__


class InertUnpickler(pickle.Unpickler):
    """Unpickler that knows tensors, parameters, dtypes and ordered dictionaries; other names give a ``Placeholder``."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the replacement of a global name of the pickle."""
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module_name, global_name) == ("collections", "defaultdict"):
            return lambda *args: {}
        if module_name == "torch._utils" and global_name in _REBUILD:
            rebuild = getattr(_utils, global_name)
            return lambda *args: rebuild(*args)  # a new function each time: a pickle can set attributes of it
        if module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype):
            return getattr(torch, global_name)
        return type("Placeholder", (Placeholder,), {})  # a new class each time, for the same reason


def read_checkpoint(path: Path, is_archive: bool) -> Any:
    """Read a torch file with ``weights_only=True``; an archive that holds more than tensors by ``InertUnpickler``.

    Args:
        path: the file; it holds no TorchScript.
        is_archive: True for a zip archive, False for the format of torch before 1.6.

    Returns:
        The content, on the CPU.

    Raises:
        Exception: the file is damaged.
    """
    if is_archive and is_utf8(path):
        options: dict[str, Any] = {"map_location": "cpu", "mmap": True}
        try:
            return torch.load(path, weights_only=True, **options)
        except pickle.UnpicklingError:
            inert = SimpleNamespace(Unpickler=InertUnpickler, __name__=__name__)
            return torch.load(path, weights_only=False, pickle_module=inert, **options)
    with path.open("rb") as stream:  # the C++ part of torch opens UTF-8 names only
        return torch.load(stream, map_location="cpu", weights_only=True)
