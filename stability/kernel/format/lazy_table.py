"""Tables whose entries are imported on first use.

A command that needs one rule of thirty does not wait for the others. The homes are written down; what is not among them
is looked for in all files, so that a forgotten row costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TypeVar

Entry = TypeVar("Entry")


class Table(MutableMapping[str, Entry]):
    """A mapping that files fill when they are imported, and that imports them when it is asked.

    Args:
        homes: the module that enters each key.
        others: names of all modules that may enter something; asked for when a key has no home, or all entries are
            wanted.

    Example:
        >>> from stability.kernel.format.theorem_table import RULES
        >>> RULES["linear"] if "linear" in RULES else RULES["unstable_linear"].verdict
        (<Verdict.REFUTED: 'refuted'>,)
    """

    def __init__(self, homes: Mapping[str, str], others: Callable[[], Iterable[str]] = tuple) -> None:
        self.homes = homes
        self._others = others
        self._entries: dict[str, Entry] = {}

    def __getitem__(self, key: str) -> Entry:
        if key not in self._entries:
            if key in self.homes:
                import_module(self.homes[key])
            else:
                self._all()
        return self._entries[key]

    def __setitem__(self, key: str, value: Entry) -> None:
        self._entries[key] = value

    def __delitem__(self, key: str) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[str]:
        self._all()
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        self._all()
        return len(self._entries)

    def _all(self) -> None:
        for name in (*self.homes.values(), *self._others()):
            import_module(name)
