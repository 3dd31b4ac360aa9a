"""Closure of a set under a relation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def closure(start: Iterable[Item], children: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """Return all elements reachable from the start, without recursion.

    Example:
        >>> sorted(closure([12], lambda n: [n // 2] if n % 2 == 0 else []))
        [3, 6, 12]
    """
    seen, stack = set(start), list(start)
    while stack:
        new = set(children(stack.pop())) - seen
        seen |= new
        stack.extend(new)
    return seen
