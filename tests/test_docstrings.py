"""Docstrings: public names are described in full with an example; first lines and names are plain in all layers.

The linter checks that functions begin with a verb (D401)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from tests.test_architecture import ROOT, tree_of

PACKAGES = ("stability", "stability.models", "stability.analysis", "stability.reports")
PUBLIC = {
    name: thing
    for package in map(importlib.import_module, PACKAGES)
    for name in package.__all__
    if getattr(thing := getattr(package, name), "__module__", "").startswith("stability")
    and (inspect.isclass(thing) or inspect.isfunction(thing))
}


def section(text: str, titles: str) -> str:
    """The bodies of the sections with one of these titles, ``A|B``."""
    return "".join(re.findall(rf"^(?:{titles}):[^\n]*\n((?:[ \t]+[^\n]*\n|\n)*)", text + "\n", re.MULTILINE))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_described(name: str) -> None:
    thing, text = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    assert text
    if inspect.isclass(thing) and (issubclass(thing, (BaseException, Enum)) or inspect.isabstract(thing)):
        return
    signature = inspect.signature(thing)
    heads = re.findall(r"^\s+([*\w`, ]+?)(?: \([^)]*\))?:", section(text, "Args|Attributes"), re.MULTILINE)
    described = {word.strip(" *`") for head in heads for word in head.split(",")}
    assert {arg for arg in signature.parameters if not arg.startswith("_")} <= described
    if inspect.isfunction(thing):
        raises = re.search(r"^\s+raise \w*Error\b", inspect.getsource(thing), re.MULTILINE)
        assert str(signature.return_annotation) in ("None", "NoReturn") or section(text, "Returns|Yields")
        assert not raises or section(text, "Raises")
        assert ">>>" in text, "no example"
    else:
        own = [value for key, value in vars(thing).items() if not key.startswith("_") and inspect.isfunction(value)]
        assert not [method.__qualname__ for method in own if not inspect.getdoc(method)]


FOLDERS = ("stability", "models", "analysis", "reports")
"""Folders whose first lines, entries and names are checked; of tests only fragments are refused."""
FRAGMENT = (
    r"(What|Whatever|Whether|That|Of|How|Where|Which|Who|Whom|Whose|When|Why|If|As|By how|"
    r"Those|Some|Nothing|Their|Its)\b"
)
UNCLEAR = rf"{FRAGMENT}|(It|They|Itself|Always|See|In|On|At|From|For|With|Under|To|The same)\b|``"
"""First words that name nothing; a test may also state its law as a sentence or a formula."""
ENTRY = r"(?m)^ {4,}\w+: (of|what|whatever|whose|whom|by how|how many) "
RIDDLES = frozenset(
    re.findall(
        r"\w+",
        "after below few ahead togo told spans leaves swept loose fed own given chosen places ends shown wire foreign "
        "door errand far there said asked known found",
    )
)
PROMISED = {
    *("Given", "Campaign.given", "analyse.given", "characters.ahead", "Step.after", "CrossCheck.asked"),
    "Refutation.found",
    "Checked.found",
}
"""Names of options, stored fields and interfaces, which stay."""


def files_of(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def refused(folder: str, pattern: str) -> list[str]:
    """Docstrings with the pattern, those below constants and fields included."""
    search = re.compile(pattern).match if pattern != ENTRY else re.compile(pattern).search
    return [
        f"{path.relative_to(ROOT)}:{part.lineno}: {part.value.value[:90]}"
        for path in files_of(folder)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for part in node.body
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
        if search(part.value.value)
    ]


def names(tree: ast.Module) -> Iterator[str]:
    """Classes and functions, ``Class.field``, ``Class.method`` and ``function.argument``."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = {part for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}
    for node in classes:
        yield node.name
        yield from (f"{node.name}.{ast.unparse(part.target)}" for part in node.body if isinstance(part, ast.AnnAssign))
        yield from (f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from [] if node in methods else [node.name]
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (f"{node.name}.{each.arg}" for each in arguments)


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_first_lines_name_their_thing(folder: str) -> None:
    assert not refused(folder, UNCLEAR if folder in FOLDERS else FRAGMENT)
    assert folder not in FOLDERS or not refused(folder, ENTRY)


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_say_what_they_hold(folder: str) -> None:
    checked = [path for path in files_of(folder) if "kernel" not in path.parts]  # whose fields are those of the format
    unclear = {name for path in checked for name in names(tree_of(path)) if name.rpartition(".")[2].lower() in RIDDLES}
    assert unclear <= PROMISED
