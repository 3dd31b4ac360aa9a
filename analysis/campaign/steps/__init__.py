"""Where steps of an analysis are registered; here are those of no other room: certificate, performance on the data.

A step stands in the file of its analyzer, under ``@step("name")``; ``stability.storage.artifacts`` describes its files.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

from stability.storage.artifacts import STEPS

if TYPE_CHECKING:  # the room of training asks the rooms of analyzers, too
    from ..work import Work

Step = Callable[["Work"], None]
_FOUND: dict[str, Step] = {}


def step(name: str) -> Callable[[Step], Step]:
    """Register a function as the step of an analysis that writes the files which are described under this name.

    Args:
        name: a key of ``stability.storage.artifacts.STEPS``.

    Returns:
        The decorator; the function gets the ``Work`` and writes through it.
    """

    def register(function: Step) -> Step:
        assert name in STEPS, f"the step {name!r} is not described: see stability/storage/artifacts.py"
        assert name not in _FOUND, f"two functions are the step {name!r}"
        _FOUND[name] = function
        return function

    return register


def steps_in(*packages: ModuleType) -> dict[str, Step]:
    """The steps of an analysis, in the order in which they are described.

    Args:
        packages: whose files are imported, so that the steps in them are found.

    Returns:
        Each by its name.
    """
    for package in packages:
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    lacking = [name for name in STEPS if name not in {*_FOUND, "training"}]
    assert not lacking, f"no function is the step {lacking}: see @step in {__name__}"
    return {name: _FOUND[name] for name in STEPS if name in _FOUND}
