"""Command ``stability certify``: certify one or several models and print the verdicts."""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import half_life, table, time_to
from ..stored.reasons import CommandContext, advice, data_words, shell_name
from ..vocabulary import state
from . import console
from .gate import Gate, certify_each
from .input_boxes import DATA, box_of, words_of
from .options import DataOptions, Output, Seed, check_seconds, choice, no_default
from .screen import screen

CRITERION = (
    "auto", "theorem1a", "theorem1b", "schur", "small_gain", "circle", "multiplier", "linear", "interval", "pairwise",
)  # fmt: skip
CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")
EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}


def certify(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run directory, .safetensors, state dict (.safetensors, .pt), .npz with A and W (or A, B, C), "
            ".onnx, or package.module:factory (FILE.py:factory); MODEL#part takes one recurrent part. "
            "Several models or parts get one line each.",
            metavar="MODEL...",
        ),
    ],
    out: Annotated[
        Path | None, no_default("File of the certificate; for several models or parts a folder.", "-o", "--out")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let -o replace any file that the command does not read.")
    ] = False,
    criterion: Annotated[str, choice("Criterion; auto: all in turn.", CRITERION, "--criterion")] = "auto",
    solver: Annotated[str, choice("Solver of multipliers.", ("auto", "riccati", "cvxpy"), "--solver")] = "auto",
    rate: Annotated[str, typer.Option(help="best, any (existence, the fastest), or a number.")] = "best",
    tol: Annotated[
        float | None, no_default("Relative tolerance of the best rate; by default it follows the size.")
    ] = None,
    time_limit: Annotated[float | None, no_default("Time limit of the searches in seconds.")] = None,
    refute: Annotated[bool, typer.Option(help="Search for a counterexample where no proof is found.")] = True,
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
        bool, typer.Option("--continuous", help="Certify the differential equation behind the layer.")
    ] = False,
    cell: Annotated[str | None, choice("Kind of cell in a state dict.", CELLS, "--cell", show_default=False)] = None,
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
            help="Also pose small gain and circle criterion as semidefinite programs (cvxpy; up to 64 states, 20 s); "
            "the verdict does not depend on the solvers.",
        ),
    ] = False,
    gain_margin: Annotated[
        bool, typer.Option("--gain-margin", help="Factor by which all slopes may grow: certified, destabilizing.")
    ] = False,
    recovery: Annotated[
        tuple[float, float],
        typer.Option(
            help="Report the number of steps (for a flow, the time) after which a state disturbance of norm SIZE is "
            "proved to be below TOL.",
            metavar="SIZE TOL",
        ),
    ] = (1.0, 1e-3),
    seed: Seed = 0,
    *,
    gate: Gate,
    data: DataOptions,
    output: Output,
) -> None:
    """Prove or refute that a network is stable for every input.

    Exit code 0 certified, 3 refuted, 1 inconclusive, 2 bad input; 1 also where --rate is not reached: the proof of the
    best rate is kept. Several models, --require or --min-rate print one line for each model (with --json one object),
    and the exit code is the worst.
    """
    from .sources import check_exists, open_parts, open_subject

    if len(models) == 1:  # before anything is loaded that takes time; of several each has its line
        check_exists(models[0])
    from stability.certification import certify as prove

    from ..stored.certificates import view
    from .data import seen_range
    from .outputs import reads, writable

    if not all(0.0 < value < float("inf") for value in recovery):
        raise typer.BadParameter("SIZE and TOL must be positive numbers", param_hint="--recovery")
    time_limit = check_seconds(time_limit, least=">=")
    options: dict[str, Any] = {"criterion": criterion, "solver": solver, "rate": _rate(rate), "tol": tol}
    options |= {"time_limit": time_limit, "refute": refute, "seed": seed, "criteria": criteria}

    allow = functools.partial(writable, inputs=reads(models, data, input_box_from), overwrite=overwrite)

    def options_for(name: str) -> dict[str, Any]:
        check_exists(name)
        return options | {"input_box": box_of(input_box, input_box_from, name, data, seen_range)}

    def parts_of(name: str, box: Any) -> tuple[dict[str, Any], bool]:
        return open_parts(name) if box is None and cell is None and not continuous else ({}, True)

    def answers_of(name: str) -> dict[str, Any]:
        model_options = options_for(name)
        parts, whole = parts_of(name, model_options["input_box"])
        if parts and not whole:
            return _each_part(parts, model_options, output)
        return {"": prove(open_subject(name, continuous=continuous, cell=cell), **model_options)}

    model, parts, whole, box = models[0], {}, True, None
    if not gate.is_active and len(models) == 1:
        _allow_file(out, allow)
        output.status("loading ...")
        options = options_for(model)
        box = options["input_box"]
        parts, whole = parts_of(model, box)
    if gate.is_active or len(models) > 1 or (parts and not whole):
        _refuse_single(cross_check or gain_margin)
        raise typer.Exit(certify_each(models, answers_of, gate, out, output, allow))
    allow(out)
    subject = open_subject(model, continuous=continuous, cell=cell)
    output.note(_warning(model, subject, options))
    output.status(f"certifying {model} ...")
    certificate = prove(subject, **options)
    answers = _each_part(parts, options, output)
    opinions = _opinions(certificate.subject, output) if cross_check else None
    margin = _factors(certificate.subject, seed, time_limit, output) if gain_margin else None
    output.status()
    summary = view(certificate, *recovery)
    rate_missed = state(summary) == "certified" and summary["meta"].get("asked_rate_reached") is False
    discrete = certificate.subject.is_discrete
    if out is not None:
        certificate.save(out)
    words = [*(["--cell", cell] if cell else []), *(["--continuous"] if continuous else [])]
    words += words_of(box, input_box_from)
    data_text = data_words(shlex.join(console.ARGUMENTS), {})
    words += shlex.split(data_text) if input_box_from is not None else []
    settings = (("--criterion", criterion, "auto"), ("--solver", solver, "auto"), ("--rate", rate, "best"))
    words += [text for name, value, default in settings if value != default for text in (name, value)]
    context, run = _command_context(model, subject, data_text)
    hints = advice(summary, " ".join([shell_name(model), *map(shlex.quote, words)]), time_limit, context)
    more = "" if run is None else _words(run.training_options())
    hints = [(why, f"{text} {more}".rstrip() if text.startswith("stability train ") else text) for why, text in hints]
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
        **({} if margin is None else {"gain_margin": margin}),
        **({"parts": _in_short(answers)} if answers else {}),
    }
    range_words = "the range of the data" if input_box_from == DATA else "the box of --input-box"
    length = None if run is None else run.document["task"].get("steps")
    text = screen(model, summary, discrete, out, hints, opinions, range_words, length=length, margin=margin)
    lines = _part_lines(answers, ABOUT_BLOCKS if certificate.criterion == "cascade" else ABOUT_PARTS)
    output.show(document, "\n".join([text, "", *lines]) if answers else text)
    raise typer.Exit(1 if rate_missed else EXIT[str(certificate.verdict)])


EACH = "Each verdict covers one part with its own input; "
ABOUT_PARTS = EACH + "nothing is claimed about how fast the whole network forgets."
ABOUT_BLOCKS = EACH + "the claims above cover encoder and blocks together."


def _each_part(parts: Mapping[str, Any], options: Mapping[str, Any], output: Output) -> dict[str, Any]:
    """Certify every part and return the certificates by path."""
    from stability.certification import certify as prove

    answers = {}
    for path, subject in parts.items():
        output.status(f"certifying {path} ...")
        answers[path] = prove(subject, **options)
    return answers


def _in_short(answers: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("verdict", "evidence", "criterion", "rate", "overshoot", "statement")
    return {path: {key: certificate.summary()[key] for key in keys} for path, certificate in answers.items()}


def _part_lines(answers: Mapping[str, Any], scope: str = ABOUT_PARTS) -> list[str]:
    """Return one line for each part and one for the whole network."""
    rows = [
        (path, str(proof.verdict), "" if proof.rate is None else f"{proof.rate:.6g}", str(proof.criterion or ""))
        for path, proof in answers.items()
    ]
    grid = table(("part", "verdict", "rate", "criterion"), rows, right=(2,))
    return textwrap.indent(f"{grid}\n{textwrap.fill(scope, 98)}", "  ").splitlines()


def _allow_file(out: Path | None, allow: Callable[[Path | None], None]) -> None:
    """Ask whether a file may be written; a folder takes the certificates of parts, which are asked for later."""
    if out is None or not out.is_dir():
        allow(out)


def _refuse_single(is_requested: bool) -> None:
    if is_requested:
        message = "--cross-check and --gain-margin take one recurrent part, without --require and --min-rate"
        raise ConfigurationError(message)


def _command_context(model: str, subject: Any, data: str) -> tuple[CommandContext, Any]:
    """Return what commands about the network need, nothing for matrices and bare weights; and its run, if any."""
    if not hasattr(subject, "state_dict"):
        return CommandContext(data=data), None
    from stability.errors import StabilityError

    from ...analysis.training.runs import RUN_FILE, read_run
    from ...analysis.unroll import recurrent_layers
    from ...models.classifier import classifier

    run = read_run(model) if (Path(model) / RUN_FILE).is_file() else None
    layer = next((getattr(part, "layer_name", type(part).__name__) for _, part in recurrent_layers(subject)), "")
    try:
        radii = classifier(subject).classes > 1
    except StabilityError:
        radii = False
    data = data or ("" if run is None else _words(run.data_options()))
    return CommandContext(shell_name(model), data, run is not None, layer, radii=radii), run


def _words(options: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"{name} {shell_name(value)}" for name, value in options)


def _opinions(subject: Any, output: Output) -> dict[str, Any]:
    from stability.search.criteria.cross_check import cross_check

    output.status("asking a solver ...")
    return cross_check(subject).to_dict()


def _factors(subject: Any, seed: int, time_limit: float | None, output: Output) -> dict[str, float]:
    """Return the certified and the destabilizing factor of the slopes."""
    from stability.loop_margin import gain_margin

    output.status("searching the gain margin ...")
    factors = gain_margin(subject, seed=seed, time_limit=time_limit)
    return {"certified": factors.certified, "destabilizing": factors.destabilising}


def _warning(model: str, subject: Any, options: Mapping[str, Any]) -> str:
    """Return the expected cost of a long certificate before it begins; empty for small ones."""
    from stability.conversion.subjects import as_subject
    from stability.cost import LARGE, cost_notice

    weights = subject.parameters() if hasattr(subject, "parameters") else ()
    sizes = [p.shape[-1] for p in weights if not hasattr(p, "materialize") and p.dim() == 2]  # lazy: no shape yet
    if max([getattr(subject, "states", 0), *sizes]) < LARGE:  # a module is not read twice for nothing
        return ""
    notice = cost_notice(as_subject(subject), options["rate"], options["time_limit"])
    return f"{model}: {notice}" if notice else ""


def _rate(text: str) -> str | float:
    if text in ("best", "any"):
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"best, any or a number, got {text!r}", param_hint="--rate") from None
