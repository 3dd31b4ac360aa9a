"""Pages of studies: text is escaped, repeats are averaged, and an index names what failed."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from stability.analysis.studies import Compared, Figure, Study, StudyResult, base
from stability.errors import ConfigurationError, UnsupportedError
from stability.reports import cli
from stability.reports.figures.described import described
from stability.reports.figures.figure import style
from stability.reports.page.study import render_index, render_study

LINES = Figure("lines", "Error over steps", "step", "error", "model", log="y", marks=((0.5, "guessing"),))
POINTS = Figure("points", "Error of each <b>", "model", "error", source="table")
RESULT = StudyResult(
    "first", "The first <study>", True, {"steps": 4},
    tuple(
        {"model": model, "seed": seed, "error": error, "certified": seed == 0}
        for model, error in (("one", 0.25), ("two <i>", 0.5))
        for seed in (0, 1)
    ),
    tuple(
        {"model": model, "seed": seed, "step": k, "error": (1 + seed) / (k + 1)}
        for model in ("one", "two <i>")
        for seed in (0, 1)
        for k in range(4)
    ),
    ("model",), conclusion="It came out.", paper="Somebody (2020), table 9",
    compared=(Compared("error of one", 0.25, 0.125, "table 9"),), differences=("Shorter, because it is a test.",),
    figures=(LINES, POINTS), seeds=(0, 1),
)  # fmt: skip


@pytest.fixture
def toys(monkeypatch):
    """Two studies without trainings in place of all; the second one fails."""
    known = {}
    monkeypatch.setattr(base, "STUDIES", known)
    monkeypatch.setattr("stability.analysis.studies.STUDIES", known)

    def broken(size, seed):
        raise UnsupportedError("the training <diverged>")

    common = {"paper": "", "sizes": {"full": {}, "quick": {}}, "conclude": lambda frame: "It came out."}
    first = Study("first", "reruns little", "The first", compute=lambda size, seed: ([{"a": 1.0}], []), **common)
    base.register_study(first)
    base.register_study(replace(first, name="second", compute=broken))
    return known


def test_the_page_shows_every_part_of_the_result_escaped(tmp_path):
    page = render_study(RESULT, tmp_path).read_text()
    for words in (
        "It came out.", "Shorter, because", "Somebody (2020), table 9", "0.125", "quick version", "0, 1",
        "guessing", "Means over 2 trainings",
    ):  # fmt: skip
        assert words in page
    assert page.count("<svg") == 2
    assert page.index("It came out.</h1>") < page.index("<svg") < page.index("<details")
    written = sorted((tmp_path / "figures").iterdir())
    assert [p.suffix for p in written] == 2 * [".csv", ".pdf", ".png", ".svg"]
    shown = pd.read_csv(written[0])
    assert shown["error"].tolist() == [row["error"] for row in RESULT.curves]


def test_figures_of_one_quantity_share_their_axis():
    siblings = [replace(LINES, title=model, where={"model": model}, series="seed") for model in ("one", "two <i>")]
    (figure, other) = described(replace(RESULT, figures=(*siblings, POINTS)))
    with style():
        left, right = figure.draw().axes
    assert left.get_ylim() == right.get_ylim()
    assert len(figure.table) == 16
    assert other.title == "Error of each <b>"


def test_texts_of_a_study_are_escaped(tmp_path):
    page = render_study(RESULT, tmp_path).read_text()
    assert not any(tag in page for tag in ("<i>", "<b>", "<study>"))


def test_a_file_that_no_study_made_is_kept(tmp_path):
    (tmp_path / "study.html").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"study\.html"):
        render_study(RESULT, tmp_path)
    assert (tmp_path / "study.html").read_text() == "mine"
    render_study(RESULT, tmp_path, overwrite=True)


def test_the_index_links_every_study_and_names_the_failed_ones(tmp_path):
    page = render_index(tmp_path, {"a b": RESULT}, {"bad": "it <diverged>"}).read_text()
    assert 'href="a%20b/study.html"' in page
    assert "1 study has a result, 1 has none." in page
    assert "it &lt;diverged&gt;" in page


def test_all_studies_are_run_and_a_failed_one_stops_none(toys, tmp_path, capsys):
    assert cli.run(["study", "--all", "--quick", "--out", str(tmp_path), "-q"]) == 2
    assert "1 of 2 studies failed: second: the training <diverged>" in capsys.readouterr().err
    assert "../index.html" in (tmp_path / "first" / "study.html").read_text()
    index = (tmp_path / "index.html").read_text()
    assert "first/study.html" in index
    assert "second" in index
    assert cli.run(["study", "--list"]) == 0
    assert "reruns little" in capsys.readouterr().out
    for words in (["study"], ["study", "first", "--all"], ["study", "third"]):
        assert cli.run([*words, "--out", str(tmp_path / "no")]) == 2
    assert not (tmp_path / "no").exists()
