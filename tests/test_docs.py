"""README and documentation: pages are linked, commands exist, sentences and tables are short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stability.analysis import TASKS
from stability.models import LAYERS
from stability.reports.cli import COMMANDS, app
from stability.reports.cli.certify import CRITERION

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
README = ROOT / "README.md"
WORDS, TABLE_LINE = 30, 160  # most words of a sentence, most characters of a table's line


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _commands(text: str) -> list[list[str]]:
    """Every command of a page: indented or fenced lines, and those in code spans that have arguments."""
    text = re.sub(r"```python\n.*?```", "", text, flags=re.DOTALL)
    lines = re.findall(r"^ +(?:- run: )?(stability .*)$", text, flags=re.MULTILINE) + re.findall(
        r"`(stability [^`]*)`", text
    )
    return [shlex.split(line, comments=True) for line in lines]


def _sentences(text: str) -> list[str]:
    """Return the sentences of paragraphs and list items; a code span or a formula counts as one word."""
    text = re.sub(r"^(```|:::).*?^\1\n?", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]+`|\$[^$\n]+\$", "CODE", text)
    text = re.sub(r"\]\([^)]*\)|<[^>\n]+>|!\[", "", text)
    text = re.sub(r"^(?: {4}.*|#.*|\s*\|.*)$", "", text, flags=re.MULTILINE)  # code, headings, tables
    blocks = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    return [s for block in blocks for s in re.split(r"(?<=[.!?])[*\")]*\s+", " ".join(block.split())) if s]


def _long(text: str) -> list[str]:
    """Return the sentences of more than WORDS words."""
    return [s for s in _sentences(text) if sum(bool(re.search(r"\w", word)) for word in s.split()) > WORDS]


def _wide(text: str) -> list[str]:
    """Return the lines of tables of more than TABLE_LINE characters."""
    return [line for line in text.splitlines() if line.startswith("|") and len(line) > TABLE_LINE]


def test_long_sentences_and_wide_tables_are_found() -> None:
    words = " ".join(["word"] * WORDS)
    assert _long(f"{words}.\n\n- {words}. `a b c` {words}.\n") == [f"CODE {words}."]
    assert _long(f"{words}\nmore [link](target.md)") == [f"{words} more [link"]
    assert _wide("| a |\n|" + "-" * TABLE_LINE + "|\n") == ["|" + "-" * TABLE_LINE + "|"]


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.encode()) <= 9_000
    assert _long(text) == _wide(text) == []


def test_tables_of_the_pages_are_narrow() -> None:
    assert {page.stem: _wide(text) for page, text in TEXTS.items() if _wide(text)} == {}


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda p: p.stem)
def test_rows_of_a_table_have_as_many_cells_as_its_heading(page: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        rows = [
            line.replace(r"\|", "").count("|") for line in table.splitlines()
        ]  # one in a code span splits a cell, too
        assert len(set(rows)) == 1, table


@pytest.mark.parametrize("reference", [False, True], ids=["guides", "reference"])
def test_sentences_of_the_pages_are_short(reference: bool) -> None:
    names = ("certificate-format", "glossary")  # long lists, which would hide the sentences of the guides
    texts = [text for page, text in TEXTS.items() if (page.stem in names) == reference]
    found = [sentence for text in texts for sentence in _long(text)]
    assert len(found) < 0.02 * sum(len(_sentences(text)) for text in texts), found


def test_every_criterion_layer_and_task_is_described() -> None:
    layers, tasks = ({n for n, made in r.items() if made.__module__.startswith("stability.")} for r in (LAYERS, TASKS))
    names = {"criteria": {*CRITERION} - {"auto"}, "robust-training": layers, "your-model": tasks - {"data"}}
    for page, expected in names.items():
        text = TEXTS[DOCS / f"{page}.md"]
        assert {name for name in expected if f"`{name}`" not in text} == set(), page


def test_every_page_stands_in_the_contents() -> None:
    listed = re.findall(r"^([\w/-]+)$", TEXTS[DOCS / "index.md"], flags=re.MULTILINE)
    assert sorted(listed) == sorted(str(p.relative_to(DOCS).with_suffix("")) for p in PAGES if p.name != "index.md")


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda p: p.stem)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.is_file(), target
        assert not anchor or anchor in _anchors(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", [p for p in PAGES if _commands(TEXTS[p])], ids=lambda p: p.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in _commands(TEXTS[page]):
        name = words[1] if len(words) > 1 else ""
        if not name.islower():  # "stability COMMAND": a placeholder
            continue
        assert name in COMMANDS, words
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        for option in (word for word in words[2:] if word.startswith("-") and not word[1:2].isdigit()):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), (words, option)


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "theory.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css)', page)
