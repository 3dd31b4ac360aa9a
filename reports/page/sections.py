"""The page's sections in reading order, each a heading, a few sentences, tables and panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..boxes import in_box
from ..figures import crowd
from ..formatting import count, duration, margin_words, metric, metric_word, number, percent, signed
from ..stored.collect import Report
from ..stored.reasons import reasons_for
from ..stored.records import ModelRecord
from ..stored.trainings import Trainings
from ..vocabulary import CRITERIA, NAMES, NO_UNIT, UNITS, UNSOUND, WITNESSES, mark, weaker
from .curvature import curvature
from .growth import growths
from .layout import NAMED, Cell, Column, Section, Table, averaged, crowded, draw, field, named, tabulate, text
from .local import local
from .marks import HEURISTIC, MEASURED, PROVED
from .opinions import opinions
from .performance import performances
from .protocol import protocol
from .robustness import robustness
from .spectra import along_training, clouds
from .trainings import trainings

BEHIND = "about the differential equation"  # how a finding says that it is not about the map that runs


def _lines_of_theory(models: Sequence[ModelRecord]) -> tuple[str, ...]:
    """What the expected norm and the proved bound of each model come from, or why there is none."""
    names = {"expected": "expected norm", "envelope": "proved bound"}
    known = [(m.title, m.documents.get("drift", {}).get("sources")) for m in models]
    return tuple(
        f"{title}, {names[line]}: {sources[line]}"
        for title, sources in known
        if isinstance(sources, dict)
        for line in names
        if line in sources
    )


def _margin_cell(finding: Mapping[str, Any] | None, trainings: Trainings) -> Cell:
    if finding is None:
        return Cell("–", "quiet")
    words, tone = mark(finding)
    value = "" if finding["margin"] is None else f" {margin_words(finding['margin'])}"
    unproving = finding["criterion"] in UNSOUND and finding["margin"] is not None
    behind = BEHIND in str(finding.get("detail"))
    spread = trainings.number("margin", str(finding["criterion"])) if trainings.several else None
    value += "" if spread is None else f"; of {len(trainings.runs)} trainings {averaged(spread, signed)}"
    tail = "; proves nothing" if unproving else "; of the flow, not the map" * behind
    return Cell(words + value + tail, tone)


def _margins_by(criterion: str) -> Column:
    """The column of a criterion in the table of margins."""

    def show(model: ModelRecord) -> Cell:
        findings = (model.certificate or {})["findings"]
        first = next((f for f in findings if f["criterion"] == criterion), None)
        return _margin_cell(first, model.trainings)

    return Column(str(NAMES.get(criterion, criterion)), show, mark=HEURISTIC)


def _margins(report: Report) -> Section | None:
    models = [m for m in report.models if m.certificate]
    names = list(dict.fromkeys(str(f["criterion"]) for m in models for f in (m.certificate or {})["findings"]))
    said = CRITERIA | WITNESSES
    criterion = text("criterion", lambda n: NAMES.get(n, n))
    unit = text("its unit", lambda n: UNITS.get(n, UNITS["linear"] if n.startswith("layer ") else NO_UNIT))
    layer, other = "a layer of the stack by itself", "see the certificate"
    meaning = text("meaning", lambda n: said.get(n, layer if n.startswith("layer ") else other))
    tables = tabulate(
        "Signed margins: ✓ the criterion holds, ✗ it fails; ! something against stability was found",
        (NAMED, *(_margins_by(n) for n in names)),
        models if names else (),
        "does not apply to this model, was not asked about it, or nothing was left to ask",
        made=("certificate",),
    )
    tables += tabulate("What each criterion says", (criterion, unit, meaning), names)
    drawn = [n for n in names if n not in {*WITNESSES, *UNSOUND}]
    return Section(
        "margins",
        "Margins of every criterion",
        "Each criterion is sufficient for stability of the system that it speaks about and none is necessary: all ✗ "
        "prove nothing. A ✓ was found in floating-point arithmetic; what certifies is the proof on the model's card. "
        "Every criterion has a unit of its own: margins of two criteria do not compare.",
        tables,
        draw(
            *((crowd.margin(models, n), UNITS.get(n, "")) for n in drawn),
            marks=(HEURISTIC,),
            made=("certificate",),
        ),
    ).kept


def _claims(report: Report) -> Section | None:
    tones = {"proved": "good", "refuted": "bad"}
    settled = {"proved": PROVED, "refuted": PROVED}
    tables = tabulate(
        "Further claims",
        (
            text("model", lambda claim: named(claim[0])),
            text("claim", lambda claim: claim[1]),
            text("answer", lambda claim: Cell(claim[2], tones.get(claim[2], "quiet"), mark=settled.get(claim[2]))),
            text("in full", lambda claim: Cell(claim[3], mark=settled.get(claim[2]))),
        ),
        [(m, *claim) for m in report.models for claim in weaker(m.certificate)],
        made=("certificate",),
    )
    return Section(
        "weaker",
        "Further claims",
        "What is true of the models beside the main claim, each with its own proof in the certificate "
        "file, re-checked like the main one. A network that does not contract is often still provably bounded.",
        tables,
    ).kept


def _dynamics(report: Report) -> Section | None:
    norms, lyapunov = protocol(report.models, "norms"), protocol(report.models, "lyapunov")
    panels = crowded(crowd.drift(report.models)) + crowded(crowd.exponents(report.models))
    tables = tabulate(
        "Norm drift and Lyapunov exponents, per step",
        (
            NAMED,
            field("mean ‖h‖ at first", "drift", "start", number),
            field("at last", "drift", "end", number),
            field("slope of log ‖h‖", "drift", "slope", signed),
            field("doublings", "drift", "drift_index", number),
            field("largest exponent, mean over sequences", "exponents", "largest", signed),
            field("certified bound, log ρ + log(C) / steps", "exponents", "bound", signed, PROVED),
            field("steps counted", "exponents", "steps", count),
        ),
        [m for m in report.models if m.documents.get("drift") or m.documents.get("exponents")],
        "not measured, why stands below; no bound: not certified, for other inputs than these, or for each layer of a "
        "deep network by itself",
        protocol=f"Norms: {norms}. Exponents: {lyapunov}",
        made=("norms", "lyapunov"),
    )
    low = any(crowd.cut(m) for m in report.models)
    tables += _recoveries(report) + growths(report)
    return Section(
        "dynamics",
        "Hidden state over time",
        "How the norm of the hidden state moves within a sequence and beyond, and how fast "
        "neighbouring states separate or come together. Doublings: log2 of the largest over the "
        "smallest mean norm after the first quarter; 0 is a constant norm. The certified bound is that of "
        "the counted steps, log ρ + log(C) / steps with the certified rate ρ and overshoot C, the least over all "
        "certified pairs: no exponent of so many steps can lie above it. Exponents are means over the counted steps "
        "and over the sequences, of the directions that grow most over a whole sequence; growth below them is that of "
        "one sequence and of the direction that its first step stretches most, no step left out: it may be above 0 "
        "where the mean exponent is below." + f" Drawings of exponents end at {number(crowd.LOWEST)} a step." * low,
        tables,
        panels,
        _lines_of_theory(report.models) + reasons_for(report.models, "norms", "lyapunov", "recovery", "growth"),
        protocol=f"Norms: {norms}. Exponents: {lyapunov}" if panels else "",
        made=("norms", "lyapunov") if panels else (),
    ).kept


def _recoveries(report: Report) -> tuple[Table, ...]:
    """What is forgotten, and when: as measured along the data, and as proved."""

    def proved(name: str) -> Callable[[ModelRecord], str]:
        def show(model: ModelRecord) -> str:
            known = model.certificate or {}
            if found := known.get(name):
                return number(found["time"], 4)
            boxed = known.get("like_data") or {}
            inside = boxed.get(name)
            return f"{number(inside['time'], 4)}, {in_box(boxed)}" if inside else number(None)

        return show

    return tabulate(
        "Recovery: steps until a disturbance of the state is forgotten",
        (
            NAMED,
            field("size", "recovery", "size", number, ""),
            field("forgotten below", "recovery", "tol", number, ""),
            field("measured, median", "recovery", "median", number),
            field("measured, longest", "recovery", "worst", number),
            field("runs that came back", "recovery", "recovered", percent),
            field("runs", "recovery", "runs", count),
            Column("proved, whatever the input of the claim", proved("recovery"), mark=PROVED),
            Column("proved memory horizon", proved("memory"), mark=PROVED),
        ),
        [m for m in report.models if m.documents.get("recovery")],
        "half of the runs, or one, had not come back at the end; no such proof about every input",
        protocol=protocol(report.models, "recovery"),
        made=("recovery", "certificate"),
    )


def _metric(title: str, name: str) -> Column:
    """A column of ``run.json`` in the metric of each model's task."""
    return Column(
        title,
        lambda m: field(title, "run", f"result.{name}", lambda value: metric(value, m.metric)).show(m),
        mark=MEASURED,
    )


def _training(report: Report) -> Section | None:
    models = report.models
    kinds = list(dict.fromkeys(m.metric for m in models if m.metric is not None))
    said = protocol(models, "training")
    panels = sum((crowded(crowd.training(models, "test_metric", k)) for k in kinds), ())
    tables = tabulate(
        "Outcome of training",
        (
            NAMED,
            field("parameters", "analysis", "parameters", count),
            field("epochs", "run", "result.epochs", count),
            text("measured by", lambda m: metric_word(m.metric)),
            _metric("on training data", "train_metric"),
            _metric("on held-out data", "test_metric"),
            _metric("guessing", "chance"),
            field("time", "run", "result.seconds", duration),
            text("where it is from", lambda m: str(m.analysis.get("source", "")).removeprefix("trained here: ")),
        ),
        [m for m in models if m.run.get("result")],
        protocol=protocol(models, "training"),
        made=("training",),
    )
    here = any(str(m.analysis.get("source", "")).startswith("trained here: ") for m in models)
    short = " They were trained briefly, to be examined and not to win: longer training gives better results."
    return Section(
        "training",
        "Training",
        "How the models came to be." + short * here,
        tables,
        panels,
        protocol=said if panels else "",
        made=("training",) if panels else (),
    ).kept


BUILDERS: tuple[Callable[[Report], Section | None], ...] = (
    _margins,
    opinions,
    _claims,
    clouds,
    along_training,
    curvature,
    performances,
    robustness,
    local,
    _dynamics,
    _training,
    trainings,
)


def sections(report: Report) -> list[Any]:
    """All sections that the stored files give something for.

    Args:
        report: what ``collect`` read.

    Returns:
        Sections in reading order, also those that have nothing but reasons why there is nothing to show.
    """
    return [s for s in (build(report) for build in BUILDERS) if s is not None]
