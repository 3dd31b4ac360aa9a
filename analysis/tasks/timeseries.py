"""The UCR and UEA archives of time series, from their ``.ts`` files: one or several features, equal length or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice

from .base import Pair, Task, register_task, task_of
from .folders import check_numbers, chosen, data_folder, labelled, one_form, read_text
from .scores import padded

MAX_BYTES = 512 * 2**20
MAX_CLASSES, MAX_FEATURES = 10_000, 10_000
SCALES = ("train", "none")


@dataclass(frozen=True, eq=False)
class Series:
    """What a ``.ts`` file holds.

    Attributes:
        sequences: each ``(own length, features)`` float64.
        labels: class numbers, or values where ``classes`` is ``None``.
        classes: names of the classes, in the order of the header.
    """

    sequences: list[np.ndarray]
    labels: np.ndarray
    classes: tuple[str, ...] | None


@register_task("ucr")
def ucr(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    problem: str = "",
    scale: str = "train",
    limit: int | None = None,
    test_limit: int | None = None,
) -> Task:
    """A problem of the UCR and UEA archives (Dau et al. 2019, Bagnall et al. 2018), classes or values.

    Sequences of unequal length are padded, and read out at their own last step. Missing values are refused.

    Args:
        data_dir: folder with ``NAME_TRAIN.ts`` and ``NAME_TEST.ts`` (or one with a subfolder ``NAME``).
        seed: of the choice under the limits.
        problem: NAME, where the folder has several.
        scale: ``"train"``: less the mean, divided by the standard deviation, of each feature over the training part;
            ``"none"``: as they are.
        limit: how many training sequences at most.
        test_limit: how many test sequences at most.

    Returns:
        The task: one class, or one value, per sequence.

    Raises:
        ConfigurationError: a bad option, no folder, or several problems to choose from.
        FileFormatError: missing or damaged files, or missing values in them.
    """
    as_choice("scale", scale, SCALES)
    place = data_folder(data_dir, "ucr", "NAME_TRAIN.ts and NAME_TEST.ts", *([problem] if problem else []))
    paths = _paths(place, problem)
    read = [read_ts(path) for path in paths]
    if read[0].classes != read[1].classes or read[0].sequences[0].shape[1] != read[1].sequences[0].shape[1]:
        raise FileFormatError(f"{paths[1]} has other classes or features than {paths[0].name}")
    rng, length = np.random.default_rng(seed), max(len(s) for part in read for s in part.sequences)
    mean, spread = _moments(read[0].sequences) if scale == "train" else (0.0, 1.0)
    parts: list[Pair] = []
    for part, name, most in zip(read, ("limit", "test_limit"), (limit, test_limit)):
        rows = chosen(len(part.sequences), most, name, rng)
        sequences = [((part.sequences[row] - mean) / spread).astype(np.float32) for row in rows]
        if not all(np.isfinite(s).all() for s in sequences):
            raise FileFormatError(f"{place} holds numbers beyond float32: scale='train' brings them near 1")
        parts.append(_part(place, sequences, part.labels[rows], length, part.classes is None))
    parts = list(one_form(*parts)) if read[0].classes is not None else parts
    source = {"source": "folder", "folder": str(place.resolve()), "what": paths[0].name[: -len("_TRAIN.ts")]}
    classed = {} if read[0].classes is None else {"output_size": len(read[0].classes), "classes": read[0].classes}
    return task_of(*parts, data={**source, "seed": seed}, **classed)


def _part(place: Path, sequences: list[np.ndarray], labels: np.ndarray, length: int, values: bool) -> Pair:
    if not values:
        return labelled(place, sequences, labels, length)
    check_numbers(place, len(sequences), length, sequences[0].shape[1])
    if any(len(s) < length for s in sequences):
        raise FileFormatError(f"{place}: a value a sequence is read for sequences of one length only")
    return padded(sequences, length), torch.from_numpy(labels.astype(np.float32))[:, None]


def _moments(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature over all steps; 1 where a feature never changes."""
    steps = np.concatenate(sequences)
    with np.errstate(over="ignore"):
        spread = steps.std(axis=0)
    return steps.mean(axis=0), np.where(spread > 0, spread, 1.0)


def _paths(place: Path, problem: str) -> list[Path]:
    found = sorted(p.name[: -len("_TRAIN.ts")] for p in place.glob("*_TRAIN.ts"))
    if problem and problem not in found:
        raise ConfigurationError(f"{place} has no {problem}_TRAIN.ts; it has {', '.join(found[:20]) or 'none'}")
    if not found:
        raise FileFormatError(f"{place} has no file named NAME_TRAIN.ts")
    if len(found) > 1 and not problem:
        raise ConfigurationError(f"{place} has several problems; choose one with problem=: {', '.join(found[:20])}")
    return [place / f"{problem or found[0]}_{part}.ts" for part in ("TRAIN", "TEST")]


def read_ts(path: Path) -> Series:
    """A ``.ts`` file: lines of ``@name value``, ``@data``, and a sequence a line.

    A line has the features with colons between them, each its values with commas between them, and last the label.

    Args:
        path: the file.

    Returns:
        Its sequences and labels.

    Raises:
        FileFormatError: unreadable, damaged, with time stamps or missing values, or not as its header says.
    """
    lines = [line.strip() for line in read_text(path, MAX_BYTES).splitlines()]
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line and not line.startswith("#")]
    at = next((k for k, (_, line) in enumerate(kept) if line.lower() == "@data"), None)
    if at is None:
        raise FileFormatError(f"{path} is no .ts file: it has no line @data")
    header = _header(path, [line for _, line in kept[:at]])
    classes = _classes(path, header)
    sequences, labels = [], []
    for number, line in kept[at + 1 :]:
        *columns, label = line.split(":")
        sequences.append(_sequence(path, number, columns))
        labels.append(_label(path, number, label.strip(), classes))
    _check_form(path, header, sequences)
    return Series(sequences, np.array(labels), classes)


def _header(path: Path, lines: list[str]) -> dict[str, str]:
    fields = {}
    for line in lines:
        name, _, value = line.partition(" ")
        if not name.startswith("@"):
            raise FileFormatError(f"{path}: the header has the line {line[:60]!r}, which does not begin with @")
        fields[name[1:].lower()] = value.strip()
    if fields.get("timestamps", "false").lower() == "true":
        raise FileFormatError(f"{path} has time stamps; sequences sampled at equal times are read")
    return fields


def _classes(path: Path, header: dict[str, str]) -> tuple[str, ...] | None:
    if header.get("targetlabel", "false").lower() == "true":
        return None
    flag, *names = header.get("classlabel", "").split()[: MAX_CLASSES + 2] or [""]
    if flag.lower() != "true" or not 2 <= len(names) <= MAX_CLASSES or len(set(names)) < len(names):
        raise FileFormatError(f"{path}: the header must say @classLabel true and the names of two classes or more")
    return tuple(names)


def _sequence(path: Path, number: int, columns: list[str]) -> np.ndarray:
    """Features of one line as ``(length, features)``."""
    if not 1 <= len(columns) <= MAX_FEATURES:
        raise FileFormatError(f"{path}: line {number} has {len(columns)} features beside its label")
    rows = [column.split(",") for column in columns]
    if any("?" in value or value.strip().lower() == "nan" for row in rows for value in row):
        raise FileFormatError(f"{path}: line {number} has missing values; fill them in first")
    if len({len(row) for row in rows}) > 1:
        raise FileFormatError(f"{path}: the features of line {number} differ in length")
    try:
        out = np.array(rows, dtype=np.float64).T
    except ValueError as error:
        raise FileFormatError(f"{path}: line {number} holds what is no number") from error
    if not np.isfinite(out).all():
        raise FileFormatError(f"{path}: line {number} holds an infinite number")
    return out


def _label(path: Path, number: int, label: str, classes: tuple[str, ...] | None) -> float | int:
    if classes is not None:
        if label not in classes:
            raise FileFormatError(f"{path}: line {number} has the class {label[:40]!r}, which the header does not name")
        return classes.index(label)
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise FileFormatError(f"{path}: line {number} has the value {label[:40]!r}, which is no number")
    return value


def _check_form(path: Path, header: dict[str, str], sequences: list[np.ndarray]) -> None:
    """What the header says of dimensions and lengths is so; what it does not say is free."""
    if not sequences:
        raise FileFormatError(f"{path} has no sequence")
    features, lengths = {s.shape[1] for s in sequences}, {len(s) for s in sequences}
    if len(features) > 1:
        raise FileFormatError(f"{path}: lines have {sorted(features)[:4]} features, all must have as many")
    said = {"dimensions": features, "dimension": features, "serieslength": lengths}
    if header.get("univariate", "").lower() == "true" and features != {1}:
        raise FileFormatError(f"{path}: @univariate true, but lines have {max(features)} features")
    if header.get("equallength", "").lower() == "true" and len(lengths) > 1:
        raise FileFormatError(f"{path}: @equalLength true, but lengths go from {min(lengths)} to {max(lengths)}")
    for name, found in said.items():
        value = header.get(name, "")
        if not value.isascii() or not value.isdigit() or (found is lengths and len(lengths) > 1):
            continue
        if found != {int(value[:12])}:
            raise FileFormatError(f"{path}: @{name} {value[:12]}, but there are {sorted(found)[:4]}")
