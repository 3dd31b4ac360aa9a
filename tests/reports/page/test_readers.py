"""The page for those who print it, who enlarge it, who are read to, and who compare many models."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from matplotlib.pyplot import imread

from stability.reports import render
from stability.reports.page.html import footer
from stability.reports.page.layout import FEW

from ..browser import BROWSER, visit
from ..conftest import make_report_dir
from .test_html import Page
from .test_numbers import Tables

pypdf = pytest.importorskip("pypdf", reason="the extra `test` brings it")
AXE = find_spec("axe_playwright_python")
RUN = """axe.run(document, {runOnly: {type: 'tag', values: %s}, rules: {'color-contrast-enhanced': {enabled: true}}})
.then(r => JSON.stringify([r.passes.map(p => [p.id, p.nodes.length]),
r.violations.map(v => [v.id, v.nodes.length, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))])]))"""
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Paper(Tables):
    """The parts of wide tables that are for paper."""

    for_paper = True


def needs_browser(test: Any) -> Any:
    """The marks of a test that opens the page."""
    why = "no Chromium on this machine; `.ci/run` installs one"
    return pytest.mark.page(pytest.mark.skipif(BROWSER is None, reason=why)(test))


KEPT = ("accuracy", "ci_low", "ci_high")
LONG = "a network with a name of many letters that somebody gave it on a long afternoon, the seventh of them"


def copies(folder: Path, many: int) -> Path:
    """One certified and one refuted model, so often that there are so many, each with a name of its own."""
    folder = make_report_dir(folder, ("contracting", "lstm"))
    names = []
    for k in range(many):
        base, name = ("contracting", "lstm")[k % 2], f"net-{k:02d}"
        shutil.copytree(folder / "models" / base, folder / "models" / name)
        path = folder / "models" / name / "analysis.json"
        title = LONG if k == 3 else f"Network no {k:02d}"
        path.write_text(json.dumps({**json.loads(path.read_text()), "title": title}))
        names.append(name)
    settings = folder / "report-settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "models": names}))
    return folder


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of more models than share a panel."""
    folder = copies(tmp_path_factory.mktemp("many") / "report", FEW + 2)
    render(folder)
    return folder


def titles(folder: Path) -> list[str]:
    return [m["title"] for m in json.loads((folder / "report.json").read_text())["models"]]


def test_of_many_models_each_has_a_row_and_a_drawing_of_its_own(many: Path) -> None:
    text = (many / "report.html").read_text(encoding="utf-8")
    read = Tables(text)
    (white,) = [rows for caption, rows in read.tables.items() if caption.startswith("White noise")]
    stored = {t: many / "models" / f"net-{k:02d}" / "noise.csv" for k, t in enumerate(titles(many))}
    assert [row[0] for row in white[1:]] == list(stored)
    rows = [line.split(",") for line in stored[white[2][0]].read_text().splitlines()]
    head = rows[0]
    kept = {float(r[1]): [float(r[head.index(k)]) for k in KEPT] for r in rows[1:] if r[0] == "white"}
    told = [f"{100 * v:.1f} % ({100 * a:.0f} to {100 * b:.0f})" for _, (v, a, b) in sorted(kept.items())]
    assert white[2][1:] == told
    for words in (
        "two trajectories under one input",
        "Norm of the hidden state of",
        "Spectral density of the Hessian of",
    ):
        labels = [label for label in re.findall(r'aria-label="([^"]*)"', text) if words in label]
        assert len(labels) >= len(titles(many)) // 2
        assert all(re.search(r"\d", label) for label in labels), labels
    assert Page(text).faults == []
    grown = len(text.encode()) / len(titles(many)) * 50
    assert grown < 5_000_000


@pytest.mark.slow
def test_a_page_of_fifty_models_is_small(tmp_path: Path) -> None:
    page = render(copies(tmp_path / "report", 50))
    assert page.stat().st_size < 5_000_000
    assert len([c for c in Tables(page.read_text(encoding="utf-8")).tables if c.startswith("Files of")]) == 50


def squeezed(text: str) -> str:
    """Without spaces and ligatures, which a print has of its own."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


@pytest.fixture(scope="module")
def printed(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A print; the reader prefers dark pages."""
    folder = tmp_path_factory.mktemp("print")
    visit(many / "report.html", folder / "profile", pdf=folder / "page.pdf", scheme="dark")
    return folder / "page.pdf"


def extracted(path: Path) -> tuple[list[str], dict[float, str]]:
    """The text of the pages of a print; the sizes of its letters in points, each with some words."""
    found: dict[float, str] = {}

    def see(words: str, cm: Any, tm: Any, font: Any, size: float) -> None:
        high = math.hypot(tm[2] * cm[0] + tm[3] * cm[2], tm[2] * cm[1] + tm[3] * cm[3]) * size
        if words.strip():
            found.setdefault(round(high, 1), words.strip()[:60])

    return [page.extract_text(visitor_text=see) for page in pypdf.PdfReader(path).pages], found


@pytest.fixture(scope="module")
def letters(printed: Path) -> tuple[list[str], dict[float, str]]:
    """What ``extracted`` finds in the print."""
    return extracted(printed)


@pytest.fixture(scope="module")
def pages(letters: tuple[list[str], dict[float, str]]) -> list[str]:
    """The text of the printed pages."""
    return letters[0]


@needs_browser
def test_every_model_stands_in_every_table(many: Path, pages: list[str]) -> None:
    digest = hashlib.sha256((many / "report.json").read_bytes()).hexdigest()
    assert all(digest in page for page in pages)
    whole = "".join(squeezed(re.sub(rf"\d+ / {len(pages)}|report\.json, SHA-256 {digest}", "", p)) for p in pages)
    read = Tables((many / "report.html").read_text(encoding="utf-8"))
    shown = {c: rows for c, rows in read.tables.items() if rows[0][0] == "model"}
    assert len(shown) > 10
    for caption, rows in shown.items():
        start = whole.index(squeezed(caption))
        for row in rows[1:]:
            start = whole.index(squeezed(row[0]), start) + 1
    for title in titles(many):  # folded blocks are unfolded on paper
        assert squeezed(f"Files of {title}") in whole


@needs_browser
def test_headings_of_long_tables_are_repeated(many: Path, pages: list[str]) -> None:
    heads = sum(squeezed(page).count(squeezed("SHA-256made by")) for page in pages)
    assert heads >= len(titles(many))


@needs_browser
def test_a_digest_is_printed_letter_by_letter(tmp_path: Path) -> None:
    digest = "ff1ffl9ffi" * 6 + "abcd"
    (tmp_path / "page.html").write_text(f"<style>{footer(digest)}</style><p>words", encoding="utf-8")
    visit(tmp_path / "page.html", tmp_path / "profile", pdf=tmp_path / "page.pdf")
    assert digest in pypdf.PdfReader(tmp_path / "page.pdf").pages[0].extract_text()


@needs_browser
def test_no_letter_of_a_print_is_smaller_than_seven_points(
    many: Path, letters: tuple[list[str], dict[float, str]]
) -> None:
    """Wide tables stand in parts, each with the models' names; one that sticks out has the browser shrink all pages."""
    sizes = letters[1]
    assert min(sizes) >= 7.0, sizes[min(sizes)]
    text = (many / "report.html").read_text(encoding="utf-8")
    parts = Paper(text).tables
    whole = Tables(text).tables
    assert len(parts) >= 4
    split = [c for c in whole if any(p.startswith(f"{c}, part ") for p in parts)]
    for caption in split:
        own = [rows for c, rows in parts.items() if c.startswith(f"{caption}, part ")]
        again = [row[:1] + [cell for part in own for cell in part[k][1:]] for k, row in enumerate(own[0])]
        assert again == whole[caption]
    assert len(parts) == sum(int(c.rsplit(" ", 1)[1]) for c in parts if ", part 1 of " in c)


@needs_browser
@pytest.mark.parametrize("scrolled", [0, 120])
def test_rules_of_a_table_go_on_over_the_column_that_stays(many: Path, tmp_path: Path, scrolled: int) -> None:
    places = f"""(() => {{ const s = document.querySelector('.scroll'); s.scrollLeft = {scrolled};
      return JSON.stringify([...s.querySelectorAll('tr')].slice(0, 3).map(r => {{
        const box = r.cells[0].getBoundingClientRect();
        return [box.left + 4, box.right + 12, box.top + scrollY]; }})); }})()"""
    seen = visit(
        many / "report.html", tmp_path / "p", size=(390, 900), picture=tmp_path / "page.png", scripts=(places,)
    )
    picture = imread(tmp_path / "page.png")[:, :, :3]
    for left, right, top in json.loads(seen.answer):
        rows = slice(max(0, round(top) - 1), round(top) + 2)
        first, beside = (picture[rows, round(x)] for x in (left, right))
        assert first.min() < picture[5, 5].min() - 0.03  # a rule, on paper
        assert abs(first.min() - beside.min()) < 0.02


@needs_browser
@pytest.mark.skipif(AXE is None, reason="the extra `test` brings axe-playwright-python")
@pytest.mark.parametrize(("models", "size", "scheme"), [("many", (1280, 900), "light"), ("few", (390, 800), "dark")])
def test_axe_finds_nothing_at_levels_a_and_aa_and_text_has_the_contrast_of_aaa(
    many: Path, drawn: Path, tmp_path: Path, models: str, size: tuple[int, int], scheme: str
) -> None:
    assert AXE is not None, "the extra `test` brings axe-playwright-python, whose axe.min.js this reads"
    assert AXE.origin is not None
    script = Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    opened = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
    folder = many if models == "many" else drawn
    asked = (script, opened, RUN % json.dumps(LEVELS))
    seen = visit(folder / "report.html", tmp_path / "axe", size=size, scheme=scheme, scripts=asked)
    passed, found = json.loads(seen.answer)
    assert found == []
    assert dict(passed)["color-contrast-enhanced"] > 100
    assert dict(passed)["color-contrast"] > 100
    assert sum(nodes for _, nodes in passed) > 500
    assert seen.console == []


ENLARGED = """(() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  document.documentElement.style.fontSize = '%d%%';
  const w = window.innerWidth, wide = [], torn = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('.scroll, pre, svg') && !e.matches('.scroll, pre, svg')) continue;
    const box = e.getBoundingClientRect();
    if (box.width > 0 && (box.right > w + 1 || box.left < -1)) wide.push(e.outerHTML.slice(0, 120));
  }
  for (const e of document.querySelectorAll('dl.facts dt, dl.facts dd, .card p, h2, h3, h4, figcaption')) {
    const look = getComputedStyle(e);
    const high = e.clientHeight - parseFloat(look.paddingTop) - parseFloat(look.paddingBottom);
    const lines = high / parseFloat(look.lineHeight || '1'), words = e.innerText.split(/\\s+/).length;
    const long = Math.max(0, ...e.innerText.split(/\\s+/).map(word => word.length));
    if (long < 24 && lines > words + 1.5) torn.push([e.innerText.slice(0, 80), lines, words]);
  }
  const body = parseFloat(getComputedStyle(document.body).fontSize);
  return JSON.stringify([w, document.documentElement.scrollWidth, wide.slice(0, 5), torn.slice(0, 5), body]);
})()"""


@needs_browser
@pytest.mark.parametrize(("width", "text"), [(390, 100), (390, 200), (1280, 200), (1920, 100)])
def test_nothing_sticks_out_or_is_torn_whatever_the_width_and_the_size_of_text(
    many: Path, tmp_path: Path, width: int, text: int
) -> None:
    seen = visit(many / "report.html", tmp_path / "profile", size=(width, 900), scripts=(ENLARGED % text,))
    inner, scroll, wide, torn, body = json.loads(seen.answer)
    assert inner == width
    assert scroll <= width
    assert wide == []
    assert torn == []
    assert body >= 0.15 * text
    assert seen.console == []


OVER = """(() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  const found = [];
  let looked = 0;
  for (const svg of document.querySelectorAll('figure svg')) {
    const frame = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label').slice(0, 60);
    const all = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    all.forEach(([words, a], i) => {
      if (!a.width) return;
      looked += 1;
      if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push([name, words, 'sticks out']);
      for (const [other, b] of all.slice(0, i)) {
        const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (w > 1.5 && h > 3.5) found.push([name, words, other]);
      }
    });
  }
  return JSON.stringify([looked, found.slice(0, 8)]);
})()"""


@needs_browser
@pytest.mark.parametrize("models", ["few", "many"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_words_of_a_drawing_lie_on_others(many: Path, drawn: Path, tmp_path: Path, models: str, width: int) -> None:
    folder = many if models == "many" else drawn
    seen = visit(folder / "report.html", tmp_path / "profile", size=(width, 900), scripts=(OVER,))
    looked, found = json.loads(seen.answer)
    assert looked > 100
    assert found == []


@needs_browser
def test_tables_are_sorted_by_their_numbers_and_drawings_tell_values(many: Path, tmp_path: Path) -> None:
    """The script that the policy names runs, and says nothing to the console."""
    click = """(() => {
      const table = [...document.querySelectorAll('table')].find(t => t.caption.textContent.startsWith('Hessian of'));
      const head = [...table.tHead.rows[0].cells].findIndex(h => h.textContent.startsWith('parameters'));
      const rows = [...table.tBodies[0].rows];
      rows.forEach((row, k) => { row.cells[head].textContent = ['9', '\u2212' + '1.5', '–', '2×10³'][k]; });
      const button = table.tHead.rows[0].cells[head].querySelector('button');
      const read = () => [...table.tBodies[0].rows].map(r => r.cells[head].textContent);
      button.click(); const up = read(); button.click();
      const svg = document.querySelector('svg[data-axes]'), box = svg.getBoundingClientRect();
      for (let a = 0; a < 1; a += 0.02) for (let b = 0; b < 1 && !svg.querySelector('.under').textContent; b += 0.02)
        svg.dispatchEvent(new PointerEvent('pointermove',
          {clientX: box.left + a * box.width, clientY: box.top + b * box.height}));
      return JSON.stringify([up, read(), svg.querySelector('.under').textContent]);
    })()"""
    seen = visit(many / "report.html", tmp_path / "profile", scripts=(click,))
    up, down, value = json.loads(seen.answer)
    assert up == ["\u22121.5", "9", "2×10³", "–"]
    assert down == ["2×10³", "9", "\u22121.5", "–"]
    assert re.fullmatch(r"\S+, \S+", value)
    assert seen.console == []
