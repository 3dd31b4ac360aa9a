"""Bounds and measurements of gated linear layers in words: tables, their headings, and the scope of the claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .formatting import MISSING, bound, count, number

if TYPE_CHECKING:
    from ..analysis.checkpoint_results import CheckpointResults

INPUTS = {
    "norm": "every input of the norm in front of a layer",
    "vocabulary": "every sequence of tokens",
    "box": "all inputs of a layer that stay in its box; nothing is claimed about other inputs",
}
"""Inputs of the claims, by input set."""
COLUMNS = (
    ("", "layer"), ("", "type"), ("", "verdict"), ("state", "bound"), ("", "gain"), ("median", "horizon"),
    ("worst", "horizon"), ("no", "limit"), ("accumu-", "lators"),
)  # fmt: skip
"""Headings of the proven numbers of a layer, in two lines."""
MEASURED = (
    ("", "layer"), ("largest", "state"), ("bound /", "measured"), ("median", "horizon"), ("worst", "horizon"),
)  # fmt: skip
"""Headings of the measured numbers of a layer."""


def scope(results: CheckpointResults) -> list[str]:
    """Return sentences that say for which inputs and which run the claims hold."""
    first = results.certificate.layers[0]
    inputs = INPUTS[first.input_set]
    limits = (
        "The limits of Mamba-2's step in config.json are applied. transformers and mamba_ssm apply them to whole "
        "sequences, not when they decode token by token: the claims do not hold for decoding."
    )
    text = f"Claims hold at every length, in exact arithmetic with the stored weights, for {inputs}."
    return [text, *([limits] if first.step_limits else [])]


def meanings(rows: list[Any]) -> list[tuple[str, str]]:
    """Return the columns of the tables of these layers with their meanings."""
    found = [
        ("unit", "a channel, a mode or a head"),
        ("state bound", "largest state entry of a channel or mode, or Frobenius norm of a head's state"),
        ("gain", "largest change of a unit's state per largest change of the input in one step"),
        ("horizon", f"steps until an input weighs less than {rows[0]['horizon']['tol']:g}, median and worst unit"),
        ("no limit", "number of units without a finite proven horizon"),
        ("accumulators", "number of units that forget nothing in float32, whatever the input"),
    ]
    if any("measured" in row for row in rows):
        found.append(("bound / measured", "proven state bound over largest measured state, in the median unit"))
        found.append(("measured horizon", "largest on the data; at most a sequence's length plus the convolution's"))
    return found


def steps(value: int | None) -> str:
    """Format a horizon in steps; ``never`` for none."""
    return "never" if value is None else count(value) if value < 10**6 else bound(value, 2, up=True)


def proven_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS`` behind the verdict for a layer of the JSON object."""
    sizes = [bound(row[key], 4, up=True) for key in ("state_bound", "gain")]
    memory = [*(steps(row["horizon"][key]) for key in ("median", "max")), count(row["never"])]
    return (*sizes, *([MISSING] * 3 if row["decay_max"] is None else memory), str(len(row["accumulators"])))


def measured_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``MEASURED`` behind the layer's number for a layer of the JSON object."""
    if (found := row.get("measured")) is None:
        return (MISSING,) * (len(MEASURED) - 1)
    ratio = number((found["ratio"] or {}).get("median"))
    return (number(found["state"], 4), ratio, *(steps(found["horizon"][key]) for key in ("median", "max")))
