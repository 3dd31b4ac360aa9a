"""Tables whose entries are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TypeVar

Entry = TypeVar("Entry")


class Table(MutableMapping[str, Entry]):
    """Mapping whose entries are registered by files that it imports on first use.

    Args:
        homes: the module that enters each key.

    Example:
        >>> table = Table({"mean": "statistics"})
        >>> table["sum"] = 3
        >>> table["sum"]
        3
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = homes
        self._entries: dict[str, Entry] = {}

    def __getitem__(self, key: str) -> Entry:
        if key not in self._entries and key in self.homes:
            import_module(self.homes[key])
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
        for name in self.homes.values():
            import_module(name)
