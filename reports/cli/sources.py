"""From what a user names on the command line to something that can be certified, run and written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.user_code import is_python_file, names_code, split_factory_name


def open_subject(name: str, *, continuous: bool = False, cell: str | None = None) -> Any:
    """Subject that ``certify`` is asked about.

    Args:
        name: a model in any of its forms (``stability.models.sources``).
        continuous: the differential equation behind a layer instead of the map that runs.
        cell: what the weights of an ambiguous state dict belong to.

    Returns:
        A module where one was read (it may carry its own proof), else a system.

    Raises:
        StabilityError: as ``load_subject``.
    """
    if not continuous and cell is None and (system := matrices_system(name)) is not None:
        return system
    from ...models.sources import load_subject

    source = load_subject(name, continuous=continuous, cell=cell)
    is_module = source.module is not None and not continuous
    return source.module if is_module else source.subject


def matrices_system(name: str) -> Any:
    """Return the system of a ``.npz`` of matrices (no network library is loaded), or ``None`` for anything else."""
    from stability.storage.arrays import npz_system

    return npz_system(name) if os.path.isfile(name) else None


def open_parts(name: str) -> tuple[dict[str, Any], bool]:
    """Return the recurrent parts of a network, and whether they form one system.

    Args:
        name: a model in any of its forms.

    Returns:
        Subjects by path, empty for what is one recurrent part itself, holds matrices only, or is made by a factory
        (which would run twice); and whether the whole has a subject, too.

    Raises:
        StabilityError: missing or unreadable, or a part without a subject.
    """
    if not os.path.exists(name) or matrices_system(name) is not None:
        return {}, True
    from stability.conversion.subjects import as_subject

    from ...models.adapters.modules import recurrent_parts
    from ...models.sources import load_module

    module = load_module(name)
    parts = {} if module is None else recurrent_parts(module)
    if module is None or len(parts) < 2:
        return {}, True
    try:
        as_subject(module)
    except UnsupportedError:
        return parts, False
    return parts, True


def open_model(name: str) -> Any:
    """Open a network by name, to run it on data; its system need not be known.

    Args:
        name: a run directory, a model file, or ``package.module:factory``.

    Raises:
        ConfigurationError: only matrices, no network.
        StabilityError: missing or unreadable, or only matrices.
    """
    from ...models.sources import load_module, without_network

    module = load_module(name)
    if module is None:
        why = without_network(name)
        raise ConfigurationError(
            f"{name} holds recurrent weights only, and this command needs the whole network{f': {why}' if why else ''}"
        )
    return module


def there(name: str) -> None:
    """Refuse a model that is not there before anything heavy is loaded; what it is, is found out later.

    Args:
        name: as for ``open_subject``.

    Raises:
        FileFormatError: no file, directory or factory of this name, or something that is neither file nor directory.
    """
    if not name or "\0" in name:
        raise FileFormatError("the name of a model must be a path or package.module:factory")
    path = Path(name if os.path.exists(name) else name.rpartition("#")[0] or name)
    if path.exists():
        if not (path.is_file() or path.is_dir()):
            raise FileFormatError(f"{name} is neither a file nor a directory")
        if path.is_file() and path.stat().st_size == 0:
            raise FileFormatError(f"{name} is empty")
        return
    if not names_code(name):
        raise FileFormatError(f"{name} is no file, directory or package.module:factory")
    code = split_factory_name(name)[0]
    if is_python_file(code) and not os.path.isfile(code):
        raise FileFormatError(f"there is no file {code}")
