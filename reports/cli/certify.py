"""Command ``stability certify``: certify one or several models and print the verdicts."""

from __future__ import annotations

import functools
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError, UnsupportedError

from ..formatting import half_life, table, time_to, verdict_word
from ..stored.reasons import CommandContext, advice, data_words, shell_name
from ..vocabulary import state
from . import console
from .checkpoints import EXIT, LayerOptions, examine, find_layers, layer_box, show_layers
from .gate import Gate, certify_each
from .input_boxes import DATA, box_of, words_of
from .options import DataOptions, Output, Seed, check_seconds, choice, no_default, with_default
from .screen import screen

CRITERION = (
    "auto", "theorem1a", "theorem1b", "schur", "small_gain", "circle", "multiplier", "linear", "interval", "pairwise",
)  # fmt: skip
CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")


def certify(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Run directory, checkpoint folder, weights, matrices, .onnx, module:factory, FILE.py:factory; "
            "MODEL#PART selects a part (docs/your-model.md).",
            metavar="MODEL...",
        ),
    ],
    cell: Annotated[
        str | None, no_default("Cell of a state dict: rnn_tanh, rnn_relu, lstm, gru.", autocompletion=lambda: CELLS)
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Claim about the layer's differential equation.")
    ] = False,
    input_box: Annotated[
        tuple[float, float] | None,
        no_default("Range of the inputs: LOW HIGH, data, or a file.", metavar="LOW HIGH"),
    ] = None,
    input_box_from: Annotated[str | None, typer.Option("--input-box-from", hidden=True)] = None,
    rate: Annotated[str, typer.Option(help="Rate: best, any, or a number.", metavar="RATE")] = "best",
    arithmetic: Annotated[
        str | None,
        no_default("Bound of a run: module, float32, int8, int8:BLOCK.", metavar="FORMAT"),
    ] = None,
    time_limit: Annotated[
        float | None, no_default("Time limit of all searches, in seconds.", metavar="SECONDS")
    ] = None,
    tol: Annotated[float | None, with_default("Relative accuracy of the rate.", "by size")] = None,
    criterion: Annotated[
        str,
        typer.Option(
            help=f"Criterion: {', '.join(CRITERION)} (docs/criteria.md).", autocompletion=lambda: list(CRITERION)
        ),
    ] = "auto",
    criteria: Annotated[str, choice("Criteria with a best rate.", ("needed", "all"), "--criteria")] = "needed",
    solver: Annotated[
        str,
        typer.Option(help="Solver: auto, riccati, cvxpy.", autocompletion=lambda: ["auto", "riccati", "cvxpy"]),
    ] = "auto",
    refute: Annotated[bool, typer.Option(help="Search for a counterexample.")] = True,
    cross_check: Annotated[
        bool, typer.Option("--cross-check", help="Comparison with semidefinite solvers (cvxpy).")
    ] = False,
    gain_margin: Annotated[bool, typer.Option("--gain-margin", help="Gain margin, proven from both sides.")] = False,
    recovery: Annotated[
        tuple[float, float], typer.Option(help="Norms of a disturbance: first, last.", metavar="SIZE TOL")
    ] = (1.0, 1e-3),
    seed: Seed = 0,
    out: Annotated[Path | None, no_default("Certificate file; a folder for several models.", "-o", "--out")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Permission for -o to replace other files than certificates.")
    ] = False,
    *,
    gated: LayerOptions,
    gate: Gate,
    data: DataOptions,
    output: Output,
) -> None:
    """Prove that a network is stable, or that it is not.

    Stable: any two trajectories under the same input, whatever it is, approach each other. Exit code: 0 proven
    stable, 1 undecided or slower than --rate, 2 bad input, 3 proven not stable; the worst of several models
    (docs/gate.md). Several models, --require or --min-rate print one line for each model.
    """
    from stability.certification import certify as prove

    from .outputs import reads, writable
    from .sources import check_exists, open_parts, open_subject

    if (found := find_layers(models, gated, search=cell is None)) is not None:
        asks = {"--rate": rate != "best", "--criterion": criterion != "auto"}
        asks |= {"--min-rate": gate.min_rate is not None, "--gain-margin": gain_margin, "--cross-check": cross_check}
        _refuse_asked(asks)
        writable(out, reads(models, data), overwrite=overwrite)
        box = layer_box(input_box, input_box_from)
        results = examine(models[0], found, gated, data, output, box, arithmetic=arithmetic)
        raise typer.Exit(show_layers(results, out, None, output))
    from ..stored.certificates import view
    from .data import seen_range

    if not all(0.0 < value < float("inf") for value in recovery):
        raise typer.BadParameter("SIZE and TOL must be positive numbers", param_hint="--recovery")
    time_limit = check_seconds(time_limit, least=">=")
    asked: dict[str, Any] = {"criterion": criterion, "solver": solver, "rate": _rate(rate), "tol": tol}
    asked |= {"time_limit": time_limit, "refute": refute, "seed": seed, "criteria": criteria}
    asked |= {} if arithmetic is None else {"arithmetic": arithmetic}

    allow = functools.partial(writable, read=reads(models, data, input_box_from), overwrite=overwrite)

    def about(name: str) -> dict[str, Any]:
        check_exists(name)
        return asked | {"input_box": box_of(input_box, input_box_from, name, data, seen_range)}

    def read(name: str, box: Any) -> tuple[dict[str, Any], bool]:
        return open_parts(name) if box is None and cell is None and not continuous else ({}, True)

    def answers_of(name: str) -> dict[str, Any]:
        how = about(name)
        parts, known = read(name, how["input_box"])
        if parts and not known:
            return _each_part(parts, how, output)
        return {"": _one(prove(open_subject(name, continuous=continuous, cell=cell), **how))}

    model, parts, known, box = models[0], {}, True, None
    if not gate.is_active and len(models) == 1:
        _allow_file(out, allow)
        output.status(f"loading {models[0]} ...")
        asked = about(model)
        box = asked["input_box"]
        parts, known = read(model, box)
    if gate.is_active or len(models) > 1 or (parts and not known):
        _refuse_single(cross_check or gain_margin)
        raise typer.Exit(certify_each(models, answers_of, gate, out, output, allow))
    allow(out)
    subject = open_subject(model, continuous=continuous, cell=cell)
    output.note(_warning(model, subject, asked))
    output.status(f"certifying {model} ...")
    data_option = data_words(shlex.join(console.ASKED), {})
    known, run = _known(model, subject, data_option)
    length = None if run is None else run.document["task"].get("steps")
    asked |= {} if arithmetic is None else {"horizon": length}
    certificate = _with_decisions(_one(prove(subject, **asked)), subject)
    answers = _each_part(parts, asked, output)
    opinions = _opinions(certificate.subject, output) if cross_check else None
    margin = _factors(certificate.subject, seed, time_limit, output) if gain_margin else None
    output.status()
    summary = view(certificate, *recovery)
    missed = state(summary) == "certified" and summary["meta"].get("asked_rate_reached") is False
    discrete = certificate.subject.is_discrete
    if out is not None:
        certificate.save(out)
    options = [*(["--cell", cell] if cell else []), *(["--continuous"] if continuous else [])]
    options += words_of(box, input_box_from)
    options += shlex.split(data_option) if input_box_from is not None else []
    options += [] if arithmetic is None else ["--arithmetic", arithmetic]
    named = (("--criterion", criterion, "auto"), ("--solver", solver, "auto"), ("--rate", rate, "best"))
    options += [text for name, value, default in named if value != default for text in (name, value)]
    hints = advice(summary, " ".join([shell_name(model), *map(shlex.quote, options)]), time_limit, known)
    more = "" if run is None else _words(run.training_options())
    hints = [(why, f"{said} {more}".rstrip() if said.startswith("stability train ") else said) for why, said in hints]
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
    where = "the range of the data" if input_box_from == DATA else "the box of --input-box"
    text = screen(model, summary, discrete, out, hints, opinions, where, length=length, margin=margin)
    lines = _part_lines(answers, ABOUT_BLOCKS if certificate.criterion == "cascade" else ABOUT_PARTS)
    output.show(document, "\n".join([text, "", *lines]) if answers else text)
    raise typer.Exit(1 if missed else EXIT[str(certificate.verdict)])


def _one(certificate: Any) -> Any:
    """Return the certificate of one system.

    Raises:
        UnsupportedError: several gated linear layers, whose certificate holds digests of a file's weights.
    """
    if not hasattr(certificate, "claim"):
        raise UnsupportedError("it has several gated linear layers: certify its file of weights, by itself")
    return certificate


EACH = "Each verdict is about one part, under every input of that part. "
ABOUT_PARTS = EACH + "No claim is about the whole network."
ABOUT_BLOCKS = EACH + "The claims above are about encoder and blocks together."


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


def _part_lines(answers: Mapping[str, Any], about: str = ABOUT_PARTS) -> list[str]:
    """Return one line for each part and one for the whole network."""
    rows = [
        (path, verdict_word(a.verdict).lower(), "" if a.rate is None else f"{a.rate:.6g}", str(a.criterion or ""))
        for path, a in answers.items()
    ]
    grid = table(("part", "verdict", "rate", "criterion"), rows, right=(2,))
    return textwrap.indent(f"{grid}\n{textwrap.fill(about, 98)}", "  ").splitlines()


def _allow_file(out: Path | None, allow: Callable[[Path | None], None]) -> None:
    """Ask whether a file may be written; a folder takes the certificates of parts, which are asked for later."""
    if out is None or not out.is_dir():
        allow(out)


def _refuse_asked(asks: Mapping[str, bool]) -> None:
    names = ", ".join(name for name, is_asked in asks.items() if is_asked)
    if names:
        raise ConfigurationError(f"gated linear layers have no claim for {names}: leave it out")


def _refuse_single(is_requested: bool) -> None:
    if is_requested:
        message = "--cross-check and --gain-margin need one recurrent part and no --require or --min-rate"
        raise ConfigurationError(message)


def _with_decisions(certificate: Any, model: Any) -> Any:
    """Return the certificate with the margin above which rounding changes no decision, if it has a claim about it."""
    if all(claim.name != "as_it_runs" for claim in certificate.claims):
        return certificate
    from ...analysis.dynamics.decisions import decision_margin

    margin = decision_margin(model, certificate)
    return (
        certificate
        if margin is None
        else replace(certificate, meta={**certificate.meta, "decisions": {"margin": margin}})
    )


def _known(model: str, subject: Any, data: str) -> tuple[CommandContext, Any]:
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

    output.status("comparing with semidefinite solvers ...")
    return cross_check(subject).to_dict()


def _factors(subject: Any, seed: int, time_limit: float | None, output: Output) -> dict[str, Any]:
    """Return the certified and the destabilizing factors of the slopes."""
    from stability.loop_margin import gain_margin

    output.status("computing the gain margin ...")
    return gain_margin(subject, seed=seed, time_limit=time_limit).to_dict()


def _warning(model: str, subject: Any, options: Mapping[str, Any]) -> str:
    """Return the expected cost of a long certificate before it begins; empty for small ones."""
    from stability.conversion.subjects import as_subject
    from stability.cost import LARGE, cost_notice

    parameters = subject.parameters() if hasattr(subject, "parameters") else ()
    sizes = [p.shape[-1] for p in parameters if not hasattr(p, "materialize") and p.dim() == 2]  # lazy: no shape yet
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
        raise typer.BadParameter(f"expected best, any or a number, got {text!r}", param_hint="--rate") from None
