"""Second opinions in words: the statuses of semidefinite solvers beside the frequency-domain test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .formatting import duration, number, signed
from .vocabulary import NAMES

SHORT = ("criterion", "solver", "status", "margin", "its P", "frequency domain", "agree", "alone", "time")
"""Titles of the columns of ``opinion_cells``."""
NUMERIC = (3, 8)


def opinion_cells(opinion: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of one opinion, one for each of ``SHORT``.

    Args:
        opinion: one of ``cross_check.json``: the fields of ``stability.search.criteria.cross_check.Opinion``.

    Example:
        >>> opinion_cells({"criterion": "circle", "solver": "SCS", "status": "optimal", "says": True, "margin": 0.1,
        ...                "verified": False, "holds": False, "agrees": False, "wrong": True, "seconds": 2})[:8]
        ('circle criterion', 'SCS', 'optimal', '0.1', 'does not', 'fails', 'no', 'wrong')
    """
    name, layer = str(opinion.get("criterion")), opinion.get("layer")
    margin = opinion.get("frequency_margin")
    holds = _word(opinion.get("holds"), "holds", "fails") + (f" {signed(margin)}" if margin is not None else "")
    asked = bool(opinion.get("solver"))
    return (
        f"{NAMES.get(name, name)}{'' if layer is None else f', layer {number(layer)}'}",
        str(opinion.get("solver") or "–"),
        str(opinion.get("status")).partition(":")[0],  # the file has the solver's own words
        number(opinion.get("margin")),
        _word(opinion.get("verified") if opinion.get("says") else None, "satisfies", "does not"),
        holds,
        _word(opinion.get("agrees"), "yes", "no"),
        _word(opinion.get("wrong"), "wrong", "right"),
        duration(opinion.get("seconds")) if asked else "–",
    )


def opinion_count(answers: int, wrong: int) -> str:
    """Count the solver statuses that would have been wrong by themselves.

    Example:
        >>> opinion_count(4, 1), opinion_count(0, 0)
        ('Of 4 statuses that say yes or no, 1 would have been wrong by itself.', 'No solver said yes or no.')
    """
    if not answers:
        return "No solver said yes or no."
    statuses = f"{answers} status that says" if answers == 1 else f"{answers} statuses that say"
    return f"Of {statuses} yes or no, {wrong} would have been wrong by itself."


def _word(value: Any, yes: str, no: str) -> str:
    return "–" if value is None else yes if value else no
