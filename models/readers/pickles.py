"""A look at a pickle before anything is made from it: how much it would unfold to, and whether it says a thing twice.

``torch.load(weights_only=True)`` runs no foreign code, but it believes sizes: thirty nested pairs of one object are a
kilobyte in the file and take hours to hash. Here the opcodes are followed with empty nodes in the place of objects.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any, BinaryIO

from stability.errors import FileFormatError

from .limits import PICKLE_BYTES, PICKLE_OPCODES, PICKLE_TREE
from .postorder import postorder

_REFUSED = ("builtins bytearray", "_codecs encode", "__builtin__ bytearray")
"""What torch allows and no tensor needs: one makes memory of a number, the other is slow on long texts."""
_ATOMS = (
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1", "GLOBAL"),
    *("BINUNICODE", "SHORT_BINSTRING", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"),
)
_TAKES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "NEWOBJ": 2, "REDUCE": 2, "BINPERSID": 1}
_FILLS = ("TUPLE", "APPENDS", "SETITEMS", "APPEND", "SETITEM", "BUILD")
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
    objects = _Objects(nodes, where)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if count > PICKLE_OPCODES:
            raise FileFormatError(f"{where} holds a pickle of more than {PICKLE_OPCODES} steps")
        if opcode.name == "GLOBAL" and argument in _REFUSED:
            raise FileFormatError(
                f"{where} holds pickled code or objects, which are never executed here: save model.state_dict() "
                f"instead (it calls {str(argument).replace(' ', '.')})"
            )
        if not objects.step(opcode.name, argument):
            return opcode.name == "STOP"
    return False


class _Objects:
    """What a pickle's machine has on its stack, below its marks and in its memory, with nodes for objects."""

    def __init__(self, nodes: list[_Node], where: str) -> None:
        self.nodes, self.where = nodes, where
        self.stack: list[_Node] = []
        self.below: list[list[_Node]] = []
        self.memo: dict[int, _Node] = {}

    def step(self, name: str, argument: Any) -> bool:
        """One opcode; False for one that is not followed."""
        if name in _ATOMS:
            self._make([], argument if isinstance(argument, str) and name != "GLOBAL" else None)
        elif name in _TAKES:
            return self._take(_TAKES[name])
        elif name in _FILLS:
            self._fill(name)
        elif name == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(argument)])
        else:
            return name == "PROTO"
        return True

    def _make(self, held: list[_Node], text: str | None = None) -> None:
        self.nodes.append(_Node(held, text))
        self.stack.append(self.nodes[-1])

    def _take(self, count: int) -> bool:
        """An object made of the last ones."""
        held = self.stack[-count:]
        if len(held) == count:
            del self.stack[-count:]
            self._make(held)
        return len(held) == count

    def _fill(self, name: str) -> None:
        """Put into an object what stands above its mark, or one item (a key with its value)."""
        if name in ("TUPLE", "APPENDS", "SETITEMS"):
            items, self.stack = self.stack, self.below.pop()
        else:
            items = [self.stack.pop() for _ in range(2 if name == "SETITEM" else 1)][::-1]
        if name == "TUPLE":
            self._make(items)
            return
        target = self.stack[-1]
        target.held.extend(items)
        for key in items[::2] if name.startswith("SETITEM") else ():
            if key.text is not None and key.text in target.keys:
                raise FileFormatError(f"{self.where} holds the name {key.text[:60]!a} twice in one mapping")
            target.keys |= set() if key.text is None else {key.text}


def _refuse_unfolding(nodes: list[_Node], where: str) -> None:
    """The size of each object written out as a tree, from the leaves up; no recursion."""
    sizes: dict[_Node, int] = {}

    def circle(_: _Node) -> None:
        raise FileFormatError(f"{where} holds an object that contains itself")

    for root in nodes:
        for node in postorder(root, lambda node: node.held, sizes.__contains__, circle):
            sizes[node] = size = 1 + sum(sizes[inner] for inner in node.held)
            if size > PICKLE_TREE:
                raise FileFormatError(f"{where} holds an object that unfolds to more than {PICKLE_TREE} parts")
