"""Averages over several trainings of each model, with confidence intervals over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd

from stability.certificate import Certificate
from stability.checkpoint_certificate import is_checkpoint_certificate
from stability.storage.artifacts import ANALYSIS_FILE, ARTIFACTS, NUMBER
from stability.storage.documents import file_digest, read_json
from stability.storage.writing import write_text

from ..intervals import over_seeds

TRAININGS_FILE = "trainings.csv"
TRAININGS_COLUMNS = ("model", "what", "group", "at", "mean", "low", "high", "least", "largest", "n")
SHARE = (0.0, 1.0)  # possible range of an accuracy
ANYTHING = (-math.inf, math.inf)


@dataclass(frozen=True)
class _Curve:
    """Table of a run whose values are compared point by point.

    Attributes:
        table: its stem.
        groups: columns whose values name a curve.
        at: the column of the points.
        values: columns of values; where there are several, their names tell the curves apart.
        within: possible range of a value.
    """

    table: str
    groups: tuple[str, ...]
    at: str
    values: tuple[str, ...]
    within: tuple[float, float] = ANYTHING

    def of(self, frame: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
        """Yield name and values of every curve, indexed by its points."""
        if "layer" in frame:  # of a stack its last layer, as it is drawn
            frame = frame.loc[frame["layer"] == frame["layer"].max()]
        parts = cast(Iterable[tuple[Any, Any]], frame.groupby(list(self.groups)) if self.groups else [((), frame)])
        for key, part in parts:
            for value in self.values:
                name = " ".join(map(str, key)) if self.groups else value if len(self.values) > 1 else ""
                yield name, part.drop_duplicates(self.at).set_index(self.at)[value].dropna()


CURVES = (
    _Curve("noise", ("noise",), "level", ("accuracy",), SHARE),
    _Curve("attacks", ("attack", "norm"), "epsilon", ("accuracy",), SHARE),
    _Curve("noise_scores", ("noise", "metric"), "level", ("score",)),
    _Curve("attack_scores", ("attack", "norm", "metric"), "epsilon", ("score",)),
    _Curve("metrics", (), "epoch", ("train_loss", "train_metric", "test_loss", "test_metric")),
    _Curve("norms", (), "t", ("q50",), (0.0, math.inf)),
    _Curve("lyapunov", (), "index", ("per_step",)),
)
"""Tables with the same points in every training."""


def summarise(folder: Path, trainings: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return mean and Student's interval, over the trainings of each model, of every common number and curve.

    Args:
        folder: the report directory.
        trainings: run directories below ``models``, by the model that they are trainings of.

    Returns:
        The columns of ``trainings.csv``: ``what`` is the path of a number (``hessian.lambda_max``), ``margin``, or the
        stem of a table; ``group`` tells curves of a table apart, ``at`` is the point of a curve.
    """
    rows: list[tuple[Any, ...]] = []
    for model, runs in trainings.items():
        measurements = [_measured(folder / "models" / run) for run in runs]
        if len(measurements) > 1:
            _certified(measurements, [folder / "models" / run / "robustness.csv" for run in runs])
        points = [p for p in measurements[0] if all(p in other for other in measurements[1:])] if measurements else []
        for what, group, at in points:
            values = [other[what, group, at] for other in measurements]
            spread = over_seeds([v for v, _ in values], within=values[0][1])
            mean_interval = (spread.mean, spread.low, spread.high)
            mean_interval = (
                (spread.least,) * 3 if spread.least == spread.largest else mean_interval
            )  # not off by a rounding
            rows.append((model, what, group, at, *mean_interval, spread.least, spread.largest, spread.n))
    return pd.DataFrame(rows, columns=list(TRAININGS_COLUMNS))


def write_trainings(folder: Path, trainings: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Write ``trainings.csv`` of a report directory.

    Args:
        folder: the report directory.
        trainings: see ``summarise``.

    Returns:
        For the record: the run directories of each model, and the digest of each one's ``analysis.json``, which tells
        whether the table is about what lies there.
    """
    write_text(folder / TRAININGS_FILE, summarise(folder, trainings).to_csv(index=False))
    runs = [run for each in trainings.values() for run in each]
    digests = {run: file_digest(folder / "models" / run / ANALYSIS_FILE) for run in runs}
    return {"runs": {model: list(each) for model, each in trainings.items()}, "digests": digests}


_Point = tuple[str, str, float | None]
"""Quantity, group, and point of a curve."""


def _measured(folder: Path) -> dict[_Point, tuple[float, tuple[float, float]]]:
    """Return every finite number of one run with its possible range."""
    out: dict[_Point, tuple[float, tuple[float, float]]] = {}
    for artifact in ARTIFACTS:
        path = folder / artifact.name
        if artifact.fields and path.is_file():
            for field, value in _numbers(read_json(path), artifact.fields):
                share = field.endswith("accuracy") or (field, artifact.stem) == ("value", "performance")
                out[f"{artifact.stem}.{field}", "", None] = value, SHARE if share and 0 <= value <= 1 else ANYTHING
    for curve in CURVES:
        if (folder / f"{curve.table}.csv").is_file():
            for group, values in curve.of(pd.read_csv(folder / f"{curve.table}.csv")):
                finite = ((float(at), float(v)) for at, v in values.items() if math.isfinite(v))  # type: ignore[arg-type]
                out.update({(curve.table, group, at): (value, curve.within) for at, value in finite})
    path = folder / "certificate.json"
    if path.is_file() and not is_checkpoint_certificate(path):  # whose layers have no margins
        for finding in Certificate.load(path).findings:
            if finding.margin is not None and math.isfinite(finding.margin):
                out.setdefault(("margin", finding.criterion, None), (float(finding.margin), ANYTHING))
    return out


def _certified(runs: list[dict[_Point, tuple[float, tuple[float, float]]]], paths: list[Path]) -> None:
    """Add the certified accuracy of every run at the radii of the first, rounded down to the run's next own radius."""
    if not all(path.is_file() for path in paths):
        return
    frames = [pd.read_csv(path) for path in paths]
    for radius in frames[0]["radius"]:
        for out, frame in zip(runs, frames):
            beyond = frame.loc[frame["radius"] >= radius, "certified_accuracy"]
            share = float(beyond.max()) if len(beyond) else 0.0
            out["robustness", "", float(radius)] = share, SHARE


def _numbers(document: Any, shape: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a document and their paths, as its description lists them."""
    for name, inner in shape.items() if isinstance(document, Mapping) else ():
        value = document.get(name)
        if isinstance(inner, Mapping):
            yield from _numbers(value, inner, f"{path}{name}.")
        elif inner == NUMBER and isinstance(value, (int, float)) and math.isfinite(value):
            yield f"{path}{name}", float(value)
