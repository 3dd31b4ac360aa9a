"""User-supplied models: run ``package.module:factory`` or ``FILE.py:factory`` and report its exceptions in one line."""

from __future__ import annotations

import contextlib
import hashlib
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
from stability.user_code import error_text, is_python_file, raise_location, split_factory_name

from .cells import cell_layer
from .recurrent import LAYERS, RecurrentLayer

PATHS: list[str] = []
"""Folders from which user modules were imported; worker processes need them to unpickle the models."""
_FACTORIES: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
"""Name of the factory that made a module."""
_NAMED: set[Path] = set()
"""Marks of code that was named in this process."""
ALLOW = "STABILITY_RUN_CODE"


def from_factory(name: str) -> Any:
    """Import a factory and return its model; modules of the working directory can be imported.

    Args:
        name: ``package.module:factory`` or ``FILE.py:factory``; a factory is called without arguments, a model is
            taken as it is.

    Returns:
        A module, a system, or an object of a registered type.

    Raises:
        ConfigurationError: it cannot be imported or raises an exception.
    """
    with users_code(name, "cannot be used as a factory"):
        value = named_value(name)
        made = value() if callable(value) and not isinstance(value, nn.Module) and not is_subject(value) else value
    if isinstance(made, nn.Module):
        place, attribute = split_factory_name(name)
        _FACTORIES[made] = f"{_from_here(place) if is_python_file(place) else place}:{attribute}"
    return made


def factory_of(model: nn.Module) -> str:
    """Return the name of the factory that made a model, paths as seen from the working directory; empty for others."""
    return _FACTORIES.get(model, "")


def layer_code(model: nn.Module) -> str:
    """Return ``FILE.py:Class`` of a model's layer of one's own, which registers it; empty for layers of the toolkit."""
    for part in model.modules():
        kind = type(part)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        own = LAYERS.get(getattr(part, "layer_name", "")) is kind and not kind.__module__.startswith(f"{__package__}.")
        if own and file and kind.__module__ != "__main__":
            place = kind.__module__ if "." in kind.__module__ else _from_here(file)
            return f"{place}:{kind.__qualname__}"
    return ""


def _from_here(file: str) -> str:
    """A path as seen from the working directory; absolute where it lies outside."""
    path = os.path.abspath(file)
    return os.path.relpath(path) if Path(path).is_relative_to(os.getcwd()) else path


def may_run(name: str) -> bool:
    """Return True if code that a file names may run: this user named or trained with it before, exactly as it is now.

    A folder from somebody else may hold code beside its runs. Other code than one's own runs only if the environment
    variable ``STABILITY_RUN_CODE`` is 1.

    Args:
        name: as for ``from_factory``; the code must lie in or below the working directory.
    """
    mark = _mark(name)
    return os.environ.get(ALLOW) == "1" or (mark is not None and (mark in _NAMED or mark.is_file()))


def remember_code(name: str) -> None:
    """Note that this user runs some code, by the path and the content of its file, in ``$XDG_STATE_HOME/stability``."""
    if (mark := _mark(name)) is not None:
        _NAMED.add(mark)
        with contextlib.suppress(OSError):  # without a place to write to, the note is for this process alone
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


def _mark(name: str) -> Path | None:
    """The file that stands for code as it is now; ``None`` for code that does not lie below the working directory."""
    place = split_factory_name(name)[0]
    stem = Path(os.path.abspath(place if is_python_file(place) else place.replace(".", "/")))
    file = next((p for p in (stem, stem / "__init__.py", stem.with_suffix(".py")) if p.is_file()), None)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if file is None or not file.is_relative_to(os.getcwd()) or not os.path.isabs(state):
        return None
    digest = hashlib.sha256(os.fsencode(file) + b"\0" + file.read_bytes()).hexdigest()
    return Path(state, "stability", "code", digest)


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
        raise ConfigurationError(f"a module {path.stem} of another file is imported already: give {path} another name")
    return module


def registered_layer(name: str) -> str | None:
    """Return the name under which a class ``package.module:Class`` is known as a layer; a registered cell becomes one.

    Args:
        name: as for ``from_factory``.

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
            f"{name} is a layer without a name of its own, so that files could not hold it: put @register_layer(...) "
            "of stability.models above the class"
        )
    return value.layer_name


@contextlib.contextmanager
def users_code(name: str, failed: str) -> Iterator[None]:
    """Run user-supplied code: its exceptions become a ``ConfigurationError``, its prints go to standard error.

    Args:
        name: name of the code, for the message.
        failed: what could not be done with it, for the message.

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
