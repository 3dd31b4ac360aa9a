"""Command ``stability report``: examine models, or train some first, and write the page."""

from __future__ import annotations

import shlex
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError, StabilityError, UnsupportedError
from stability.user_code import names_code

from ..formatting import duration, metric, verdict_word
from . import console
from .console import Interrupted, time_left
from .data import HELD_OUT, check_data_dir, check_device, task_named
from .options import Compute, DataOptions, InputBox, Output, Scheduler, no_default
from .sources import check_exists, open_model, open_subject

NO_BOX = "--input-box has no effect on these models, whose claims cover every input: leave it out"


def report(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to examine; with none, small ones are trained first.", metavar="[MODEL ...]"),
    ] = None,
    train_models: Annotated[
        str | None,
        no_default(
            "Which models to train: default, all, or names with commas; module:Class is a registered layer of your "
            "own, module:factory a model that is examined beside them as it is.",
            "--models",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small samples and, with no MODEL, three short trainings: half a minute.")
    ] = False,
    out: Annotated[Path | None, no_default("The report's directory.", "--out", "-o")] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a report made with other settings, and files in the way of its own."),
    ] = False,
    redraw: Annotated[Path | None, no_default("Only draw the page of this directory again, from its files.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Unfold all blocks of the page, for a print to be audited.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Models at a time on this machine (more than one needs the extra `cluster`).")
    ] = 2,
    seeds: Annotated[
        int,
        typer.Option(min=1, max=100, help="Trainings of each model, with --seed and the numbers after it: intervals."),
    ] = 1,
    *,
    data: DataOptions,
    input_box: InputBox = None,
    scheduler: Scheduler = None,
    compute: Compute,
    output: Output,
) -> None:
    """Certify, attack and measure models; write report.html.

    Exit code 0 where nothing is missing; 2 where a model failed, results were changed, or nothing could be measured
    on the data and the certificate decides nothing: the page shows the rest.
    """
    if redraw is not None:
        options = {
            "MODEL": models, "--models": train_models, "--out": out, "--task": data.task,
            "--task-set": data.settings, "--data": data.file, "--input-box": input_box, "--data-dir": compute.data_dir,
             "--quick": quick or None, "--seeds": seeds - 1, "--scheduler": scheduler,
        }  # fmt: skip
        unused = [name for name, value in options.items() if value]
        if unused:
            raise ConfigurationError(f"--redraw computes nothing: leave out {', '.join(unused)}")
        from ..page.html import render

        _finish(render(redraw, overwrite=overwrite, full=full), {}, output)
        return
    folder = out or Path("runs") / f"report-{datetime.now():%Y%m%d-%H%M%S}"
    task = task_named(data, compute.data_dir, None if models else HELD_OUT)
    if seeds > 1 and models:
        raise ConfigurationError("--seeds trains every model several times: name what to train with --models instead")
    campaign = _campaign(models or [], train_models, quick, folder, task, compute, input_box, seeds)
    from ...analysis.campaign.campaign import FINISHED, finished, opened, run_campaign
    from ..page.html import FORMATS, QUICK_FORMATS, page_files, render

    board: dict[str, str] = {}

    begun = time.monotonic()

    def news(name: str, text: str) -> None:
        board[name] = text
        busy = [f"{k}: {v}" for k, v in board.items() if v != FINISHED]
        new, count = len(board) - len(busy), len(campaign.runs)
        took = time.monotonic() - begun
        remaining = time_left(new, count - len(done), took)
        output.status(f"{len(done) + new}/{count} models{remaining}  {' · '.join(busy)}")
        if text == FINISHED:
            output.line(f"{len(done) + new}/{count} {name}: ended after {duration(took)}{remaining}")

    command = shlex.join(["stability", *console.ARGUMENTS])
    try:
        with opened(campaign, overwrite=overwrite, pages=page_files()) as done:
            outcomes = run_campaign(
                campaign, processes=processes, scheduler=scheduler, news=news, command=command, overwrite=overwrite
            )
            output.status("drawing the report ...")
            failed = {o.name: o.error for o in outcomes if o.error is not None}
            if len(failed) == len(campaign.runs):
                raise StabilityError("; ".join(f"{k}: {v}" for k, v in failed.items()))
            formats = QUICK_FORMATS if quick else FORMATS
            page = render(folder, overwrite=overwrite, full=full, formats=formats)
    except KeyboardInterrupt as stop:
        completed = ", ".join(finished(campaign)) or "none yet"
        resume = command if out is not None else shlex.join(["stability", *console.ARGUMENTS, "--out", str(folder)])
        raise Interrupted(f"finished models are kept in {folder} ({completed}); go on with: {resume}") from stop
    output.status()
    _finish(page, failed, output)


def _campaign(
    paths: list[str],
    train_models: str | None,
    quick: bool,
    folder: Path,
    task: tuple[str, dict[str, Any]] | None,
    compute: Compute,
    input_box: tuple[float, float] | None,
    seeds: int,
) -> Any:
    """Plan the campaign; refuse all that can be refused before anything is written."""
    if paths and train_models is not None:
        raise ConfigurationError("either name models to examine, or --models to train, not both")
    for path in paths:
        check_exists(path)

    from ...analysis.campaign.inputs import check_box, reads_box
    from ...analysis.campaign.labels import names_for, titles_for
    from ...analysis.campaign.plan import Campaign, Given
    from ...analysis.training.presets import known_presets, preset_names
    from ...models import LAYERS

    box = None if input_box is None else check_box(input_box)
    common: dict[str, Any] = {
        "input_box": box,
        "quick": quick,
        "seed": compute.seed,
        "data_dir": None if compute.data_dir is None else str(compute.data_dir),
        "device": str(check_device(compute.device)),
    }
    if paths:
        called = zip(names_for(paths), titles_for(paths), paths)
        networks = tuple(Given(name, path, _open_any(path), task, title) for name, title, path in called)
        if task is not None and task[0] == "data":
            _check_data(networks, task[1], compute.seed)
        elif task is None:
            check_data_dir(paths, compute.data_dir)
        if box is not None and not any(reads_box(g.subject) for g in networks):
            raise ConfigurationError(NO_BOX)
        return Campaign(folder, tuple(g.name for g in networks), networks, **common)
    names, networks = _to_train(preset_names(train_models, quick), task or ("digits", {}))
    if networks and seeds > 1:
        raise ConfigurationError(
            f"--seeds trains every model several times: leave {networks[0].path} out, which is examined"
        )
    if task is not None and task[0] == "data":
        _check_data(networks, task[1], compute.seed)
    presets = known_presets()
    selected = [presets[name] for name in names if name in presets] if box is not None else []
    trained = [LAYERS[p.layer](2, p.hidden, **p.config) for p in selected if p.layer in LAYERS]
    if box is not None and not any(map(reads_box, (*trained, *(g.subject for g in networks)))):
        raise ConfigurationError(NO_BOX)
    return Campaign(folder, names, networks, task=task or ("digits", {}), seeds=seeds, **common)


def _to_train(names: tuple[str, ...], task: tuple[str, dict[str, Any]]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the names of the models of ``--models``, and the models that a user's factory makes.

    Raises:
        ConfigurationError: a user's code that gives nothing usable, or a layer twice.
    """
    from ...analysis.campaign.labels import names_for, titles_for
    from ...analysis.campaign.plan import Given
    from ...models.factories import registered_layer

    called = {name: registered_layer(name) if names_code(name) else name for name in names}
    trained = [layer for layer in called.values() if layer is not None]
    if len(set(trained)) < len(trained):
        raise ConfigurationError(f"--models names a layer twice: {', '.join(trained)}")
    paths = [name for name, layer in called.items() if layer is None]
    folders = dict(zip(paths, names_for([*trained, *paths])[len(trained) :]))
    networks = [Given(folders[p], p, _open_any(p), task, title) for p, title in zip(paths, titles_for(paths))]
    return tuple(layer or folders[name] for name, layer in called.items()), tuple(networks)


def _check_data(networks: tuple[Any, ...], options: dict[str, Any], seed: int) -> None:
    """Refuse data that do not fit a model before anything is written."""
    from torch import nn

    from ...analysis.campaign.fitting import check_features, joined
    from ...analysis.tasks import make_task

    task = make_task("data", seed=seed, **options)
    for g in networks:
        if isinstance(g.subject, nn.Module):
            joined(task, g.subject, g.path)
        else:
            check_features(g.subject, task, g.path)


def _open_any(path: str) -> Any:
    """Open the model of a path; a network of the toolkit without a known system is returned as well."""
    try:
        return open_subject(path)
    except UnsupportedError:
        return open_model(path)


def _finish(page: Path, failed: dict[str, str], output: Output) -> None:
    """Say where the report is, and the answer about each model in a line; the page says the rest."""
    from ..stored.collect import collect
    from ..stored.facts import ranked, score, verdict_counts

    result = collect(page.parent)
    failures, lines = {**result.failed, **failed}, []
    for m in ranked(result.models):
        scored = score(m)
        score_words = "" if scored is None else f", {scored.label} {metric(scored.value, scored.metric)}"
        more = f"; {len(m.trainings.runs)} trainings: {verdict_counts(m)}" if m.trainings.several else ""
        lines.append(f"{m.title}: {verdict_word(m.state)}{score_words}{more}")
    lines += [f"{name}: failed ({why})" for name, why in failures.items()]
    seconds = result.settings.get("seconds")
    took = f" (in {duration(seconds)})" if seconds is not None else ""
    text = "\n".join(lines) + f"\n\nReport{took}: {page}"
    output.show({"report": page, **result.to_dict(), "failed": failures}, text)
    _complete(result, failures)


def _complete(result: Any, failures: dict[str, str]) -> None:
    """Raise an error if the page lacks a model or some of its results.

    Raises:
        StabilityError: naming them.
    """
    from ..stored.reasons import missing

    problems = {
        m.title: m.refused
        or (f"changed after the analysis, and not shown: {', '.join(m.changed)}" if m.changed else "")
        or (f"only an undecided certificate: {missing(m)[0].text}" if m.idle else "")
        for m in result.models
    }
    failures = failures | {title: why for title, why in problems.items() if why}
    if failures:
        why = "; ".join(f"{name}: {text}" for name, text in failures.items())
        raise StabilityError(f"the report in {result.folder} lacks results of {len(failures)} of its models: {why}")
