"""Mutants of a source file: the operators are mutmut's, what is left out is decided here.

Left out: texts for people (strings with a blank in them, f-strings outside of the file whose sentences are claims,
whatever stands in a ``raise``), annotations, decorators, docstrings, ``__all__`` and names for types. Unlike mutmut
itself, decorated functions (every rule is one) and constants of a module are mutated too.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

SENTENCES = "stability/kernel/format/sentences.py"  # here the formatted numbers are part of a claim
NEVER = (cst.Annotation, cst.Decorator, cst.Raise, cst.Import, cst.ImportFrom, cst.Assert)
UNCHANGED_CALLS = {"len", "isinstance"}  # as in mutmut: the changed call is an error wherever it stands


@dataclass(frozen=True)
class Mutant:
    """One changed place.

    Attributes:
        key: stable as long as the changed expression stays as it is, wherever it moves in its function.
        file: path from the root.
        scope: qualified name of the outermost function that holds it, or of the module's constant.
        is_constant: whether it is a constant of the module.
        lines: first and last line of the expression.
        around: first and last line of the function.
        source: the whole file, changed.
        diff: the changed lines.
    """

    key: str
    file: str
    scope: str
    is_constant: bool
    lines: tuple[int, int]
    around: tuple[int, int]
    source: str
    diff: str


@dataclass(frozen=True)
class _Place:
    key: str
    scope: str
    is_constant: bool
    lines: tuple[int, int]
    around: tuple[int, int]
    old: cst.CSTNode
    new: cst.CSTNode


def is_prose(node: cst.CSTNode) -> bool:
    """Whether an expression is a text for people."""
    if isinstance(node, cst.SimpleString):
        return " " in node.value
    return isinstance(node, (cst.FormattedString, cst.ConcatenatedString))


def _concerns_prose(old: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Whether a change only takes a text for people away."""
    if isinstance(old, (cst.Assign, cst.AnnAssign)):
        return old.value is not None and is_prose(old.value)
    if isinstance(old, cst.Call) and isinstance(new, cst.Call):
        kept = {id(arg.value) for arg in new.args}
        return any(is_prose(arg.value) for arg in old.args if id(arg.value) not in kept)
    return False


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.places: list[_Place] = []
        self.scope: list[cst.FunctionDef | cst.ClassDef | cst.Assign | cst.AnnAssign] = []
        self.seen: Counter[str] = Counter()
        self.module = cst.Module(body=[])

    def _left_out(self, node: cst.CSTNode) -> bool:
        if isinstance(node, NEVER) or (isinstance(node, cst.SimpleString) and is_prose(node)):
            return True
        if isinstance(node, (cst.FormattedString, cst.ConcatenatedString)):
            return self.file != SENTENCES
        if isinstance(node, cst.SimpleString) and node.raw_value.lstrip("-") in ("inf", "nan"):
            return True  # float() takes them in any case
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name):
            return node.func.value in UNCHANGED_CALLS
        if isinstance(node, cst.Param) and node.default is not None:
            return not isinstance(node.default, (cst.Name, cst.BaseNumber, cst.BaseString))
        return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._left_out(node):
            return False
        inside = any(isinstance(place, cst.FunctionDef) for place in self.scope)
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self.scope.append(node)
            return True
        if not inside and isinstance(node, (cst.Assign, cst.AnnAssign)):
            if self.scope or not _is_constant(node):
                return False  # fields of classes, names of types
            self.scope.append(node)
            return True
        if inside or self.scope:
            self._mutate(node)
        return inside or bool(self.scope) or isinstance(node, (cst.Module, cst.SimpleStatementLine))

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self.scope and self.scope[-1] is original_node:
            self.scope.pop()

    def _mutate(self, node: cst.CSTNode) -> None:
        names: list[str] = []
        holder: cst.CSTNode = node
        for holder in self.scope:
            names.append(_name(holder))
            if isinstance(holder, cst.FunctionDef):
                break
        is_constant = not any(isinstance(place, cst.FunctionDef) for place in self.scope)
        if is_constant and isinstance(self.scope[-1], cst.ClassDef):
            return
        scope = ".".join(names)
        lines, around = self._lines(node), self._lines(holder)
        old = ""
        for kind, operator in mutation_operators:
            if not isinstance(node, kind):
                continue
            for new in operator(node):
                if _concerns_prose(node, new) or _is_same_number(node, new):
                    continue
                old = old or self.module.code_for_node(node)
                text = f"{self.file}\n{scope}\n{old}\n{self.module.code_for_node(new)}"
                self.seen[text] += 1
                key = hashlib.sha256(f"{text}\n{self.seen[text]}".encode()).hexdigest()[:12]
                self.places.append(_Place(key, scope, is_constant, lines, around, node, new))

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        where = self.get_metadata(PositionProvider, node)
        return where.start.line, where.end.line


def _is_same_number(old: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Mutmut adds one to each number: 1e60 stays what it is."""
    return isinstance(old, cst.Float) and isinstance(new, cst.Float) and old.evaluated_value == new.evaluated_value


def _name(node: cst.CSTNode) -> str:
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node.name.value
    target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
    return target.value


def _is_constant(node: cst.Assign | cst.AnnAssign) -> bool:
    targets = [node.target] if isinstance(node, cst.AnnAssign) else [each.target for each in node.targets]
    plain = len(targets) == 1 and isinstance(targets[0], cst.Name) and not targets[0].value.startswith("__")
    return plain and node.value is not None and not isinstance(node.value, (cst.Name, cst.Attribute, cst.Subscript))


def places(root: Path, file: str) -> tuple[cst.Module, list[_Place]]:
    """All places of a file that can be changed, with the module that they belong to."""
    wrapper = MetadataWrapper(cst.parse_module((root / file).read_text(encoding="utf-8")))
    visitor = _Visitor(file)
    wrapper.visit(visitor)
    return wrapper.module, visitor.places


def sample(root: Path, files: list[str], count: int, seed: int) -> tuple[list[Mutant], int]:
    """``count`` mutants, drawn over all files in proportion to their places; the second number is that of all places.

    A file of few places still gives ten of them (or all that it has). The lot of a place is drawn from its key
    alone, so that an edit elsewhere in the file leaves the sample as it is.
    """
    modules = {}
    drawn: list[tuple[str, _Place]] = []
    by_file: defaultdict[str, list[_Place]] = defaultdict(list)
    for file in files:
        modules[file], by_file[file] = places(root, file)
        by_file[file].sort(key=lambda place: hashlib.sha256(f"{seed} {place.key}".encode()).digest())
    total = sum(map(len, by_file.values()))
    for file, all_places in by_file.items():
        share = max(10, -(-count * len(all_places) // max(total, 1)))
        drawn += [(file, place) for place in all_places[:share]]
    random.Random(seed).shuffle(drawn)
    return [_made(modules[file], file, place) for file, place in drawn], total


def _made(module: cst.Module, file: str, place: _Place) -> Mutant:
    before = module.code.splitlines()
    changed = module.deep_replace(place.old, place.new)
    assert isinstance(changed, cst.Module)
    after = changed.code.splitlines()
    start = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), 0)
    end = next((i for i, (a, b) in enumerate(zip(before[::-1], after[::-1])) if a != b), 0)
    end = min(end, min(len(before), len(after)) - start)
    removed = [f"- {line.strip()}" for line in before[start : len(before) - end]]
    added = [f"+ {line.strip()}" for line in after[start : len(after) - end]]
    diff = "\n".join(removed + added)
    return Mutant(place.key, file, place.scope, place.is_constant, place.lines, place.around, changed.code, diff)
