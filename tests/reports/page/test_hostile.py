"""Names, titles, files and tables that mean harm: they are text on the page, in figures and on the terminal."""

from __future__ import annotations

import json
import re
import warnings
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stability.analysis.campaign.budgets import BUDGETS, Budget
from stability.errors import FileFormatError
from stability.kernel.format.claims import Verdict
from stability.reports import cli, render
from stability.reports.names import printable
from stability.reports.page.html import policy

from ..browser import BROWSER, visit
from ..conftest import certificate, seal

ALERT = "<img src=q onerror=alert(1)>"
NAMES = [
    '"', "\\", "<", "#", "..", "...", "a b", " lead", "'", "&amp;&lt;", "l" * 200, "\u05d0\u05d1\u05d2 \u05d3",
    "\u0627\u0644\u0639", "\u202eevil\u202c", "\U0001f680\U0001f468\u200d\U0001f469", "模型 \"α\" & <script>alert(1)<",
    f'x">{ALERT}', f"'>{ALERT}", f"</title>{ALERT}", f"</text></svg>{ALERT}", "--><script>alert(2)</script>",
    "]]><script>alert(3)</script>", "\x9b31m", "</style><script>alert(4)</script>", "javascript:alert(5)",
    "{{ 7 * 7 }}",
    "{% raw %}", r"run\d1", r"\g<0>", "var(--evil) #f10000", "url(#x)", "a\nb", "a\x1b]0;owned\x07b", "_hidden",
    "$x^2$", "%s%n", "e\u0301" * 60, "\ufeff\u200b", "x\udcff", 'a" style="background:url(//e)" b="',
]  # fmt: skip
ELEMENTS = re.findall(
    r"\S+",
    """
html head meta title style body header main section footer nav h1 h2 h3 h4 small details
summary caption label input p span wbr ul li a table thead tbody tr th td
dl dt dd script div figure figcaption pre code svg g path defs use text clippath rect circle
b i sup br fieldset legend
""",
)
FILES = (
    r"report(-settings)?\.json|files\.json|figures-and-tables\.zip|tables/[a-z_]+\.csv|figures/[a-z0-9-]+\.(svg|pdf|png|csv)"
    r"|models/[A-Za-z0-9_%~-][A-Za-z0-9._%~-]*/[a-z_]+\.(json|csv|safetensors)"
)
ATTRIBUTES = re.findall(
    r"\S+",
    """
lang charset http-equiv content name id class href role data-axes data-curve tabindex scope open type title for checked
aria-label aria-labelledby aria-hidden viewbox d x y cx cy r width height
fill fill-opacity fill-rule stroke stroke-width stroke-linecap stroke-linejoin stroke-dasharray stroke-dashoffset
stroke-miterlimit stroke-opacity opacity transform clip-path text-anchor font-size font-weight font-style
""",
)


class Reader(HTMLParser):
    """Notes every element, attribute and address that is not on the lists."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ELEMENTS:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            value = value or ""
            if name not in ATTRIBUTES or tag == "script":
                self.faults.append(f"{tag} {name}={value!r}")
            if name == "href" and not re.fullmatch(rf"#[a-z][a-z0-9-]*|{FILES}", value):
                self.faults.append(f"{tag} href={value!r}")
            if name == "id" and not re.fullmatch(r"[a-z][a-z0-9-]*", value):
                self.faults.append(f"{tag} id={value!r}")
            if name == "class" and not re.fullmatch(r"[a-z -]*", value):
                self.faults.append(f"{tag} class={value!r}")
            drawing = name not in ("aria-label", "content", "title", "data-curve")
            if drawing and re.search(r"url\((?!#[a-z][a-z0-9-]*\))|:\s*//|script:", value):
                self.faults.append(f"{tag} {name}={value!r}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"a comment {data[:40]!r}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def storable(text: str) -> str:
    """Convert a value to what JSON and CSV can hold."""
    return text.encode("utf-8", errors="backslashreplace").decode()


def write_model(folder: Path, evil: str, verdict: Verdict) -> None:
    """A small run directory in which everything that can be a text is the evil one."""
    evil = storable(evil)
    folder.mkdir(parents=True)
    certificate(verdict).save(folder / "certificate.json")
    steps = {evil: {"status": evil}, "noise": {"status": "unavailable", "reason": evil}}
    analysis = {"title": evil, "source": evil, "discrete": True, "steps": steps, evil: evil}
    run = {
        "model": {"layer": evil, "config": {evil: evil}},
        "task": {"name": evil, "options": {evil: evil}, "data": {"what": evil}},
        "training": {"optimizer": evil},
        "result": {"metric": evil, "test_metric": 0.5, "train_metric": 0.4, "chance": 0.1, "epochs": 1, "seconds": 1.0},
    }
    (folder / "analysis.json").write_text(json.dumps(analysis))
    (folder / "run.json").write_text(json.dumps(run))
    frame = pd.DataFrame({"step": [0, 1], "epoch": [0, 1], "matrix": [evil, evil], "real": [0.1, 0.2], "imag": 0.1})
    frame.to_csv(folder / "eigenvalues.csv", index=False)
    metrics = {"epoch": [1, 2], "train_loss": [1.0, 0.5], "test_metric": [0.1, 0.2], evil: [1, 2]}
    pd.DataFrame(metrics).to_csv(folder / "metrics.csv", index=False)
    seal(folder)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "report"
    verdicts = (Verdict.CERTIFIED, Verdict.INCONCLUSIVE, Verdict.REFUTED)
    for k, evil in enumerate(NAMES):
        write_model(folder / "models" / f"m{k}", evil, verdicts[k % 3])
    settings = {
        "title": storable("".join(NAMES)),
        "models": [f"m{k}" for k in range(len(NAMES))],
        "seed": ALERT,
        "finished": ALERT,
        "command": f"stability {ALERT}",
        "environment": {"versions": {ALERT: ALERT}, ALERT: {ALERT: ALERT}},
    }
    (folder / "report-settings.json").write_text(json.dumps(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render(folder)
    return folder


def test_the_page_has_nothing_but_the_elements_and_attributes_of_the_list(hostile: Path) -> None:
    text = (hostile / "report.html").read_text(encoding="utf-8")
    read = Reader(text)
    assert sorted(set(read.faults)) == []
    for name in NAMES:
        assert printable(name, keep="\n") in "".join(read.text), name


def test_what_is_not_seen_is_written_out(hostile: Path) -> None:
    for file in (hostile / "report.html", hostile / "report.json", *(hostile / "tables").iterdir()):
        text = file.read_text(encoding="utf-8")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), file


def test_the_policy_lets_nothing_load_but_the_page_s_own_style(hostile: Path) -> None:
    text = (hostile / "report.html").read_text(encoding="utf-8")
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert text.count("<script") == 1
    assert found.replace("&#39;", "'") == policy(style, script)
    assert script == resources.files("stability.reports.page.templates").joinpath("report.js").read_text("utf-8")
    assert "unsafe" not in found
    assert not re.search(r"\b(fetch|eval|import|XMLHttpRequest|innerHTML|document\.write)\b", script)
    assert "default-src 'none'" in policy(style)
    assert text.index("Content-Security-Policy") < text.index("<style>")


@pytest.mark.parametrize("name", ["../outside", "a/b", "/etc"])
def test_a_model_outside_of_the_report_is_not_read(hostile: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "report-settings.json").write_text(json.dumps({"title": "t", "models": [name]}))
    with pytest.raises(FileFormatError, match="names of folders"):
        render(tmp_path)


@pytest.mark.parametrize("models", [5, None, "m0", [1], {"m0": 1}])
def test_models_that_are_no_list_of_names_are_one_line(tmp_path: Path, models: object) -> None:
    (tmp_path / "report-settings.json").write_text(json.dumps({"title": "t", "models": models}))
    with pytest.raises(FileFormatError):
        render(tmp_path)


TINY = Budget(
    samples=5, attacked=5, curved=5, draws=2, levels=(0.0,), epsilons_linf=(0.0,), epsilons_l2=(0.0,), steps=1,
    stretch=2, iterations=3, probes=2, trajectories=1, program_states=0,
)  # fmt: skip


def hostile_files(folder: Path) -> list[str]:
    """Systems in files of hostile names, as far as a file system takes them."""
    out = []
    for k, name in enumerate(n.replace("/", "⁄").replace("\0", "") for n in NAMES):
        path = folder / f"{name[:180]}.npz"
        np.savez(path, A=-np.eye(2), W=(0.5 if k % 2 else 1.5) * np.eye(2))
        out.append(path.name)
    return out


def test_commands_take_hostile_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(hostile_files(tmp_path)[::4]):
        path = f"./{name}"
        code = cli.run(["certify", path, "-o", f"{path}.json"])
        assert code in (0, 3)
        assert cli.run(["verify", f"{path}.json"]) == 0
        captured = capsys.readouterr()
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", captured.out), (k, captured.out)
        assert captured.err == ""
        assert cli.run(["certify", path, "--json", "-q"]) == code
        text = capsys.readouterr().out
        assert json.loads(text)["model"] == path
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def report_of_hostile_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(BUDGETS, "quick", TINY)
    files = [f"./{n}" for n in hostile_files(folder)]
    assert len(files) >= 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cli.run(["report", *files, "--quick", "--processes", "1", "--out", 'r"<b>\\d ']) == 0
    return folder / 'r"<b>\\d ' / "report.html"


@pytest.mark.slow
def test_a_report_over_hostile_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = report_of_hostile_files(tmp_path, monkeypatch)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()  # one a finished model, whatever it is called, and nothing else
    assert len(lines) == len(list((page.parent / "models").iterdir()))
    assert [
        line for line in lines if not re.fullmatch(r"\d+/\d+ [\w-]+: finished after [\d.]+ m?s(, about .* left)?", line)
    ] == []
    assert sorted(set(Reader(page.read_text(encoding="utf-8")).faults)) == []
    for folder in (page.parent / "models").iterdir():
        assert re.fullmatch(r"[A-Za-z0-9_-]+", folder.name)


@pytest.mark.page
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine; `.ci/run` installs one")
def test_a_browser_shows_hostile_names_and_does_nothing_else(hostile: Path, tmp_path: Path) -> None:
    page = hostile / "report.html"
    seen = visit(page, tmp_path / "profile")
    assert seen.loaded
    assert seen.dialogs == []
    assert seen.console == []
    assert seen.requests == [page.as_uri()]


@pytest.mark.page
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine; `.ci/run` installs one")
def test_the_browser_would_have_told(tmp_path: Path) -> None:
    """The same eyes on a page that does all of it."""
    page = tmp_path / "bad.html"
    page.write_text("<img src=q onerror=\"alert('seen')\"><script>console.log('said')</script>")
    seen = visit(page, tmp_path / "profile")
    assert seen.dialogs == ["seen"]
    assert any("said" in text for text in seen.console)
    assert len(seen.requests) == 2
