"""The document of the file format says of every kind of proof what its type says: subjects, claim, data, sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stability.kernel.format.claims import Verdict
from stability.kernel.format.serialization import SUBJECTS
from stability.kernel.format.theorem_table import RULES

TEXT = (Path(__file__).parents[4] / "docs" / "certificate-format.md").read_text(encoding="utf-8")
DATA, CERTIFYING, WITNESSES = re.split(r"^## (?:Proofs that certify|Witnesses)$", TEXT, flags=re.MULTILINE)
KIND = re.compile(r"^\| `(\w+)` \| ([a-z_, ]+) \| (.*) \|$", re.MULTILINE)
GROUPS = dict(re.findall(r"^\| \*\*(\w+)\*\* \| (.*) \|$", DATA, flags=re.MULTILINE))
DESCRIBED = {kind: (tuple(claim.split(", ")), cell) for kind, claim, cell in KIND.findall(CERTIFYING + WITNESSES)}


def named(cell: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the data of a cell with the letters of their sizes: those that a proof must hold, those that it may."""
    cell = cell.rsplit(" | ", 1)[-1]  # witnesses have a column of subjects before it
    needed, optional = (
        dict(re.findall(r"`(\w+)(?: \(([^`]*)\))?`", part)) for part in f"{cell}optional".split("optional")[:2]
    )
    for group in re.findall(r"\*\*(\w+)\*\*", cell):
        more, rest = named(GROUPS[group])
        needed, optional = more | needed, rest | optional
    return needed, optional


def test_every_kind_is_described_once_and_where_it_belongs():
    kinds = [kind for kind, *_ in KIND.findall(CERTIFYING + WITNESSES)]
    assert sorted(kinds) == sorted(RULES)
    assert {kind for kind, *_ in KIND.findall(WITNESSES)} == {k for k in RULES if RULES[k].verdict is Verdict.REFUTED}


@pytest.mark.parametrize("kind", RULES)
def test_its_claims_and_data_are_those_of_its_type(kind):
    rule, (claims, cell) = RULES[kind], DESCRIBED[kind]
    needed, optional = named(cell)
    assert (set(claims), set(needed), set(optional)) == (set(rule.claim), set(rule.fields), set(rule.optional))
    for name, axes in {**needed, **optional}.items():
        size, letters = rule.types[name].size, re.sub(r"[^a-z]", "", axes)
        if letters and size is not None:
            assert [shape(letters)] == [shape(allowed) for allowed in size.axes], name


def shape(axes: str) -> str:
    """Any letter for rows is as good as another."""
    return "".join(axis if axis in "nmp" else "k" for axis in axes)


@pytest.mark.parametrize("kind", [kind for kind, rule in RULES.items() if rule.verdict is Verdict.REFUTED])
def test_a_witness_is_about_the_subjects_it_names(kind):
    subjects = DESCRIBED[kind][1].rsplit(" | ", 1)[0]
    assert {SUBJECTS[name] for name in re.findall(r"`(\w+)`", subjects)} == set(RULES[kind].subject)
