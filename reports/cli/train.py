"""``stability train``: train one model, with its spectra and margins recorded on the way."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError
from stability.systems.checks import as_choice

from ..formatting import count, duration, metric, metric_word, number
from .console import Interrupted, assignments
from .data import HELD_OUT, check_device, chosen
from .options import Compute, DataFile, DataOptions, Output, no_default

PARAMETERS = 2**27
"""Of a model that is trained; with what the optimizer keeps of each, 2 GiB in single precision."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained: options of ``stability.analysis.train``."""

    epochs: Annotated[int | None, no_default("Passes over the data. [default: 10]")] = None
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 3e-3
    batch_size: Annotated[int, typer.Option(help="Sequences in a batch.")] = 64
    optimizer: Annotated[str, typer.Option(help="adam, sgd, rmsprop.")] = "adam"
    clip: Annotated[float, typer.Option(help="Largest norm of the gradient; 0 for none.")] = 1.0
    patience: Annotated[int | None, no_default("Stop after so many epochs without a better validation loss.")] = None
    margin_penalty: Annotated[
        float, typer.Option(help="Weight of the shortfall of the contraction gap in the loss.")
    ] = 0.0
    margin_target: Annotated[float, typer.Option(help="The contraction gap that the penalty aims at.")] = 0.0
    lyapunov_target: Annotated[
        float | None, no_default("Largest Lyapunov exponent, per step, that training aims at beside its loss.")
    ] = None
    lyapunov_weight: Annotated[float, typer.Option(help="Weight of the squared distance to it in the loss.")] = 1.0


def train(
    model: Annotated[
        str, typer.Option("--model", help="Layer by name: lipschitz, contracting, lstm ...")
    ] = "lipschitz",
    task: Annotated[
        str | None, no_default("Task by name: digits, adding, listops, pathfinder ... [default: digits]", "--task")
    ] = None,
    data: DataFile = None,
    hidden: Annotated[int, typer.Option(help="Size of the hidden state.")] = 64,
    layer_settings: Annotated[
        list[str] | None, no_default("Option of the layer, name=value; may be repeated.", "--set")
    ] = None,
    task_settings: Annotated[list[str] | None, no_default("Option of the task, name=value.", "--task-set")] = None,
    *,
    settings: TrainingOptions,
    track_every: Annotated[int, typer.Option(help="Record spectra every so many steps; 0 never.")] = 25,
    time_limit: Annotated[float | None, no_default("Stop after so many seconds.")] = None,
    out: Annotated[Path | None, no_default("Where the results go.", "--out", "-o")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in the folder.")] = False,
    resume: Annotated[Path | None, no_default("Go on with the run in this folder.")] = None,
    compute: Compute,
    output: Output,
) -> None:
    """Train a model and write its run directory."""
    from ...analysis.training import front as training

    def progress(news: Any) -> None:
        done = f", held-out {metric_word(kind)} {metric(news.finished.test_metric, kind)}" if news.finished else ""
        output.status(
            f"epoch {news.epoch}/{news.epochs}, batch {news.batch}/{news.batches}, loss {number(news.loss)}{done}"
        )

    kind: str | None = None
    watch: dict[str, Any] = {"progress": progress, "time_limit": time_limit}
    if resume is not None:
        if out is not None:
            raise ConfigurationError("--resume goes on in its own folder: leave --out away")
        folder, device = resume, check_device(compute.device)
        kind = _metric_of(resume)
        _, result = training.resume_run(
            resume, epochs=settings.epochs, data_dir=compute.data_dir, file=data, device=device, **watch
        )
    else:
        named = chosen(
            DataOptions(task or ("digits" if data is None else None), task_settings, data), compute.data_dir, HELD_OUT
        )
        assert named is not None  # a task is named, or a file
        folder = out or Path("runs") / f"{named[0] if data is None else data.stem}-{model}-seed{compute.seed}"
        network, prepared, tracker = _prepare(model, named, hidden, layer_settings or [], track_every, compute)
        kind = prepared.metric_name
        asked = asdict(settings) | {"epochs": 10 if settings.epochs is None else settings.epochs}
        asked |= {"clip": settings.clip or None, "seed": compute.seed, "tracker": tracker}
        result = training.train(network, prepared, out=folder, overwrite=overwrite, **asked, **watch)
    output.status()
    if result.interrupted:
        raise Interrupted(
            f"{result.epochs} finished epochs are kept in {folder}; go on with: stability train --resume {folder}"
        )
    output.show({"out": folder, **result.to_dict()}, _summary(folder, result))
    if result.stopped == "diverged":
        raise ConfigurationError(f"training diverged: {result.detail}; {folder} holds the last good epoch")


def _prepare(
    model: str,
    task: tuple[str, dict[str, Any]],
    hidden: int,
    settings: list[str],
    track_every: int,
    compute: Compute,
) -> tuple[Any, Any, Any]:
    """The network, its data and what records its spectra."""
    import torch

    from ...analysis import SpectrumTracker
    from ...analysis.tasks import make_task
    from ...models import LAYERS, build

    as_choice("model", model, LAYERS)
    where = check_device(compute.device)
    options = assignments("--set", settings)
    data = make_task(task[0], data_dir=compute.data_dir, seed=compute.seed, **task[1])
    description = {
        "layer": model,
        "config": {"input_size": data.input_size, "hidden_size": hidden, **options},
        "output_size": data.output_size,
        "reduction": data.reduction,
    }
    size = _size(description)
    if size > PARAMETERS:
        raise ConfigurationError(
            f"a {model} with --hidden {hidden} has {size} parameters; at most {PARAMETERS} are trained here"
        )
    torch.manual_seed(compute.seed)
    network: Any = build(description).to(where)
    tracker = None
    if track_every and any(m.ndim == 2 and m.shape[0] == m.shape[1] for m in network.matrices().values()):
        tracker = SpectrumTracker(network, every=track_every)
    return network, data, tracker


def _size(description: dict[str, Any]) -> int:
    """Parameters of a model, counted on a device that has no memory; zero for a description that makes no model."""
    import torch

    from ...models import build

    with contextlib.suppress(Exception), torch.device("meta"):
        return sum(p.numel() for p in build(description).parameters())
    return 0


def _metric_of(folder: Path) -> str | None:
    """What the run's task is measured by."""
    from ...analysis.training.runs import read_run

    document = read_run(folder).document
    name = document["result"].get("metric") or document["task"].get("metric")
    return None if name is None else str(name)


def _summary(folder: Path, result: Any) -> str:
    if result.test_metric is None:
        return f"no epoch was finished ({result.detail}); the run is in {folder}"
    shown = {k: metric(getattr(result, k), result.metric) for k in ("test_metric", "train_metric", "chance")}
    return (
        f"{result.epochs} epochs in {duration(result.seconds)} ({result.detail})\n"
        f"  held-out {metric_word(result.metric)} {shown['test_metric']}, training {shown['train_metric']}, "
        f"guessing {shown['chance']}; {count(result.parameters)} parameters\n"
        f"  run: {folder}\n"
        f"  next: stability certify {folder}"
    )
