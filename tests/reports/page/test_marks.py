"""Every number of the page carries its mark, and leads within two links to file, command and code."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from stability.reports import render
from stability.reports.cli import run
from stability.reports.page.marks import HEURISTIC, MARKS, MEASURED, PROVED

from ..conftest import make_report_dir
from .test_numbers import Tables

GIVEN = {  # what is no result: names, sizes, settings, times, digests
    "model", "proof", "criterion", "its unit", "meaning", "claim", "samples", "inputs", "classified correctly",
    "sequences", "time", "time an input", "steps counted", "size", "forgotten below", "runs", "parameters", "epochs",
    "measured by",    "where it is from", "file", "SHA-256", "made by", "probes", "answer", "in full", "data",
    "class", "most often taken for",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose steps say which code made them, of one certified and one refuted model."""
    folder = make_report_dir(tmp_path_factory.mktemp("marks") / "report", ("contracting", "lstm"))
    for path in (folder / "models").glob("*/analysis.json"):
        analysis = json.loads(path.read_text())
        code = {
            "noise": "attacks.steps",
            "attacks": "attacks.steps",
            "hessian": "curvature.density",
            "norms": "dynamics.norms",
        }
        code |= {"local": "radius.single", "lyapunov": "dynamics.lyapunov", "certificate": "campaign.certificate"}
        analysis["steps"]["local"] = {"status": "done", "seconds": 1.0}
        analysis["steps"] = {s: {**v, "code": f"stability.analysis.{code[s]}"} for s, v in analysis["steps"].items()}
        path.write_text(json.dumps(analysis))
    render(folder)
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> Tables:
    return Tables((folder / "report.html").read_text(encoding="utf-8"))


def test_every_number_that_is_a_result_has_a_mark(tables: Tables) -> None:
    settings = ("Time spent", "Programs", "Models, data", "Weights", "What ", "Files")
    unmarked = [
        (caption, tables.tables[caption][0][k], cell)
        for caption, rows in tables.tables.items()
        if not caption.startswith(settings)
        for row, marks in zip(rows[1:], tables.marks[caption][1:], strict=True)
        for k, (cell, mark) in enumerate(zip(row, marks, strict=True))
        if re.search(r"\d", cell) and mark not in MARKS and rows[0][k] not in GIVEN
    ]
    assert unmarked == []
    assert {m for rows in tables.marks.values() for row in rows for m in row} >= set(MARKS)


def test_nothing_but_certificates_is_marked_as_proved(tables: Tables) -> None:
    """Columns that hold what the checker proves; everything else was measured or computed."""
    proved = {
        (next(w for w in re.split(r"[:(]", caption)).strip(), tables.tables[caption][0][k])
        for caption, rows in tables.marks.items()
        for row in rows
        for k, mark in enumerate(row)
        if mark == PROVED
    }
    columns = {title for _, title in proved}
    assert columns == {
        "answer", "certified rate", "distance at most half after", "bound after 98 steps, the trained length",
        "in full",        "certified radius", "certified bound, log ρ + log(C) / steps",
    }  # fmt: skip
    (attacked,) = [c for c in tables.tables if c.startswith("The answer")]
    assert tables.marks[attacked][1][tables.tables[attacked][0].index("attacked, ‖δ‖₂ ≤ 0.1 (95 %)")] == MEASURED
    assert tables.marks[attacked][1][tables.tables[attacked][0].index("certified there")] == HEURISTIC


class Links(HTMLParser):
    """Where links lead, what stands in the element that has an identifier, and what links stand there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.last, self.links, self.words = "", dict[str, list[str]](), dict[str, str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = values.get("id")
        if name and (tag == "details" or name.startswith("made-")):
            self.last = name
            self.links[name], self.words[name] = [], ""
        if tag == "a" and self.last:
            self.links[self.last].append(str(values["href"]))

    def handle_data(self, data: str) -> None:
        if self.last:
            self.words[self.last] += data


TEN = [
    ("The answer", "out accuracy"), ("The answer", "attacked"), ("The answer", "certified rate"),
    ("Hessian", "trace"), ("Norm drift", "at last"), ("Norm drift", "largest exponent"),
    ("Outcome", "on training data"),    ("Signed margins", "circle criterion"), ("Further claims", "in full"),
    ("Single inputs", "certified radius"),
]  # fmt: skip


@pytest.mark.parametrize(("caption", "column"), TEN)
def test_two_links_lead_from_a_number_to_file_command_and_code(folder: Path, caption: str, column: str) -> None:
    """The first link stands in the number's row or under its table; the second one at that place."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    (start,) = [
        m.start() for m in re.finditer(r"<caption>", page) if page[m.start() :].split(">", 2)[2].startswith(caption)
    ]
    block = page[start : page.index("</div>\n", page.index("</div>", start) + 6)]
    assert column in block
    links = Links(page)
    first = [h[1:] for h in re.findall(r'href="([^"]*)"', block) if h.startswith("#made-")]
    assert first, "no link to what made it"
    words = " ".join(links.words[name] for name in first)
    modules = re.findall(r"Code: (stability[\w.]*\w)", words)
    assert modules
    assert all(importlib.util.find_spec(name) is not None for name in modules)
    files = [unquote(h) for name in first for h in links.links[name] if not h.startswith("#")]
    assert files
    assert all((folder / h).is_file() for h in files)
    command = json.loads((folder / "report-settings.json").read_text())["command"]
    assert command in page[page.index('id="provenance"') :]


def test_the_view_of_what_is_proved_hides_all_else(folder: Path) -> None:
    css = (folder / "report.html").read_text(encoding="utf-8")
    rule = re.search(r"body:has\(#only-proved:checked\) :is\(([^)]*)\) \{ display: none; \}", css)
    assert rule is not None
    assert set(re.findall(r"\.([\w-]+)", rule[1])) == {MEASURED, HEURISTIC, "unproved"}
    assert 'id="only-proved"' in css


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands that do one step alone, by the verb."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    found = [shlex.split(html.unescape(words)) for words in re.findall(r"Alone: <code>([^<]*)</code>", page)]
    return {words[1]: words[1:] for words in found}


@pytest.mark.slow
def test_the_command_of_a_step_gives_the_numbers_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is run in the page's folder as it stands there; the files it is compared with are the page's."""
    out, models = tmp_path / "report", "contracting,lru"
    assert run(["report", "--quick", "--models", models, "--seed", "3", "--out", str(out), "-q"]) == 0
    settings = json.loads((out / "report-settings.json").read_text())
    assert settings["command"] == f"stability report --quick --models {models} --seed 3 --out {out} -q"
    monkeypatch.chdir(out)
    told = {}
    for verb, words in commands(out).items():
        capsys.readouterr()
        code = run([*words, "--json"])
        told[verb] = json.loads(capsys.readouterr().out)
        assert code == 0, (verb, told[verb])
    assert set(told) == {"certify", "hessian", "noise", "attack", "compare", "radius"}
    folder = out / "models" / "contracting"
    certificate = json.loads((folder / "certificate.json").read_text())
    assert (told["certify"]["rate"], told["certify"]["statement"]) == (
        certificate["rate"], certificate["claim"]["statement"],
    )  # fmt: skip
    for verb, table, keys in (
        ("noise", "noise", "noise == 'white'"), ("attack", "attacks", "attack == 'strong' and norm == 'linf'"),
    ):  # fmt: skip
        rows = pd.read_csv(folder / f"{table}.csv").query(keys)
        assert told[verb]["accuracy"] == rows["accuracy"].tolist()
        assert told[verb]["n"] == rows["n"].iloc[0]
    hessian = json.loads((folder / "hessian.json").read_text())
    assert told["hessian"]["lambda_max"] == pytest.approx(hessian["lambda_max"], rel=1e-4)
    assert told["hessian"]["loss"] == pytest.approx(hessian["loss"], rel=1e-9)
    local = json.loads((folder / "local.json").read_text())
    for name in ("median_radius", "median_attack"):
        assert told["radius"][name] == pytest.approx(local[name], rel=1e-9)
    drift = json.loads((folder / "drift.json").read_text())
    (mine,) = [m for m in told["compare"]["models"] if m["path"].endswith("contracting")]
    assert (mine["doublings"], mine["slope"], mine["norm_at_last"]) == pytest.approx(
        (drift["drift_index"], drift["slope"], drift["end"])
    )


def test_commands_of_steps_hold_the_sizes_of_the_report_and_name_the_data(small_dir: Path) -> None:
    path = small_dir / "models" / "contracting" / "analysis.json"
    document = json.loads(path.read_text())
    budget = {"samples": 200, "attacked": 60, "curved": 64, "draws": 2, "steps": 5}
    (small_dir / "models" / "contracting" / "local.json").write_text(json.dumps({"samples": 6}))
    (small_dir / "models" / "contracting" / "hessian.json").write_text(json.dumps({"lambda_max": 1.0}))
    path.write_text(json.dumps(document | {"budget": budget, "seed": 7}))
    render(small_dir)
    told = {verb: " ".join(words) for verb, words in commands(small_dir).items()}
    levels = pd.read_csv(small_dir / "models" / "contracting" / "noise.csv").query("noise == 'white'")["level"]
    sizes = ",".join(f"{v:g}" for v in sorted(set(levels)))
    assert told["noise"] == f"noise models/contracting --levels {sizes} --draws 2 --samples 200 --seed 7"
    assert told["attack"].endswith("--steps 5 --samples 60 --seed 7")
    assert told["hessian"] == "hessian models/contracting --samples 64 --seed 7"
    assert told["radius"] == "radius models/contracting --samples 6 --seed 7"
    assert "compare" not in told  # it takes two models
    run_json = small_dir / "models" / "contracting" / "run.json"
    run_json.unlink()
    own = {"task": {"name": "data", "data": {"source": "arrays", "what": "my data.npz"}}, "source": "net:load"}
    path.write_text(json.dumps(document | {"budget": budget, "seed": 0} | own))
    render(small_dir)
    told = {verb: " ".join(words) for verb, words in commands(small_dir).items()}
    assert told["hessian"] == "hessian net:load --data my data.npz --samples 64"


@pytest.mark.parametrize("many", [False, True])
def test_every_marked_table_and_every_drawing_leads_to_what_made_it(
    folder: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ten numbers but all: the link stands under the table, in the drawing's caption or at its section's end."""
    if many:
        for part in ("sections", "curvature", "robustness", "local", "overview", "spectra"):
            module = importlib.import_module(f"stability.reports.page.{part}")
            if hasattr(module, "FEW"):
                monkeypatch.setattr(module, "FEW", 1)
        render(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    tables = re.findall(r'<div class="tabled[^"]*">(.*?</table>\s*</div>)(.*?)</div>', page, flags=re.DOTALL)
    marked = [(body, below) for body, below in tables if 'class="mark ' in body]
    assert len(marked) > 8
    assert [re.findall("<caption>.*?</caption>", body) for body, below in marked if "#made-" not in below] == []
    drawn = 0
    for name, section in re.findall(r'<section id="([^"]*)"[^>]*>(.*?)</section>', page, flags=re.DOTALL):
        figures = re.findall(r"<figure.*?</figure>", section, flags=re.DOTALL)
        drawn += len(figures)
        if figures and "#made-" not in section[section.rindex("</figure>") :]:
            assert all("#made-" in figure for figure in figures), name
    assert drawn > 15
    if many:
        monkeypatch.undo()
        render(folder)
