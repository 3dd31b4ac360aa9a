"""The document of the file format says of every kind of proof what its type says: subjects, claim, data, sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stability.kernel.format.claims import Verdict
from stability.kernel.format.serialization import SUBJECTS
from stability.kernel.format.theorem_table import RULES

TEXT = (Path(__file__).parents[4] / "docs" / "certificate-format.md").read_text(encoding="utf-8")
CERTIFYING, WITNESSES = TEXT.split("## Proofs that certify")[1].split("## Witnesses")
ITEM = re.compile(r"^- \*\*`(\w+)`\*\*: (?:claim|subject) (.*?)\. Data: (.*?)\. ", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([A-Za-z_0-9 ]+?)(?: (\([a-z,]+\)))?`(?: `(\([a-z,]+\))`)?")


def cells(part: str) -> dict[str, tuple[str, str]]:
    return {kind: (" ".join(about.split()), " ".join(data.split())) for kind, about, data in ITEM.findall(part)}


def named(data: str) -> tuple[dict[str, str], dict[str, str]]:
    """Data with their sizes, those that a proof must hold and those in parentheses, which it may."""
    optional = "".join(re.findall(r"\(((?:`[^`]*`(?:, )?)+)\)", data))
    needed = re.sub(r"\((?:`[^`]*`(?:, )?)+\)", "", data)
    return sized(needed), sized(optional)


def sized(text: str) -> dict[str, str]:
    """The names in a cell with the letters of their sizes; a size stands behind the names that it is about."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    for words, inner, outer in NAME.findall(text):
        waiting += words.split()
        size = re.sub(r"[^a-z]", "", inner or outer)
        if size:
            found |= dict.fromkeys(waiting if outer else waiting[-1:], size)
            found |= {name: "" for name in waiting if name not in found}
            waiting = []
    return found | dict.fromkeys(waiting, "")


def multiplier() -> tuple[str, str]:
    """The one kind with a paragraph of its own."""
    line = re.search(r"\*\*`multiplier_lmi`\*\*.*?Data: (.*?)\.\n", CERTIFYING)
    assert line is not None
    return "contraction", line[1]


DESCRIBED = {"multiplier_lmi": multiplier(), **cells(CERTIFYING), **cells(WITNESSES)}


def test_every_kind_is_described_once_and_where_it_belongs():
    assert set(DESCRIBED) == set(RULES)
    certifying = {kind for kind, rule in RULES.items() if rule.verdict is Verdict.CERTIFIED}
    assert {"multiplier_lmi", *cells(CERTIFYING)} == certifying
    assert set(cells(WITNESSES)) == set(RULES) - certifying


@pytest.mark.parametrize("kind", RULES)
def test_its_data_are_those_of_its_type(kind):
    needed, optional = named(DESCRIBED[kind][1])
    rule = RULES[kind]
    assert set(needed) == set(rule.fields)
    assert set(optional) == set(rule.optional)
    for name, letters in {**needed, **optional}.items():
        size = rule.types[name].size
        if letters and size is not None:
            assert [shape(letters)] == [shape(axes) for axes in size.axes], name


def shape(axes: str) -> str:
    """Any letter for rows is as good as another."""
    return "".join(axis if axis in "nmp" else "k" for axis in axes)


@pytest.mark.parametrize("kind", [kind for kind in RULES if kind in cells(WITNESSES)])
def test_a_witness_is_about_the_subjects_it_names(kind):
    types = {SUBJECTS[name] for name in SUBJECTS if f"`{name}`" in DESCRIBED[kind][0]}
    assert types == set(RULES[kind].subject)


@pytest.mark.parametrize("kind", cells(CERTIFYING))
def test_a_proof_is_of_the_claim_it_names(kind):
    assert tuple(DESCRIBED[kind][0].split(" or ")) == RULES[kind].claim
