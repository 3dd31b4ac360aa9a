"""Folded table of runs in finite precision: the proved bound beside the states' size and the measured distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..formatting import MISSING, bound, count, number, percent
from ..rounding import covered_steps, part_of_state, run_arithmetic, run_claim
from ..stored.collect import Report
from ..stored.records import ModelRecord
from .parts import Columns, Fold, folded, name_cell, plural, tabulate

WHY = {"certified": "none was computed", "refuted": "not stable, so rounding errors may grow"}
"""Reason for a missing bound by verdict; of others contraction is not proved."""


def runs(report: Report) -> list[Fold]:
    """Return the fold with one row for each network whose run was measured or bounded."""
    models = [m for m in report.models if _measured(m) or run_claim(m.certificate or {})]
    proved = [m for m in models if _value(m) is not None]
    columns: Columns = {
        "network": name_cell,
        "proved bound": lambda m: _proved(m, lambda value: bound(value, 3, up=True)),
        "holds": _scope,
        "largest state": lambda m: number(_measured(m).get("size")),
        "bound / state": lambda m: _proved(m, lambda value: part_of_state(value, _measured(m).get("size"))),
        "measured distance": lambda m: number(_measured(m).get("largest")),
        "bound / measured": lambda m: _proved(m, lambda value: _ratio(value, _measured(m).get("largest"))),
        "no decision changes above a margin of": lambda m: _decision(m, "margin"),
        "test decisions above it": lambda m: _decision(m, "share"),
    }
    steps = {(r.get("sequences"), r.get("steps")) for m in proved if (r := _measured(m))}
    lengths = " or ".join(f"{count(n)} sequences of {count(k)} steps" for n, k in sorted(steps))
    note = (
        "Euclidean distances between states of a run and of the exact network. Proved for every input like the data. "
        f"Measured against float64 in one batch: {lengths}; half of them repeat data, half stay at random corners of "
        "the box of inputs. Networks without a bound are measured on data. The margin of a decision is the difference "
        "of its two largest logits."
    )
    tables = tabulate(f"Runs in {_formats(proved)}", columns, models, words=("holds",), note=note)
    title, summary = "Rounding of runs", f"{plural(len(proved), 'network')} with a proved bound"
    return folded(report, "more-runs", title, summary, tables)


def _measured(model: ModelRecord) -> Mapping[str, Any]:
    return ((model.certificate or {}).get("meta") or {}).get("rounding") or {}


def _value(model: ModelRecord) -> float | None:
    claim = run_claim(model.certificate or {})
    return None if claim is None else claim["value"]


def _proved(model: ModelRecord, show: Any) -> str:
    value = _value(model)
    return MISSING if value is None else show(value) or MISSING


def _ratio(value: float, measured: Any) -> str:
    return number(value / measured) if measured else MISSING


def _decision(model: ModelRecord, name: str) -> str:
    value = (((model.certificate or {}).get("meta") or {}).get("decisions") or {}).get(name)
    if value is None:
        return MISSING
    return percent(value) if name == "share" else bound(value, 3, up=True)


def _scope(model: ModelRecord) -> str:
    """Return the steps for which a bound is proved, or the reason why there is none."""
    claim, why = run_claim(model.certificate or {}), ((model.certificate or {}).get("meta") or {}).get("as_it_runs")
    if claim is not None:
        return covered_steps(claim)
    return f"no bound: {why or WHY.get(str(model.state), 'contraction is not proved')}"


def _formats(models: list[ModelRecord]) -> str:
    names = {run_arithmetic(claim) for m in models if (claim := run_claim(m.certificate or {})) is not None}
    return " or ".join(sorted(names)) or "finite precision"
