"""Commands ``stability certify`` and ``stability report`` for checkpoints with gated linear layers."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stability.checkpoint_certificate import MARKERS
from stability.errors import ConfigurationError, UnsupportedError

from ..formatting import table
from ..gated_layers import COLUMNS, MEASURED, meanings, measured_cells, proven_cells, scope
from ..names import printable
from ..rounding import rounding_words
from ..stored.reasons import shell_name
from ..vocabulary import verdict_word
from .data import open_with_task
from .input_boxes import DATA, checked, read_box
from .options import Compute, DataOptions, Output, no_default
from .sources import check_exists

if TYPE_CHECKING:
    from ...analysis.checkpoint_results import CheckpointResults

SEQUENCES, BATCH = 64, 8
"""Sequences that are measured at most, and that are run at a time."""
EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}


@dataclass(frozen=True)
class LayerOptions:
    """Options for gated linear layers."""

    layers: Annotated[str | None, no_default("Gated linear layers; all by default.", metavar="0,5")] = None
    input_set: Annotated[str | None, no_default("Inputs of such layers: norm, vocabulary, box.")] = None
    step_limits: Annotated[bool, typer.Option("--step-limits", help="Limits of Mamba-2's step; not for decoding.")] = (
        False
    )
    text: Annotated[Path | None, no_default("Text to measure a checkpoint on.", metavar="FILE")] = None
    tokenizer: Annotated[Path | None, no_default("tokenizer.json for --text; else bytes.", metavar="FILE")] = None

    @property
    def names(self) -> str:
        """Names of the options that are given."""
        return ", ".join(f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name))


def find_layers(models: Sequence[str], options: LayerOptions, *, search: bool = True, trained_here: bool = True) -> Any:
    """Return the gated linear layers of one folder or file, or ``None``, before anything is loaded that takes time.

    Args:
        models: names of the models of the command.
        options: options that only such layers have.
        search: False if the other options exclude gated linear layers.
        trained_here: True if models that this toolkit wrote count.

    Raises:
        FileFormatError: one model, which is not there.
        ConfigurationError: options for such layers, and other models.
    """
    if len(models) == 1:
        check_exists(models[0])
    found = None
    if search and len(models) == 1 and _may_hold_layers(Path(models[0])):
        from ...models.gated_checkpoints import gated_layers, is_own_model

        found = gated_layers(models[0]) if trained_here or not is_own_model(Path(models[0])) else None
    if options.names and found is None:
        raise ConfigurationError(f"{options.names}: name one checkpoint with gated linear layers")
    return found


def _may_hold_layers(path: Path) -> bool:
    """Return False where the names of a file or of its arrays tell that there are none, without loading torch."""
    if path.suffix in (".npz", ".pt", ".pth", ".bin", ".ckpt"):
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                pickles = [archive.read(name) for name in names if name.endswith("/data.pkl")]
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
            return path.suffix != ".npz"
        content = b" ".join([*(name.encode() for name in names), *pickles])
        return any(marker.encode() in content for marker in MARKERS)
    return path.is_dir() or path.suffix == ".safetensors"


def examine(
    path: str,
    stored: Iterable[Any],
    options: LayerOptions,
    data: DataOptions,
    output: Output,
    box: Any = None,
    *,
    arithmetic: str | None = None,
) -> CheckpointResults:
    """Certify the layers of a checkpoint, and measure them where data are given.

    Args:
        path: folder or file.
        stored: its layers.
        options: options of the command.
        data: data of a network that was trained here, or tokens.
        output: takes the progress.
        box: two numbers or vectors of ``--input-box``, ``data`` for the range of the data, or ``None``.
        arithmetic: format of a run, whose distance to the exact layers is bounded; ``None`` for no such claims.

    Raises:
        ConfigurationError: options that contradict each other, or a box without data to measure it on.
        UnsupportedError: a box that must be measured, of a network that cannot be run.
    """
    from stability.search.as_it_runs import as_model
    from stability.search.gated_linear import certify_checkpoint as prove
    from stability.systems import InputBox

    from ...analysis.checkpoint_results import CheckpointResults

    input_set = options.input_set or ("norm" if box is None else "box")
    if box is not None and input_set != "box":
        raise ConfigurationError(f"--input-box is for --input-set box, got {input_set}")
    needed = input_set == "box" and (box is None or box is DATA)
    records, source, reason = (), "", ""
    if needed or options.text or data.file or data.task or options.tokenizer:
        output.status(f"measuring {path} ...")
        records, source, reason = _measured(path, options, data)
    measured: dict[int, Any] = dict(zip((layer.index for layer in stored), records))
    if needed and reason:
        raise UnsupportedError(reason)
    if needed:
        box = {number: (record.low, record.high) for number, record in measured.items()}
    elif box is not None and not isinstance(box[0], float):
        box = InputBox(*box)
    output.status(f"certifying {path} ...")
    asked: Any = {"layers": layer_numbers(options.layers), "step_limits": options.step_limits}
    asked |= {} if arithmetic is None else {"arithmetic": as_model(arithmetic)}
    certificate = prove(path, stored=stored, input_set=input_set, box=box, **asked)
    output.status()
    return CheckpointResults(path, certificate, getattr(stored, "skipped", {}), measured, source, reason)


def layer_box(stated: tuple[float, float] | None, source: str | None) -> Any:
    """Return the box of ``--input-box``: two numbers, two vectors of a file, or ``data``; ``None`` for none."""
    if stated is not None:
        return checked(*stated)
    return None if source is None else DATA if source == DATA else read_box(source)


def _measured(path: str, options: LayerOptions, data: DataOptions) -> tuple[Iterable[Any], str, str]:
    """Return measurements of all layers, a description of the data, and the reason if the network cannot be run.

    Raises:
        ConfigurationError: data of two kinds, or none.
        FileFormatError: data that cannot be read.
        UnsupportedError: a text that cannot be turned into tokens.
    """
    from ...analysis.gated_layers import measure_layers
    from ...models.gated_checkpoints import is_own_model

    text, file = options.text, data.file
    if (text and (file or is_own_model(Path(path)))) or (options.tokenizer and not text):
        raise ConfigurationError("--text is for a language model without --data, and --tokenizer needs --text")
    if is_own_model(Path(path)):
        subject = open_with_task(path, data, Compute())
        network, inputs = subject.model, subject.task.train[0][:SEQUENCES]
        inputs = inputs.to(next(network.parameters()))
        source = f"{len(inputs):,} sequences of {inputs.shape[1]:,} steps of {file or 'the training data'}"
    else:
        from ...analysis.tasks.tokens import read_tokens
        from ...models.checkpoint_network import load_network

        if (read := text or file) is None:
            raise ConfigurationError("name tokens with --text FILE or --data FILE.npz, or set --input-box LOW HIGH")
        try:
            network: Any = load_network(path)
        except UnsupportedError as error:
            return (), "", str(error)
        beside = Path(path) / "tokenizer.json"
        tokenizer = options.tokenizer or (beside if text is not None and beside.is_file() else None)
        inputs = read_tokens(read, network.tokens, tokenizer=tokenizer)[:SEQUENCES]
        source = f"{len(inputs):,} sequences of {inputs.shape[1]:,} tokens of {read}"
    return measure_layers(network, inputs.split(BATCH)), source, ""


def show_layers(results: CheckpointResults, out: Path | None, page: Path | None, output: Output) -> int:
    """Write the certificate unless a page has it, print a line for each layer, and return the exit code."""
    if out is not None and page is None:
        results.certificate.save(out)
    document, certificate = results.document(), results.certificate
    rows, verdict = document["layers"], str(certificate.verdict)
    layers = f"{len(rows)} gated linear layer{'s' * (len(rows) != 1)}"
    lines = [f"{printable(results.path)}: {verdict_word(verdict)} ({layers})", ""]
    proven = [(str(row["layer"]), row["type"], verdict_word(row["verdict"]), *proven_cells(row)) for row in rows]
    lines += _grid(COLUMNS, proven, 3)
    if results.measured:
        lines += ["", f"measured on {printable(results.data)}:", ""]
        lines += _grid(MEASURED, [(str(row["layer"]), *measured_cells(row)) for row in rows], 1)
    notes = [*scope(results), *(f"{term}: {meaning}." for term, meaning in meanings(rows))]
    reasons: Any = certificate.meta.get("as_it_runs", {})
    for layer in certificate.layers:
        claims = [
            {"name": c.name, "verdict": str(c.verdict), "value": c.value, "statement": c.statement}
            for c in layer.claims
        ]
        said = rounding_words({"claims": claims, "meta": {"as_it_runs": reasons.get(str(layer.layer))}})
        notes += [f"layer {layer.layer}: {text}." for text in said]
    notes += [f"Not measured: {results.not_measured}."] * bool(results.not_measured)
    if out is not None:
        notes.append(f"check it again: stability verify {shell_name(str(out))} --weights {shell_name(results.path)}")
    lines += ["", *(textwrap.fill(note, 98, initial_indent="  ", subsequent_indent="    ") for note in notes)]
    lines += [] if page is None else ["", f"Report: {page}"]
    output.show({**document, "certificate": out, "report": page}, "\n".join(lines))
    return EXIT[verdict]


def _grid(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Return the lines of a table with headings of two lines; the first ``words`` columns are aligned to the left."""
    first, second = zip(*columns)
    return table(first, [second, *rows], right=range(words, len(columns))).splitlines()


def layer_numbers(text: str | None) -> list[int] | None:
    """Return the numbers of ``--layers 0,5``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 0,5, got {text!r}", param_hint="--layers") from None
