"""Commands ``stability hessian``, ``attack`` and ``noise``: one analysis of one model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError
from stability.storage.writing import write_text

from ..formatting import metric, metric_word, number, table
from ..jsonable import write_json
from .data import Subject, open_with_task, test_part
from .options import Compute, DataOptions, Output, Results, Samples, choice, no_default, with_default
from .units import WORDS, Unit, scale_of

RADII = (0.0, 0.01, 0.02, 0.05, 0.1)
UNITLESS = ("salt_pepper noise", "noise on parameters")  # their levels are shares
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4)
STRONG = " (APGD and DeepFool)"
Model = Annotated[str, typer.Argument(help="Run directory or model file.", metavar="MODEL")]


def _numbers(name: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{name} needs numbers separated by commas, got {text!r}") from None


def _show(stem: str, document: Mapping[str, Any], frame: Any, text: str, results: Results, output: Output) -> None:
    """Write result and table into the folder, where one is named, and print the answer."""
    if results.out is not None:
        write_json(results.out / f"{stem}.json", document)
        write_text(results.out / f"{stem}.csv", frame.to_csv(index=False))
        text += f"\n\nWritten to {results.out / stem}.json and .csv"
    output.show(document, text)


def _in_unit(unit: str, subject: Subject, x: Any, bounds: Any, output: Output) -> tuple[Any, Any, dict[str, Any]]:
    """Return model and inputs in a unit, and what attacks and noise are told of it."""
    from ...analysis.attacks.padding import padding_words
    from ...analysis.attacks.units import in_units

    if words := padding_words(subject.model, x):
        output.caution(words)
    train, y = subject.task.train
    scale = scale_of(unit, subject.model, train.to(x), subject.task.own_steps(y), output)
    if scale is None:
        return subject.model, x, {"bounds": bounds}
    model, x, bounds, mask = in_units(subject.model, x, scale, bounds)
    return model, x, {"bounds": bounds, "mask": mask}


def _show_sweep(stem: str, result: Any, title: str, label: str, results: Results, output: Output, unit: str) -> None:
    name = getattr(result, "metric", "accuracy")
    scores = result.accuracy if name == "accuracy" and hasattr(result, "accuracy") else result.score
    rows = [
        (number(s, 4), metric(value, name), f"{metric(low, name)} to {metric(high, name)}")
        for s, value, low, high in zip(result.sizes, scores, result.ci_low, result.ci_high)
    ]
    header = (label, metric_word(name), f"{100 * result.confidence:g} % interval")
    words = "" if title in UNITLESS else WORDS[unit]
    text = f"{result.n} sequences, {title}\n{table(header, rows, right=(0, 1, 2))}{words}"
    _show(stem, {**result.to_dict(), "unit": unit}, result.frame(), text, results, output)


def hessian(
    context: typer.Context,
    model: Model,
    *,
    method: Annotated[
        str, choice("Method for the eigenvalues.", ("lanczos", "pyhessian", "dense"), "--method")
    ] = "lanczos",
    parameters: Annotated[str, choice("Weights of the Hessian.", ("all", "recurrent"), "--parameters")] = "all",
    batch_size: Annotated[int | None, with_default("Number of sequences in memory at a time.", "all")] = None,
    samples: Samples = 256,
    data: DataOptions,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Measure the curvature of the training loss.

    Print the largest and smallest eigenvalue of the Hessian, and its trace.
    """
    results.claim(context, "hessian.json", "hessian.csv")
    from ...analysis import hessian_summary

    subject = open_with_task(model, data, compute)
    where = next(subject.model.parameters()).device
    x, y = (part[:samples].to(where) for part in subject.task.train)
    if batch_size is not None and len({subject.task.weight(row[None]) for row in y}) > 1:
        raise ConfigurationError(
            "--batch-size needs the same number of targets in every sequence: leave it out for these data"
        )
    output.status("computing eigenvalues of the Hessian ...")
    asked: dict[str, Any] = {"method": method, "parameters": parameters, "batch_size": batch_size}
    result = hessian_summary(subject.model, x, y, loss=subject.task.loss, seed=compute.seed, **asked)
    output.status()
    rows = [
        ("largest eigenvalue", number(result.lambda_max, 5), f"residual {number(result.lambda_max_residual)}"),
        ("smallest eigenvalue", number(result.lambda_min, 5), f"residual {number(result.lambda_min_residual)}"),
        ("trace", number(result.trace, 5), f"± {number(result.trace_half_width)} (95 %)"),
        ("condition number", number(result.condition_number, 5), result.condition_definition),
        ("gradient norm", number(result.gradient_norm, 5), f"loss {number(result.loss, 5)}"),
    ]
    text = "".join((table(("Hessian", "value", ""), rows, right=(1,)), *(f"\n  {note}" for note in result.notes)))
    _show("hessian", {**result.to_dict(), "samples": len(x)}, result.frame(), text, results, output)


def attack(
    context: typer.Context,
    model: Model,
    *,
    attack: Annotated[
        str | None,
        choice(
            "Algorithm; strong is APGD and DeepFool.  [default: strong for classes, else pgd]",
            ("strong", "pgd", "apgd", "fgsm", "deepfool"),
            "--attack",
        ),
    ] = None,
    norm: Annotated[str, choice("Norm of the whole input change.", ("linf", "l2"), "--norm")] = "linf",
    epsilons: Annotated[
        str | None,
        with_default("Attack radii, separated by commas.", "0 to 0.1 times the input range", metavar="NUMBER,NUMBER"),
    ] = None,
    steps: Annotated[int | None, no_default("Number of steps of the attack.")] = None,
    step_size: Annotated[float | None, with_default("Length of a step of pgd.", "2.5 × radius / steps")] = None,
    unit: Unit = "raw",
    samples: Samples = 200,
    data: DataOptions,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Measure accuracy under white-box attacks of growing radius.

    Tasks without classes use their own metric.
    """
    results.claim(context, "attack.json", "attack.csv")
    from ...analysis import attack_scores, attack_sweep
    from ...analysis.attacks.masked import masked_words, unwarned
    from ...analysis.attacks.scores import LOSS_ATTACKS
    from ...analysis.tasks.ranges import width

    radii = _numbers("--epsilons", epsilons)
    subject = open_with_task(model, data, compute)
    x, y, bounds = test_part(subject, samples)
    whole = subject.task.labels_sequences
    attack = attack or ("strong" if whole and step_size is None else "pgd")
    if not whole and attack not in LOSS_ATTACKS:
        message = f"--attack {attack} needs one class per sequence: use {' or '.join(LOSS_ATTACKS)} for other targets"
        raise ConfigurationError(message)
    radii = [e * (width(bounds) if unit == "raw" else 1.0) for e in RADII] if radii is None else radii
    model_in_unit, z, told = _in_unit(unit, subject, x, bounds, output)
    output.status(f"attacking {len(x)} sequences at {len(radii)} radii ...")
    options: dict[str, Any] = {"epsilons": radii, "norm": norm, "seed": compute.seed, **told}
    options |= {name: value for name, value in (("steps", steps), ("step_size", step_size)) if value is not None}
    with unwarned():
        if whole:
            result: Any = attack_sweep(model_in_unit, z, y, attack=attack, **options)
        else:
            result = attack_scores(model_in_unit, z, y, task=subject.task, attack=attack, **options)
    output.status()
    if words := masked_words(result.blind, result.n):
        output.caution(words)
    title = f"attack {attack}{STRONG * (attack == 'strong')} in the {norm} norm"
    _show_sweep("attack", result, title, "radius", results, output, unit)


def noise(
    context: typer.Context,
    model: Model,
    *,
    kind: Annotated[
        str, choice("Noise on the inputs, or on the parameters.", ("white", "salt_pepper", "parameters"), "--kind")
    ] = "white",
    levels: Annotated[
        str | None,
        with_default(
            "Noise levels, separated by commas. White: standard deviation. Salt_pepper: share of entries. Parameters: "
            "relative to the root mean square of each tensor.",
            "0 to 0.4; white: times the input range",
            metavar="NUMBER,NUMBER",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of noise samples for each level.")] = 5,
    unit: Unit = "raw",
    samples: Samples = 500,
    data: DataOptions,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Measure accuracy under random noise on inputs or weights.

    Tasks without classes use their own metric.
    """
    results.claim(context, "noise.json", "noise.csv")
    from ...analysis import noise_scores, noise_sweep, parameter_noise_sweep
    from ...analysis.attacks.masked import unwarned
    from ...analysis.tasks.ranges import width

    grid = _numbers("--levels", levels)
    subject = open_with_task(model, data, compute)
    x, y, bounds = test_part(subject, samples)
    range_width = width(bounds) if kind == "white" and unit == "raw" else 1.0
    grid = [v * range_width for v in LEVELS] if grid is None else grid
    unit = "raw" if kind == "parameters" else unit
    output.status(f"measuring {len(x)} sequences at {len(grid)} noise levels ...")
    options: dict[str, Any] = {"levels": grid, "draws": draws, "seed": compute.seed}
    if kind == "parameters" and subject.task.labels_sequences:
        result: Any = parameter_noise_sweep(subject.model, x, y, **options)
    else:
        measure = noise_sweep if subject.task.labels_sequences else partial(noise_scores, task=subject.task)
        model_in_unit, z, limits = _in_unit(unit, subject, x, bounds, output)
        with unwarned():
            result = measure(model_in_unit, z, y, kind=kind, **limits, **options)
    output.status()
    title = "noise on parameters" if kind == "parameters" else f"{kind} noise"
    _show_sweep("noise", result, title, "level", results, output, unit)
