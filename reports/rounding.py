"""Rounding of a run in words: the proved bound beside the size of the states, and the distance that was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stability.kernel.format.sentences import at_most

from .formatting import bound, count, number, percent


def run_claim(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the proved claim about a run in finite precision, or ``None``."""
    claims = summary.get("claims", ())
    return next((c for c in claims if c["name"] == "as_it_runs" and c["verdict"] == "certified"), None)


def run_arithmetic(claim: Mapping[str, Any]) -> str:
    """Return the arithmetic of a claim about a run: its format, and that of the state if it is another."""
    said = re.search(r"run in (\w+) arithmetic \((.*?)\)", str(claim["statement"]))
    state = re.search(r"state in [^,]+", said[2]) if said else None
    return f"{said[1] if said else ''}{f' with the {state[0]}' if state else ''}".strip()


def covered_steps(claim: Mapping[str, Any]) -> str:
    """Return the steps that a claim about a run covers."""
    last = re.search(r"0 <= k <= (\d+)", str(claim["statement"]))
    return "at every step" if last is None else f"in the first {count(int(last[1]))} steps"


def part_of_state(value: float, size: Any) -> str:
    """Return the bound of an error as a share of the size of states, rounded up; empty without a size.

    Example:
        >>> part_of_state(0.0417, 5.9), part_of_state(3.0, 2.0)
        ('0.0071', '1.5')
    """
    return bound(value / size, 2, up=True) if isinstance(size, (int, float)) and size > 0.0 else ""


def rounding_words(summary: Mapping[str, Any]) -> list[str]:
    """Return the bound on the distance of a run to the exact states in words, or the reason why there is none."""
    meta = summary.get("meta") or {}
    claim, why, size = run_claim(summary), meta.get("as_it_runs"), summary.get("run_size")
    if claim is None:
        return [f"no bound for a run, since {why}"] if isinstance(why, str) else []
    scope = "".join(words for said, words in _SCOPES.items() if said in claim["statement"])
    near = f"a run in {run_arithmetic(claim)} stays within {at_most(claim['value'])} of the exact states"
    text = [f"{near} {covered_steps(claim)}{scope or ', for inputs in the box'} (proved)"]
    if size:
        share = part_of_state(claim["value"], size)
        text += [f"norms of states in the proof are at most {at_most(size)}: the bound is {share} times that"]
    margin, share = ((meta.get("decisions") or {}).get(key) for key in ("margin", "share"))
    if isinstance(margin, (int, float)):
        more = f"; {percent(share)} of the test decisions have a larger one" if isinstance(share, (int, float)) else ""
        text += [f"no decision with a margin above {at_most(margin)} changes, with the head of this model{more}"]
    return text


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
