"""Commands ``stability certify`` and ``stability report`` for checkpoints with gated linear layers."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stability.checkpoint_certificate import MARKERS
from stability.errors import ConfigurationError, UnsupportedError

from ..formatting import table
from ..names import printable
from ..stored.reasons import shell_name
from ..vocabulary import verdict_word
from .input_boxes import DATA, checked, read_box
from .options import Output, no_default
from .sources import check_exists

if TYPE_CHECKING:
    from ..gated_layers import CheckpointResults

EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}


@dataclass(frozen=True)
class LayerOptions:
    """Options for gated linear layers."""

    layers: Annotated[str | None, no_default("Numbers of gated linear layers; all by default.", metavar="0,5")] = None
    input_set: Annotated[str | None, no_default("Inputs of gated linear layers: norm, vocabulary, box.")] = None
    step_limits: Annotated[
        bool, typer.Option("--step-limits", help="Limits of Mamba-2's step, as for whole sequences; not for decoding.")
    ] = False
    text: Annotated[
        Path | None, no_default("Text on which a checkpoint's gates and states are measured.", metavar="FILE")
    ] = None
    tokenizer: Annotated[
        Path | None, no_default("tokenizer.json for --text; bytes without it.", metavar="FILE")
    ] = None

    @property
    def names(self) -> str:
        """Names of the options that are given."""
        values = {
            "--layers": self.layers, "--input-set": self.input_set, "--step-limits": self.step_limits,
            "--text": self.text, "--tokenizer": self.tokenizer,
        }  # fmt: skip
        return ", ".join(name for name, value in values.items() if value)


def find_layers(models: Sequence[str], options: LayerOptions, *, search: bool = True) -> Any:
    """Return the gated linear layers of one folder or file, or ``None``, before anything is loaded that takes time.

    Args:
        models: names of the models of the command.
        options: options that only such layers have.
        search: whether the command may be about gated linear layers at all.

    Raises:
        FileFormatError: one model, which is not there.
        ConfigurationError: options for such layers, and other models.
    """
    if len(models) == 1:
        check_exists(models[0])
    found = None
    if search and len(models) == 1 and _may_hold_layers(Path(models[0])):
        from ...models import gated_layers

        found = gated_layers(models[0])
    if options.names and found is None:
        raise ConfigurationError(f"{options.names}: one model with gated linear layers is needed")
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
    path: str, found: Iterable[Any], options: LayerOptions, data: Any, output: Output, box: Any = None
) -> CheckpointResults:
    """Certify the layers of a checkpoint, and measure them where data are given.

    Args:
        path: folder or file.
        found: its layers.
        options: options of the command.
        data: file of ``--data``; ``None`` without.
        output: takes the progress.
        box: two numbers or vectors of ``--input-box``, ``data`` for the range of the data, or ``None``.

    Raises:
        ConfigurationError: options that contradict each other, or a box without data to measure it on.
    """
    from stability.search.gated_linear import certify_checkpoint as prove
    from stability.systems import InputBox

    from ..gated_layers import CheckpointResults

    input_set = options.input_set or ("norm" if box is None else "box")
    if box is not None and input_set != "box":
        raise ConfigurationError("--input-box needs --input-set box")
    stated = box is not None and box is not DATA
    measured, source, reason = _measured(path, options, data, output)
    if input_set == "box" and not stated:
        if not measured:
            why = reason or "give --text FILE, --data FILE or --input-box LOW HIGH"
            raise ConfigurationError(f"the box of the inputs is not known: {why}")
        box = {number: (record.low, record.high) for number, record in measured.items()}
    elif stated and not isinstance(box[0], float):
        box = InputBox(*box)
    output.status(f"certifying {path} ...")
    layers = layer_numbers(options.layers)
    limits = options.step_limits
    certificate = prove(path, stored=found, layers=layers, input_set=input_set, box=box, step_limits=limits)
    output.status()
    return CheckpointResults(path, certificate, getattr(found, "skipped", {}), measured, source, reason)


def layer_box(stated: tuple[float, float] | None, source: str | None) -> Any:
    """Return the box of ``--input-box``: two numbers, two vectors of a file, or ``data``; ``None`` for none."""
    if stated is not None:
        return checked(*stated)
    return None if source is None else DATA if source == DATA else read_box(source)


def _measured(path: str, options: LayerOptions, data: Any, output: Output) -> tuple[dict[int, Any], str, str]:
    """Return measurements by layer, a description of the data, and the reason if there are none though data are given.

    Raises:
        ConfigurationError: two files of data, or a tokenizer without a text.
        FileFormatError: data that cannot be read.
    """
    if options.text is not None and data is not None:
        raise ConfigurationError("--text and --data exclude each other: leave one of them out")
    if options.tokenizer is not None and options.text is None:
        raise ConfigurationError("--tokenizer needs --text FILE")
    if options.text is None and data is None:
        return {}, "", ""
    from ...analysis.gated_layers import measure_checkpoint

    output.status(f"measuring {path} ...")
    try:
        records, source = measure_checkpoint(path, text=options.text, tokenizer=options.tokenizer, data=data)
    except UnsupportedError as error:
        return {}, "", str(error)
    return {record.layer: record for record in records}, source, ""


def show_layers(results: CheckpointResults, out: Path | None, output: Output) -> int:
    """Write the certificate, print a line for each layer of a checkpoint, and return the exit code."""
    if out is not None:
        results.certificate.save(out)
    document = results.document()
    output.show({**document, "certificate": out}, "\n".join(_lines(results, document["layers"], out)))
    return EXIT[str(results.certificate.verdict)]


def _lines(results: CheckpointResults, rows: Sequence[Any], out: Path | None) -> Iterable[str]:
    from ..gated_layers import COLUMNS, MEASURED, headline, measured_cells, proven_cells

    lines = [f"{printable(results.path)}: {headline(results.certificate)}", ""]
    proven = [(str(row["layer"]), row["type"], verdict_word(row["verdict"]), *proven_cells(row)) for row in rows]
    lines += _grid(COLUMNS, proven, 3)
    if seen := [row for row in rows if "measured" in row]:
        lines += ["", f"measured on {printable(results.data)}:", ""]
        lines += _grid(MEASURED, [(str(row["layer"]), *measured_cells(row)) for row in seen], 1)
    notes = [*results.scope(), *results.meanings(), results.not_measured and f"Not measured: {results.not_measured}"]
    if out is not None:
        notes.append(f"check it again: stability verify {shell_name(str(out))} --weights {shell_name(results.path)}")
    wrapped = (textwrap.fill(note, 98, initial_indent="  ", subsequent_indent="    ") for note in notes if note)
    return [*lines, "", *wrapped]


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
