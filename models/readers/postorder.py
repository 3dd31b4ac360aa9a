"""Things that need other things, in an order in which each comes after what it needs; no recursion, however deep."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Hashable)


def postorder(
    root: Item,
    needs: Callable[[Item], Iterable[Item]],
    done: Callable[[Item], bool],
    circle: Callable[[Item], Any],
) -> Iterator[Item]:
    """What is not done of a thing and of all below it, each behind what it needs; whoever takes one does it.

    Args:
        root: where to begin.
        needs: what one thing needs.
        done: whether a thing is done already.
        circle: called with a thing that needs itself; it raises, or lets the thing be.

    Yields:
        What is to be done next.

    Example:
        >>> needs, made = {"tea": ["water", "leaves"], "water": ["well"]}, []
        >>> for item in postorder("tea", lambda item: needs.get(item, ()), made.__contains__, print):
        ...     made.append(item)
        >>> made
        ['well', 'water', 'leaves', 'tea']
    """
    if done(root):
        return
    path, on_path = [(root, iter(needs(root)))], {root}
    while path:
        item, rest = path[-1]
        below = next((other for other in rest if not done(other)), None)
        if below is None:
            path.pop()
            on_path.discard(item)
            yield item
        elif below in on_path:
            circle(below)
        else:
            path.append((below, iter(needs(below))))
            on_path.add(below)


def closure(start: Iterable[Item], below: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """Everything that can be reached.

    Example:
        >>> sorted(closure([12], lambda n: [n // 2] if n % 2 == 0 else []))
        [3, 6, 12]
    """
    seen, stack = set(start), list(start)
    while stack:
        new = set(below(stack.pop())) - seen
        seen |= new
        stack.extend(new)
    return seen
