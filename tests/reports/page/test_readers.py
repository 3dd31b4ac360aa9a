"""The page for those who print it, who enlarge it, who are read to, and who compare many models."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stability.reports import render

from ..browser import BROWSER, visit
from ..conftest import make_report_dir

AXE = find_spec("axe_playwright_python")
RUN = """axe.run(document, {runOnly: {type: 'tag', values: %s}})
.then(r => JSON.stringify([r.passes.map(p => [p.id, p.nodes.length]),
r.violations.map(v => [v.id, v.nodes.length, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))])]))"""
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def needs_browser(test: Any) -> Any:
    """The marks of a test that opens the page."""
    why = "no Chromium on this machine; `.ci/run` installs one"
    return pytest.mark.page(pytest.mark.skipif(BROWSER is None, reason=why)(test))


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
    folder = copies(tmp_path_factory.mktemp("many") / "report", 8)
    render(folder)
    return folder


def titles(folder: Path) -> list[str]:
    return [m["title"] for m in json.loads((folder / "report.json").read_text())["models"]]


@pytest.mark.slow
def test_a_page_of_fifty_models_is_small(tmp_path: Path) -> None:
    page = render(copies(tmp_path / "report", 50))
    assert page.stat().st_size < 5_000_000
    text = page.read_text(encoding="utf-8")
    assert text.count('<details class="card') == 50
    assert '<details class="list"><summary>50 networks</summary>' in text


@needs_browser
@pytest.mark.skipif(AXE is None, reason="the extra `test` brings axe-playwright-python")
@pytest.mark.parametrize(("models", "size", "scheme"), [("many", (1280, 900), "light"), ("few", (390, 800), "dark")])
def test_axe_finds_nothing_at_levels_a_and_aa(
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
    assert dict(passed)["color-contrast"] > 100
    assert sum(nodes for _, nodes in passed) > 500
    assert seen.console == []


ENLARGED = """(() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  document.documentElement.style.fontSize = '%d%%';
  const w = window.innerWidth, wide = [], torn = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.parentElement.closest('.scroll, pre, svg, .filter')) continue;
    const box = e.getBoundingClientRect();
    if (box.width > 0 && (box.right > w + 1 || box.left < -1)) wide.push(e.outerHTML.slice(0, 120));
  }
  for (const e of document.querySelectorAll('dl.facts dt, dl.facts dd, .card p, h2, h3, figcaption')) {
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
    assert body >= 0.14 * text
    assert seen.console == []


SIZES = """(() => {
  const rows = [...document.querySelectorAll('.verdicts tbody tr')];
  const cells = [...document.querySelectorAll('.verdicts tbody :is(th, td)')];
  const wrapped = cells.filter((c) => c.clientHeight > 2 * parseFloat(getComputedStyle(c).lineHeight) + 8).length;
  const box = document.querySelector('.verdicts').parentElement;
  document.querySelector('#show-refuted').click();
  const shown = rows.filter((row) => row.getClientRects().length);
  const filtered = shown.length && shown.every((row) => row.className === 'refuted') ? shown.length : -1;
  document.querySelector('#show-all').click();
  location.hash = document.querySelector('.verdicts tbody a').hash;
  return new Promise((done) => setTimeout(() => done(JSON.stringify({
    height: document.documentElement.scrollHeight, words: document.body.innerText.split(/\\s+/).length, wrapped,
    rows: rows.length, filtered, last: rows.at(-1).getBoundingClientRect().bottom + scrollY,
    cut: box.scrollWidth - box.clientWidth, open: document.querySelectorAll('details[open]').length,
    unnamed: document.querySelectorAll('th:not([scope]), svg:not([aria-label]):not([aria-hidden])').length,
  })), 200));
})()"""


@needs_browser
def test_the_first_screen_holds_all_verdicts_and_the_page_stays_short(drawn: Path, tmp_path: Path) -> None:
    """Twelve models at 1280 px; a link of the table opens its card, without which the page is printed on few sheets."""
    seen = visit(drawn / "report.html", tmp_path / "profile", scripts=(SIZES,), pdf=tmp_path / "page.pdf")
    found = json.loads(seen.answer)
    assert [found[k] for k in ("rows", "filtered", "wrapped", "cut", "unnamed")] == [12, 4, 0, 0, 0]
    assert found["last"] <= 900
    assert found["words"] <= 2500
    assert found["height"] <= 7500  # with one open card
    assert found["open"] == 1
    assert seen.console == []
    assert (tmp_path / "page.pdf").read_bytes().count(b"/Type /Page\n") <= 6
