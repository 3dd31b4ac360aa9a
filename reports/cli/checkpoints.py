"""Output of ``stability certify`` and ``stability verify`` for checkpoints with gated linear layers."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import table
from ..names import printable
from ..vocabulary import verdict_word
from .options import Output
from .sources import check_exists

if TYPE_CHECKING:
    from stability.checkpoint_certificate import CheckpointCertificate

EXIT = {"certified": 0, "inconclusive": 1, "refuted": 3}
HEADINGS = ("layer", "type", "verdict", "state bound", "gain", "decay", "horizon, median", "largest", "accumulators")


def layer_numbers(text: str | None) -> list[int] | None:
    """Return the numbers of ``--layers 0,5``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 0,5, got {text!r}", param_hint="--layers") from None


def is_checkpoint(models: Sequence[str], cell: str | None, *, has_options: bool) -> bool:
    """Return True for one folder or file with gated linear layers, before anything is loaded that takes time.

    Raises:
        FileFormatError: one model, which is not there.
        ConfigurationError: options for such layers, and other models.
    """
    if len(models) == 1:
        check_exists(models[0])
    found = len(models) == 1 and cell is None and _may_hold_layers(Path(models[0]))
    if found:
        from ...models import gated_layers

        found = gated_layers(models[0]) is not None
    if has_options and not found:
        raise ConfigurationError("--layers and --input-set need one model with gated linear layers")
    return found


def _may_hold_layers(path: Path) -> bool:
    """Return False where the name of a file or of its arrays tells that there are none, without loading torch."""
    if path.suffix != ".npz":
        return path.is_dir() or path.suffix in (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
    try:
        names = " ".join(zipfile.ZipFile(path).namelist())
    except (OSError, zipfile.BadZipFile):
        return False
    return any(marker in names for marker in ("A_log", "nu_log", "Lambda_re", "log_A_real", "rg_lru", "hidden_and"))


def certify_checkpoint(path: str, layers: str | None, input_set: str, out: Path | None, output: Output) -> int:
    """Certify the layers of a checkpoint, print one line for each, write the file, and return the exit code."""
    from stability.search.gated_linear import certify_checkpoint as prove

    output.status(f"certifying {path} ...")
    certificate = prove(path, layers=layer_numbers(layers), input_set=input_set)
    output.status()
    if out is not None:
        certificate.save(out)
    output.show({"model": path, **certificate.summary(), "certificate": out}, "\n".join(_lines(path, certificate, out)))
    return EXIT[str(certificate.verdict)]


def _lines(path: str, certificate: CheckpointCertificate, out: Path | None) -> Sequence[str]:
    records = [layer.summary() for layer in certificate.layers]
    inputs = {"norm": "every input of the norm in front of a layer", "vocabulary": "every sequence of tokens"}
    count = len(records)
    head = (
        f"{printable(path)}: {verdict_word(str(certificate.verdict))} ({count} gated linear layer{'s' * (count != 1)})"
    )
    grid = table(HEADINGS, [_row(record) for record in records], right=tuple(range(3, len(HEADINGS))))
    tol = records[0]["horizon"]["tol"]
    notes = [
        f"For {inputs[certificate.layers[0].input_set]}, at every length, in exact arithmetic with the stored weights.",
        "Stable means here that the state stays within its bound.",
        "state bound: largest state entry, or largest Frobenius norm of a head's state.",
        "gain: largest change of a state, divided by the largest change of an input in one step.",
        "decay: factor of the state per step in the slowest unit (channel, mode or head).",
        f"horizon: steps until the weight of an input is below {tol:g}, in the median and in the slowest unit.",
        "accumulators: units whose decay rounds to 1 in float32 under every input.",
    ]
    if out is not None:
        notes.append(f"Check it again: stability verify {printable(out)} --weights {printable(path)}")
    return [head, "", *grid.splitlines(), "", *(f"  {note}" for note in notes)]


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    def steps(value: int | None) -> str:
        return "never" if value is None else f"{value:,}" if value < 10**6 else f"{value:.1e}"

    decay = record["decay_max"]
    horizon = record["horizon"]
    return (
        str(record["layer"]),
        record["type"],
        verdict_word(record["verdict"]),
        number(record["state_bound"]),
        number(record["gain"]),
        "-" if decay is None else f"1 - {1.0 - decay:.1e}" if 0.999 < decay < 1.0 else f"{decay:.4g}",
        *("-" if decay is None else steps(horizon[key]) for key in ("median", "max")),
        str(len(record["accumulators"])),
    )
