"""Second opinions in words: the statuses of semidefinite solvers beside the frequency-domain test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .formatting import duration, number, signed
from .vocabulary import NAMES

SHORT = ("criterion", "solver", "status", "margin", "checked P", "frequency domain", "agree", "status is", "time")
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
    """Return how many solver statuses were wrong, in words.

    Example:
        >>> opinion_count(4, 1), opinion_count(0, 0)
        ('1 of 4 solver statuses was wrong.', 'No solver gave an answer.')
    """
    if not answers:
        return "No solver gave an answer."
    return f"{wrong} of {answers} solver statuses {'was' if wrong == 1 else 'were'} wrong."


def _word(value: Any, yes: str, no: str) -> str:
    return "–" if value is None else yes if value else no
