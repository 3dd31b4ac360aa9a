"""User-supplied models: run ``package.module:factory`` or ``FILE.py:factory`` and report its exceptions in one line."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from stability.errors import ConfigurationError, StabilityError
from stability.kernel.format.serialization import is_subject
from stability.user_code import error_text, is_python_file, raise_location, remember_code, split_factory_name

from .cells import cell_layer
from .recurrent import LAYERS, RecurrentLayer

PATHS: list[str] = []
"""Folders from which user modules were imported; worker processes need them to unpickle the models."""
_FACTORIES: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
"""Name of the factory that made a module."""


def from_factory(name: str) -> Any:
    """Import a factory and return its model; modules of the working directory can be imported.

    Args:
        name: ``package.module:factory`` or ``FILE.py:factory``; a factory is called without arguments, a model is
            taken unchanged.

    Returns:
        A module, a system, or an object of a registered type.

    Raises:
        ConfigurationError: it cannot be imported or raises an exception.
    """
    with users_code(name, "cannot be used as a factory"):
        value = named_value(name)
        produced = value() if callable(value) and not isinstance(value, nn.Module) and not is_subject(value) else value
    if isinstance(produced, nn.Module):
        place, attribute = split_factory_name(name)
        _FACTORIES[produced] = f"{_from_here(place) if is_python_file(place) else place}:{attribute}"
    return produced


def factory_of(model: nn.Module) -> str:
    """Return the name of the factory that made a model, paths as seen from the working directory; empty for others."""
    return _FACTORIES.get(model, "")


def layer_code(model: nn.Module) -> str:
    """Return ``FILE.py:Class`` of a model's user-defined layer, which registers it; empty for layers of the toolkit."""
    for part in model.modules():
        kind = type(part)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        registered = LAYERS.get(getattr(part, "layer_name", "")) is kind and not kind.__module__.startswith(
            f"{__package__}."
        )
        if registered and file and kind.__module__ != "__main__":
            place = kind.__module__ if "." in kind.__module__ else _from_here(file)
            return f"{place}:{kind.__qualname__}"
    return ""


def _from_here(file: str) -> str:
    """Return a path relative to the working directory; absolute if it lies outside."""
    path = os.path.abspath(file)
    return os.path.relpath(path) if Path(path).is_relative_to(os.getcwd()) else path


def named_value(name: str) -> Any:
    """Import ``package.module:attribute`` or ``FILE.py:attribute``; call this inside ``users_code``.

    Raises:
        ConfigurationError: there is no such file, or a module of another file is imported under its name.
    """
    place, attribute = split_factory_name(name)
    value: Any = _module_of(Path(place)) if is_python_file(place) else importlib.import_module(place)
    for step in attribute.split("."):
        value = getattr(value, step)
    remember_code(name)
    return value


def _module_of(path: Path) -> types.ModuleType:
    """Import a file under its own name, so that other processes can import it again."""
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))  # the folder of a link, not of its target
    module = importlib.import_module(path.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
        raise ConfigurationError(f"another module named {path.stem} is already imported: rename {path}")
    return module


def registered_layer(name: str) -> str | None:
    """Return the layer name of a class ``package.module:Class``; a registered cell becomes a layer.

    Args:
        name: see ``from_factory``.

    Returns:
        The name of ``register_layer``, or of the class of cells; ``None`` where it is neither layer nor cell.

    Raises:
        ConfigurationError: it cannot be imported, is a layer that is not registered, or another one has its name.

    Example:
        >>> registered_layer("stability.models:LipschitzRNN")
        'lipschitz'
    """
    with users_code(name, "cannot be imported"):
        value = named_value(name)
    if not (isinstance(value, type) and issubclass(value, RecurrentLayer)):
        return cell_layer(value)
    if LAYERS.get(value.layer_name) is not value:
        raise ConfigurationError(
            f"{name} is not registered, so that files cannot store it: put @register_layer(...) "
            "of stability.models above the class"
        )
    return value.layer_name


@contextlib.contextmanager
def users_code(name: str, failed: str) -> Iterator[None]:
    """Run user-supplied code: its exceptions become a ``ConfigurationError``, its prints go to standard error.

    Args:
        name: name of the code, for the message.
        failed: the failed action, for the message.

    Raises:
        ConfigurationError: type, text, file and line of the exception.
    """  # noqa: DOC501 - errors of this package are handed on
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            yield
    except StabilityError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit(0) gives no model either
        place = raise_location(error)
        where = f" (at {place})" if place and not place.startswith(__file__) else ""
        raise ConfigurationError(f"{name} {failed}: {error_text(error)}{where}") from error
    finally:
        PATHS.extend(path for path in sys.path if path not in (*before, *PATHS))
        sys.path[:] = before
