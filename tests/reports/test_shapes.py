"""Documents and tables of another shape than the page draws from: one line, never half a page and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from stability.errors import FileFormatError
from stability.reports.stored import limits
from stability.reports.stored.collect import collect
from stability.reports.stored.frames import read_table
from stability.reports.stored.shapes import SHAPES, misfit, read_shaped
from stability.storage.artifacts import ARTIFACTS, EVERY, NAME, SOME, artifact

TABLES = [a.stem for a in ARTIFACTS if a.columns]


def written(folder: Path, name: str, value: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("stem", sorted(set(SHAPES) - {"meta"}))
@pytest.mark.parametrize("wrong", [5, "x", [1], True, {"a": 1}])
def test_every_field_that_the_page_reads_is_of_its_type(stem: str, wrong: object, tmp_path: Path) -> None:
    for field, shape in SHAPES[stem].items():
        path = written(tmp_path, f"{stem}.json", {field: wrong})
        if misfit(wrong, shape) is None:
            assert read_shaped(path)[field] is not None
        else:
            with pytest.raises(FileFormatError, match=rf"{stem}\.json: {field}"):
                read_shaped(path)


def test_shapes_tell_types_apart() -> None:
    analysis = SHAPES["analysis"]
    assert misfit({"steps": {"noise": {"seconds": 1.5, "status": "done"}}}, analysis) is None
    assert misfit({"steps": {"noise": {"seconds": -1}}}, analysis) == "steps.noise.seconds is '-1', not seconds"
    assert misfit({"steps": {"noise": 5}}, analysis) == "steps.noise is '5', not a mapping"
    assert misfit({"steps": []}, analysis) == "steps is '[]', not a mapping"
    assert misfit({"discrete": 1}, analysis) == "discrete is '1', not true or false"
    assert misfit({"parameters": True}, analysis) == "parameters is 'True', not a number"
    assert misfit({"title": None, "something": [{}]}, analysis) is None


def table(stem: str) -> pd.DataFrame:
    whole, partial, names = (artifact(f"{stem}.csv").columns_of(kind) for kind in (EVERY, SOME, NAME))
    return pd.DataFrame(
        {"more": [1, 2], **{c: [0.5, 1.5] for c in (*whole, *partial)}, **{c: ["a", "b"] for c in names}}
    )


@pytest.mark.parametrize("stem", TABLES)
def test_tables_lack_no_column_and_hold_numbers_where_numbers_are_drawn(stem: str, tmp_path: Path) -> None:
    path, good = tmp_path / f"{stem}.csv", table(stem)
    good.to_csv(path, index=False)
    read = read_table(path)
    assert read is not None
    assert len(read) == 2
    for column in good.columns[1:]:
        good.drop(columns=column).to_csv(path, index=False)
        with pytest.raises(FileFormatError, match=f"no column {column}"):
            read_table(path)
    for column in artifact(f"{stem}.csv").columns_of(EVERY):
        good.assign(**{column: ["x", "1"]}).to_csv(path, index=False)
        with pytest.raises(FileFormatError, match=f"column {column} must hold numbers"):
            read_table(path)
        good.assign(**{column: [float("inf"), 1.0]}).to_csv(path, index=False)
        read = read_table(path)
        assert read is not None
        assert len(read) == 1  # a place that cannot be drawn
    for column in artifact(f"{stem}.csv").columns_of(NAME):
        many = pd.concat([good.assign(**{column: f"n{k}"}) for k in range(limits.GROUPS + 1)])
        many.to_csv(path, index=False)
        with pytest.raises(FileFormatError, match=f"more than {limits.GROUPS} of {column}"):
            read_table(path)


def test_columns_that_are_drawn_where_they_are_hold_numbers(tmp_path: Path) -> None:
    table("metrics").assign(test_metric=["x", "0.5"]).to_csv(tmp_path / "metrics.csv", index=False)
    with pytest.raises(FileFormatError, match="column test_metric must hold numbers"):
        read_table(tmp_path / "metrics.csv")
    table("norms").assign(expected=["9" * 400, "1"]).to_csv(tmp_path / "norms.csv", index=False)
    with pytest.raises(FileFormatError, match="column expected must hold numbers"):
        read_table(tmp_path / "norms.csv")


def test_norms_that_are_all_infinite_are_no_norms(tmp_path: Path) -> None:
    frame = table("norms").assign(q10=float("inf"), q50=float("inf"), q90=float("inf"))
    frame.to_csv(tmp_path / "norms.csv", index=False)
    assert read_table(tmp_path / "norms.csv") is None


@pytest.mark.parametrize("text", ["", "step\n", "\n"])
def test_a_table_without_rows_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(text)
    assert read_table(tmp_path / "other.csv") is None


def test_tables_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(",".join(f"c{k}" for k in range(limits.COLUMNS + 1)) + "\n")
    with pytest.raises(FileFormatError, match="rows and 64 columns"):
        read_table(path)
    path.write_text("epoch\n" + "1\n" * (limits.ROWS + 1))
    with pytest.raises(FileFormatError, match="at most 1000000 rows"):
        read_table(path)
    with path.open("wb") as handle:
        handle.truncate(3 * 2**30)
    with pytest.raises(FileFormatError, match="at most 64 MiB"):
        read_table(path)


def test_a_report_of_too_many_models_is_refused_and_titles_have_an_end(small_dir: Path) -> None:
    settings = json.loads((small_dir / "report-settings.json").read_text())
    written(small_dir, "report-settings.json", {**settings, "models": [f"m{k}" for k in range(2000)]})
    with pytest.raises(FileFormatError, match="2000 models; at most 256"):
        collect(small_dir)
    written(small_dir, "report-settings.json", {**settings, "models": settings["models"] * 2000})
    analysis = small_dir / "models" / settings["models"][0] / "analysis.json"
    written(analysis.parent, analysis.name, {**json.loads(analysis.read_text()), "title": "x " * 500_000})
    (model,) = collect(small_dir).models
    assert len(model.title) == limits.LETTERS
