"""A look at a pickle before anything is made from it: how much it would unfold to, and whether it says a thing twice.

``torch.load(weights_only=True)`` runs no foreign code, but it believes sizes: thirty nested pairs of one object are a
kilobyte in the file and take hours to hash. Here the opcodes are followed with empty nodes in the place of objects.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from stability.errors import FileFormatError

from .limits import PICKLE_BYTES, PICKLE_OPCODES, PICKLE_TREE

__all__ = ["check_pickle"]

_REFUSED = ("builtins bytearray", "_codecs encode", "__builtin__ bytearray")
"""What torch allows and no tensor needs: one makes memory of a number, the other is slow on long texts."""
_ATOMS = (
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "GLOBAL"),
    *("BINUNICODE", "SHORT_BINSTRING", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"),
)
_TAKES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "NEWOBJ": 2, "REDUCE": 2, "BINPERSID": 1}
_DAMAGED = (IndexError, KeyError, ValueError, TypeError, EOFError, OverflowError, struct.error, UnicodeError)


class _Node:
    """An object to be: what it holds, and the texts that are keys in it."""

    __slots__ = ("held", "keys", "text")

    def __init__(self, held: list[_Node], text: str | None = None) -> None:
        self.held, self.text = held, text
        self.keys: set[str] = set()


class _Bounded:
    """A stream that ends with an error where a pickle is longer than one may be."""

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self.stream, self.where, self.left = stream, where, PICKLE_BYTES

    def _take(self, data: bytes, wanted: int) -> bytes:
        self.left -= max(len(data), wanted)
        if self.left < 0:
            raise FileFormatError(f"{self.where} holds a pickle of more than {PICKLE_BYTES // 2**20} MiB")
        return data

    def read(self, size: int = -1) -> bytes:
        self._take(b"", max(size, 0))
        return self.stream.read(size)

    def readline(self) -> bytes:
        return self._take(self.stream.readline(4096), 0)


def check_pickle(stream: BinaryIO, where: str) -> bool:
    """Follow one pickle up to its end, or up to what torch does not read either.

    Args:
        stream: at its beginning; afterwards behind its end.
        where: what errors call the file.

    Returns:
        Whether the end was reached; where not, ``torch.load`` says what is wrong.

    Raises:
        FileFormatError: too long, of too many parts, an object that unfolds beyond ``PICKLE_TREE`` or holds itself,
            a mapping with a key twice, or a call that no tensor needs.
    """
    nodes: list[_Node] = []
    whole = False
    try:
        whole = _follow(_Bounded(stream, where), nodes, where)
    except FileFormatError:
        raise
    except _DAMAGED:
        pass
    _refuse_unfolding(nodes, where)
    return whole


def _follow(stream: Any, nodes: list[_Node], where: str) -> bool:
    stack: list[_Node] = []
    below: list[list[_Node]] = []
    memo: dict[int, _Node] = {}

    def make(held: list[_Node], text: str | None = None) -> None:
        nodes.append(_Node(held, text))
        stack.append(nodes[-1])

    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        name = opcode.name
        if count > PICKLE_OPCODES:
            raise FileFormatError(f"{where} holds a pickle of more than {PICKLE_OPCODES} steps")
        if name == "GLOBAL" and argument in _REFUSED:
            raise FileFormatError(
                f"{where} holds pickled code or objects, which are never executed here: save model.state_dict() "
                f"instead (it calls {str(argument).replace(' ', '.')})"
            )
        if name in _ATOMS:
            make([], argument if isinstance(argument, str) and name != "GLOBAL" else None)
        elif name in _TAKES:
            held = stack[-_TAKES[name] :]
            if len(held) < _TAKES[name]:
                return False
            del stack[-_TAKES[name] :]
            make(held)
        elif name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            items, stack = stack, below.pop()
            if name == "TUPLE":
                make(items)
            else:
                _put(stack[-1], items, name == "SETITEMS", where)
        elif name in ("APPEND", "SETITEM", "BUILD"):
            items = [stack.pop() for _ in range(2 if name == "SETITEM" else 1)][::-1]
            _put(stack[-1], items, name == "SETITEM", where)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[int(argument)] = stack[-1]  # type: ignore[arg-type]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])  # type: ignore[arg-type]
        elif name != "PROTO":
            return name == "STOP"
    return False


def _put(target: _Node, items: list[_Node], keyed: bool, where: str) -> None:
    target.held.extend(items)
    for key in items[::2] if keyed else ():
        if key.text is not None:
            if key.text in target.keys:
                raise FileFormatError(f"{where} holds the name {key.text[:60]!a} twice in one mapping")
            target.keys.add(key.text)


def _refuse_unfolding(nodes: list[_Node], where: str) -> None:
    """The size of each object written out as a tree, from the leaves up; no recursion."""
    sizes: dict[int, int] = {}
    for root in nodes:
        if id(root) in sizes:
            continue
        path: list[tuple[_Node, Iterator[_Node]]] = [(root, iter(root.held))]
        open_nodes = {id(root)}
        while path:
            node, rest = path[-1]
            following = next((n for n in rest if id(n) not in sizes), None)
            if following is None:
                path.pop()
                open_nodes.discard(id(node))
                sizes[id(node)] = size = 1 + sum(sizes[id(n)] for n in node.held)
                if size > PICKLE_TREE:
                    raise FileFormatError(f"{where} holds an object that unfolds to more than {PICKLE_TREE} parts")
            elif id(following) in open_nodes:
                raise FileFormatError(f"{where} holds an object that contains itself")
            else:
                open_nodes.add(id(following))
                path.append((following, iter(following.held)))
