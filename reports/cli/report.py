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
from .checkpoints import LayerOptions, examine, find_layers, layer_box, show_layers
from .console import Interrupted, time_left
from .data import HELD_OUT, check_data_dir, check_device, task_named
from .options import Compute, DataOptions, InputBox, Output, Scheduler, no_default
from .sources import check_exists, open_model, open_subject

NO_BOX = "--input-box has no effect on these models: leave it out, their claims hold for every input"


def report(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to examine; without any, small ones are trained.", metavar="[MODEL ...]"),
    ] = None,
    train_models: Annotated[
        str | None,
        no_default(
            "Models to train: default, all, or names of layers; module:Class for a registered layer, module:factory "
            "for a model that is examined without training.",
            "--models",
            metavar="NAME,NAME",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small samples and short trainings: about half a minute.")
    ] = False,
    out: Annotated[Path | None, no_default("Folder for the report.", "--out", "-o", metavar="FOLDER")] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Permission to replace a report that has other settings."),
    ] = False,
    redraw: Annotated[
        Path | None, no_default("Folder of a report to draw again without computing.", metavar="FOLDER")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All blocks of the page unfolded, for printing.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of parallel processes; 2 or more need the `cluster` extra.")
    ] = 2,
    seeds: Annotated[
        int,
        typer.Option(min=1, max=100, help="Number of trainings of each model."),
    ] = 1,
    *,
    data: DataOptions,
    gated: LayerOptions,
    input_box: InputBox = None,
    scheduler: Scheduler = None,
    compute: Compute,
    output: Output,
) -> None:
    """Write report.html: certificates, attacks and measurements.

    Exit code: 0 if every model has results; 2 if a model failed, has no result, or has results that were changed
    afterwards. The page still shows the other results.
    """
    if redraw is not None:
        asked = {
            "MODEL": models, "--models": train_models, "--out": out, "--task": data.task,
            "--task-set": data.settings, "--data": data.file, "--input-box": input_box, "--data-dir": compute.data_dir,
             "--quick": quick or None, "--seeds": seeds - 1, "--scheduler": scheduler,
        }  # fmt: skip
        unread = [name for name, value in asked.items() if value]
        if unread:
            raise ConfigurationError(f"--redraw uses stored results only: leave out {', '.join(unread)}")
        from ..page.html import render

        _finish(render(redraw, overwrite=overwrite, full=full), {}, output)
        return
    folder = out or Path("runs") / f"report-{datetime.now():%Y%m%d-%H%M%S}"
    if (found := find_layers(models or [], gated, search=train_models is None, trained_here=False)) is not None:
        from ..page.checkpoint import render_checkpoint

        results = examine(str((models or [])[0]), found, gated, data, output, layer_box(input_box, None))
        page = render_checkpoint(results, folder, overwrite=overwrite)
        show_layers(results, page.parent / "certificate.json", page, output)
        return
    named = task_named(data, compute.data_dir, None if models else HELD_OUT)
    if seeds > 1 and models:
        raise ConfigurationError("--seeds needs models to train: name them with --models instead of MODEL")
    campaign = _campaign(models or [], train_models, quick, folder, named, compute, input_box, seeds)
    from ...analysis.campaign.campaign import FINISHED, finished, opened, run_campaign
    from ..page.html import FORMATS, QUICK_FORMATS, page_files, render

    board: dict[str, str] = {}

    start_time = time.monotonic()

    def news(name: str, text: str) -> None:
        board[name] = text
        busy = [f"{k}: {v}" for k, v in board.items() if v != FINISHED]
        new, count = len(board) - len(busy), len(campaign.runs)
        elapsed = time.monotonic() - start_time
        remaining = time_left(new, count - len(done), elapsed)
        output.status(f"{len(done) + new}/{count} models{remaining}  {' · '.join(busy)}")
        if text == FINISHED:
            output.line(f"{len(done) + new}/{count} {name}: finished after {duration(elapsed)}{remaining}")

    command = shlex.join(["stability", *console.ASKED])
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
        again = command if out is not None else shlex.join(["stability", *console.ASKED, "--out", str(folder)])
        raise Interrupted(f"finished models are kept in {folder} ({completed}); continue with: {again}") from stop
    output.status()
    _finish(page, failed, output)


def _campaign(
    paths: list[str],
    train_models: str | None,
    quick: bool,
    folder: Path,
    named: tuple[str, dict[str, Any]] | None,
    compute: Compute,
    input_box: tuple[float, float] | None,
    seeds: int,
) -> Any:
    """Plan the campaign; refuse all that can be refused before anything is written."""
    if paths and train_models is not None:
        raise ConfigurationError("MODEL and --models exclude each other: leave one of them out")
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
        originals = tuple(Given(name, path, _given(path), named, title) for name, title, path in called)
        if named is not None and named[0] == "data":
            _check_data(originals, named[1], compute.seed)
        elif named is None:
            check_data_dir(paths, compute.data_dir)
        if box is not None and not any(reads_box(g.subject) for g in originals):
            raise ConfigurationError(NO_BOX)
        return Campaign(folder, tuple(g.name for g in originals), originals, **common)
    names, originals_trained = _to_train(preset_names(train_models, quick), named or ("digits", {}))
    if originals_trained and seeds > 1:
        raise ConfigurationError(
            f"--seeds needs models to train: leave {originals_trained[0].path} out, which is only examined"
        )
    if named is not None and named[0] == "data":
        _check_data(originals_trained, named[1], compute.seed)
    known = known_presets()
    presets = [known[name] for name in names if name in known] if box is not None else []
    trained = [LAYERS[p.layer](2, p.hidden, **p.config) for p in presets if p.layer in LAYERS]
    if box is not None and not any(map(reads_box, (*trained, *(g.subject for g in originals_trained)))):
        raise ConfigurationError(NO_BOX)
    return Campaign(folder, names, originals_trained, task=named or ("digits", {}), seeds=seeds, **common)


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
        raise ConfigurationError(f"--models must not repeat a layer: {', '.join(trained)}")
    paths = [name for name, layer in called.items() if layer is None]
    folders = dict(zip(paths, names_for([*trained, *paths])[len(trained) :]))
    originals = [Given(folders[p], p, _given(p), task, title) for p, title in zip(paths, titles_for(paths))]
    return tuple(layer or folders[name] for name, layer in called.items()), tuple(originals)


def _check_data(originals: tuple[Any, ...], options: dict[str, Any], seed: int) -> None:
    """Refuse data that do not fit a model before anything is written."""
    from torch import nn

    from ...analysis.campaign.fitting import check_features, joined
    from ...analysis.tasks import make_task

    task = make_task("data", seed=seed, **options)
    for g in originals:
        if isinstance(g.subject, nn.Module):
            joined(task, g.subject, g.path)
        else:
            check_features(g.subject, task, g.path)


def _given(path: str) -> Any:
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
        best_score = score(m)
        score_text = "" if best_score is None else f", {best_score.label} {metric(best_score.value, best_score.metric)}"
        more = f"; {len(m.trainings.runs)} trainings: {verdict_counts(m)}" if m.trainings.several else ""
        lines.append(f"{m.title}: {verdict_word(m.state)}{score_text}{more}")
    lines += [f"{name}: failed ({why})" for name, why in failures.items()]
    seconds = result.settings.get("seconds")
    time_note = f" (in {duration(seconds)})" if seconds is not None else ""
    text = "\n".join(lines) + f"\n\nReport{time_note}: {page}"
    output.show({"report": page, **result.to_dict(), "failed": failures}, text)
    _complete(result, failures)


def _complete(result: Any, failures: dict[str, str]) -> None:
    """Raise an error if the page lacks a model or some of its results.

    Raises:
        StabilityError: naming them.
    """
    from ..stored.reasons import missing

    reasons = {
        m.title: m.refused
        or (f"changed after the analysis, and not shown: {', '.join(m.changed)}" if m.changed else "")
        or (f"nothing but a certificate that decides nothing: {missing(m)[0].text}" if m.idle else "")
        for m in result.models
    }
    failures = failures | {title: why for title, why in reasons.items() if why}
    if failures:
        why = "; ".join(f"{name}: {text}" for name, text in failures.items())
        raise StabilityError(f"the report in {result.folder} is incomplete: {why}")
