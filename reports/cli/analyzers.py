"""``stability hessian``, ``attack`` and ``noise``: one analyzer on one model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError
from stability.storage.writing import write_text

from ..formatting import number, percent, table
from ..jsonable import plain
from .console import DataDir, Device, Json, Out, Overwrite, Quiet, Seed, results, say, show_json, status
from .data import DataFile, TaskName, TaskOptions, classification, open_with_task

__all__ = ["attack", "hessian", "noise", "register"]

RADII = (0.0, 0.01, 0.02, 0.05, 0.1)
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4)
Model = Annotated[str, typer.Argument(help="Run directory or model file.", metavar="MODEL")]
Samples = Annotated[int, typer.Option(min=1, help="How many sequences.")]


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(f"{name} takes numbers with commas between them, got {text!r}") from None


def _write(out: Path | None, stem: str, document: Mapping[str, Any], frame: Any) -> str:
    """Write result and table into a folder; returns the line that says so."""
    if out is None:
        return ""
    write_text(out / f"{stem}.json", json.dumps(plain(document), indent=1, allow_nan=False) + "\n")
    write_text(out / f"{stem}.csv", frame.to_csv(index=False))
    return f"\n\nWritten to {out / stem}.json and .csv"


def _sweep(stem: str, result: Any, label: str, out: Path | None, as_json: bool, quiet: bool) -> None:
    document = result.to_dict()
    written = _write(out, stem, document, result.frame())
    if as_json:
        show_json(document)
        return
    rows = [
        (number(s, 4), percent(a), f"{percent(low)} to {percent(high)}")
        for s, a, low, high in zip(result.sizes, result.accuracy, result.ci_low, result.ci_high)
    ]
    header = (label, "accuracy", f"{100 * result.confidence:g} % interval")
    say(f"{result.n} sequences\n{table(header, rows, right=(0, 1, 2))}{written}", quiet)


def hessian(
    context: typer.Context,
    model: Model,
    method: Annotated[str, typer.Option(help="lanczos, pyhessian, dense.")] = "lanczos",
    parameters: Annotated[str, typer.Option(help="all or recurrent.")] = "all",
    samples: Samples = 256,
    task: TaskName = None,
    task_settings: TaskOptions = None,
    data: DataFile = None,
    out: Out = None,
    overwrite: Overwrite = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ends of the spectrum and trace of the Hessian of the training loss."""
    results(context, out, ("hessian.json", "hessian.csv"), overwrite)
    from ...analysis import hessian_summary

    subject = open_with_task(
        model, task=task, options=task_settings, data=data, data_dir=data_dir, seed=seed, device=device
    )
    where = next(subject.model.parameters()).device
    x, y = (part[:samples].to(where) for part in subject.task.train)
    status("Hessian-vector products ...", quiet or as_json)
    result = hessian_summary(
        subject.model, x, y, loss=subject.task.loss, seed=seed, method=method, parameters=parameters
    )
    status("", quiet or as_json)
    document = {**result.to_dict(), "samples": len(x)}
    written = _write(out, "hessian", document, result.frame())
    if as_json:
        show_json(document)
        return
    rows = [
        (
            "largest eigenvalue",
            number(result.lambda_max, 5),
            f"residual {number(result.lambda_max_residual)}",
        ),
        (
            "smallest eigenvalue",
            number(result.lambda_min, 5),
            f"residual {number(result.lambda_min_residual)}",
        ),
        ("trace", number(result.trace, 5), f"± {number(result.trace_half_width)} (95 %)"),
        ("condition number", number(result.condition_number, 5), result.condition_definition),
        ("gradient norm", number(result.gradient_norm, 5), f"loss {number(result.loss, 5)}"),
    ]
    notes = "".join(f"\n  {note}" for note in result.notes)
    say(f"{table(('Hessian', 'value', ''), rows, right=(1,))}{notes}{written}", quiet)


def attack(
    context: typer.Context,
    model: Model,
    attack: Annotated[str, typer.Option(help="pgd, apgd, fgsm, deepfool.")] = "pgd",
    norm: Annotated[str, typer.Option(help="linf or l2, over the whole sequence.")] = "linf",
    epsilons: Annotated[
        str | None,
        typer.Option(
            help="Radii, with commas between them. [default: 0,0.01,0.02,0.05,0.1 times the inputs' range]",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the attack.", show_default=False)] = None,
    samples: Samples = 200,
    task: TaskName = None,
    task_settings: TaskOptions = None,
    data: DataFile = None,
    out: Out = None,
    overwrite: Overwrite = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Accuracy under an adversary with full knowledge of the network."""
    results(context, out, ("attack.json", "attack.csv"), overwrite)
    from ...analysis import attack_sweep
    from ...analysis.campaign.inputs import width

    radii = None if epsilons is None else _numbers("--epsilons", epsilons)
    subject = open_with_task(
        model, task=task, options=task_settings, data=data, data_dir=data_dir, seed=seed, device=device
    )
    x, y, bounds = classification(subject, samples)
    radii = [e * width(bounds) for e in RADII] if radii is None else radii
    status(f"attacking {len(x)} sequences at {len(radii)} radii ...", quiet or as_json)
    options: dict[str, Any] = {} if steps is None else {"steps": steps}
    result = attack_sweep(
        subject.model, x, y, epsilons=radii, attack=attack, norm=norm, bounds=bounds, seed=seed, **options
    )
    status("", quiet or as_json)
    _sweep("attack", result, f"{attack} {norm} radius", out, as_json, quiet)


def noise(
    context: typer.Context,
    model: Model,
    kind: Annotated[str, typer.Option(help="white or salt_pepper.")] = "white",
    levels: Annotated[
        str | None,
        typer.Option(
            help="Levels, with commas between them. [default: 0,0.1,0.2,0.3,0.4, for white noise times the "
            "inputs' range]",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Independent noises per level.")] = 5,
    samples: Samples = 500,
    task: TaskName = None,
    task_settings: TaskOptions = None,
    data: DataFile = None,
    out: Out = None,
    overwrite: Overwrite = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Accuracy under random noise on the input."""
    results(context, out, ("noise.json", "noise.csv"), overwrite)
    from ...analysis import noise_sweep
    from ...analysis.campaign.inputs import width

    grid = None if levels is None else _numbers("--levels", levels)
    subject = open_with_task(
        model, task=task, options=task_settings, data=data, data_dir=data_dir, seed=seed, device=device
    )
    x, y, bounds = classification(subject, samples)
    grid = [v * (width(bounds) if kind == "white" else 1.0) for v in LEVELS] if grid is None else grid
    status(f"{len(x)} sequences at {len(grid)} levels ...", quiet or as_json)
    result = noise_sweep(subject.model, x, y, kind=kind, levels=grid, draws=draws, bounds=bounds, seed=seed)
    status("", quiet or as_json)
    _sweep("noise", result, f"{kind} level", out, as_json, quiet)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (hessian, attack, noise):
        app.command()(command)
