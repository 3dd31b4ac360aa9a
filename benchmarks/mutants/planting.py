"""Plants a mutant into the running process: the code of living functions is exchanged, files are never touched."""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from .making import Mutant


class NotPlantableError(Exception):
    """The change cannot be made in a running process."""


def module_name(file: str) -> str:
    """The module of a file, as the import system sees it: all floors lie in the one package."""
    parts = Path(file).with_suffix("").parts
    parts = parts if parts[0] == "stability" else ("stability", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Garden:
    """All living functions of the given files, by file and qualified name."""

    def __init__(self, root: Path, files: list[str]) -> None:
        self.modules: dict[str, ModuleType] = {file: sys.modules[module_name(file)] for file in files}
        names = {str(root / file): file for file in files}
        self.functions: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if type(thing) is FunctionType:  # not isinstance: some objects warn when asked for their class
                file = names.get(thing.__code__.co_filename)
                if file is not None:
                    self.functions[file, thing.__code__.co_qualname].append(thing)

    def plant(self, mutant: Mutant) -> None:
        """Make the change, in this process only.

        Raises:
            NotPlantableError: when no living function has this name, or its closure would need other variables.
        """
        filename = self.modules[mutant.file].__file__
        code = compile(mutant.source, filename, "exec")
        if mutant.is_constant:
            self._set_constant(mutant)
            return
        changed = [
            pair
            for name, codes in _codes(code).items()
            if name == mutant.scope or name.startswith(f"{mutant.scope}.<locals>.")
            for pair in self._pairs(mutant.file, name, codes)
        ]
        if not any(new.co_qualname == mutant.scope for _, new in changed):
            raise NotPlantableError("no living function of this name")
        defaults = _defaults(mutant, self.modules[mutant.file])
        for function, new in changed:
            try:
                function.__code__ = new
            except ValueError as error:
                raise NotPlantableError(str(error)) from None
            if defaults is not None and new.co_qualname == mutant.scope:
                function.__defaults__, function.__kwdefaults__ = defaults

    def _pairs(self, file: str, name: str, codes: list[CodeType]) -> list[tuple[FunctionType, CodeType]]:
        """Functions with their new code: those of one name (``_``, a property and its setter) by their order."""
        living = self.functions.get((file, name), [])
        order = sorted({function.__code__.co_firstlineno for function in living})
        if len(order) != len(codes):
            return []
        return [(function, codes[order.index(function.__code__.co_firstlineno)]) for function in living]

    def _set_constant(self, mutant: Mutant) -> None:
        module = self.modules[mutant.file]
        old = getattr(module, mutant.scope)
        for node in ast.parse(mutant.source).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id == mutant.scope:
                    new = eval(compile(ast.Expression(node.value), module.__file__, "eval"), module.__dict__)
                    for other in list(sys.modules.values()):
                        if getattr(other, "__dict__", {}).get(mutant.scope) is old:
                            other.__dict__[mutant.scope] = new


def _codes(code: CodeType) -> dict[str, list[CodeType]]:
    """Every function's code in a module's, by qualified name, in the order of the file."""
    found: defaultdict[str, list[CodeType]] = defaultdict(list)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname].append(constant)
            for name, codes in _codes(constant).items():
                found[name] += codes
    return found


def _defaults(mutant: Mutant, module: ModuleType) -> tuple[tuple | None, dict | None] | None:
    """The default arguments of the changed function; ``None`` where its name does not single it out."""
    body: list[ast.stmt] = ast.parse(mutant.source).body
    for name in mutant.scope.split("."):
        named = [each for each in body if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and each.name == name]
        if len(named) != 1:
            return None
        body = named[0].body
    node = named[0]
    assert isinstance(node, ast.FunctionDef)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    empty = ast.FunctionDef(node.name, node.args, [ast.Pass()], [], None, None)
    scratch: dict = {}
    exec(compile(ast.fix_missing_locations(ast.Module([empty], [])), "defaults", "exec"), module.__dict__, scratch)
    return scratch[node.name].__defaults__, scratch[node.name].__kwdefaults__
