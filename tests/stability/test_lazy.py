"""What is loaded when it is asked for is all there, under the names and in the files that the tables say."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stability
from stability.kernel.format.lazy_table import Table
from stability.kernel.format.serialization import SUBJECTS, is_subject
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
        "print(rule.kind, *sorted(m[16:] for m in sys.modules if m.startswith('stability.rules.')))"
    ).split()
    assert said[0] == "ball"
    assert {"bounded", "registry"} <= set(said[1:])
    assert not {"stack_contraction", "gain_steps", "periodic_orbits"} & set(said)
    assert int(run("from stability.kernel.format.theorem_table import RULES; print(len(RULES))")) == len(KINDS)


def test_a_rule_that_is_in_no_table_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch):
    homes = {kind: home for kind, home in KINDS.items() if kind != "ball"}
    table: Table[int] = Table({"a": "json"}, lambda: ("base64",))
    assert "ball" not in homes
    assert "a" not in table
    assert "b" not in table
    table["b"] = 2
    assert dict(table) == {"b": 2}
    assert len(table) == 1
    monkeypatch.setattr(RULES, "homes", homes)
    assert RULES["ball"].kind == "ball"


def test_the_package_offers_what_it_lists_from_where_it_is_defined():
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    shown = {a.name: n.module for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert shown == stability._HOMES
    assert set(shown) == set(stability.__all__)
    assert all(getattr(stability, name) is not None for name in stability.__all__)
    assert set(stability.__all__) <= set(dir(stability))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        stability.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["certify", "verify", "refute"])
@pytest.mark.parametrize("first", ["", "import stability.{0}; ", "from stability.{0} import {0}; "])
def test_a_function_with_the_name_of_its_file_stays_the_function(name: str, first: str):
    code = f"import stability; {first.format(name)}print(type(stability.{name}).__name__, stability.{name}.__module__)"
    assert run(code) == f"function stability.{name}"


def test_rooms_are_reached_through_the_package():
    assert run("import stability; print(stability.systems.LureSystem.__name__)") == "LureSystem"
    assert run("import sys, stability; print('numpy' in sys.modules)") == "False"


def test_a_subject_is_its_own_type_alone():
    system = stability.LureSystem.recurrent([[-1.0]], [[0.5]])
    assert is_subject(system)
    assert not is_subject(system.A)
    assert not is_subject(type("Sub", (stability.LureSystem,), {}))
