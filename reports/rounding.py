"""Rounding of a run in words: the proved bound, and the distance that was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stability.kernel.format.sentences import at_most

from .formatting import number


def run_claim(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the proved claim about a run in finite precision, or ``None``."""
    claims = summary.get("claims", ())
    return next((c for c in claims if c["name"] == "as_it_runs" and c["verdict"] == "certified"), None)


def run_arithmetic(claim: Mapping[str, Any]) -> str:
    """Return the arithmetic of a claim about a run: its format, and that of the state if it is another."""
    said = re.search(r"run in (\w+) arithmetic \((.*?)\)", str(claim["statement"]))
    state = re.search(r"state in [^,]+", said[2]) if said else None
    return f"{said[1] if said else ''}{f' with the {state[0]}' if state else ''}".strip()


def rounding_words(summary: Mapping[str, Any]) -> list[str]:
    """Return the bound on the distance of a run to the exact states in words, or the reason why there is none."""
    claim, why = run_claim(summary), summary.get("meta", {}).get("as_it_runs")
    if claim is not None:
        near = at_most(claim["value"])
        said = f"a run in {run_arithmetic(claim)} stays within {near} of the exact states at every step"
        for scope, words in _SCOPES.items():
            said += words if scope in claim["statement"] else ""
        return [f"{said} (proved)"]
    return [f"no bound for a run, since {why}"] if isinstance(why, str) else []


def measured_words(rounding: Mapping[str, Any]) -> list[str]:
    """Return the measured distance between the running network and the certified map."""
    if not all(isinstance(rounding.get(key), (int, float)) for key in ("relative", "steps", "sequences")):
        return []
    kind = rounding["dtype"] if rounding.get("dtype") in _PRECISIONS else "its precision"
    return [
        f"The claim is about exact arithmetic. Measured: a run in {kind} differs from one in float64 by at most "
        f"{number(rounding['relative'])} of the state's size ({rounding['sequences']} sequences of {rounding['steps']} "
        "steps)."
    ]


_SCOPES = {
    " with entr": ", for inputs in the box",
    "every sequence of decays, rates, keys and values": ", for given decays, rates, keys and values",
}
"""Words of a sentence that restrict the claim, and how they are said in short."""
_PRECISIONS = ("float32", "float16", "bfloat16")
