"""The page's words and pictures against the files that they came from; ``test_every_cell.py`` has the tables."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stability.reports import render
from stability.reports.figures import crowd
from stability.reports.figures.eigenvalues import Region, extremes
from stability.reports.figures.panels import scores, sweep
from stability.reports.figures.small import DOTTED
from stability.reports.formatting import metric
from stability.reports.page.marks import MARKS
from stability.reports.page.spectra import clouds
from stability.reports.stored.collect import collect
from stability.storage.documents import file_digest
from stability.verification import verify


class Tables(HTMLParser):
    """The page's tables by caption: rows of cells, header first; without the parts of wide ones that are for paper."""

    for_paper = False

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.marks: dict[str, list[list[str]]] = {}
        self.links: dict[str, list[tuple[str, str]]] = {}
        self.skip = self.inside = self.title = self.paper = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag == "table":
            self.paper = ("on-paper" in classes) != self.for_paper
        if self.paper:
            return
        if tag == "caption":
            self.title, self.caption = True, ""
        elif tag == "tr":
            self.rows.append([])
            self.marks[self.caption].append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.marks[self.caption][-1].append(" ".join(c for c in classes if c in MARKS))
            self.inside = True
        elif tag == "a" and self.inside:
            self.links[self.caption].append((self.rows[-1][0], str(dict(attrs)["href"])))
        self.skip = self.skip or "mark" in classes

    def handle_endtag(self, tag: str) -> None:
        if self.paper:
            self.paper = tag != "table"
        elif tag in ("td", "th"):
            self.inside = False
        elif tag == "caption":
            self.title, self.rows = False, self.tables.setdefault(self.caption, [])
            self.marks[self.caption], self.links[self.caption] = [], []
        elif tag == "small":
            self.skip = False

    def handle_data(self, data: str) -> None:
        if self.paper:
            return
        if self.title:
            self.caption += data
        elif self.inside and not self.skip:
            self.rows[-1][-1] += data

    def table(self, caption: str) -> list[dict[str, str]]:
        """Rows by the names of the columns."""
        (found,) = [rows for name, rows in self.tables.items() if name.startswith(caption)]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]


def stored(drawn: Path, name: str) -> dict[str, dict]:
    """A document of every model that has it, by title."""
    out = {}
    for folder in (drawn / "models").iterdir():
        title = json.loads((folder / "analysis.json").read_text())["title"]
        if (folder / name).is_file():
            out[title] = json.loads((folder / name).read_text())
    return out


def test_where_the_lines_of_theory_come_from(drawn: Path) -> None:
    text = html.unescape((drawn / "report.html").read_text(encoding="utf-8"))
    for title, drift in stored(drawn, "drift.json").items():
        assert f"<li>{title}, expected norm: {drift['sources']['expected']}</li>" in text
        assert f"<li>{title}, proved bound: {drift['sources']['envelope']}</li>" in text


def test_cards_show_what_the_checker_proved(drawn: Path) -> None:
    text = (drawn / "report.html").read_text(encoding="utf-8")
    for m in collect(drawn).models:
        checked = verify(m.folder / "certificate.json")
        assert m.certificate is not None
        assert m.certificate["evidence"] == (checked.evidence if checked.valid else "none")
        if checked.valid:
            assert checked.statement == m.certificate["statement"]
            assert checked.statement.replace("&", "&amp;").replace("<", "&lt;") in text
            assert m.subject == checked.subject
            assert m.subject.split("sha256 ")[1] in text


def heights_of_the_curve(folder: Path) -> set[float]:
    """Vertical places of the longest stroke of a curve's width in the panel of white noise."""
    models, more = collect(folder).models, ("White noise", "level", "noise-white")
    if (folder / "models" / "contracting" / "noise_scores.csv").is_file():
        drawn = scores(models, "noise_scores", {"noise": "white", "metric": "mse"}, *more)
    else:
        drawn = sweep(models, "noise", {"noise": "white"}, *more, {})
    strokes = re.findall(r'<path [^>]*?d="([^"]*)"[^>]*stroke-width="1.7"', str(drawn))
    return {float(y) for y in re.findall(r"[ML] \S+ (\S+)", max(strokes, key=lambda d: d.count("L")))}


@pytest.mark.parametrize("column", ["accuracy", "score"])
def test_curves_are_drawn_from_what_was_measured(small_dir: Path, column: str) -> None:
    """Both ends of the interval far from the accuracy, or the score: the curve must follow the latter."""
    file = small_dir / "models" / "contracting" / "noise.csv"
    frame = pd.read_csv(file).assign(metric="mse").rename(columns={"accuracy": column})
    file = file if column == "accuracy" else file.with_name("noise_scores.csv")
    heights = []
    for value, other in ((0.5, 0.9), (0.9, 0.5)):
        frame.assign(**{column: value}, ci_low=other, ci_high=other).to_csv(file, index=False)
        (height,) = heights_of_the_curve(small_dir)
        heights.append(height)
    assert heights[1] < heights[0] - 20  # the vertical axis of a drawing points down


def test_several_trainings_are_drawn_and_told_by_their_mean_and_interval(small_dir: Path) -> None:
    models = small_dir / "models"
    settings = json.loads((small_dir / "report-settings.json").read_text())
    again = shutil.copytree(models / "contracting", models / "contracting-seed-1")
    digests = {p.name: file_digest(p / "analysis.json") for p in (models / "contracting", again)}
    settings["trainings"] = {"runs": {"contracting": list(digests)}, "digests": digests}
    (small_dir / "report-settings.json").write_text(json.dumps(settings))
    levels = pd.read_csv(models / "contracting" / "noise.csv")["level"].unique()
    rows = [("noise", "white", level, 0.5, 0.4, 0.6, 0.45, 0.55) for level in levels]
    rows += [("hessian.lambda_max", "", None, 40.0, 37.5, 42.5, 39.0, 41.0)]
    rows += [("run.result.test_metric", "", None, 0.905, 0.8, 1.0, 0.9, 0.91)]
    table = pd.DataFrame(rows, columns=["what", "group", "at", "mean", "low", "high", "least", "largest"])
    heights = []
    for mean in (0.5, 0.9):
        table.assign(model="contracting", n=2, mean=table["mean"].where(table["what"] != "noise", mean)).to_csv(
            small_dir / "trainings.csv", index=False
        )
        (height,) = heights_of_the_curve(small_dir)
        heights.append(height)
    assert heights[1] < heights[0] - 20
    page = render(small_dir).read_text(encoding="utf-8")
    card = re.sub(r"<[^>]*>|\s+", " ", page[page.index('id="verdicts"') : page.index('id="margins"')])
    assert re.search(r"held-out accuracy, mean of 2 trainings +(measured +)?90\.5 % ± 10", card)
    assert page.count("Of several trainings of a model the first is shown.") >= 2
    assert "Densities are those of the first training" in page
    read = Tables(page)
    (row,) = [r for r in read.table("Hessian of the training loss") if r["model"] == "Contracting RNN"]
    assert row["largest eigenvalue"] == "40 ± 2.5"
    (row,) = read.table("Trainings that differ")
    assert (row["trainings"], row["verdicts"]) == ("2", "2 certified stable")
    (models / "contracting-seed-1" / "analysis.json").write_text("{}")
    page = render(small_dir).read_text(encoding="utf-8")
    assert "40 ± 2.5" not in page
    assert "other results than those of contracting-seed-1" in page


def test_beside_many_models_the_outermost_eigenvalues_are_small_drawings_with_their_border(small_dir: Path) -> None:
    """The record's last numbers are told, and rounding around the border is not drawn as a curve."""
    model = collect(small_dir).models[0]
    steps = pd.DataFrame({"step": [0, 50, 100], "value": [0.5, 0.75, 0.875]})
    drawn = str(crowd.along(model, [("spectral radius", steps)], "\u03c1(A)", 1.0))
    assert "at the end spectral radius 0.875" in drawn
    assert ">1</text>" in drawn  # the border lies within the axis
    ends = [("largest", steps), ("smallest", steps), ("Proposition 1", steps), ("Proposition 1", steps)]
    both = str(crowd.along(model, ends, "Re"))
    assert both.count(">Proposition 1<") == 1
    assert both.count(f'stroke-dasharray="{DOTTED}"') == 3  # both bounds, and the piece of line beside their name
    flat = crowd.along(model, [("radius", steps.assign(value=[1.0, 1.0 + 1e-9, 1.0]))], "flat", 1.0)
    (curve,) = [d for d in re.findall(r'(?:d|points)="([^"]*)"', str(flat)) if len(re.findall(r"[\d.]+", d)) == 6]
    heights = [float(y) for y in re.findall(r"[\d.]+", curve)[1::2]]
    assert max(heights) - min(heights) < 0.5
    assert crowd.along(model, [("radius", steps[:0])], "none", 1.0) is None


def test_eigenvalues_along_training_are_drawn_from_the_record(small_dir: Path) -> None:
    """The curve of the abscissa moves with ``max_real``, its bounds with ``prop1_*``; of a map it is the radius."""
    (model,) = [m for m in collect(small_dir).models if m.name == "contracting"]
    steps = [0, 50, 100, 150, 200]
    values = {"max_real": 0.5, "min_real": -2.0, "prop1_high": 1.0, "prop1_low": -3.0, "spectral_radius": 0.25}
    curves = {k: pd.DataFrame({"step": steps, "value": v}) for k, v in values.items()}

    def heights(kind: str) -> list[float]:
        drawn = str(extremes(model, "A", 0, "x", region=Region(kind, 0.1), curves=curves))
        strokes = [s for s in re.findall(r'<path [^>]*?d="([^"]*)"', drawn) if s.count("L") == 4]
        return [float(y) for stroke in strokes for y in set(re.findall(r"[ML] \S+ (\S+)", stroke))]

    top, bottom, high, low = heights("euler")  # the vertical axis of a drawing points down
    unit = (bottom - top) / 2.5
    assert (top - high, low - bottom) == pytest.approx((0.5 * unit, unit), abs=0.05)
    assert len(heights("map")) == 1
    empty = {**curves, "max_real": curves["max_real"].iloc[:0]}
    assert extremes(model, "A", 0, "x", region=Region("euler", 0.1), curves=empty) is None
    drawn = str(extremes(model, "blocks.1.layer.A", 0, "x", region=Region("map"), curves=curves))
    assert "A, block 1" in drawn  # blocks differ in a number, which a title of little room has


@pytest.mark.parametrize(
    ("layer", "options", "border"),
    [
        ("elman", {}, "the unit circle"),
        ("lipschitz", {"dt": 0.5}, "the border of Euler steps"),
        ("lipschitz", {}, "no border"),  # its default step is not in the file
        ("lstm", {}, "no border"),
    ],
)
def test_the_blocks_of_a_deep_network_have_the_border_of_their_layer(
    small_dir: Path, layer: str, options: dict, border: str
) -> None:
    path = small_dir / "models" / "contracting" / "run.json"
    run = json.loads(path.read_text())
    run["model"] = {"layer": "deep", "config": {"layer": layer, "options": options, "hidden_size": 32}}
    path.write_text(json.dumps(run))
    section = clouds(collect(small_dir))
    assert section is not None
    assert f"{border} is drawn" in str(section)


def test_a_regression_is_never_called_accuracy(small_dir: Path) -> None:
    folder = small_dir / "models" / "contracting"
    run = json.loads((folder / "run.json").read_text())
    run["result"] |= {"metric": "mse", "train_metric": 0.169, "test_metric": 0.172, "chance": 0.167}
    (folder / "run.json").write_text(json.dumps(run))
    for name in ("noise", "attacks", "robustness"):
        (folder / f"{name}.csv").unlink()
    (folder / "radius.json").unlink()
    text = render(small_dir).read_text(encoding="utf-8")
    body = text[: text.index('id="glossary"')]
    assert "Mean squared error on held-out data" in body
    (row,) = Tables(text).table("Outcome")
    assert row["measured by"] == "mean squared error"
    assert [row[k] for k in ("on training data", "on held-out data", "guessing")] == ["0.169", "0.172", "0.167"]
    assert "17.2 %" not in text
    section = body[body.index('id="training"') :]
    assert "accuracy" not in section.lower()
    assert metric(0.172, "mse") == "0.172"


def test_the_pictures_show_the_map_that_runs() -> None:
    """Inside the border exactly where one step of the integrator shrinks a linear part with this eigenvalue."""
    rng = np.random.default_rng(0)
    values = 12 * (rng.standard_normal(400) + 1j * rng.standard_normal(400))
    for dt in (0.05, 0.2):
        steps = {"map": values, "euler": 1 + dt * values, "midpoint": 1 + dt * (values + dt / 2 * values**2)}
        for kind, factor in steps.items():
            region = Region(kind, dt)
            assert (region.holds(values) == (np.abs(factor) < 1)).all()
            at = region.border()
            shrunk = {"map": at, "euler": 1 + dt * at, "midpoint": 1 + dt * (at + dt / 2 * at**2)}[kind]
            np.testing.assert_allclose(np.abs(shrunk), 1.0, atol=1e-9)
    antisymmetric = np.array([-0.01 + 3j, -0.01 - 3j])  # decays in continuous time, grows under Euler
    assert not Region("euler", 0.1).holds(antisymmetric).any()


def test_without_disturbance_the_page_has_one_accuracy(small_dir: Path) -> None:
    """Curves are of part of the sequences: at 0 stands the accuracy of the first table, not that of the part."""
    folder = small_dir / "models" / "contracting"
    (folder / "performance.json").write_text(json.dumps({"metric": "accuracy", "value": 0.8125, "sequences": 1000}))
    document = json.loads((folder / "run.json").read_text())
    document["result"]["test_metric"] = 0.8125
    (folder / "run.json").write_text(json.dumps(document))
    models, more = collect(small_dir).models, ("White noise", "level", "noise-white")
    own = sweep(models, "noise", {"noise": "white"}, *more, {})
    one = sweep(models, "noise", {"noise": "white"}, *more, {"contracting": 0.8125})
    assert own is not None
    assert one is not None
    points = [max(re.findall(r'<path [^>]*?d="([^"]*)"', s), key=lambda d: d.count("L")).count("L") for s in (own, one)]
    assert points[1] < points[0]  # the curve's own value at 0 is not drawn
    text = render(small_dir).read_text(encoding="utf-8")
    assert "is the tick at 0, as in the first table" in text
    assert "81.2 %" in text or "81.3 %" in text
