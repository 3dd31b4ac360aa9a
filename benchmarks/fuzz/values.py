"""Trees of JSON values with one thing changed, and the numbers and texts that programs trip over."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

__all__ = ["TEXTS", "changed_tree", "number", "text"]

TEXTS = (
    *("", " ", "a\nb", "\x1b]0;owned\x07", "\u202eevil\u202c", "\ud800", "../../../victim", "/etc/passwd", "\0"),
    *("x" * 10_000, "nan", "Infinity", "1e999", "true", "null", "[]", "{}", "%s%n", "{0.__class__}", "<b>", "\\"),
)
_NUMBERS = (
    *(
        0,
        1,
        -1,
        2,
        3,
        7,
        63,
        64,
        65,
        255,
        256,
        2**16,
        10**6,
        2**31 - 1,
        2**31,
        2**32,
        2**40,
        2**53 + 1,
        2**63,
        -(2**63),
    ),
    *(0.0, -0.0, 0.5, 1.0, 1.5, 1e-323, -1e-323, 2.2e-308, 1e-16, 1e16, 1e150, 1e300, 1.7e308, -1.7e308, 1 - 1e-16),
)


def number(rng: random.Random, like: float | None = None) -> float | int:
    """A number that programs trip over, or one near another."""
    if like is not None and rng.random() < 0.4:
        near = like * rng.choice((0.0, 0.5, 2.0, 1 + 1e-15, 1 - 1e-9, -1.0)) + rng.choice((0, 1, -1))
        return int(near) if isinstance(like, int) and math.isfinite(near) else near
    return rng.choice(_NUMBERS)


def text(rng: random.Random, like: str = "") -> str:
    """A text that programs trip over, or one near another."""
    if like and rng.random() < 0.5:
        at = rng.randrange(len(like))
        return rng.choice((like[:at], like + like, like[:at] + rng.choice(TEXTS) + like[at:], like.swapcase()))
    return rng.choice(TEXTS)


def _value(rng: random.Random, like: Any = None) -> Any:
    """Another JSON value in the place of one."""
    kinds = ("number", "text", "none", "bool", "list", "mapping", "deep", "nan")
    kind = rng.choice(kinds)
    if rng.random() < 0.5:  # of the same kind, more often than not: other kinds are refused at the door
        kind = "text" if isinstance(like, str) else "number" if isinstance(like, (int, float)) else kind
    if kind == "number":
        return number(rng, like if isinstance(like, (int, float)) and not isinstance(like, bool) else None)
    if kind == "text":
        return text(rng, like if isinstance(like, str) else "")
    if kind == "deep":
        value: Any = rng.choice(([], {}))
        for _ in range(rng.choice((3, 30, 200))):
            value = [value] if rng.random() < 0.5 else {"a": value}
        return value
    return {
        "none": None,
        "bool": rng.random() < 0.5,
        "list": [like] * rng.choice((0, 1, 2, 1000)),
        "mapping": {text(rng): like},
        "nan": rng.choice((math.nan, math.inf, -math.inf)),
    }[kind]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every ``(container, key)`` of a tree."""
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            found.append((node, key))
            stack.append(value)
    return found


def changed_tree(rng: random.Random, tree: Any) -> Any:
    """A copy of a tree with one value changed, moved, doubled or taken away."""
    tree = copy.deepcopy(tree)
    places = _places(tree)
    if not places or rng.random() < 0.02:
        return _value(rng, tree)
    node, key = rng.choice(places)
    way = rng.random()
    if way < 0.6:
        node[key] = _value(rng, node[key])
    elif way < 0.75:
        del node[key]
    elif way < 0.85:
        other, place = rng.choice(places)
        node[key] = copy.deepcopy(other[place])
    elif isinstance(node, dict):
        node[text(rng, str(key)) if rng.random() < 0.7 else rng.choice(places)[1]] = copy.deepcopy(node[key])
    else:
        node.insert(rng.randrange(len(node) + 1), copy.deepcopy(node[key]))
    return tree
