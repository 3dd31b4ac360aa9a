"""A certificate as one screen of text."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stability.kernel.format.sentences import at_most

from ..formatting import MISSING, bound, bound_at, margin_words, table, time_to, verdict_word
from ..loops import gain_words
from ..names import printable
from ..opinions import NUMERIC, SHORT, opinion_cells, opinion_count
from ..rounding import rounding_words
from ..vocabulary import CRITERIA, UNSOUND, mark, meaning, notes, reason, sentence, state, weaker

SLOW = 1000
"""Steps: a proved half-life above this is called slow if the length of the sequences is unknown."""
NOT_APPLYING = "– does not apply"
SHORT_LABELS = {
    "below the initial distance": "distance",
    "modulus of the eigenvalue": "|eigenvalue|",
    "recovery time": "recovery",
    "memory horizon": "memory",
}
"""Labels of facts as the screen has room for them."""
STATED = ("below half the initial distance", "overshoot")
"""Facts that the screen shows in another line: the sentence below the verdict, and the line of the rate."""
MAX_HINTS = 2
"""Commands that lead further, at most; ``--json`` has all."""


def screen(
    model: str,
    summary: Mapping[str, Any],
    discrete: bool,
    saved: Path | None,
    hints: Sequence[tuple[str, str]] = (),
    opinions: Mapping[str, Any] | None = None,
    where: str = "the box of --input-box",
    *,
    length: int | None = None,
    margin: Mapping[str, Any] | None = None,
) -> str:
    """Return a certificate as one screen of text.

    Args:
        model: name of the model, as the user gave it.
        summary: ``certificates.view``.
        discrete: whether rates are per step.
        saved: where the file is, if it was written.
        hints: next steps, each with its command.
        opinions: ``cross_check.json`` as a mapping, where a solver was asked.
        where: the range of inputs in which counterexamples were searched first.
        length: steps of the sequences on which the network was trained.
        margin: certified and destabilizing factors of the slopes, see ``GainMargin.to_dict``, where asked for.

    Returns:
        The text.
    """
    width = min(100, max(40, shutil.get_terminal_size((100, 24)).columns))

    def wrap(text: str, indent: int = 2, hang: int = 0) -> str:
        return textwrap.fill(
            text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + hang), break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip

    verdict = state(summary)
    part = summary.get("meta", {}).get("part")
    about = f"{model}, the part {part}" if part else model
    word = verdict_word(verdict) + " for inputs in the box" * bool(verdict == "certified" and summary.get("driven"))
    text = sentence(summary, discrete) + (_slow(summary, length) if discrete and verdict == "certified" else "")
    lines = [f"{printable(about)}: {word.upper()}", wrap(text)]
    facts = [("claim", str(summary["statement"]))]
    if verdict == "certified":
        name = str(summary["criterion"])
        facts.append(("criterion", f"{name}: {CRITERIA.get(name, '')}"))
    for label, value in meaning(summary, discrete):
        value += f", overshoot {at_most(summary['overshoot'])}" * (label == "rate")
        value = f"smaller than at the start {value}" if label == "below the initial distance" else value
        facts += [] if label in STATED else [(SHORT_LABELS.get(label, label), value)]
    if verdict == "inconclusive":
        facts.append(("reason", reason(summary)))
    else:
        facts.append(("evidence", f"proof by the theorem {summary['proof']}"))
    if margin is not None:
        words = zip(("stable", "not stable"), gain_words(margin))
        proved = [f"{what} with all slopes × {gains} (proven)" for what, gains in words if gains != MISSING]
        facts.append(("gain margin", ", ".join(proved) or "no factor of the slopes has a proof or a counterexample"))
    facts += [("rounding", text) for text in rounding_words(summary)]
    facts += [("note", note) for note in notes(summary, range_words=where)]
    room = max(len(label) for label, _ in facts) + 2 if width >= 60 else 2
    hang = room if width >= 60 else 2
    lines += [wrap(f"{label:<{room}}{value}", hang=hang) for label, value in facts]
    for purpose, command in hints[:MAX_HINTS]:  # a command stays on one line, so that it can be copied
        lines += [wrap(f"{'next':<{room}}{purpose}:", hang=hang), f"    {printable(command)}"]
    if summary["findings"] and not summary.get("gated_linear"):
        lines += ["", *_findings(summary["findings"], width)]
    for label, answer, statement in weaker(summary):
        lines.append(_line(f"  {label} ({answer}): {statement.partition('). ')[2] or statement}", width))
    if opinions is not None:
        lines += ["", "  cross-check: the same criteria as semidefinite programs, solved by cvxpy"]
        grid = table(SHORT, [opinion_cells(o) for o in opinions["opinions"]], right=NUMERIC, most=24)
        lines += [f"  {line}" for line in grid.splitlines()]
        lines += [wrap(opinion_count(opinions["asked"], opinions["wrong"]))]
    file = shlex.quote(printable(saved or "certificate.json"))
    action = f"Keep it with -o {file}" if saved is None else f"Written to {file}"
    check = f"; check it without a solver: stability verify {file}" if verdict != "inconclusive" else ""
    return "\n".join([*lines, "", wrap(action + check)])


def _line(text: str, width: int) -> str:
    """Return the beginning of a text that fits one line, up to a whole word."""
    return text if len(text) <= width else f"{text[: width - 1].rpartition(' ')[0]} …"


def _slow(summary: Mapping[str, Any], length: int | None) -> str:
    """Say that a proved rate is slow beside the length of the sequences; empty where it is not."""
    half = time_to(0.5, summary["pairs"], True)
    if half is None or half <= (length or SLOW):
        return ""
    gain = any(c["name"] == "gain" and c["verdict"] == "certified" for c in summary["claims"])
    share = bound(bound_at(length or SLOW, summary["pairs"], True), 4, up=True)
    steps = f"{length} steps, the length of the training sequences," if length else f"{SLOW} steps"
    text = f" That is slow: after {steps} the proved bound is {share} × the initial distance."
    return text + " The gain below holds from the first step." * gain


def _findings(findings: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return a line for each criterion, cut to the width; ``--json`` has every detail in full."""
    inapplicable = [str(f["criterion"]) for f in findings if mark(f)[0] == NOT_APPLYING]
    findings = [f for f in findings if mark(f)[0] != NOT_APPLYING and f["criterion"] not in UNSOUND]
    rows = [(mark(f)[0], str(f["criterion"]), margin_words(f["margin"]), str(f["detail"])) for f in findings]
    grid = table(("", "criterion", "margin", "detail"), rows, right=(2,)).splitlines()
    if len(findings) > 2:
        lines = [f"  {_line(line, width - 2)}" for line in grid]
    else:
        detail = grid[0].index("detail") + 2
        lines = [
            textwrap.fill(line, width, initial_indent="  ", subsequent_indent=" " * detail, drop_whitespace=True)
            for line in grid
        ]
    lines += [f"  {NOT_APPLYING}: {', '.join(inapplicable)}"] if inapplicable else []
    return [
        *lines,
        "  A criterion holds if its margin is positive. Margins of different criteria have different units.",
    ]
