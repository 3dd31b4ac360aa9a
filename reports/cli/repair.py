"""Command ``stability repair``: set lower limits (floors) of the steps of gated linear layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from stability.errors import ConfigurationError

from ..formatting import number, table
from ..gated_layers import steps
from ..names import printable
from .data import check_device, open_with_task
from .options import Compute, DataOptions, Output, Samples, no_default
from .sources import check_exists, open_model

BATCH = 8
"""Sequences that are run at a time."""
HEADINGS = (
    "layer",
    "type",
    "smallest floor",
    "largest",
    "median horizon",
    "with floors",
    "largest horizon",
    "with floors",
)


def repair(
    model: Annotated[str, typer.Argument(help="Run directory, model file or checkpoint.", metavar="MODEL")],
    *,
    floor: Annotated[float, typer.Option(help="Quantile of the steps on the data that becomes the floor.")] = 0.01,
    text: Annotated[Path | None, no_default("Text for a checkpoint, in place of --data.", metavar="FILE")] = None,
    tokenizer: Annotated[
        Path | None, no_default("File tokenizer.json for --text; else bytes are tokens.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None, no_default("New folder for the model with floors.", "--out", "-o", metavar="DIR")
    ] = None,
    samples: Samples = 64,
    data: DataOptions,
    compute: Compute,
    output: Output,
) -> None:
    """Give the steps of Mamba, Mamba-2 and gated DeltaNet floors, so that every input is forgotten sooner.

    Each channel or head gets the floor max(floor, step), a low quantile of its steps on data. The command prints the
    loss and the certified memory horizon before and after. The floors hold only for programs that apply them.
    """
    if not 0.0 <= floor <= 1.0:
        raise ConfigurationError(f"--floor must be a quantile in [0, 1], got {floor:g}")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"{out} exists and is no empty folder: name another one with --out")
    check_exists(model)
    output.status(f"reading {model} ...")
    from ...models.gated_checkpoints import is_own_model

    if Path(model).exists() and not is_own_model(Path(model)):
        repaired = _checkpoint(model, floor, text or data.file, tokenizer, samples, compute, out)
    else:
        if text is not None or tokenizer is not None:
            raise ConfigurationError("--text and --tokenizer are for checkpoints of language models: use --data")
        repaired = _network(model, floor, samples, data, compute, out)
    output.status()
    output.show({"model": model, "floor": floor, **_document(repaired), "out": out}, _text(model, floor, repaired, out))


def _checkpoint(
    model: str,
    floor: float,
    file: Path | None,
    tokenizer: Path | None,
    samples: int,
    compute: Compute,
    out: Path | None,
) -> Any:
    """Set floors in a language model, and write the checkpoint with them."""
    from ...analysis.floors import next_token_loss, set_floors
    from ...analysis.tasks.tokens import read_tokens
    from ...models.checkpoint_network import load_network
    from ...models.checkpoints.floors import write_floored

    if file is None:
        raise ConfigurationError("name a text with --text FILE, or tokens (n, time) with --data FILE.npz")
    network = load_network(model).to(check_device(compute.device))
    if tokenizer is None and file.suffix != ".npz" and (beside := Path(model) / "tokenizer.json").is_file():
        tokenizer = beside
    tokens = read_tokens(file, network.tokens, tokenizer=tokenizer)[:samples]
    used, held_out = (tokens, tokens) if len(tokens) < 5 else tokens.split([len(tokens) * 4 // 5, -(-len(tokens) // 5)])
    repaired = set_floors(
        network,
        used.split(BATCH),
        lambda network: next_token_loss(network, held_out.split(BATCH)),
        quantile=floor,
    )
    numbers, paths = list(network.paths), list(network.paths.values())
    if out is not None:
        floors = {paths[layer.layer]: layer.floors for layer in repaired.layers}
        write_floored(model, out, floors, floor)
    return replace(repaired, layers=tuple(replace(layer, layer=numbers[layer.layer]) for layer in repaired.layers))


def _network(model: str, floor: float, samples: int, data: DataOptions, compute: Compute, out: Path | None) -> Any:
    """Set floors in a network of this toolkit, and write its file with them."""
    import torch

    from ...analysis import evaluate
    from ...analysis.floors import set_floors
    from ...models import save
    from ...models.gated_linear.block import GatedLinearBlock

    subject = open_with_task(model, data, compute)
    like = next(subject.model.parameters())
    x = subject.task.train[0][:samples].to(like)
    held_out, targets = subject.task.test[0].to(like), subject.task.test[1].to(like.device)
    repaired = set_floors(
        subject.model,
        x.split(BATCH),
        lambda network: evaluate(network, held_out, targets, subject.task)[0],
        quantile=floor,
    )
    if out is not None:
        whole = open_model(model)
        blocks = [part for part in whole.modules() if isinstance(part, GatedLinearBlock)]
        for layer in repaired.layers:
            blocks[layer.layer].set_floors(torch.from_numpy(layer.floors))
        out.mkdir(parents=True, exist_ok=True)
        save(whole, out)
    return repaired


def _ends(horizons: np.ndarray) -> dict[str, int | None]:
    """Return the median and the largest horizon; ``None`` for never."""
    ends = {"median": np.sort(horizons)[len(horizons) // 2], "max": horizons.max()}
    return {name: int(value) if np.isfinite(value) else None for name, value in ends.items()}


def _document(repaired: Any) -> dict[str, Any]:
    layers = [
        {
            "layer": layer.layer,
            "type": layer.type,
            "floor": {"min": layer.floors.min(), "median": np.median(layer.floors), "max": layer.floors.max()},
            "horizon": {"before": _ends(layer.horizons_before), "after": _ends(layer.horizons_after)},
        }
        for layer in repaired.layers
    ]
    loss = {"before": repaired.loss_before, "after": repaired.loss_after}
    return {"loss": loss, "layers": layers}


def _text(model: str, floor: float, repaired: Any, out: Path | None) -> str:
    document = _document(repaired)
    before, after = document["loss"].values()
    rows = [
        (
            str(layer["layer"]),
            layer["type"],
            *(number(layer["floor"][end]) for end in ("min", "max")),
            *(steps(layer["horizon"][when][end]) for end in ("median", "max") for when in ("before", "after")),
        )
        for layer in document["layers"]
    ]
    lines = [
        f"{printable(model)}: floors of the steps, at their {100 * floor:g} % quantile on the data",
        f"loss on data: {before:.6g} before, {after:.6g} after ({after - before:+.2g})",
        "",
        *table(HEADINGS, rows, right=tuple(range(2, len(HEADINGS)))).splitlines(),
        "",
        "  horizon: certified steps until an input weighs less than 0.01, for every input of the norm.",
        "  The floors hold only for a program that computes each step as dt = max(floor, softplus(p)).",
    ]
    if out is None:
        lines.append("  Nothing is written without --out DIR.")
    else:
        lines.append(f"  written to {printable(out)}; certify it: stability certify {printable(out)}")
    return "\n".join(lines)
