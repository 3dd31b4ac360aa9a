"""The page's sections in reading order, each a heading, a few sentences, tables and panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import figures
from .along import along_training, clouds
from .collect import ModelRecord, Report
from .formatting import count, duration, number, percent, signed
from .made import STEPS
from .page import Cell, Section, Table, draw
from .words import CRITERIA, NAMES, UNSOUND, WITNESSES, mark, weaker

__all__ = ["sections"]


def _missing(models: Sequence[ModelRecord], step: str) -> tuple[str, ...]:
    """A note for every model that an analyzer could not answer for."""
    return tuple(
        f"{m.title}, {STEPS[step]}: {m.step(step)['reason']}"
        for m in models
        if m.step(step)["status"] not in ("done", "missing")
    )


def _margin_cell(finding: Mapping[str, Any] | None) -> Cell:
    if finding is None:
        return Cell("–", "quiet")
    words, tone = mark(finding)
    value = "" if finding["margin"] is None else f" {signed(finding['margin'])}"
    return Cell(
        words
        + value
        + ("; proves nothing" if finding["criterion"] in UNSOUND and finding["margin"] is not None else ""),
        tone,
    )


def _margins(report: Report) -> Section | None:
    models = [m for m in report.models if m.certificate]
    names = list(dict.fromkeys(str(f["criterion"]) for m in models for f in (m.certificate or {})["findings"]))
    if not names:
        return None
    rows = []
    for criterion in names:
        cells = [Cell(NAMES.get(criterion, criterion))]
        for m in models:
            found = next((f for f in (m.certificate or {})["findings"] if f["criterion"] == criterion), None)
            cells.append(_margin_cell(found))
        rows.append(tuple(cells))
    said = CRITERIA | WITNESSES
    explained = Table(
        "What each criterion says",
        ("criterion", "meaning"),
        tuple((Cell(NAMES.get(n, n)), Cell(said.get(n, "see the certificate"))) for n in names),
    )
    table = Table(
        "Signed margins: ✓ the criterion holds, ✗ it fails; ! something against stability was found",
        ("criterion", *(m.title for m in models)),
        tuple(rows),
        numeric=tuple(range(1, len(models) + 1)),
    )
    return Section(
        "margins",
        "Margins of every criterion",
        "Each criterion is sufficient for stability and none is necessary: one ✓ certifies, all ✗ "
        "prove nothing. Margins of different criteria have different units and are not to be compared "
        "with each other.",
        (table, explained),
        draw((figures.margins(models, "margins"), "")),
    )


def _claims(report: Report) -> Section | None:
    rows = tuple(
        (
            Cell(m.title),
            Cell(name.replace("_", " ")),
            Cell(verdict, {"proved": "good", "refuted": "bad"}.get(verdict, "quiet")),
            Cell(statement),
        )
        for m in report.models
        for name, verdict, statement in weaker(m.certificate)
    )
    if not rows:
        return None
    return Section(
        "weaker",
        "Weaker claims",
        "What is true of the models beside the main claim, each with its own proof in the certificate "
        "file. A network that does not contract is often still provably bounded.",
        (Table("Further claims", ("model", "claim", "answer", "in full"), rows),),
    )


HESSIAN = (
    ("lambda_max", "largest eigenvalue"),
    ("lambda_min", "smallest eigenvalue"),
    ("trace", "trace"),
    ("trace_standard_error", "± standard error"),
    ("condition_number", "condition number"),
    ("gradient_norm", "gradient norm"),
    ("loss", "loss"),
)


def _hessian(report: Report) -> Section | None:
    models = [m for m in report.models if "hessian" in m.documents]
    if not models:
        return None
    columns = [(k, title) for k, title in HESSIAN if any(m.documents["hessian"].get(k) is not None for m in models)]
    rows = tuple(
        (
            Cell(m.title),
            *(Cell(number(m.documents["hessian"].get(k))) for k, _ in columns),
            Cell(count(m.documents["hessian"].get("n_parameters"))),
        )
        for m in models
    )
    return Section(
        "hessian",
        "Curvature of the loss",
        "Eigenvalues of the Hessian of the loss with respect to the parameters at the trained weights. "
        "A large largest eigenvalue is a sharp minimum; a negative smallest one says that training "
        "stopped at a point that is no minimum.",
        (
            Table(
                "Hessian of the training loss",
                ("model", *(t for _, t in columns), "parameters"),
                rows,
                tuple(range(1, len(columns) + 2)),
            ),
        ),
        draw(*((figures.density(m, i, f"density-{m.name}"), "") for i, m in enumerate(report.models))),
        _missing(report.models, "hessian"),
    )


def _robustness(report: Report) -> Section | None:
    models = report.models
    l2 = "radius, Euclidean norm of the change"
    plans = (
        ("noise", {"noise": "white"}, "White noise", "standard deviation of the noise"),
        ("noise", {"noise": "salt_pepper"}, "Salt-and-pepper noise", "share of entries replaced"),
        ("attacks", {"attack": "pgd", "norm": "linf"}, "PGD attack, any entry", "largest change of an entry"),
        ("attacks", {"attack": "pgd", "norm": "l2"}, "PGD attack, Euclidean", l2),
        ("attacks", {"attack": "deepfool", "norm": "l2"}, "DeepFool attack, Euclidean", l2),
    )
    drawn = [
        (figures.sweep(models, frame, keys, title, label, "-".join((frame, *keys.values()))), "")
        for frame, keys, title, label in plans
    ]
    panels = draw(
        *drawn,
        (
            figures.proved(models, {"attack": "pgd", "norm": "l2"}, "Proved and attacked", "proved-l2"),
            "Thick lines without markers: accuracy that is proved up to this radius. Lines with "
            "markers: accuracy that PGD leaves. The truth lies between them.",
        ),
    )
    rows = tuple(
        (
            Cell(m.title),
            Cell(number(d.get("gain"))),
            Cell(number(d.get("median"))),
            Cell(number(d.get("largest"))),
            Cell(percent(d.get("clean_accuracy"))),
            Cell(count(d.get("samples"))),
        )
        for m in models
        if (d := m.documents.get("radius"))
    )
    tables = (
        (
            Table(
                "Certified radius: changes of the whole sequence up to this Euclidean norm provably do "
                "not change the answer",
                ("model", "gain to the logits", "median radius", "largest radius", "accuracy", "samples"),
                rows,
                (1, 2, 3, 4, 5),
            ),
        )
        if rows
        else ()
    )
    if not panels and not tables:
        return None
    return Section(
        "robustness",
        "Accuracy under noise and attack",
        "Accuracy on the same held-out sequences when they are disturbed at random and when they are "
        "disturbed on purpose, with full knowledge of the network. Bands are 95 % confidence intervals "
        "for the sampling of test sequences; two trainings of one model can differ by more.",
        tables,
        panels,
        _missing(models, "noise") + _missing(models, "attacks") + _missing(models, "robustness"),
    )


def _dynamics(report: Report) -> Section | None:
    panels = draw(
        (
            figures.drift(report.models, "drift"),
            "Median and the band from 10 % to 90 % of test sequences, far beyond the length that was trained on.",
        ),
        (
            figures.exponents(report.models, "lyapunov"),
            "Below zero, neighbouring states come together along the sequences that were tried; only a "
            "certificate speaks for all.",
        ),
    )
    rows = tuple(
        (
            Cell(m.title),
            Cell(number(drift.get("start"))),
            Cell(number(drift.get("end"))),
            Cell(signed(drift.get("slope"))),
            Cell(number(drift.get("drift_index"))),
            Cell(signed(exponent.get("largest"))),
            Cell(signed(exponent.get("bound"))),
        )
        for m in report.models
        if (drift := m.documents.get("drift", {})) or m.documents.get("exponents")
        for exponent in (m.documents.get("exponents", {}),)
    )
    if not panels and not rows:
        return None
    return Section(
        "dynamics",
        "Hidden state over time",
        "How the norm of the hidden state moves within a sequence and beyond, and how fast "
        "neighbouring states separate or come together. Doublings: log2 of the largest over the "
        "smallest mean norm after the first quarter; 0 is a constant norm. The largest exponent can "
        "never lie above the certified bound beside it.",
        (
            Table(
                "Norm drift and Lyapunov exponents, per step",
                (
                    "model",
                    "mean ‖h‖ at first",
                    "at last",
                    "slope of log ‖h‖",
                    "doublings",
                    "largest exponent",
                    "certified bound",
                ),
                rows,
                (1, 2, 3, 4, 5, 6),
            ),
        )
        if rows
        else (),
        panels,
        _missing(report.models, "norms") + _missing(report.models, "lyapunov"),
    )


def _training(report: Report) -> Section | None:
    panels = draw(
        (figures.training(report.models, "test_metric", "Accuracy on held-out data", "training-metric"), ""),
        (figures.training(report.models, "train_loss", "Loss on the training data", "training-loss"), ""),
    )
    rows = []
    for m in report.models:
        result = m.run.get("result")
        if result:
            rows.append(
                (
                    Cell(m.title),
                    Cell(count(m.analysis.get("parameters"))),
                    Cell(count(result.get("epochs"))),
                    Cell(percent(result.get("train_metric"))),
                    Cell(percent(result.get("test_metric"))),
                    Cell(percent(result.get("chance"))),
                    Cell(duration(result.get("seconds"))),
                    Cell(str(m.analysis.get("source", "")).removeprefix("trained here: ")),
                )
            )
    if not panels and not rows:
        return None
    return Section(
        "training",
        "Training",
        "How the models came to be. They were trained briefly, to be examined and not to win: longer "
        "training gives better accuracy.",
        (
            Table(
                "Outcome of training",
                (
                    "model",
                    "parameters",
                    "epochs",
                    "training accuracy",
                    "held-out accuracy",
                    "chance",
                    "time",
                    "why it is here",
                ),
                tuple(rows),
                (1, 2, 3, 4, 5, 6),
            ),
        )
        if rows
        else (),
        panels,
    )


BUILDERS: tuple[Callable[[Report], Section | None], ...] = (
    _margins,
    _claims,
    clouds,
    along_training,
    _hessian,
    _robustness,
    _dynamics,
    _training,
)


def sections(report: Report) -> list[Any]:
    """All sections that the stored files give something for.

    Args:
        report: what ``collect`` read.

    Returns:
        Sections in reading order.
    """
    return [s for s in (build(report) for build in BUILDERS) if s is not None]
