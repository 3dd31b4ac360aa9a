"""Several trainings of each model: what is said of their number, and the section that compares them."""

from __future__ import annotations

from collections import Counter

from ..formatting import count, metric, metric_word, verdict_word
from ..stored.collect import Report
from ..stored.records import ModelRecord
from .layout import NAMED, Cell, Column, Section, averaged, tabulate, text
from .marks import MEASURED

ONE = "One training of each model: differences between models may be chance."


def several(report: Report) -> bool:
    """Whether any model was trained more than once.

    Args:
        report: what ``collect`` read.
    """
    return any(m.trainings.several for m in report.models)


def trainings_note(report: Report) -> str:
    """How many trainings the page's numbers rest on, in a sentence or two; empty where nothing is compared."""
    if not several(report):
        return ONE if len(report.models) > 1 else ""
    least = min(len(m.trainings.runs) for m in report.models)
    most = max(len(m.trainings.runs) for m in report.models)
    times = count(most) if least == most else f"{count(least)} to {count(most)}"
    return (
        f"Each model was trained {times} times, with other seeds: numbers with ± are means over the trainings with "
        "half of Student's 95 % interval of the mean; proofs, spectra, "
        "densities and second opinions are those of the first training."
    )


def first_only(report: Report) -> str:
    """For sections that show one training of each model: which one; empty where there is but one."""
    return " Of several trainings of a model the first is shown." if several(report) else ""


def bands(report: Report) -> str:
    """Explain the numbers in brackets beside an accuracy."""
    if several(report):
        return "Numbers are means over the trainings of a model, in brackets Student's 95 % intervals of that mean."
    return (
        "In brackets are 95 % confidence intervals for the sampling of test sequences; two trainings of one model can "
        "differ by more."
    )


def verdict_counts(model: ModelRecord) -> str:
    """The verdicts of all trainings of a model, counted."""
    counted = Counter(model.trainings.states)
    return ", ".join(f"{number} {verdict_word(found)}" for found, number in counted.most_common())


def held_out(model: ModelRecord, *names: str) -> str:
    """The metric on held-out data, its mean over the trainings with its interval; or the named figures of its spread.

    Args:
        model: the record.
        names: of ``least`` and ``largest``.
    """
    spread = model.trainings.number("run.result.test_metric")
    if spread is None:
        return "–"
    if not names:
        return averaged(spread, lambda value: metric(value, model.metric))
    return " to ".join(metric(spread[name], model.metric) for name in names)


def trainings(report: Report) -> Section | None:
    """Verdicts and results of all trainings, a row a model.

    Args:
        report: what ``collect`` read.
    """
    models = [m for m in report.models if m.trainings.several]
    tables = tabulate(
        "Trainings that differ in their seeds alone",
        (
            NAMED,
            Column("trainings", lambda m: count(len(m.trainings.runs))),
            text("verdicts", lambda m: Cell(verdict_counts(m))),
            text("measured by", lambda m: metric_word(m.metric)),
            Column("on held-out data", held_out, mark=MEASURED),
            Column("least to largest", lambda m: held_out(m, "least", "largest"), mark=MEASURED),
        ),
        models,
        "not all trainings have it",
        made=("training",),
    )
    notes = (f"{report.not_compared[:1].upper()}{report.not_compared[1:]}.",) if report.not_compared else ()
    return Section(
        "trainings",
        "Several trainings of each model",
        "The same settings with other seeds: initial weights, order of the sequences, noises and probes. Every "
        "certificate was checked again, and the verdicts are counted. The interval is of what trainings come to on "
        "average, as far as their results are about normal; with two or three trainings it is wide, and one further "
        "training falls outside it more often than not.",
        tables,
        notes=notes,
    ).kept
