"""``module:factory``, ``FILE.py:factory``: a user's code, run so that whatever it does ends as a model or as one line.

What it leaves behind in the process (working directory, import path, default type, seeds, signal handlers ...) is put
back, what it prints goes to standard error, and a process that it forks ends where it would come back. A limit of time
and what ends the process at once are the business of whoever watches over it: the command line does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import io
import locale
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn

from stability.errors import ConfigurationError, StabilityError
from stability.kernel.arithmetic.definiteness import flushes_small_numbers
from stability.kernel.format.serialization import is_subject
from stability.user_code import WATCHERS, error_text, is_python_file, split_factory_name

from .adapters.state_dicts import shown
from .recurrent import LAYERS, RecurrentLayer

PATHS: list[str] = []
"""Folders from which factories imported: other processes need them for the classes of their models."""


def from_factory(name: str) -> Any:
    """What a factory gives, importable from the working directory too; this runs the user's own code.

    Args:
        name: ``package.module:factory`` or ``FILE.py:factory``; a factory is called without arguments, a model is
            taken as it is.

    Returns:
        A module, a system, or something that a registered converter may know.

    Raises:
        ConfigurationError: it cannot be imported, raises, ends the program, or gives what cannot be a model.
    """
    with users_code(name, "cannot be used as a factory"):
        value = named_value(name)
        if callable(value) and not isinstance(value, nn.Module) and not is_subject(value):
            value = value()
        why = _no_model(value)
    if why:
        raise ConfigurationError(
            f"{name} cannot be used as a factory: it gives {why}, and a model is a torch.nn.Module or a system"
        )
    return value


def named_value(name: str) -> Any:
    """What ``package.module:attribute`` or ``FILE.py:attribute`` names; to be asked within ``users_code``.

    Raises:
        ConfigurationError: there is no such file or attribute, or a module of another file is imported under its name.
    """
    place, attribute = split_factory_name(name)
    if is_python_file(place):
        value: Any = _module_of(Path(place))
    elif all(part.isidentifier() for part in place.split(".")):
        value = importlib.import_module(place)
    else:
        raise ConfigurationError(
            f"{name}: {place} is no name of a module; expected package.module:factory, or FILE.py:factory of a file"
        )
    for step in attribute.split("."):
        try:
            value = getattr(value, step)
        except AttributeError as error:
            wanted = f"{place} has no {step}" if step else f"{name} lacks the name of a factory behind its colon"
            raise ConfigurationError(f"{wanted}{_offered(place, value)}") from error
    return value


def _offered(place: str, value: Any) -> str:
    parts = value.__dict__.items() if isinstance(value, types.ModuleType) else ()
    names = [name for name, part in parts if isinstance(name, str) and callable(part) and not name.startswith("_")]
    return f"; {place} holds {shown(names)}" if names else ""


def _module_of(path: Path) -> types.ModuleType:
    """A file's module, under its own name: other processes can import it again for the classes of a model."""
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}")
    if path.suffix != ".py":
        raise ConfigurationError(f"{path} cannot be imported, a module's file ends in .py: rename it")
    if "." in path.stem:
        raise ConfigurationError(f"{path} has a dot in its name, which no module can have: rename it")
    sys.path.insert(0, str(path.parent.resolve()))  # a link keeps its own name
    module = importlib.import_module(path.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
        raise ConfigurationError(
            f"a module {path.stem} of another file is imported already: give {path} a name of its own"
        )
    return module


def registered_layer(name: str) -> str | None:
    """The name under which a class ``package.module:Class`` is a registered layer; this runs the user's own module.

    Args:
        name: as for ``from_factory``.

    Returns:
        The name of ``register_layer``; ``None`` where it is no layer but a factory or a model.

    Raises:
        ConfigurationError: it cannot be imported, or is a layer that is not registered.

    Example:
        >>> registered_layer("stability.models:LipschitzRNN")
        'lipschitz'
    """
    with users_code(name, "cannot be imported"):
        value = named_value(name)
    if not (isinstance(value, type) and issubclass(value, RecurrentLayer)):
        return None
    if LAYERS.get(value.layer_name) is not value:
        raise ConfigurationError(
            f"{name} is a layer without a name of its own, so that files could not hold it: put @register_layer(...) "
            "of stability.models above the class"
        )
    return value.layer_name


def _no_model(value: Any) -> str:
    """What a value is that can be no model; empty where it may be one."""
    if inspect.iscoroutine(value):
        value.close()  # it would complain later that nobody waited for it
        return "a coroutine (async def)"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return "a generator"
    if asyncio.isfuture(value):
        return "a future"
    if isinstance(value, type):
        return f"the class {value.__name__} instead of an instance"
    of_values = (type(None), bool, int, float, complex, str, bytes, types.ModuleType, types.FunctionType, torch.Tensor)
    return f"a value of type {type(value).__name__}" if isinstance(value, of_values) else ""


@contextlib.contextmanager
def users_code(name: str, failed: str) -> Iterator[None]:
    """Run code of a user's own; whatever it raises becomes one error of ours, but an interrupt by the user.

    Args:
        name: whose code it is, for the message.
        failed: what could not be done with it.

    Raises:
        ConfigurationError: with type and text of what was raised.
    """  # noqa: DOC501 - an interrupt is handed on
    owner = os.getpid()
    for watcher in WATCHERS:
        watcher(name)
    try:
        with _put_back():
            yield
    except KeyboardInterrupt:
        raise
    except SystemExit as error:  # whatever its code, no model came out: 0 would read as "certified"
        raise ConfigurationError(
            f"{name} {failed}: it ended the program (sys.exit({_shown(error.code)})) before giving a model. Put what "
            'it runs as a script under if __name__ == "__main__"'
        ) from error
    except BaseException as error:
        if isinstance(error, StabilityError) and type(error).__module__.startswith("stability."):
            raise
        raise ConfigurationError(f"{name} {failed}: {error_text(error)}") from error
    finally:
        if os.getpid() != owner:  # forked within, and come back: the command goes on in one process only
            os._exit(1)
        for watcher in WATCHERS:
            watcher("")


def _shown(code: Any) -> str:
    try:
        return repr(code)[:80]
    except BaseException:  # noqa: BLE001 - theirs
        return f"a {type(code).__name__}"


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Settings of the process and of libraries as they were, standard output turned aside meanwhile."""
    with contextlib.ExitStack() as after, warnings.catch_warnings():
        for restore in _settings():
            after.callback(_quietly, restore)
        if sys.stderr is not None:
            sys.stdout = sys.stderr = _Aside(sys.stderr)  # type: ignore[assignment]
        sys.path.insert(0, os.getcwd())
        try:
            yield
        finally:
            found = [os.path.abspath(path) for path in sys.path if isinstance(path, str)]
            PATHS.extend(path for path in found if path not in PATHS)


class _Aside(io.TextIOBase):
    """Standard error under both names: what is written goes there, and closing it closes nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def close(self) -> None:
        pass


def _quietly(restore: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        restore()


def _settings() -> Iterator[Callable[[], Any]]:
    """For each setting a function that puts it back."""
    for name in ("stdin", "stdout", "stderr", "excepthook", "displayhook", "path", "argv"):
        yield partial(setattr, sys, name, getattr(sys, name))
    for values in (sys.path, sys.argv):
        yield partial(values.__setitem__, slice(None), list(values))
    with contextlib.suppress(OSError):  # a working directory that is no more
        yield partial(os.chdir, os.getcwd())
    umask = os.umask(0o077)
    os.umask(umask)
    yield partial(os.umask, umask)
    yield gc.enable if gc.isenabled() else gc.disable
    yield partial(locale.setlocale, locale.LC_ALL, locale.setlocale(locale.LC_ALL))
    yield partial(np.seterr, **np.geterr())
    yield partial(np.random.set_state, np.random.get_state())  # noqa: NPY002 - theirs, not ours
    for change, state in (
        (sys.setrecursionlimit, sys.getrecursionlimit()),
        (random.setstate, random.getstate()),
        (torch.set_rng_state, torch.get_rng_state()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
        (torch.set_num_threads, torch.get_num_threads()),
    ):
        yield partial(change, state)
    if not flushes_small_numbers():  # torch tells nobody how it is set
        yield partial(torch.set_flush_denormal, False)
    yield partial(_as_exact, torch.are_deterministic_algorithms_enabled())
    yield partial(_on_device, torch.get_default_device())
    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
                yield partial(_listen, number, handler)
        if hasattr(signal, "getitimer") and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0:
            yield partial(signal.setitimer, signal.ITIMER_REAL, 0.0)


def _listen(number: int, handler: Any) -> None:
    if signal.getsignal(number) is not handler:
        signal.signal(number, handler)


def _as_exact(before: bool) -> None:
    if torch.are_deterministic_algorithms_enabled() is not before:  # setting it imports a compiler
        torch.use_deterministic_algorithms(before)


def _on_device(before: torch.device) -> None:
    if torch.get_default_device() != before:
        torch.set_default_device(None if before.type == "cpu" else before)
