"""A certificate as one screen of text."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..formatting import bound, bound_at, margin_words, table, time_to, verdict_word
from ..names import printable
from ..opinions import NUMERIC, SHORT, opinion_cells, opinion_count
from ..vocabulary import CRITERIA, mark, meaning, notes, reason, sentence, state, weaker

SLOW = 1000  # steps; where the length of the sequences is not known, half after more of them is called slow
NOT_APPLYING = "– does not apply"


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
    margin: Mapping[str, float] | None = None,
) -> str:
    """Return a certificate as one screen of text.

    Args:
        model: what it is about, in the user's words.
        summary: ``certificates.view``.
        discrete: whether rates are per step.
        saved: where the file is, if it was written.
        hints: what would lead further, each with its command.
        opinions: ``cross_check.json`` as a mapping, where a solver was asked.
        where: the range of inputs in which counterexamples were searched first.
        length: steps of the sequences on which the network was trained.
        margin: certified and destabilizing factor of the slopes, where they were asked for.

    Returns:
        The text.
    """
    width = min(100, max(40, shutil.get_terminal_size((100, 24)).columns))

    def wrap(text: str, indent: int = 2, hang: int = 0) -> str:
        return textwrap.fill(
            text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + hang), break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip

    found = state(summary)
    part = summary.get("meta", {}).get("part")
    about = f"{model}, the part {part}" if part else model
    word = verdict_word(found) + " for inputs in the box" * bool(found == "certified" and summary.get("driven"))
    said = sentence(summary, discrete) + (_slow(summary, length) if discrete and found == "certified" else "")
    lines = [f"{printable(about)}: {word.upper()}", wrap(said), ""]
    evidence = "none" if found == "inconclusive" else f"proved ({summary['proof']})"
    facts = [("claim", str(summary["statement"])), ("evidence", evidence)]
    if found == "certified":
        name = str(summary["criterion"])
        facts.append(("criterion", f"{name}: {CRITERIA.get(name, '')}"))
    facts += meaning(summary, discrete)
    if found == "inconclusive":
        facts.append(("margins", reason(summary)))
    if margin is not None:
        low, high = margin["certified"], margin["destabilizing"]
        proved = [f"slopes × {bound(low, 4, up=False)} are certified"] * (low > 0)
        proved += [f"slopes × {bound(high, 4, up=True)} are proved to destabilize"] * (high < float("inf"))
        facts.append(("gain margin", ", ".join(proved) or "no factor of the slopes is certified or refuted"))
    facts += [("note", text) for text in notes(summary, where=where)]
    room = max(len(name) for name, _ in [*facts, ("next", "")]) + 2 if width >= 60 else 2
    lines += [wrap(f"{name:<{room}}{text}", hang=room if width >= 60 else 2) for name, text in facts]
    for why, command in hints:  # a command stays on one line, so that it can be copied
        lines += [wrap(f"{'next':<{room}}{why}:", hang=room if width >= 60 else 2), f"    {printable(command)}"]
    if summary["findings"]:
        lines += ["", *_findings(summary["findings"], width)]
    claims = weaker(summary)
    if claims:
        lines += ["", "  further claims"]
        lines += [wrap(f"{name}: {answer}. {statement}", 4, 2) for name, answer, statement in claims]
    if opinions is not None:
        lines += ["", "  second opinions: the criteria as semidefinite programs, by cvxpy"]
        grid = table(SHORT, [opinion_cells(o) for o in opinions["opinions"]], right=NUMERIC, most=24)
        lines += [f"  {line}" for line in grid.splitlines()]
        lines += [wrap(opinion_count(opinions["asked"], opinions["wrong"]))]
    file = shlex.quote(printable(saved or "certificate.json"))
    kept = f"Keep it with -o {file}" if saved is None else f"Written to {file}"
    check = f"; check it without a solver: stability verify {file}" if found != "inconclusive" else ""
    return "\n".join([*lines, "", wrap(kept + check)])


def _slow(summary: Mapping[str, Any], length: int | None) -> str:
    """Say that a proved rate is slow beside the length of the sequences; empty where it is not."""
    half = time_to(0.5, summary["pairs"], True)
    if half is None or half <= (length or SLOW):
        return ""
    gain = any(c["name"] == "gain" and c["verdict"] == "certified" for c in summary["claims"])
    kept = bound(bound_at(length or SLOW, summary["pairs"], True), 4, up=True)
    said = f" That is slow: after {length or SLOW} steps the proved bound is {kept} × the distance at the start."
    return said + " The gain below holds from the first step." * gain


def _findings(findings: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return one line for each criterion; details that are too long for the line follow below it."""
    silent = [str(f["criterion"]) for f in findings if mark(f)[0] == NOT_APPLYING]
    findings = [f for f in findings if mark(f)[0] != NOT_APPLYING]
    rows = [(mark(f)[0], str(f["criterion"]), margin_words(f["margin"])) for f in findings]
    grid = table(("", "criterion", "margin"), rows, right=(2,)).splitlines()
    first = max(map(len, grid)) + 4
    beside = max((len(str(f["detail"])) for f in findings), default=0) + first <= width
    lines = [f"  {grid[0]:<{first - 2}}{'detail' if beside else ''}".rstrip()]
    for line, finding in zip(grid[1:], findings):
        if beside:
            lines.append(f"  {line:<{first - 2}}{finding['detail']}".rstrip())
            continue
        lines.append(f"  {line}")
        if finding["detail"]:
            indent = " " * 6
            lines.append(textwrap.fill(str(finding["detail"]), width, initial_indent=indent, subsequent_indent=indent))
    return [*lines, f"  {NOT_APPLYING}: {', '.join(silent)}"] if silent else lines
