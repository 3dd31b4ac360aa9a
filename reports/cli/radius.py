"""Command ``stability radius``: certified and attacked radii of single inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from stability.errors import ConfigurationError, DimensionError
from stability.storage.folder import Folder, claim_folder, refuse_existing_files
from stability.storage.writing import write_text

from ..formatting import at_least, number, table
from ..jsonable import write_json
from .console import time_left
from .data import check_device, open_with_task, task_named
from .options import Compute, DataOptions, Output, Results, Samples, check_seconds, choice, no_default, with_default
from .sources import open_model
from .units import WORDS, Unit, scale_of

if TYPE_CHECKING:
    from stability.search.local.proof_merging import ProofMerger

    from ...analysis.radius.local import LocalRadius
    from ...models.packed import Reading

BY = "radius"
SHOWN = 30
"""Samples of a printed table."""


def radius(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="Run directory or model file.", metavar="MODEL")],
    *,
    norm: Annotated[str, choice("Norm of the change of the input.", ("l2", "linf"), "--norm")] = "l2",
    budget: Annotated[
        str, choice("Limit on the change of the whole sequence, or of every step.", ("total", "step"), "--budget")
    ] = "total",
    epsilon: Annotated[float | None, with_default("Radius to certify, in --unit.", "largest provable")] = None,
    bounds: Annotated[
        tuple[float, float] | None,
        with_default("Range to which changed inputs are clipped.", "no bounds", "--bounds", metavar="LOW HIGH"),
    ] = None,
    mask: Annotated[
        Path | None,
        with_default(
            ".npy or .npz file of shape (time, features), true for inputs that may change.", "all inputs", "--mask"
        ),
    ] = None,
    time_limit: Annotated[
        float | None, no_default("Time limit of each proof, in seconds.", "--time-limit", metavar="SECONDS")
    ] = None,
    proofs: Annotated[
        Path | None,
        no_default(
            "Folder for the proofs, which `stability verify` checks; stronger earlier ones stay.",
            "--proofs",
            metavar="FOLDER",
        ),
    ] = None,
    unit: Unit = "raw",
    samples: Samples = 100,
    data: DataOptions,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Bound the smallest change of each input that alters its class.

    No change below the certified radius alters the class: this is proved. The attacked radius is the size of a change
    that an attack found to alter it.
    """
    from .masks import open_mask

    options: dict[str, Any] = {"norm": norm, "budget": budget, "epsilon": epsilon, "bounds": bounds}
    options |= {"time_limit": check_seconds(time_limit), "seed": compute.seed, "progress": _progress(output)}
    _refuse_misfits(norm, budget, epsilon, bounds)
    if mask is not None:
        open_mask(mask)
    results.claim(context, "radius.json", "radius.csv")
    read, x, y, whole = _opened(model, data, compute, samples)
    if results.out is not None and proofs is not None and results.out.resolve() == proofs.resolve():
        raise ConfigurationError("--out and --proofs must be different folders")
    import torch

    from ...analysis.attacks.units import in_units
    from ...analysis.radius.local import local_radius
    from ...models.wrapped import MeasuredClassifier

    _refuse_outside(x, bounds)
    options["mask"] = None if mask is None else open_mask(mask, tuple(x.shape[1:]))
    if (scale := scale_of(unit, *whole, None, output)) is not None:
        x = torch.tensor(np.asarray(x, float))
        read, x, options["bounds"], options["mask"] = in_units(read, x, scale.cpu(), options["bounds"], options["mask"])
    merger = None if proofs is None else _kept(context, proofs, read, x, options, results.overwrite)
    result = local_radius(read, x, y, keep=None if merger is None else merger.write, **options)
    output.status()
    text = _text(result) + ("" if merger is None else _about(merger, proofs))
    if isinstance(read.subject, MeasuredClassifier):
        text = f"no theorem covers this network: attacked radii only\n{text}"
    text += WORDS[unit]
    document = {**result.to_dict(), "unit": unit}
    if results.out is not None:
        write_json(results.out / "radius.json", document)
        write_text(results.out / "radius.csv", result.frame().to_csv(index=False))
        text += f"\n\nWritten to {results.out / 'radius'}.json and .csv"
    output.show(document, text)


def _opened(name: str, data: DataOptions, compute: Compute, samples: int) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    """Classifier of a model with the steps that it reads, the first of its data, their labels; model and all data."""
    from ...analysis.guard import as_tensor
    from ...analysis.tasks.archive import labelled_sequences
    from ...models.packed import reading

    task_named(data, compute.data_dir)
    check_device(compute.device)
    arrays = None if data.file is None else labelled_sequences(data.file)
    if arrays is None or arrays[0].dtype.kind != "f" or arrays[2]:
        opened = open_with_task(name, data, compute)
        if not opened.task.labels_sequences:
            raise ConfigurationError(f"radius needs one class for each sequence, and task {opened.task.name} has none")
        x, y = (part[:samples].cpu() for part in opened.task.test)
        return reading(opened.model.cpu(), x), x, y, (opened.model, opened.task.train[0].cpu())
    module, every = open_model(name), arrays[0]
    rows, labels = every[:samples], arrays[1][:samples]
    read = reading(module, rows)
    if read.subject.inputs != rows.shape[2]:
        hint = f"the data have {rows.shape[2]} features a step, {name} takes {read.subject.inputs}"
        raise DimensionError("x", f"(n, time, {read.subject.inputs})", rows.shape, hint)
    return read, rows, labels, (module, as_tensor(module, every))


def _refuse_misfits(norm: str, budget: str, epsilon: float | None, bounds: tuple[float, float] | None) -> None:
    """Refuse options before a model or data are loaded.

    Raises:
        ConfigurationError: in the words of the command line.
    """
    from stability.kernel.checks import as_choice
    from stability.search.local.request import check_radius_range

    as_choice("--norm", norm, ("l2", "linf"))
    as_choice("--budget", budget, ("total", "step"))
    if (norm, budget) == ("linf", "step"):
        raise ConfigurationError("--budget step needs --norm l2: for linf both budgets are the same")
    if epsilon is not None:
        check_radius_range("--epsilon", epsilon)
    if bounds is not None and not -math.inf < bounds[0] <= bounds[1] < math.inf:
        raise ConfigurationError(f"--bounds needs finite LOW <= HIGH, got {bounds[0]:g} {bounds[1]:g}")


def _refuse_outside(x: Any, bounds: tuple[float, float] | None) -> None:
    """Refuse bounds that the data leave, as their own numbers are stored.

    Raises:
        ConfigurationError: with the range of the data.
    """
    x = np.asarray(x)
    if bounds is None or not x.size or not np.isfinite(x).all():
        return
    low, high = (x.dtype.type(end) for end in bounds)
    if x.min() < low or x.max() > high:
        raise ConfigurationError(
            f"the data span [{x.min():.4g}, {x.max():.4g}] outside --bounds {bounds[0]:g} {bounds[1]:g}: widen --bounds"
        )


def _progress(output: Output) -> Callable[[str, int, int], None]:
    start_times: dict[str, float] = {}

    def show(what: str, done: int, count: int) -> None:
        elapsed = time.monotonic() - start_times.setdefault(what, time.monotonic())
        output.status(f"{what}: {done} of {count} inputs{time_left(done, count, elapsed)} ...")

    return show


def _kept(
    context: typer.Context, path: Path, read: Reading, x: Any, options: Mapping[str, Any], overwrite: bool
) -> ProofMerger:
    """Own the folder of the proofs, and make sure that none in it is lost."""
    from stability.search.local.proof_folder import NETWORK_FILE, sample_file
    from stability.search.local.proof_merging import ProofMerger, ProofQuery

    from ...models.wrapped import MeasuredClassifier

    if path.is_dir():
        refuse_existing_files(path, [NETWORK_FILE, *map(sample_file, range(len(x)))], BY, overwrite)
    if isinstance(read.subject, MeasuredClassifier):
        raise ConfigurationError("no theorem covers this network, so there are no proofs to keep: leave out --proofs")
    folder: Folder = context.with_resource(claim_folder(path, BY))
    asked = ProofQuery(np.asarray(x), options["norm"], options["budget"], options["mask"], read.lengths)
    return ProofMerger(folder, BY, read.subject, asked, overwrite=overwrite)


def _about(merger: ProofMerger, proofs: Any) -> str:
    """Return lines about the stored proofs."""
    count, older = merger.count(), merger.count() - len(merger.made)
    lines = ["", "", f"{count} proof{'s' * (count != 1)} in {proofs}; check with: stability verify {proofs}"]
    if older:
        lines.append(f"{older} of them come from earlier runs on the same network")
    if merger.stayed:
        lines.append(f"{len(merger.stayed)} earlier proofs stay, since they are stronger; --overwrite replaces them")
    if merger.void:
        lines.append(f"{len(merger.void)} replace older files that are damaged or no longer valid")
    return "\n".join(lines)


def _text(result: LocalRadius) -> str:
    """Return the result as text: a summary of all samples, then one line for each sample."""
    document = result.to_dict()
    n, correct = document["n"], document["correct"]
    over = "of every step" if result.budget == "step" else "of the whole sequence"
    lines = [f"{n} inputs, {correct} classified correctly; the radius is the {result.norm} norm of the change {over}"]
    if result.masked is not None:
        lines.append(f"perturbed entries of each input: {result.masked}, those of the mask")
    if result.lengths is not None:
        length_range = f"{result.lengths.min()} to {result.lengths.max()}"
        lines.append(f"packed sequences of {length_range} steps: only values are perturbed")
    if result.unread:
        lines.append(f"{result.unread} inputs not examined: the model reads more than their packed steps")
    if result.epsilon is not None:
        broken = int((result.correct & (result.attack_radius <= result.epsilon)).sum())
        lines.append(
            f"change up to {number(result.epsilon)}: class proved to stay for {document['certified']} inputs, altered "
            f"by an attack for {broken}, undecided for {correct - document['certified'] - broken}"
        )
    else:
        ratio = result.ratio
        middle = number(float(sorted(ratio)[len(ratio) // 2])) if len(ratio) else number(None)
        lines.append(
            f"medians: certified radius {at_least(document['median_radius'])} "
            f"({number(100 * (document['median_share'] or 0.0))} % of the sequence's norm), "
            f"attacked radius {number(document['median_attack'])}, certified / attacked {middle}"
        )
    rows = [
        (str(s["index"]), str(s["label"]), at_least(s["radius"]), _attacked(s), _remark(s))
        for s in document["samples"][:SHOWN]
    ]
    lines += ["", table(("input", "class", "certified radius", "attacked radius", ""), rows, right=(0, 1, 2, 3))]
    if n > SHOWN:
        lines.append(f"and {n - SHOWN} more: --json and --out give all")
    return "\n".join(lines)


def _remark(sample: dict[str, Any]) -> str:
    if not sample.get("agrees", True):
        return "not examined"
    return "" if sample["correct"] else "misclassified"


def _attacked(sample: dict[str, Any]) -> str:
    return "none found" if sample["attack_radius"] is None else number(sample["attack_radius"])
