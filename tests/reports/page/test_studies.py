"""Pages of studies: from their files alone, over a folder of them, in a report, and by the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from stability.analysis.studies import STUDIES, Compared, Figure, StudyResult, keep_part, register_study, run_study
from stability.analysis.studies.base import write_table
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.reports import cli
from stability.reports.page import html
from stability.reports.page.study import render_index, render_study
from stability.reports.stored.collect import Report
from stability.reports.stored.studies import read_studies, read_study, selected

FIGURES = (
    Figure(
        "lines", "Error over steps", "step", "error", "model", log="y", marks=((0.5, "guessing"),), caption="A band."
    ),
    Figure("points", "Error of each <b>", "model", "error", source="table"),
    Figure("field", "Arrows", "px", "py", "path", vectors=("u", "v")),
    Figure("heat", "Squares", "step", "seed", value="error", where={"model": "one"}),
)


@pytest.fixture
def toys(monkeypatch):
    """Two studies in place of all; the second one fails while ``broken`` says so."""
    broken: dict = {"second": False, "trained": 0, "figures": FIGURES[1:2]}
    for name in list(STUDIES):
        monkeypatch.delitem(STUDIES, name)

    def first(job):
        def train():
            broken["trained"] += 1
            return [[k, 1.0 / (k + 1)] for k in range(4)]

        curves = [
            {"model": model, "seed": seed, "step": k, "error": (1 + seed) * e}
            for model in ("one", "two <i>")
            for seed in (0, 1)
            for k, e in keep_part(job.out, f"{model[:3]}-{seed}", {"seed": seed}, train)
        ]
        arrows = [{"px": i, "py": k, "u": 1.0, "v": -float(i)} for i in range(3) for k in range(3)]
        paths = [{"px": 0.1 * i, "py": 0.0, "path": 0} for i in range(5)]
        write_table(job.out / "curves.csv", [*curves, *arrows, *paths])
        rows = (
            {"model": "one", "error": 0.25, "certified": True},
            {"model": "two <i>", "error": 0.5, "certified": None},
        )
        return StudyResult(
            "first", "The first <study>", job.quick, {"steps": 4}, rows, ("A note.",), conclusion="It came out.",
            paper="Somebody (2020), table 9", compared=(Compared("error of one", 0.25, 0.125, "table 9"),),
            differences=("Shorter, because it is a test.",), figures=broken["figures"], seeds=(0, 1),
        )  # fmt: skip

    def second(job):
        if broken["second"]:
            raise UnsupportedError("the training diverged")
        return StudyResult("second", "The second study", job.quick, {}, ({"value": 1},))

    register_study("first", "reruns nothing")(first)
    register_study("second", "reruns less")(second)
    monkeypatch.setitem(broken, "names", list(STUDIES))
    yield broken
    for name in ("first", "second"):
        STUDIES.pop(name, None)


def test_the_page_is_a_function_of_three_files(toys, tmp_path, capsys):
    toys["figures"] = FIGURES
    assert cli.run(["study", "first", "--quick", "--out", str(tmp_path / "a"), "-q"]) == 0
    page = (tmp_path / "a" / "study.html").read_text()
    for words in (
        "It came out.",
        "Shorter, because",
        "Somebody (2020), table 9",
        "0.125",
        "quick version",
        "A note.",
        "0, 1",
    ):
        assert words in page
    assert page.count("<svg") == 4
    assert "<i>" not in page
    assert "<b>" not in page
    assert "<study>" not in page
    assert "guessing" in page
    only = tmp_path / "b"
    only.mkdir()
    for name in ("study.json", "table.csv", "curves.csv"):
        shutil.copy(tmp_path / "a" / name, only)
    assert cli.run(["study", "--redraw", str(only)]) == 0
    assert (only / "study.html").read_text() == page
    curves = pd.read_csv(only / "curves.csv")
    curves.loc[curves["model"] == "one", "error"] *= 3
    curves.to_csv(only / "curves.csv", index=False)
    render_study(only)
    other = (only / "study.html").read_text()
    assert other != page
    assert "It came out." in other


def test_lines_show_the_mean_of_repeats_and_their_range(toys, tmp_path):
    """Of two seeds with errors e and 2 e the line lies at 1.5 e: the page's line of one seed alone is another."""
    toys["figures"] = FIGURES[:1]
    cli.run(["study", "first", "--out", str(tmp_path), "-q"])
    whole = (tmp_path / "study.html").read_text()
    curves = pd.read_csv(tmp_path / "curves.csv")
    bands = len(re.findall(r'fill-opacity="0.15"', whole))
    curves[(curves["seed"] == 0) | curves["seed"].isna()].to_csv(tmp_path / "curves.csv", index=False)
    render_study(tmp_path)
    alone = (tmp_path / "study.html").read_text()
    assert bands == 2
    assert len(re.findall(r'fill-opacity="0.15"', alone)) == 0


def test_a_study_goes_on_from_its_parts_and_draws_again(toys, tmp_path):
    for _ in range(2):
        assert cli.run(["study", "first", "--out", str(tmp_path), "-q"]) == 0
    assert toys["trained"] == 4


def test_the_time_of_a_study_is_that_of_all_its_sessions(toys, tmp_path):
    """Four parts of 2,000 s each from before: with them the study took 8,000 s, and the page says whose they are."""
    run_study("first", out=tmp_path)
    assert json.loads((tmp_path / "study.json").read_text())["earlier_seconds"] == 0.0
    assert "earlier sessions" not in render_study(tmp_path).read_text()
    for path in tmp_path.glob("parts/*.json"):
        part = json.loads(path.read_text())
        assert part.pop("digest")
        assert 0.0 <= part["seconds"] < 60.0
        path.write_text(json.dumps({**part, "seconds": 2000.0}))
    again = run_study("first", out=tmp_path)
    assert again.earlier_seconds == 8000.0
    assert 8000.0 < again.seconds < 8060.0
    assert "2 h 13 min, of which 2 h 13 min in earlier sessions" in render_study(tmp_path).read_text()
    path.write_text(json.dumps({k: v for k, v in part.items() if k != "seconds"}))
    assert run_study("first", out=tmp_path).earlier_seconds is None
    assert "parts kept from before are not counted" in render_study(tmp_path).read_text()
    assert toys["trained"] == 4


def test_all_studies_run_though_one_fails_and_the_index_says_which(toys, tmp_path, capsys):
    toys["second"] = True
    assert cli.run(["study", "--all", "--quick", "--out", str(tmp_path / "all")]) == 2
    said = capsys.readouterr()
    assert "1 of 2 studies have no result: second: the training diverged" in said.err
    index = (tmp_path / "all" / "index.html").read_text()
    assert 'href="first/study.html"' in index
    assert "It came out." in index
    assert "the training diverged" in index
    assert "second/study.html" not in index
    assert 'href="../index.html"' in (tmp_path / "all" / "first" / "study.html").read_text()
    toys["second"] = False
    assert cli.run(["study", "--all", "--quick", "--out", str(tmp_path / "all"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["studies"]) == ["first", "second"]
    assert toys["trained"] == 4  # the first one was kept
    index = (tmp_path / "all" / "index.html").read_text()
    assert 'href="second/study.html"' in index
    assert "diverged" not in index
    (tmp_path / "all" / "index.html").unlink()
    (tmp_path / "all" / "second" / "study.html").unlink()
    assert cli.run(["study", "--redraw", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "index.html").read_text() == index
    assert (tmp_path / "all" / "second" / "study.html").is_file()


def test_a_failed_study_of_an_earlier_run_is_named_beside_its_old_result(toys, tmp_path):
    folder = str(tmp_path / "all")
    assert cli.run(["study", "--all", "--out", folder, "-q"]) == 0
    toys["second"] = True
    assert cli.run(["study", "--all", "--out", folder, "-q"]) == 2
    found, missing = read_studies(folder)
    assert list(found) == ["first", "second"]
    assert missing == {"second": "the training diverged"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"figures": [{"kind": "lines", "x": "absent", "y": "error"}]}, "has no column absent"),
        ({"figures": [{"kind": "lines", "x": "step", "y": "model"}]}, "holds something else than numbers"),
        ({"figures": [{"x": "step", "y": "error"}]}, "figure 1 is of kind None"),
        ({"figures": [{"kind": "pie", "x": "step", "y": "error"}]}, "figure 1 is of kind 'pie'"),
        ({"notes": "text"}, "notes is 'text', not a list"),
        ({"rows": 3}, "rows is '3'"),
    ],
)
def test_files_of_another_shape_are_refused_by_name(toys, tmp_path, change, words):
    run_study("first", out=tmp_path)
    document = json.loads((tmp_path / "study.json").read_text())
    (tmp_path / "study.json").write_text(json.dumps(document | change))
    with pytest.raises(FileFormatError, match=re.escape(words)):
        render_study(tmp_path)


def test_a_file_that_no_study_made_stays(toys, tmp_path):
    cli.run(["study", "first", "--out", str(tmp_path / "s"), "-q"])
    (tmp_path / "s" / "study.html").unlink()
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copytree(tmp_path / "s", bare / "first")
    (bare / ".stability.json").write_text('{"format": "stability-files", "version": 1, "files": {}}')
    (bare / "index.html").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"index\.html"):
        render_index(bare)
    assert (bare / "index.html").read_text() == "mine"


def test_requests_that_do_not_fit_are_refused(toys, tmp_path, capsys):
    assert cli.run(["study", "--all", "first"]) == 2
    assert cli.run(["study", "first", "--redraw", str(tmp_path)]) == 2
    assert "leave out NAME" in capsys.readouterr().err
    assert cli.run(["study", "--redraw", str(tmp_path)]) == 2
    assert "holds no study" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="kind of a figure"):
        Figure("pie", "t", "x", "y")
    with pytest.raises(ConfigurationError, match="columns of its arrows"):
        Figure("field", "t", "x", "y")


def test_a_study_of_an_earlier_release_has_a_page_too(toys, tmp_path):
    old = {
        "study": "adding",
        "title": "Adding",
        "quick": False,
        "settings": {},
        "rows": [],
        "notes": ["n"],
        "seconds": 1.0,
    }
    (tmp_path / "study.json").write_text(json.dumps(old))
    assert "Adding" in render_study(tmp_path).read_text()
    assert read_study(tmp_path).frames == {}


def test_a_report_lists_the_studies_in_its_folder(toys, tmp_path):
    report = Report(tmp_path, {"title": "Of studies"}, ())
    run_study("second", out=tmp_path / "studies" / "second")
    page = html._page(report, (), "0" * 64)
    assert 'href="studies/second/study.html"' in page
    assert "The second study" in page
    shutil.rmtree(tmp_path / "studies")
    assert "studies/" not in html._page(report, (), "0" * 64)


KEPT = sorted((Path(__file__).parents[3] / "benchmarks" / "results" / "studies").glob("*/study.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_what_is_kept_can_be_drawn_and_is_told(path):
    """The data in the repository have the form of today, and the documentation says what came out."""
    record = read_study(path.parent)
    assert record.get("study") == path.parent.name
    assert not record.get("quick", True)
    assert all(selected(record, figure) is not None for figure in record.get("figures", ()))
    assert record.get("conclusion")
    assert [*record.get("differences", ()), *record.get("compared", ())]
    told = (Path(__file__).parents[3] / "docs" / "measured.md").read_text()
    assert f"| `{path.parent.name}` |" in told
