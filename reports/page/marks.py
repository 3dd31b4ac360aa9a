"""Every number that is a result carries one of three marks; sizes, settings and times are given and carry none."""

from __future__ import annotations

PROVED, MEASURED, HEURISTIC = "proved", "measured", "heuristic"

MARKS = {
    PROVED: (
        "stands in a certificate that the checker proved again when this page was drawn, rounding errors included; of "
        "single inputs, the checker accepted the proof when a radius was computed, and the number alone is kept"
    ),
    MEASURED: (
        "was observed on so many samples, in floating-point arithmetic: n and how it was done stand beside it; other "
        "samples give other numbers"
    ),
    HEURISTIC: (
        "was computed in floating-point arithmetic without bounding its rounding errors, or decides nothing by itself: "
        "margins of criteria, eigenvalues of a matrix, a solver's status"
    ),
}
"""The marks, and what each says."""

MARK_OF = {
    **dict.fromkeys(("drift", "exponents", "growth", "recovery", "hessian", "local", "performance", "run"), MEASURED),
    "radius": HEURISTIC,
    "cross_check": HEURISTIC,
}
"""Marks of the numbers in a run's documents, where a column says nothing else."""
