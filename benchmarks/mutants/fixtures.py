"""Fixtures of modules and sessions are built once, by the unchanged code: every mutant's fork inherits them.

Built anew in each fork a proof that takes seconds to find would leave its tests out as too slow, and a search that the
mutant breaks would be noticed in the place of the checker.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.fixtures import FixtureDef


def _stays(fixture: FixtureDef[Any]) -> bool:
    """Whether its value outlives the test, is the only one, and leaves nothing to undo."""
    return fixture.scope != "function" and not fixture.params and not inspect.isgeneratorfunction(fixture.func)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Inside, such values are never thrown away."""
    finish = FixtureDef.finish

    def spare(self: FixtureDef[Any], request: Any) -> None:
        if not _stays(self):
            finish(self, request)

    FixtureDef.finish = spare
    try:
        yield
    finally:
        FixtureDef.finish = finish


def build(items: list[pytest.Item]) -> int:
    """Build the values that stay, for the tests that ask for them; returns how many there are.

    A test whose fixtures cannot be built is left to fail by itself.
    """
    built: set[FixtureDef[Any]] = set()
    for item in items:
        known = getattr(item, "_fixtureinfo", None)
        asked = [] if known is None else [d for each in known.name2fixturedefs.values() for d in each if _stays(d)]
        if not set(asked) - built:
            continue
        state = item.session._setupstate
        with contextlib.suppress(Exception):
            state.setup(item)
            built.update(asked)
        with contextlib.suppress(Exception):
            state.teardown_exact(None)
    return len(built)
