"""Import of user-supplied models, ``package.module:factory`` or ``FILE.py:factory``, with one-line error messages."""

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
    """Return the model of a factory; modules of the working directory can be imported.

    Args:
        name: ``package.module:factory`` or ``FILE.py:factory``; a factory is called without arguments; a model is
            returned unchanged.

    Returns:
        A module, a system, or an object of a registered type.

    Raises:
        ConfigurationError: the code cannot be imported or raises an exception.
    """
    with running_user_code(name, "cannot be used as a factory"):
        value = named_value(name)
        produced = value() if callable(value) and not isinstance(value, nn.Module) and not is_subject(value) else value
    if isinstance(produced, nn.Module):
        source, attribute = split_factory_name(name)
        _FACTORIES[produced] = f"{_relative_path(source) if is_python_file(source) else source}:{attribute}"
    return produced


def factory_of(model: nn.Module) -> str:
    """Return the name of the factory that made a model, with paths relative to the working directory; else empty."""
    return _FACTORIES.get(model, "")


def layer_code(model: nn.Module) -> str:
    """Return ``FILE.py:Class`` or ``module:Class`` of a model's user-defined layer; empty for layers of the toolkit."""
    for part in model.modules():
        kind = type(part)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        registered = LAYERS.get(getattr(part, "layer_name", "")) is kind and not kind.__module__.startswith(
            f"{__package__}."
        )
        if registered and file and kind.__module__ != "__main__":
            source = kind.__module__ if "." in kind.__module__ else _relative_path(file)
            return f"{source}:{kind.__qualname__}"
    return ""


def _relative_path(file: str) -> str:
    """Return a path relative to the working directory; absolute if it lies outside."""
    path = os.path.abspath(file)
    return os.path.relpath(path) if Path(path).is_relative_to(os.getcwd()) else path


def named_value(name: str) -> Any:
    """Import ``package.module:attribute`` or ``FILE.py:attribute``; call this inside ``running_user_code``.

    Raises:
        ConfigurationError: the file does not exist, or another module of this name is already imported.
    """
    source, attribute = split_factory_name(name)
    value: Any = _module_of(Path(source)) if is_python_file(source) else importlib.import_module(source)
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
        The name given to ``register_layer``, or that of the cell class; ``None`` if it is neither layer nor cell.

    Raises:
        ConfigurationError: the class cannot be imported, is an unregistered layer, or has the name of another layer.

    Example:
        >>> registered_layer("stability.models:LipschitzRNN")
        'lipschitz'
    """
    with running_user_code(name, "cannot be imported"):
        value = named_value(name)
    if not (isinstance(value, type) and issubclass(value, RecurrentLayer)):
        return cell_layer(value)
    if LAYERS.get(value.layer_name) is not value:
        raise ConfigurationError(
            f"{name} is not registered, so files cannot store it: put @register_layer(...) "
            "of stability.models above the class"
        )
    return value.layer_name


@contextlib.contextmanager
def running_user_code(name: str, failed: str) -> Iterator[None]:
    """Run user-supplied code: its exceptions become a ``ConfigurationError``, its prints go to standard error.

    Args:
        name: name of the code, for the message.
        failed: the failed action, for the message.

    Raises:
        ConfigurationError: type, text, file and line of the exception.
    """  # noqa: DOC501 - errors of this package are re-raised
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            yield
    except StabilityError:
        raise
    except (Exception, SystemExit) as error:  # user code may call sys.exit
        source = raise_location(error)
        where = f" (at {source})" if source and not source.startswith(__file__) else ""
        raise ConfigurationError(f"{name} {failed}: {error_text(error)}{where}") from error
    finally:
        PATHS.extend(path for path in sys.path if path not in (*before, *PATHS))
        sys.path[:] = before
