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

from stability.reports import render
from stability.reports.figures.eigenvalues import Region
from stability.reports.formatting import metric
from stability.reports.page.marks import MARKS
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


def test_models_stand_in_the_order_of_the_answer_everywhere(drawn: Path) -> None:
    text = (drawn / "report.html").read_text(encoding="utf-8")
    tables = Tables(text)
    order = [row["model"] for row in tables.table("The answer")]
    cards = re.findall(r"<summary><h3>(.*?)</h3>", text)
    listed = [[row[0] for row in rows[1:]] for rows in tables.tables.values() if rows[0][0] == "model"]
    for names in [[re.sub("<[^>]*>", "", html.unescape(card)) for card in cards], *listed]:
        places = [order.index(name) for name in names if name in order]
        assert places == sorted(places), names


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
    table.assign(model="contracting", n=2).to_csv(small_dir / "trainings.csv", index=False)
    page = render(small_dir).read_text(encoding="utf-8")
    card = re.sub(r"<[^>]*>|\s+", " ", page[page.index('id="verdicts"') : page.index('id="margins"')])
    assert re.search(r"held-out accuracy, mean of 2 trainings +(measured +)?90\.5 % ± 10", card)
    read = Tables(page)
    (row,) = [r for r in read.table("Hessian of the training loss") if r["model"] == "Contracting RNN"]
    assert row["largest eigenvalue"] == "40 ± 2.5"
    (row,) = read.table("Trainings that differ")
    assert (row["trainings"], row["verdicts"]) == ("2", "2 certified stable")
    (models / "contracting-seed-1" / "analysis.json").write_text("{}")
    page = render(small_dir).read_text(encoding="utf-8")
    assert "40 ± 2.5" not in page
    assert "other results than those of contracting-seed-1" in page


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
    assert "Mean squared error of Contracting RNN" in body
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
