"""``stability certify``: the verdict about a model on one screen."""

from __future__ import annotations

import functools
import shlex
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import half_life, margin_words, table, time_to, verdict_word
from ..names import printable
from ..opinions import NUMERIC, SHORT, opinion_cells, opinion_count
from ..stored.reasons import Known, advice, data_words, shell_name
from ..vocabulary import CRITERIA, mark, meaning, notes, reason, sentence, state, weaker
from . import console
from .gate import Gate, certify_each
from .input_boxes import DATA, box_of, words_of
from .options import DataOptions, Output, Seed, check_seconds, choice, no_default

CRITERION = (
    "auto", "theorem1a", "theorem1b", "schur", "small_gain", "circle", "multiplier", "linear", "interval", "pairwise",
)  # fmt: skip
CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")
EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}


def certify(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run directory, .safetensors, state dict (.safetensors, .pt), .npz with A and W, .onnx, "
            "or package.module:factory (FILE.py:factory); MODEL#part takes one recurrent part. "
            "Of several models or parts, a line each.",
            metavar="MODEL...",
        ),
    ],
    out: Annotated[
        Path | None, no_default("Write the certificate there (of several models or parts: a folder).", "-o", "--out")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let -o replace a file that is no certificate (never one that is read).")
    ] = False,
    criterion: Annotated[
        str,
        choice("All criteria in turn (auto), or one.", CRITERION, "--criterion"),
    ] = "auto",
    solver: Annotated[str, choice("Of the multiplier criterion.", ("auto", "riccati", "cvxpy"), "--solver")] = "auto",
    rate: Annotated[str, typer.Option(help="best, any (existence only, the fastest), or a number to reach.")] = "best",
    tol: Annotated[
        float | None, no_default("Relative tolerance of the best rate; by default it follows the size.")
    ] = None,
    time_limit: Annotated[float | None, no_default("Seconds at most.")] = None,
    refute: Annotated[bool, typer.Option(help="Search for a counter-example where no proof is found.")] = True,
    criteria: Annotated[
        str,
        choice(
            "needed: criteria that a proved one contains are evaluated for their margins; all: each searches for its "
            "own best rate.",
            ("needed", "all"),
            "--criteria",
        ),
    ] = "needed",
    continuous: Annotated[
        bool, typer.Option("--continuous", help="The differential equation behind the layer.")
    ] = False,
    cell: Annotated[
        str | None, choice("What a state dict's weights belong to.", CELLS, "--cell", show_default=False)
    ] = None,
    input_box: Annotated[
        tuple[float, float] | None,
        no_default(
            "Claims about inputs in a box: LOW HIGH (or LOW,HIGH); data, the range of the data; or a file with low and "
            "high of each input.",
            metavar="LOW HIGH",
        ),
    ] = None,
    input_box_from: Annotated[str | None, typer.Option("--input-box-from", hidden=True)] = None,
    cross_check: Annotated[
        bool,
        typer.Option(
            "--cross-check",
            help="Ask a solver about the circle criterion and KYP, too (cvxpy; up to 64 states, 20 s), and say how "
            "often its status alone would have been wrong; the verdict does not depend on it.",
        ),
    ] = False,
    recovery: Annotated[
        tuple[float, float],
        typer.Option(help="Say when a disturbance of this size is certainly below this tolerance.", metavar="SIZE TOL"),
    ] = (1.0, 1e-3),
    seed: Seed = 0,
    *,
    gate: Gate,
    data: DataOptions,
    output: Output,
) -> None:
    """Certified, refuted or inconclusive, with the evidence; exit code 0, 3 or 1, and 2 for bad input.

    A rate that was asked for and is not reached ends with 1, and the proof of the best one is kept. With several
    models, --require or --min-rate: a line each (with --json a JSON object a line), and the worst exit code.
    """
    from .sources import open_parts, open_subject, there

    if len(models) == 1:  # before anything is loaded that takes time; of several each has its line
        there(models[0])
    from stability.certification import certify as prove

    from ..stored.certificates import view
    from .data import seen_range
    from .outputs import reads, writable

    if not all(0.0 < value < float("inf") for value in recovery):
        raise typer.BadParameter("SIZE and TOL must be positive numbers", param_hint="--recovery")
    time_limit = check_seconds(time_limit, least=">=")
    asked: dict[str, Any] = {"criterion": criterion, "solver": solver, "rate": _rate(rate), "tol": tol}
    asked |= {"time_limit": time_limit, "refute": refute, "seed": seed, "criteria": criteria}

    allow = functools.partial(writable, read=reads(models, data, input_box_from), overwrite=overwrite)

    def about(name: str) -> dict[str, Any]:
        there(name)
        return asked | {"input_box": box_of(input_box, input_box_from, name, data, seen_range)}

    def read(name: str, box: Any) -> tuple[dict[str, Any], bool]:
        return open_parts(name) if box is None and cell is None and not continuous else ({}, True)

    def answers_of(name: str) -> dict[str, Any]:
        how = about(name)
        parts, known = read(name, how["input_box"])
        if parts and not known:
            return _each_part(parts, how, output)
        return {"": prove(open_subject(name, continuous=continuous, cell=cell), **how)}

    model, parts, known, box = models[0], {}, True, None
    if not gate.asked and len(models) == 1:
        _allow_file(out, allow)
        output.status("loading ...")
        asked = about(model)
        box = asked["input_box"]
        parts, known = read(model, box)
    if gate.asked or len(models) > 1 or (parts and not known):
        _refuse_cross_check(cross_check)
        raise typer.Exit(certify_each(models, answers_of, gate, out, output, allow))
    allow(out)
    subject = open_subject(model, continuous=continuous, cell=cell)
    output.note(_warning(model, subject, asked))
    output.status(f"certifying {model} ...")
    certificate = prove(subject, **asked)
    answers = _each_part(parts, asked, output)
    opinions = _opinions(certificate.subject, output) if cross_check else None
    output.status()
    summary = view(certificate, *recovery)
    missed = state(summary) == "certified" and summary["meta"].get("asked_rate_reached") is False
    discrete = certificate.subject.is_discrete
    if out is not None:
        certificate.save(out)
    options = [*(["--cell", cell] if cell else []), *(["--continuous"] if continuous else [])]
    options += words_of(box, input_box_from)
    told = data_words(shlex.join(console.ASKED), {})
    options += shlex.split(told) if input_box_from is not None else []
    named = (("--criterion", criterion, "auto"), ("--solver", solver, "auto"), ("--rate", rate, "best"))
    options += [text for name, value, default in named if value != default for text in (name, value)]
    known = _known(model, subject, told)
    hints = advice(summary, " ".join([shell_name(model), *map(shlex.quote, options)]), time_limit, known)
    document = {
        "model": model,
        **summary,
        "state": state(summary),
        "discrete": discrete,
        "certificate": out,
        "advice": [{"why": why, "command": command} for why, command in hints],
        "half_life": half_life(summary["rate"], discrete),
        "below_start_after": time_to(1.0, summary["pairs"], discrete),
        "below_half_after": time_to(0.5, summary["pairs"], discrete),
        **({} if opinions is None else {"cross_check": opinions}),
        **({"parts": _in_short(answers)} if answers else {}),
    }
    where = "the range of the data" if input_box_from == DATA else "the box of --input-box"
    text = screen(model, summary, discrete, out, hints, opinions, where)
    lines = _part_lines(answers, ABOUT_BLOCKS if certificate.criterion == "cascade" else ABOUT_PARTS)
    output.show(document, "\n".join([text, "", *lines]) if answers else text)
    raise typer.Exit(1 if missed else EXIT[str(certificate.verdict)])


ABOUT_PARTS = (
    "Each answer is about its part, under every input of that part. What stands between the parts is not part of any "
    "claim, and nothing is claimed about how fast the whole forgets."
)


ABOUT_BLOCKS = (
    "Each answer is about its part, under every input of that part; the claims above are about encoder and blocks "
    "together."
)


def _each_part(parts: Mapping[str, Any], asked: Mapping[str, Any], output: Output) -> dict[str, Any]:
    """A certificate of every part, by its path."""
    from stability.certification import certify as prove

    answers = {}
    for path, subject in parts.items():
        output.status(f"certifying {path} ...")
        answers[path] = prove(subject, **asked)
    return answers


def _in_short(answers: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("verdict", "evidence", "criterion", "rate", "overshoot", "statement")
    return {path: {key: found.summary()[key] for key in keys} for path, found in answers.items()}


def _part_lines(answers: Mapping[str, Any], about: str = ABOUT_PARTS) -> list[str]:
    """A line for every part, and what they say of the whole."""
    rows = [
        (path, str(found.verdict), "" if found.rate is None else f"{found.rate:.6g}", str(found.criterion or ""))
        for path, found in answers.items()
    ]
    grid = table(("part", "answer", "rate", "by"), rows, right=(2,))
    return [f"  {line}" for line in grid.splitlines()] + [
        textwrap.fill(about, 98, initial_indent="  ", subsequent_indent="  ")
    ]


def _allow_file(out: Path | None, allow: Callable[[Path | None], None]) -> None:
    """Ask whether a file may be written; a folder takes the certificates of parts, which are asked for later."""
    if out is None or not out.is_dir():
        allow(out)


def _refuse_cross_check(cross_check: bool) -> None:
    if cross_check:
        raise ConfigurationError("--cross-check is about one recurrent part, without --require and --min-rate")


def _known(model: str, subject: Any, data: str) -> Known:
    """What commands about the network need; nothing for matrices and bare weights."""
    if not hasattr(subject, "state_dict"):
        return Known(data=data)
    from stability.errors import StabilityError

    from ...analysis.training.runs import RUN_FILE, read_run
    from ...analysis.unroll import recurrent_layers
    from ...models.classifier import classifier

    run = read_run(model).document if (Path(model) / RUN_FILE).is_file() else {}
    layer = next((getattr(part, "layer_name", type(part).__name__) for _, part in recurrent_layers(subject)), "")
    try:
        radii = classifier(subject).classes > 1
    except StabilityError:
        radii = False
    data, epochs = data or data_words("", run.get("task") or {}), run.get("training", {}).get("epochs")
    return Known(shell_name(model), data, bool(run), layer, epochs, radii)


def _opinions(subject: Any, output: Output) -> dict[str, Any]:
    from stability.search.criteria.cross_check import cross_check

    output.status("asking a solver ...")
    return cross_check(subject).to_dict()


def _warning(model: str, subject: Any, asked: Mapping[str, Any]) -> str:
    """What a long certificate will cost, before it begins; empty for small ones."""
    from stability.conversion.subjects import as_subject
    from stability.cost import LARGE, cost_notice

    given = subject.parameters() if hasattr(subject, "parameters") else ()
    sizes = [p.shape[-1] for p in given if not hasattr(p, "materialize") and p.dim() == 2]  # lazy: no shape yet
    if max([getattr(subject, "states", 0), *sizes]) < LARGE:  # a module is not read twice for nothing
        return ""
    said = cost_notice(as_subject(subject), asked["rate"], asked["time_limit"])
    return f"{model}: {said}" if said else ""


def _rate(text: str) -> str | float:
    if text in ("best", "any"):
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"best, any or a number, got {text!r}", param_hint="--rate") from None


def screen(
    model: str,
    summary: Mapping[str, Any],
    discrete: bool,
    saved: Path | None,
    hints: Sequence[tuple[str, str]] = (),
    opinions: Mapping[str, Any] | None = None,
    where: str = "the box of --input-box",
) -> str:
    """The certificate as one screen of text.

    Args:
        model: what it is about, in the user's words.
        summary: ``certificates.view``.
        discrete: whether rates are per step.
        saved: where the file is, if it was written.
        hints: what would lead further, each with its command.
        opinions: ``cross_check.json`` as a mapping, where a solver was asked.
        where: the range of inputs in which counter-examples were searched first.

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
    word = verdict_word(found) + (" for inputs in the box" if found == "certified" and summary.get("driven") else "")
    lines = [f"{printable(about)}: {word.upper()}", wrap(sentence(summary, discrete)), ""]
    facts = [("claim", str(summary["statement"])), ("evidence", _evidence(summary))]
    if found == "certified":
        name = str(summary["criterion"])
        facts += [("criterion", f"{name}: {CRITERIA.get(name, '')}"), *meaning(summary, discrete)]
    else:
        facts += meaning(summary, discrete)
    if found == "inconclusive":
        facts.append(("margins", reason(summary)))
    facts += [("note", text) for text in notes(summary, where=where)]
    facts += [("next", f"{why}: {command}") for why, command in hints]
    room = max(len(name) for name, _ in facts) + 2 if width >= 60 else 2
    lines += [wrap(f"{name:<{room}}{text}", hang=room if width >= 60 else 2) for name, text in facts]
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
    check = f", and check it without a solver: stability verify {file}" if found != "inconclusive" else ""
    return "\n".join([*lines, "", wrap(kept + check)])


def _evidence(summary: Mapping[str, Any]) -> str:
    """What the answer rests on."""
    kind = str(summary.get("proof"))
    return f"proved ({kind})" if state(summary) in ("certified", "refuted") else "none"


def _findings(findings: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """A line a criterion, its detail in full below where it is too long to stand beside."""
    rows = [(mark(f)[0], str(f["criterion"]), margin_words(f["margin"])) for f in findings]
    grid = table(("", "criterion", "margin"), rows, right=(2,)).splitlines()
    first = max(map(len, grid)) + 4
    beside = max(len(str(f["detail"])) for f in findings) + first <= width
    lines = [f"  {grid[0]:<{first - 2}}{'detail' if beside else ''}".rstrip()]
    for line, finding in zip(grid[1:], findings):
        if beside:
            lines.append(f"  {line:<{first - 2}}{finding['detail']}".rstrip())
            continue
        lines.append(f"  {line}")
        if finding["detail"]:
            indent = " " * 6
            lines.append(textwrap.fill(str(finding["detail"]), width, initial_indent=indent, subsequent_indent=indent))
    return lines
