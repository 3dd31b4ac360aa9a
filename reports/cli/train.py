"""Command ``stability train``: train one model, with one or several seeds, and record its spectra and margins."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import duration, metric, metric_word, number, table, verdict_word
from ..stored.certificates import needs_box
from ..stored.reasons import shell_name
from . import console
from .console import Interrupted
from .data import check_device
from .options import Compute, Output, check_seconds, no_default
from .training import NAMES, ModelOptions, Plan, TrainingOptions, plan_of, prepare


def train(
    *,
    subject: ModelOptions,
    settings: TrainingOptions,
    seeds: Annotated[int | None, no_default("Number of trainings, with seeds from --seed on.")] = None,
    track_every: Annotated[int, typer.Option(help="Training steps between records of spectra; 0: no records.")] = 25,
    time_limit: Annotated[
        float | None, no_default("Time limit of each training, in seconds.", metavar="SECONDS")
    ] = None,
    out: Annotated[Path | None, no_default("Folder for the run.", "--out", "-o", metavar="FOLDER")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Permission to replace an earlier run.")] = False,
    resume: Annotated[Path | None, no_default("Folder of a run to continue.", metavar="FOLDER")] = None,
    compute: Compute,
    output: Output,
) -> None:
    """Train a recurrent network and write its run directory.

    The directory holds weights, settings, the loss curve and spectra; `stability certify DIR` reads it.
    """
    if subject.preset == "list":
        _show_presets(output)
        return
    time_limit = check_seconds(time_limit)
    if resume is not None:
        if out is not None:
            raise ConfigurationError("--resume continues in its own folder: leave out --out")
        _refuse_other_options({**asdict(replace(subject, data=None)), **asdict(settings), "seeds": seeds})
        folder, result = resume, _resumed(resume, settings.epochs, subject.data, compute, output, time_limit)
    else:
        plan = plan_of(subject, settings, compute)
        how: dict[str, Any] = {"track_every": track_every, "overwrite": overwrite, "time_limit": time_limit}
        if seeds is not None:
            _over_seeds(plan, seeds, out or Path("runs") / plan.name, compute, output, **how)
            return
        folder = out or Path("runs") / f"{plan.name}-seed{compute.seed}"
        result = _trained(plan, folder, compute, output, "", **how)
    output.status()
    repaired: dict[str, Any] = {}
    if resume is None and (subject.source is not None or settings.gain_target is not None):
        repaired = _repaired(plan_of(subject, settings, compute), folder, compute)
    _finish(folder, result, output, repaired)


def _refuse_other_options(options: Mapping[str, Any]) -> None:
    """Refuse options other than the number of epochs when a run is resumed."""
    named = next((name for name, value in options.items() if value is not None and name != "epochs"), None)
    if named is not None:
        option = NAMES.get(named, f"--{named.replace('_', '-')}")
        raise ConfigurationError(f"--resume keeps the settings of the run except --epochs: leave out {option}")


def _resumed(
    folder: Path, epochs: int | None, file: Path | None, compute: Compute, output: Output, time_limit: float | None
) -> Any:
    """Go on with one run."""
    from ...analysis.training import front as training

    device = check_device(compute.device)
    progress = _progress(output, _metric_of(folder))
    more: dict[str, Any] = {"data_dir": compute.data_dir, "file": file, "time_limit": time_limit}
    return training.resume_run(folder, epochs=epochs, device=device, progress=progress, **more)[1]


def _trained(
    plan: Plan,
    folder: Path,
    compute: Compute,
    output: Output,
    prefix: str,
    *,
    track_every: int,
    overwrite: bool,
    time_limit: float | None,
    go_on: bool = False,
) -> Any:
    """Train with one seed; ``go_on``: with the run in the folder, where there is one, which must be the same."""
    from ...analysis.results import plain_value
    from ...analysis.training import front as training
    from ...analysis.training.runs import RUN_FILE, read_run, with_code

    network, task, tracker = prepare(plan, track_every, compute)
    asked = {**plan.settings_for(task), "seed": compute.seed, "tracker": tracker, "time_limit": time_limit}
    asked["progress"] = _progress(output, task.metric_name, prefix)
    if go_on and not overwrite and (folder / RUN_FILE).is_file():
        if read_run(folder).document["model"] != plain_value(with_code(network)):
            raise ConfigurationError(
                f"{folder} holds the run of another model: choose another folder, or add --overwrite"
            )
        return training.train(network, task, resume=folder, **asked)
    return training.train(network, task, out=folder, overwrite=overwrite, **asked)


def _over_seeds(plan: Plan, seeds: int, folder: Path, compute: Compute, output: Output, **how: Any) -> None:
    """Train with several seeds, each as ``--seed`` alone would, and sum up."""
    from ...analysis.intervals import over_seeds

    if seeds < 1:
        raise ConfigurationError(f"--seeds must be at least 1, got {seeds}")
    results: dict[int, Any] = {}
    for seed in range(compute.seed, compute.seed + seeds):
        prefix = f"seed {seed} ({len(results) + 1} of {seeds}), "
        run = _trained(plan, folder / f"seed-{seed}", replace(compute, seed=seed), output, prefix, go_on=True, **how)
        if run.interrupted:
            output.status()
            command = shlex.join(["stability", *console.ASKED])
            raise Interrupted(f"{len(results)} of {seeds} trainings are finished in {folder}; continue with: {command}")
        results[seed] = run
    output.status()
    done = {seed: run for seed, run in results.items() if run.test_metric is not None}
    names = ("test_metric", "train_metric", "test_loss", "train_loss")
    spread = {
        name: over_seeds(
            [getattr(run, name) for run in done.values()],
            within=(0.0, 1.0 if (run.metric, name[-6:]) == ("accuracy", "metric") else math.inf),
        )
        for name in (names if done else ())
    }
    document = {
        "out": folder,
        "seeds": list(results),
        "runs": [{"seed": seed, **run.to_dict()} for seed, run in results.items()],
        "summary": {name: value.to_dict() for name, value in spread.items()},
    }
    output.show(document, _seeds_text(folder, results, spread))
    diverged = {seed: run for seed, run in results.items() if run.stopped == "diverged"}
    if diverged:
        why = "; ".join(f"seed {seed}: {run.detail}" for seed, run in diverged.items())
        raise ConfigurationError(f"{len(diverged)} of {seeds} trainings diverged: {why}")


def _seeds_text(folder: Path, results: Mapping[int, Any], spread: Mapping[str, Any]) -> str:
    kind = next(iter(results.values())).metric
    rows = [
        (str(seed), str(run.epochs), metric(run.test_metric, kind), metric(run.train_metric, kind))
        for seed, run in results.items()
    ]
    lines = [table(("seed", "epochs", f"held-out {metric_word(kind)}", "training"), rows, right=(0, 1, 2, 3)), ""]
    if spread:
        over = spread["test_metric"]
        mean, least, largest = (metric(getattr(over, name), kind) for name in ("mean", "least", "largest"))
        lines.append(f"held-out {metric_word(kind)}: mean {mean}, least {least}, largest {largest}")
        if over.n == 1:
            lines.append("  an interval needs at least two trainings")
        else:
            low, high = metric(over.low, kind), metric(over.high, kind)
            lines.append(f"  {100 * over.confidence:g} % interval of the mean over {over.n} trainings: {low} to {high}")
    return "\n".join([*lines, f"  runs: {folder}"])


def _progress(output: Output, kind: str | None, prefix: str = "") -> Any:
    """Return the function that shows the progress of a training."""

    def progress(state: Any) -> None:
        done = f", held-out {metric_word(kind)} {metric(state.finished.test_metric, kind)}" if state.finished else ""
        output.status(
            f"{prefix}epoch {state.epoch}/{state.epochs}, batch {state.batch}/{state.batches}, "
            f"loss {number(state.loss)}{done}"
        )

    return progress


def _metric_of(folder: Path) -> str | None:
    """Return the metric of the run's task."""
    from ...analysis.training.runs import read_run

    document = read_run(folder).document
    name = document["result"].get("metric") or document["task"].get("metric")
    return None if name is None else str(name)


def _show_presets(output: Output) -> None:
    """Print the papers' experiments, their sources and the settings that these leave open."""
    from ...analysis.training.presets import PAPERS

    rows = [(name, p.task, p.layer, str(p.hidden)) for name, p in PAPERS.items()]
    lines = [table(("preset", "task", "model", "units"), rows, right=(3,)), ""]
    for name, preset in PAPERS.items():
        lines += [f"{name}: {preset.title}"]
        lines += [f"  not stated in the paper (value used here): {'; '.join(preset.open)}"] if preset.open else []
    entries = [{"name": name, "source": preset.title, **asdict(preset)} for name, preset in PAPERS.items()]
    output.show({"presets": entries}, "\n".join(lines))


def _repaired(plan: Plan, folder: Path, compute: Compute) -> dict[str, Any]:
    """Compare a network before and after training: held-out metric and verdict."""
    from stability.certification import certify_contraction
    from stability.errors import StabilityError

    from ...analysis.training.gains import proved_gain
    from ...analysis.training.measured import evaluate
    from ...models.readers.safetensors import read_tensors

    network, task, _ = prepare(plan, 0, compute)
    network = network.to("cpu")
    comparison: dict[str, Any] = {"from": plan.source, "metric": task.metric_name}
    target = plan.training.get("gain_target")
    for moment in ("before", "after"):
        if moment == "after":
            network.load_state_dict(read_tensors(folder / "model.safetensors"))
        x, y = task.test
        results: dict[str, Any] = {"test_metric": evaluate(network, x, y, task)[1], "verdict": None, "gain": None}
        try:
            results["verdict"] = str(certify_contraction(network, rate="any", seed=compute.seed).verdict)
            bound = math.inf if target is None else proved_gain(network, target).value
            results["gain"] = bound if math.isfinite(bound) else None
        except StabilityError as error:
            results["reason"] = str(error)
        comparison[moment] = results
    return comparison


def _finish(folder: Path, result: Any, output: Output, repaired: Mapping[str, Any]) -> None:
    """Say what a training came to."""
    if result.interrupted:
        raise Interrupted(
            f"{result.epochs} finished epochs are kept in {folder}; continue with: stability train --resume "
            f"{shell_name(str(folder))}"
        )
    more = {"repaired": repaired} if repaired else {}
    output.show({"out": folder, **result.to_dict(), **more}, _summary(folder, result) + _repair_text(repaired))
    if result.stopped == "diverged":
        raise ConfigurationError(f"training diverged: {result.detail}; {folder} holds the last good epoch")


def _repair_text(repaired: Mapping[str, Any]) -> str:
    if not repaired:
        return ""
    lines = []
    for moment in ("before", "after") if repaired["from"] is not None else ("after",):
        run = repaired[moment]
        proved = "" if run["gain"] is None else f", gain from inputs to states at most {run['gain']:.6g} (proved)"
        verdict = verdict_word(run["verdict"]).lower()
        lines.append(f"  {moment}: {verdict}{proved}, held-out {metric(run['test_metric'], repaired['metric'])}")
    return "\n" + "\n".join(lines)


def _summary(folder: Path, result: Any) -> str:
    if result.test_metric is None:
        return f"no epoch was finished ({result.detail}); the run is in {folder}"
    scores = {k: metric(getattr(result, k), result.metric) for k in ("test_metric", "train_metric", "chance")}
    why = "" if result.detail == "all epochs are done" else f" ({result.detail})"
    return (
        f"{result.epochs} epoch{'s' * (result.epochs != 1)} in {duration(result.seconds)}{why}\n"
        f"  held-out {metric_word(result.metric)} {scores['test_metric']}, on training data {scores['train_metric']}, "
        f"by guessing {scores['chance']}; {result.parameters:,} parameters\n"
        f"  run: {folder}\n"
        f"  next: {_next(folder)}"
    )


def _next(folder: Path) -> str:
    """Return the command that certifies a run; an LSTM or GRU is certified for inputs in the range of the data only."""
    from stability.errors import StabilityError

    from ...models.sources import load_subject

    box = ""
    with contextlib.suppress(StabilityError):
        box = " --input-box data" if needs_box(load_subject(folder).subject) else ""
    return f"stability certify {shell_name(str(folder))}{box}"
