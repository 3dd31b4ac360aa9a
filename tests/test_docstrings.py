"""Docstrings of public names: arguments, return value and errors are described; a function shows an example."""

from __future__ import annotations

import importlib
import inspect
import re
from enum import Enum

import pytest

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
