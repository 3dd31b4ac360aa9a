"""One folded block a model: statement, what it rests on, evidence, meaning, next step, files with their digests."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from stability.kernel.format.sentences import NO_SLOPES, at_least, at_most
from stability.storage.artifacts import ARTIFACTS, STEPS, artifact

from ..boxes import box_note
from ..formatting import metric_word
from ..names import single_value
from ..stored.reasons import missing, model_advice
from ..stored.records import ModelRecord
from ..vocabulary import like_data, meaning, notes, reason, sentence, weaker
from .assumptions import assumptions
from .growth import pictures, unstable
from .layout import Cell, Table, tabulate, text
from .marks import MEASURED, PROVED
from .next_step import next_step
from .performance import score
from .trainings import held_out, verdict_counts

OPEN = 3
"""Reports of so many models or fewer show their blocks unfolded."""
SETTLED = ("certified", "refuted")
MARGINS = {
    "gain": (
        "recurrent weights, or slopes of the activation: the proof holds up to",
        "the same: some activation with such slopes is proved unstable from",
    ),
    "step": ("step of the integrator: the proof holds up to", "the same: some such activation is proved unstable at"),
}
"""Both ends of a stability margin, in words."""


def block(model: ModelRecord, total: int) -> dict[str, Any]:
    """Everything that stands in one model's block.

    Args:
        model: the record.
        total: models of the report.
    """
    mark = PROVED if model.state in SETTLED else ""
    panels = pictures(model)
    facts = [
        *((label, value, PROVED) for label, value in meaning(model.certificate, model.is_discrete, model.length)),
        *_inside(model),
        *((label, value, PROVED) for label, value in _margins(model)),
        *((label, value, "") for label, value in _no_margin(model)),
        *((label, value, MEASURED) for label, value in unstable(model)),
        *((label, value, MEASURED) for label, value in _trainings(model)),
    ]
    return {
        "record": model,
        "open": total <= OPEN,
        "mark": mark,
        "sentence": model.refused or sentence(model.certificate, model.is_discrete),
        "statement": None if model.certificate is None else single_value(model.certificate["statement"]),
        "reason": reason(model.certificate) if model.state in ("certified", "inconclusive") else "",
        "notes": notes(model.certificate, box_note(model.analysis)),
        "assumptions": assumptions(model),
        "advice": model_advice(model)[1:],
        "next": next_step(model),
        "facts": facts,
        "weaker": [(name, said, _mark(said)) for name, said, _ in weaker(model.certificate)],
        "missing": missing(model, [s for s in STEPS if s != "margin" or not _no_margin(model)]),
        "score": score(model),
        "panels": panels,
        "kept": any(PROVED in p.marks for p in panels),
        "files": _files(model),
    }


def _inside(model: ModelRecord) -> list[tuple[str, str, str]]:
    """The verdict for inputs like the data, and what follows from it where that is a proof."""
    facts = like_data(model.certificate, model.is_discrete)
    return [(label, value, PROVED if k else _mark(value)) for k, (label, value) in enumerate(facts)]


def _mark(said: str) -> str:
    return PROVED if said.startswith(("proved", "refuted")) else ""


def _trainings(m: ModelRecord) -> list[tuple[str, str]]:
    if not m.trainings.several:
        return []
    runs = f"{len(m.trainings.runs)} trainings"
    return [
        (f"verdicts of {runs}", verdict_counts(m)),
        (f"held-out {metric_word(m.metric)}, mean of {runs}", held_out(m)),
    ]


def _margins(model: ModelRecord) -> list[tuple[str, str]]:
    """The two-sided margin: factors that keep the proof, and the first that is proved to break it."""
    found = []
    for kind, (held, broken) in MARGINS.items():
        kept, lost = (model.margins.get(f"{kind}_{end}") for end in ("certified", "destabilising"))
        found += [] if kept is None else [(held, f"× {at_least(kept)}")]
        found += [] if lost is None else [(broken, f"× {at_most(lost)}")]
    return found


def _no_margin(model: ModelRecord) -> list[tuple[str, str]]:
    """Why a model that was asked for a margin has none, where that is no failure of a search."""
    if model.step("margin")["status"] in ("done", "missing"):
        return []
    if model.state == "certified":
        return [("stability margin", f"none: {NO_SLOPES}")] if model.step("margin")["reason"] == NO_SLOPES else []
    found = "that claim is refuted" if model.state == "refuted" else "there is none of this model"
    text = f"none: it would say how far a proof of stability under every input is from failing, and {found}"
    return [("stability margin", text)]


def _files(model: ModelRecord) -> tuple[Table, ...]:
    """The files that the model's numbers are from, with their digests as the analysis wrote them."""
    known = model.analysis.get("files")
    known = known if isinstance(known, dict) else {}
    there = [a.name for a in ARTIFACTS if (model.folder / a.name).is_file() and a.name not in model.changed]
    columns = (
        text("file", lambda n: Cell(n, href=f"models/{quote(model.name)}/{quote(n)}")),
        text("SHA-256", lambda n: known.get(n, "not recorded")),
        text("made by", _made),
    )
    return tabulate(f"Files of {model.title}", columns, there)


def _made(name: str) -> Cell:
    """The step that made a file, which leads to its command and its code."""
    step = artifact(name).step
    return Cell(STEPS[step], href=f"#made-{step.replace('_', '-')}") if step in STEPS else Cell("the analysis itself")
