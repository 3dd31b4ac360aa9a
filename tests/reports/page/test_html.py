"""The page: complete, safe, whole, and drawn from files alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from stability.errors import ConfigurationError, FileFormatError
from stability.reports import render
from stability.reports.figures.figure import FORMATS
from stability.reports.formatting import percent
from stability.reports.stored.collect import collect
from stability.reports.stored.facts import ranked
from stability.storage.documents import file_digest
from stability.storage.folder import claim_folder

from ..conftest import seal

QUICK = ("svg", "csv")
VOID = {"meta", "br", "wbr", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Reads a page and keeps its identifiers, references, text and the balance of its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.policy = ""
        self.words: list[str] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self._look(tag, values)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, dict(attrs))

    def _look(self, tag: str, values: dict[str, str | None]) -> None:
        if values.get("id"):
            self.ids.append(str(values["id"]))
        for name in ("href", "xlink:href", "src"):
            target = values.get(name)
            if target and target.startswith("#"):
                self.references.append(target[1:])
            elif target:
                (self.links if tag == "a" else self.loads).append(target)
        for value in values.values():
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
        if tag == "script" and (values or "script-src 'sha256-" not in self.policy):
            self.faults.append("a script from elsewhere, or one that the policy does not name")
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> out of place")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def page(drawn: Path) -> str:
    return (drawn / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_needs_nothing_else(page: str) -> None:
    read = Page(page)
    assert read.faults == []
    assert read.open == []
    assert read.loads == []
    assert "@import" not in page
    assert "url(http" not in page


def test_identifiers_are_unique_and_references_lead_somewhere(page: str) -> None:
    read = Page(page)
    assert len(read.ids) == len(set(read.ids))
    assert set(read.references) <= set(read.ids)
    assert page.count("<svg") > 5


def test_numbers_on_the_page_are_those_of_the_files(page: str, drawn: Path) -> None:
    text = " ".join(Page(page).words)
    for model in collect(drawn).models:
        assert percent(model.run["result"]["test_metric"]) in text
    document = json.loads((drawn / "report.json").read_text())
    assert [m["verdict"] for m in document["models"]] == 4 * ["certified", "inconclusive", "refuted"]
    noise = pd.read_csv(drawn / "tables" / "noise.csv")
    for name, rows in noise.groupby("model"):
        stored = pd.read_csv(drawn / "models" / str(name) / "noise.csv")
        pd.testing.assert_frame_equal(rows.drop(columns="model").reset_index(drop=True), stored)


def test_rows_cards_and_list_are_in_the_order_of_the_rule(page: str, drawn: Path) -> None:
    order = [f"#model-{model.place}" for model in ranked(collect(drawn).models)]
    links = re.findall(r'<(?:li|tr)[^>]*>\s*(?:<span[^>]*>.</span>|<th scope="row">)\s*<a href="(#model-\d+)"', page)
    assert links[:24] == [*order, *order]
    assert [f"#{name}" for name in re.findall(r'<details class="card [a-z]+" id="(model-\d+)"', page)] == order


@pytest.mark.parametrize("formats", [QUICK, FORMATS])
def test_every_link_leads_to_a_file_whose_digest_is_listed(small_dir: Path, formats: tuple[str, ...]) -> None:
    text = render(small_dir, formats=formats).read_text(encoding="utf-8")
    digests = json.loads((small_dir / "files.json").read_text())
    links = set(map(unquote, Page(text).links))
    assert all(file_digest(small_dir / name) == digest for name, digest in digests.items())
    assert links <= {*digests, "files.json", "figures-and-tables.zip"}
    drawn = re.findall(r'<figure id="fig-([a-z0-9-]+)">', text)
    assert len(drawn) > 3
    assert {f"figures/{name}.{kind}" for name in drawn for kind in formats} <= links
    with zipfile.ZipFile(small_dir / "figures-and-tables.zip") as archive:
        packed = set(archive.namelist())
    assert packed == {name for name in digests if name.startswith(("tables/", "figures/"))}
    assert "stability report --redraw ." in text or formats == FORMATS


def test_an_audit_print_shows_everything(small_dir: Path) -> None:
    assert '<details class="fold" id=' in render(small_dir).read_text(encoding="utf-8")
    page = render(small_dir, full=True).read_text(encoding="utf-8")
    assert page.count("<details") == page.count("<details open") > 5


def test_the_same_files_give_the_same_page(small_dir: Path) -> None:
    first = render(small_dir).read_bytes()
    assert render(small_dir).read_bytes() == first
    assert len(first) < 2_000_000


def test_redrawing_needs_neither_torch_nor_a_solver(small_dir: Path) -> None:
    code = (
        "import sys; from stability.reports import render; render(sys.argv[1]); "
        "print([m for m in ('torch', 'cvxpy', 'scs') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(small_dir)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "stem", ["noise", "attacks", "density", "norms", "lyapunov", "spectra", "eigenvalues", "metrics"]
)
def test_any_table_may_be_missing(small_dir: Path, stem: str) -> None:
    for folder in (small_dir / "models").iterdir():
        (folder / f"{stem}.csv").unlink(missing_ok=True)
        seal(folder)
    assert Page(render(small_dir).read_text(encoding="utf-8")).faults == []


def test_a_model_of_which_only_the_verdict_is_known(small_dir: Path) -> None:
    for folder in (small_dir / "models").iterdir():
        for file in folder.iterdir():
            if file.name not in ("certificate.json", "analysis.json"):
                file.unlink()
        seal(folder)
    text = " ".join(Page(render(small_dir).read_text(encoding="utf-8")).words)
    assert "Proven stable" in text
    assert "Loss curvature" not in text


def test_a_model_without_a_certificate_says_why(report_dir: Path) -> None:
    folder = report_dir / "models" / "lstm"
    (folder / "certificate.json").unlink()
    document = json.loads((folder / "analysis.json").read_text())
    document["steps"]["certificate"] = {"status": "unavailable", "reason": "no system is known for it"}
    (folder / "analysis.json").write_text(json.dumps(document))
    seal(folder)
    page = render(report_dir).read_text(encoding="utf-8")
    assert '<details class="card uncovered"' in page
    assert "No system is known for it." in page


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": "stability-report-settings"}'])
def test_damaged_settings_are_refused_and_nothing_is_written(small_dir: Path, damage: str) -> None:
    (small_dir / "report-settings.json").write_text(damage)
    with pytest.raises(FileFormatError, match=re.escape(str(small_dir))):
        render(small_dir)
    assert not (small_dir / "report.html").exists()


@pytest.mark.parametrize("name", ["noise.csv", "run.json"])
def test_a_damaged_file_is_named_and_the_old_page_stays(small_dir: Path, name: str) -> None:
    before = render(small_dir).read_bytes()
    (small_dir / "models" / "contracting" / name).write_bytes(b"\xff\xfe\x00 no, no")
    seal(small_dir / "models" / "contracting")
    with pytest.raises(FileFormatError, match=name):
        render(small_dir)
    assert (small_dir / "report.html").read_bytes() == before


def test_no_finished_model_is_an_error_that_says_how_to_go_on(small_dir: Path) -> None:
    shutil.rmtree(small_dir / "models")
    with pytest.raises(FileFormatError, match="no finished model"):
        render(small_dir)


def test_tables_of_its_own_are_replaced_and_others_stay(small_dir: Path) -> None:
    render(small_dir)
    (small_dir / "tables" / "mine.csv").write_text("mine")
    next(small_dir.glob("models/*/noise.csv")).unlink()
    for folder in small_dir.glob("models/*"):
        (folder / "noise.csv").unlink(missing_ok=True)
    render(small_dir)
    names = {p.name for p in (small_dir / "tables").iterdir()}
    assert {"mine.csv", "models.csv", "margins.csv", "claims.csv", "norms.csv"} <= names
    assert "noise.csv" not in names  # it was a report's, and there is none now
    assert [p.name for p in small_dir.iterdir() if p.name.startswith(".")] == [".stability.json"]


def test_files_in_the_way_of_a_redrawing_are_named_and_kept(small_dir: Path) -> None:
    render(small_dir)
    with claim_folder(small_dir, "report") as own:
        own.remove(["report.json", "tables/norms.csv"])
    for name in ("report.json", "tables/norms.csv"):
        (small_dir / name).write_text("mine")
    before = {p: p.read_bytes() for p in small_dir.rglob("*") if p.is_file()}
    with pytest.raises(ConfigurationError, match=r"holds report\.json, tables/norms\.csv, not made by this command"):
        render(small_dir)
    assert {p: p.read_bytes() for p in small_dir.rglob("*") if p.is_file()} == before
    render(small_dir, overwrite=True)
    assert json.loads((small_dir / "report.json").read_text())["format"] == "stability-report"
    with claim_folder(small_dir, "report") as own:
        own.remove(["figures/two-runs.csv"])
    (small_dir / "figures" / "two-runs.csv").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"holds figures/two-runs\.csv"):
        render(small_dir)
    assert (small_dir / "figures" / "two-runs.csv").read_text() == "mine"


def test_what_is_written_is_never_behind_a_link(small_dir: Path, tmp_path: Path) -> None:
    """A report directory from elsewhere must not make a redrawing write outside it."""
    render(small_dir)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "norms.csv").write_text("precious")
    (small_dir / "report.html").unlink()
    (small_dir / "report.html").symlink_to(tmp_path / "victim" / "norms.csv")
    with pytest.raises(ConfigurationError, match=r"holds report\.html"):
        render(small_dir)
    shutil.rmtree(small_dir / "tables")
    (small_dir / "tables").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigurationError, match=r"holds tables/"):
        render(small_dir, overwrite=True)
    assert (tmp_path / "victim" / "norms.csv").read_text() == "precious"
