"""Torch checkpoints, read without running their code: every object that is no tensor becomes a placeholder."""

from __future__ import annotations

import pickle
import warnings
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipInfo

import torch
from torch import _utils

from stability.errors import FileFormatError
from stability.storage.read_errors import as_file_errors, first_sentence
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


def read_torch_file(path: Path, members: list[ZipInfo] | None) -> Any:
    """Read a torch file without running its code.

    Args:
        path: the file.
        members: its members where it is a zip archive; ``None`` for the format of torch before 1.6.

    Returns:
        The content, on the CPU.

    Raises:
        FileFormatError: TorchScript, pickled code, content that unpacks to more than the file, or a damaged file.
    """
    for name in (member.filename for member in members or ()):
        if name.endswith("constants.pkl"):
            raise FileFormatError(f"{path} holds TorchScript, which is not executed: save model.state_dict()")
    stored = sum(member.file_size for member in members or ())
    if stored > 2 * path.stat().st_size + 2**20:  # torch writes its members uncompressed
        raise FileFormatError(f"{path} claims {stored} bytes of content in a file of {path.stat().st_size}")
    # a malicious file can make torch raise any exception
    with as_file_errors(path, "is damaged, truncated or no torch file", (Exception,)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _read(path, members is not None)
        except pickle.UnpicklingError as error:
            content = f"pickled code or objects, which are not executed ({first_sentence(error)})"
            raise FileFormatError(f"{path} holds {content}: save model.state_dict()") from error


def _read(path: Path, is_archive: bool) -> Any:
    """Read a torch file with ``weights_only=True``; an archive that holds more than tensors by ``InertUnpickler``."""
    if is_archive and is_utf8(path):
        options: dict[str, Any] = {"map_location": "cpu", "mmap": True}
        try:
            return torch.load(path, weights_only=True, **options)
        except pickle.UnpicklingError:
            inert = SimpleNamespace(Unpickler=InertUnpickler, __name__=__name__)
            return torch.load(path, weights_only=False, pickle_module=inert, **options)
    with path.open("rb") as stream:  # the C++ part of torch opens UTF-8 names only
        return torch.load(stream, map_location="cpu", weights_only=True)
