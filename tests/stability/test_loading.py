"""Lazily loaded names exist, in the files that the tables state."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import stability
from stability.kernel import theorems
from stability.kernel.format.serialization import SUBJECTS
from stability.kernel.format.theorem_files import KINDS
from stability.kernel.format.theorem_table import RULES

SOURCE = Path(stability.__file__).read_text(encoding="utf-8")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_rule_and_every_subject_lives_where_its_table_says():
    assert {kind: rule.data.__module__ for kind, rule in RULES.items()} == KINDS
    assert {name: kind.__module__ for name, kind in SUBJECTS.items()} == SUBJECTS.homes
    assert list(RULES)
    assert "no such kind" not in RULES
    assert RULES.get("no such kind") is None


def test_one_rule_is_loaded_without_the_others():
    said = run(
        "import sys; from stability.kernel.format.theorem_table import RULES; rule = RULES['ball']; "
        "print(rule.kind, *sorted(m[26:] for m in sys.modules if m.startswith('stability.kernel.theorems.')))"
    ).split()
    assert said[0] == "ball"
    assert "bounded" in said[1:]
    assert not {"stack_contraction", "gain_steps", "periodic_orbits"} & set(said)
    assert int(run("from stability.kernel.format.theorem_table import RULES; print(len(RULES))")) == len(KINDS)


def test_every_file_of_theorems_is_in_the_table():
    """A file with a rule that has no row cannot be imported; here all are."""
    for path in Path(theorems.__file__).parent.glob("[!_]*.py"):
        importlib.import_module(f"stability.kernel.theorems.{path.stem}")


def test_the_package_offers_what_it_lists_from_where_it_is_defined():
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    shown = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert shown == stability._MODULES
    assert set(shown) == set(stability.__all__)
    assert all(getattr(stability, name) is not None for name in stability.__all__)
    assert set(stability.__all__) <= set(dir(stability))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stability.nothing  # noqa: B018


def test_folders_are_reached_through_the_package():
    assert run("import stability; print(stability.systems.LureSystem.__name__)") == "LureSystem"
    assert run("import sys, stability; print('numpy' in sys.modules)") == "False"
