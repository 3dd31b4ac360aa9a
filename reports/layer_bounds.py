"""Proved bounds of gated linear layers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.kernel.format.sentences import at_most

from .formatting import count, number

SIZES = {
    "channel": "each entry of the state",
    "mode": "the modulus of each mode of the state",
    "unit": "each state entry, or norm of a head, of every layer",
}
"""Size that a state bound is about, by the unit of a gated linear layer; else the Frobenius norm of a unit."""


def layer_sentence(verdict: str, gated: Mapping[str, Any]) -> str:
    """Return the verdict on a gated linear layer, whose proofs are about bounded states."""
    if verdict == "certified":
        return (
            f"Proved: {state_size(gated['unit'])} stays at most {at_most(gated['state_bound'])}, at every length and "
            "for every input, if it starts there. This does not say that two runs approach each other."
        )
    if verdict == "refuted" and (kept := gated["accumulators"]):
        noun = f"{gated['unit']}{'s' * (len(kept) != 1)}"
        return (
            f"Proved: under every input the decay of {len(kept)} {noun} rounds to 1 in float32: nothing is forgotten."
        )
    if verdict == "refuted":
        return f"Proved: under every input the state of a {gated['unit']} grows without limit."
    return "There is no proof that its state stays bounded, and no counterexample."


def state_size(unit: str) -> str:
    """Return the size of the state that a bound of a gated linear layer is about.

    Example:
        >>> state_size("head")
        'the Frobenius norm of the state of each head'
    """
    return SIZES.get(unit, f"the Frobenius norm of the state of each {unit}")


def bounds_of_layer(gated: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return labels and values of the proved bounds of a gated linear layer.

    Example:
        >>> horizon = {"tol": 0.01, "median": 40, "max": None}
        >>> given = {"unit": "head", "state_bound": 2.0, "gain": None, "decay_max": 0.5, "horizon": horizon}
        >>> for fact in bounds_of_layer(given): print(*fact, sep=": ")
        state bound: 2
        decay per step: at most 0.5
        memory horizon: 40 steps in the median head, no limit proven in the slowest (weight of an input below 0.01)
    """
    facts = [("state bound", at_most(gated["state_bound"]))] if gated["state_bound"] is not None else []
    facts += [("gain", f"{at_most(gated['gain'])} (state to largest input)")] if gated["gain"] is not None else []
    if gated["decay_max"] is None:
        return facts
    facts.append(("decay per step", f"at most {at_most(gated['decay_max'], near=1.0)}"))
    horizon = gated["horizon"]
    median, most = (
        "no limit proven" if horizon[key] is None else f"{count(horizon[key])} steps" for key in ("median", "max")
    )
    words = f"{median} in the median {gated['unit']}, {most} in the slowest" if horizon["median"] else median
    return [*facts, ("memory horizon", f"{words} (weight of an input below {number(horizon['tol'])})")]
