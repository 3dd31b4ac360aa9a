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
    norm: Annotated[str, choice("Norm of the change of the whole sequence.", ("l2", "linf"), "--norm")] = "l2",
    budget: Annotated[
        str, choice("The radius limits the whole change, or that of every step (l2).", ("total", "step"), "--budget")
    ] = "total",
    epsilon: Annotated[
        float | None, with_default("Decide whether this radius is certified.", "the largest radius that is found")
    ] = None,
    bounds: Annotated[
        tuple[float, float] | None,
        with_default("LOW HIGH: perturbed inputs are clipped to it.", "free", "--bounds", metavar="LOW HIGH"),
    ] = None,
    mask: Annotated[
        Path | None,
        with_default(
            "A .npy or .npz file of (time, features), true or one where an input may change.", "everywhere", "--mask"
        ),
    ] = None,
    time_limit: Annotated[float | None, no_default("Seconds for each proof.", "--time-limit")] = None,
    proofs: Annotated[
        Path | None,
        no_default(
            "Folder for the proofs; `stability verify DIR` checks them. Those of the same network that are there stay, "
            "unless as much is proved about the same input.",
            "--proofs",
        ),
    ] = None,
    unit: Unit = "raw",
    samples: Samples = 100,
    data: DataOptions,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Bound how much each input may change before its class does.

    No change within the proved radius alters the class; the attacked one is that of a change that does.
    """
    from .masks import open_mask

    options: dict[str, Any] = {"norm": norm, "budget": budget, "epsilon": epsilon, "bounds": bounds}
    options |= {"time_limit": check_seconds(time_limit), "seed": compute.seed, "progress": _progress(output)}
    _refuse_misfits(norm, budget, epsilon, bounds)
    if mask is not None:
        open_mask(mask)
    results.claim(context, "radius.json", "radius.csv")
    net, x, y, whole = _opened(model, data, compute, samples)
    if results.out is not None and proofs is not None and results.out.resolve() == proofs.resolve():
        raise ConfigurationError("--out and --proofs name the same folder: the proofs need one of their own")
    import torch

    from ...analysis.attacks.units import in_units
    from ...analysis.radius.local import local_radius

    _refuse_outside(x, bounds)
    options["mask"] = None if mask is None else open_mask(mask, tuple(x.shape[1:]))
    if (scale := scale_of(unit, *whole, None, output)) is not None:
        x = torch.tensor(np.asarray(x, float))
        net, x, options["bounds"], options["mask"] = in_units(net, x, scale.cpu(), options["bounds"], options["mask"])
    merger = None if proofs is None else _proof_merger(context, proofs, net, x, options, results.overwrite)
    result = local_radius(net, x, y, keep=None if merger is None else merger.write, **options)
    output.status()
    text = _text(result) + ("" if merger is None else _proof_lines(merger, proofs))
    text += WORDS[unit]
    document = {**result.to_dict(), "unit": unit}
    if results.out is not None:
        write_json(results.out / "radius.json", document)
        write_text(results.out / "radius.csv", result.frame().to_csv(index=False))
        text += f"\n\nWritten to {results.out / 'radius'}.json and .csv"
    output.show(document, text)


def _opened(name: str, data: DataOptions, compute: Compute, samples: int) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    """Return a model's classifier with its steps, the first inputs, their labels, and the model with all inputs."""
    from ...analysis.guard import as_tensor
    from ...analysis.tasks.archive import labelled_sequences
    from ...models.packed import reading

    task_named(data, compute.data_dir)
    check_device(compute.device)
    archive = None if data.file is None else labelled_sequences(data.file)
    if archive is None or archive[0].dtype.kind != "f" or archive[2]:
        opened = open_with_task(name, data, compute)
        if not opened.task.labels_sequences:
            raise ConfigurationError(f"task {opened.task.name} does not have one class label per sequence")
        x, y = (part[:samples].cpu() for part in opened.task.test)
        return reading(opened.model.cpu(), x), x, y, (opened.model, opened.task.train[0].cpu())
    module, every = open_model(name), archive[0]
    rows, labels = every[:samples], archive[1][:samples]
    net = reading(module, rows)
    if net.subject.inputs != rows.shape[2]:
        hint = f"the data have {rows.shape[2]} features a step, {name} takes {net.subject.inputs}"
        raise DimensionError("x", f"(n, time, {net.subject.inputs})", rows.shape, hint)
    return net, rows, labels, (module, as_tensor(module, every))


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
        raise ConfigurationError("--budget step is for --norm l2: both budgets are the same in l_inf")
    if epsilon is not None:
        check_radius_range("--epsilon", epsilon)
    if bounds is not None and not -math.inf < bounds[0] <= bounds[1] < math.inf:
        raise ConfigurationError(f"--bounds needs finite numbers, LOW <= HIGH, got {bounds[0]:g} {bounds[1]:g}")


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
            f"the data span [{x.min():.4g}, {x.max():.4g}] and exceed --bounds {bounds[0]:g} {bounds[1]:g}: state the "
            "range that inputs are clipped to, or leave it out"
        )


def _progress(output: Output) -> Callable[[str, int, int], None]:
    begun: dict[str, float] = {}

    def show(phase: str, done: int, count: int) -> None:
        took = time.monotonic() - begun.setdefault(phase, time.monotonic())
        output.status(f"{phase}: {done} of {count} inputs{time_left(done, count, took)} ...")

    return show


def _proof_merger(
    context: typer.Context, path: Path, net: Reading, x: Any, options: Mapping[str, Any], overwrite: bool
) -> ProofMerger:
    """Claim the folder of the proofs, and return the writer that loses none of them."""
    from stability.search.local.proof_folder import NETWORK_FILE, sample_file
    from stability.search.local.proof_merging import ProofMerger, ProofQuery

    if path.is_dir():
        refuse_existing_files(path, [NETWORK_FILE, *map(sample_file, range(len(x)))], BY, overwrite)
    folder: Folder = context.with_resource(claim_folder(path, BY))
    query = ProofQuery(np.asarray(x), options["norm"], options["budget"], options["mask"], net.lengths)
    return ProofMerger(folder, BY, net.subject, query, overwrite=overwrite)


def _proof_lines(merger: ProofMerger, proofs: Any) -> str:
    """Return lines about the stored proofs."""
    count, older = merger.count(), merger.count() - len(merger.made)
    lines = ["", "", f"{count} proofs in {proofs}: `stability verify {proofs}` checks them"]
    if older:
        lines.append(f"{older} of them are from earlier runs of the same network")
    if merger.stayed:
        lines.append(
            f"{len(merger.stayed)} of these were kept, since this run proves less about them; --overwrite replaces them"
        )
    if merger.void:
        lines.append(f"{len(merger.void)} replace older files that prove nothing: damaged, or no longer accepted")
    return "\n".join(lines)


def _text(result: LocalRadius) -> str:
    """Return the result as text: a summary of all samples, then one line for each sample."""
    document = result.to_dict()
    n, correct = document["n"], document["correct"]
    period = "of every step" if result.budget == "step" else "over the whole sequence"
    lines = [f"{n} inputs, {correct} classified correctly; {result.norm} radii {period}"]
    if result.masked is not None:
        lines.append(f"only the {result.masked} entries of the mask may change")
    if result.lengths is not None:
        span = f"{result.lengths.min()} to {result.lengths.max()}"
        lines.append(f"packed sequences of {span} steps: their values may change, their number may not")
    if result.unread:
        lines.append(f"{result.unread} not examined: the model answers differently on their packed steps alone")
    if result.epsilon is not None:
        broken = int((result.correct & (result.attack_radius <= result.epsilon)).sum())
        lines.append(
            f"within {number(result.epsilon)}: {document['certified']} certified, {broken} attacked, "
            f"{correct - document['certified'] - broken} open"
        )
    else:
        ratio = result.ratio
        middle = number(float(sorted(ratio)[len(ratio) // 2])) if len(ratio) else number(None)
        lines.append(
            f"median certified radius {at_least(document['median_radius'])}, median attack radius "
            f"{number(document['median_attack'])}, median ratio {middle}; the certified one is "
            f"{number(100 * (document['median_share'] or 0.0))} % of the sequence's norm"
        )
    rows = [
        (str(s["index"]), str(s["label"]), at_least(s["radius"]), _attacked(s), _remark(s))
        for s in document["samples"][:SHOWN]
    ]
    lines += ["", table(("input", "class", "certified", "attacked", ""), rows, right=(0, 1, 2, 3))]
    if n > SHOWN:
        lines.append(f"and {n - SHOWN} more: --json and --out give all")
    return "\n".join(lines)


def _remark(sample: dict[str, Any]) -> str:
    if not sample.get("agrees", True):
        return "not examined"
    return "" if sample["correct"] else "misclassified"


def _attacked(sample: dict[str, Any]) -> str:
    return "none found" if sample["attack_radius"] is None else number(sample["attack_radius"])
