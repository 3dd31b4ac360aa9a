"""Figures of a report: files, numbers beside the drawing, findings in the titles, and what the page demands of SVG."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stability.reports.figures import Figure, appendix, figures
from stability.reports.figures.layout import spread
from stability.reports.figures.nyquist import nyquist_curves
from stability.reports.stored.collect import Report, collect
from stability.reports.stored.facts import attack_size, certified_accuracy, ranked
from stability.systems import LureSystem

from ..conftest import make_report_dir

NAMES = "two-runs price robustness norm-drift step-eigenvalues single-inputs hessian spectra theorem1 exponents"


def every(report: Report) -> list[Figure]:
    return [*figures(report), *(figure for group in appendix(report).values() for figure in group)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Twelve models with hostile names."""
    found = collect(make_report_dir(tmp_path_factory.mktemp("figures") / "report", copies=4))
    titles = ["$\\alpha$ <b>&", "模型 \\frac", "A very long name of a network that nobody can read", "Contracting RNN"]
    documents = [
        {
            **m.documents,
            "analysis": {
                **m.documents["analysis"],
                "title": titles[k % 4],
                "sequence_length": 98,
                "task": {"test": 1000},
            },
        }
        for k, m in enumerate(found.models)
    ]
    models = tuple(dataclasses.replace(m, documents=d) for m, d in zip(found.models, documents))
    return dataclasses.replace(found, models=models)


def few(report: Report, *states: str) -> Report:
    """Records of as many models as there are verdicts, each with one of these."""
    known = {m.state: [n for n in report.models if n.state == m.state] for m in report.models}
    return dataclasses.replace(report, models=tuple(known[s].pop() for s in states))


def test_every_figure_is_drawn_and_written_in_all_formats(report: Report, tmp_path: Path) -> None:
    drawn, begun = every(report), time.process_time()
    assert [f.name for f in drawn] == NAMES.split()
    page = "".join(f.svg() for f in drawn)
    assert time.process_time() - begun < 8
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)
    assert "style=" not in page
    assert "<style" not in page
    assert "<b>" not in page
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', page)]
    assert min(sizes) >= 8
    names = drawn[3].write(tmp_path)
    assert [(tmp_path / n).read_bytes()[:4] for n in names[:3]] == [b"<?xm", b"%PDF", b"\x89PNG"]
    for figure in drawn:
        figure.write(tmp_path, ("csv",))
        assert len(pd.read_csv(tmp_path / f"{figure.name}.csv")) == len(figure.table)
        assert figure.title.endswith(".")
        assert figure.reading.endswith(".")


def test_tables_hold_the_stored_numbers(report: Report) -> None:
    tables = {f.name: f.table.set_index("model") for f in every(report)}
    size = attack_size(report.models)
    for m in ranked(report.models):
        rows = tables["robustness"].loc[[m.name]].query("l2_size == @size")
        attacks = m.frames["attacks"].query("attack == 'strong' and norm == 'l2' and epsilon == @size")
        assert rows["attacked"].tolist() == attacks["accuracy"].tolist() != []
        bound = certified_accuracy(m, size or 0)
        assert rows["certified"].iloc[0] == bound or (bound is None and rows["certified"].isna().all())
        local = m.frames["local"].query("correct > 0")
        assert sorted(tables["single-inputs"].loc[m.name, "share"]) == pytest.approx(
            sorted(local["radius"] / local["attack_radius"])
        )
        norms = m.frames["norms"].set_index("t")["q50"]
        assert tables["norm-drift"].loc[m.name, "relative_norm"].iloc[-1] == pytest.approx(norms[980] / norms[98])


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (("certified",), "is proven stable: differences between two runs under one input die out."),
        (("refuted",), "is proven not stable: there is a counterexample."),
        (("inconclusive",), "is undecided: neither bound nor counterexample."),
        (("inconclusive", "inconclusive"), "No network is proven stable; none is proven not stable."),
        (("refuted", "inconclusive"), "No network is proven stable; 1 of 2 are proven not stable."),
        (("certified", "certified"), "Differences die out in all 2 networks, which are proven stable."),
        (("certified", "refuted"), ", which is proven stable; 1 is proven not stable."),
        (("certified",) * 2 + ("refuted",) * 2, "in the 2 proven networks; 2 are proven not stable."),
    ],
)
def test_titles_state_the_finding(report: Report, states: Sequence[str], words: str) -> None:
    chosen = few(report, *states)
    pairs = pd.DataFrame({"what": "data", "t": [0, 1], "q10": 0.5, "q50": 1.0, "q90": 2.0})
    models = tuple(dataclasses.replace(m, frames={**m.frames, "pairs": pairs}) for m in chosen.models)
    found = {f.name: f.title for f in every(dataclasses.replace(chosen, models=models))}
    assert found["two-runs"].endswith(words)
    if len(states) == 1:
        assert not any(re.search(r"\b(1 networks|of 1 |networks have)\b", title) for title in found.values())


def test_many_models_show_the_best_and_the_worst_ten(report: Report) -> None:
    models = [dataclasses.replace(m, name=f"{m.name}-{k}") for k in range(3) for m in report.models]
    for figure in every(dataclasses.replace(report, models=tuple(models))):
        assert ("the best and the worst 10 of 36 models" in figure.reading) == (figure.table["model"].nunique() > 24)
        assert figure.name != "single-inputs" or figure.svg().count(">n = ") == 20


def test_loops_without_data_have_a_nyquist_curve(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    model = few(report, "certified").models[0]
    bare: Any = dataclasses.replace(model, frames={}, documents={"analysis": {"title": "loop"}})
    loop = LureSystem.from_state_space(([[-1.0]], [[2.0]], [[1.0]], [[0.0]]), slope=(0, 1))
    for slope, words in (((0, 1), "holds for loop"), ((-4, 4), "does not hold for loop: the Nyquist curve leaves")):
        loop = LureSystem.from_state_space(([[-1.0]], [[2.0]], [[1.0]], [[0.0]]), slope=slope)
        certificate = SimpleNamespace(load=lambda _, loop=loop: SimpleNamespace(subject=loop))
        monkeypatch.setattr("stability.reports.figures.nyquist.Certificate", certificate)
        figure = nyquist_curves([bare])
        assert figure is not None
        assert words in figure.title
        assert "<svg" in figure.svg()
    monkeypatch.undo()
    assert nyquist_curves([bare, model]) is None  # several channels


def test_labels_are_spread_as_little_as_needed() -> None:
    rng = np.random.default_rng(0)
    for wanted in rng.random((20, 8)):
        at = spread(wanted, 0.1, 0.0, 1.0)
        assert np.diff(np.sort(at)).min() > 0.1 - 1e-9
        assert at.min() > -1e-9
        assert at.max() < 1 + 1e-9
        assert (np.argsort(at) == np.argsort(wanted)).all()
