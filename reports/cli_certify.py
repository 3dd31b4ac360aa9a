"""``stability certify``: the verdict about a model on one screen."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Json, Quiet, Seed, say, show_json, status
from .formatting import half_life, number, rate, signed, table, time_unit, verdict_word
from .words import CRITERIA, mark, reason, sentence, weaker

__all__ = ["certify", "register", "screen"]

EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}


def certify(
    model: Annotated[
        str,
        typer.Argument(
            help="Run directory, .safetensors, state dict (.safetensors, .pt), .npz with A and W, .onnx, "
            "or package.module:factory; FILE#part takes one recurrent part of several.",
            metavar="MODEL",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the certificate there.", show_default=False)
    ] = None,
    criterion: Annotated[
        str,
        typer.Option(help="auto, or one: theorem1a, theorem1b, circle, kyp, multiplier, linear, interval."),
    ] = "auto",
    solver: Annotated[str, typer.Option(help="auto, riccati, cvxpy.")] = "auto",
    rate: Annotated[str, typer.Option(help="best, any (existence only, the fastest), or a number to reach.")] = "best",
    tol: Annotated[
        float | None,
        typer.Option(help="Relative tolerance of the best rate; by default it follows the size.", show_default=False),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds at most.", show_default=False)] = None,
    refute: Annotated[bool, typer.Option(help="Search for a counter-example where no proof is found.")] = True,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="The differential equation behind the layer.")
    ] = False,
    cell: Annotated[
        str | None, typer.Option(help="Of a state dict: rnn_tanh, rnn_relu, lstm, gru.", show_default=False)
    ] = None,
    input_box: Annotated[
        tuple[float, float] | None,
        typer.Option(help="LSTM, GRU: ends of the box that every input stays in.", show_default=False),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Certified, refuted or inconclusive, with the evidence; exit code 0, 3 or 1, and 2 for bad input."""
    from stability.certify import certify as prove

    from .sources import open_subject, writable

    if output is not None:
        writable(output)
    wanted = _rate(rate)
    subject = open_subject(model, continuous=continuous, cell=cell, input_box=input_box)
    status(f"certifying {model} ...", quiet or as_json)
    certificate = prove(
        subject,
        criterion=criterion,
        solver=solver,
        rate=wanted,
        tol=tol,
        time_limit=time_limit,
        refute=refute,
        seed=seed,
    )
    status("", quiet or as_json)
    summary = certificate.summary()
    discrete = is_discrete(certificate.subject)
    if output is not None:
        certificate.save(output)
    if as_json:
        show_json(
            {
                "model": model,
                **summary,
                "discrete": discrete,
                "certificate": output,
                "half_life": half_life(summary["rate"], discrete),
            }
        )
    else:
        say(screen(model, summary, discrete, output), quiet)
    raise typer.Exit(EXIT[str(certificate.verdict)])


def _rate(text: str) -> str | float:
    if text in ("best", "any"):
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"best, any or a number, got {text!r}", param_hint="--rate") from None


def is_discrete(subject: Any) -> bool:
    """Whether a subject advances in steps (gated cells and stacks of layers do)."""
    system = getattr(subject, "system", subject)
    return bool(getattr(system, "is_discrete", True))


def screen(model: str, summary: Mapping[str, Any], discrete: bool, saved: Path | None) -> str:
    """The certificate as one screen of text.

    Args:
        model: what it is about, in the user's words.
        summary: ``Certificate.summary()``.
        discrete: whether rates are per step.
        saved: where the file is, if it was written.

    Returns:
        The text.
    """
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))

    def wrap(text: str, indent: int = 2, hang: int = 0) -> str:
        return textwrap.fill(
            text,
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_long_words=False,
        )

    lines = [f"{model}: {verdict_word(summary['verdict']).upper()}", wrap(sentence(summary, discrete)), ""]
    facts = [("claim", summary["statement"])]
    if summary["verdict"] == "certified":
        half = half_life(summary["rate"], discrete)
        facts += [
            ("criterion", f"{summary['criterion']}: {CRITERIA.get(str(summary['criterion']), '')}"),
            ("rate", f"{rate(summary['rate'], discrete)}, half-life {number(half)} {time_unit(discrete)}"),
            ("overshoot", number(summary["overshoot"])),
        ]
    elif summary["verdict"] == "inconclusive":
        facts.append(("closest", reason(summary)))
    for name, text in facts:
        lines.append(wrap(f"{name:<11}{text}", hang=11))
    if summary["findings"]:
        rows = [
            (mark(f)[0], f["criterion"], signed(f["margin"]), _short(f["detail"], width - 44))
            for f in summary["findings"]
        ]
        lines += ["", textwrap.indent(table(("", "criterion", "margin", "detail"), rows, right=(2,)), "  ")]
    claims = weaker(summary)
    if claims:
        lines += ["", "  weaker claims"]
        lines += [wrap(f"{name.replace('_', ' ')}: {answer}. {statement}", 4, 2) for name, answer, statement in claims]
    lines.append("")
    if saved is not None:
        lines.append(f"  Written to {saved}. Check it without a solver: stability verify {saved}")
    else:
        lines.append(
            "  Keep it with -o certificate.json and check it without a solver: stability verify certificate.json"
        )
    return "\n".join(lines)


def _short(text: str, room: int) -> str:
    room = max(20, room)
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(certify)
