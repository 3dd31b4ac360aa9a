"""Figures of a report: each is drawn inline on its page and written as SVG, PDF, PNG and CSV beside it."""

from __future__ import annotations

from ..stored.collect import Report
from ..stored.facts import ranked
from .accuracy_price import accuracy_price
from .appendix import exponents, hessian, spectra, theorem1
from .figure import Figure
from .norm_drift import norm_drift
from .nyquist import nyquist_curves
from .robustness import robustness, single_inputs
from .step_eigenvalues import step_eigenvalues
from .two_runs import two_runs

__all__ = ["Figure", "appendix", "figures"]
MAIN = (two_runs, accuracy_price, robustness, norm_drift, step_eigenvalues, single_inputs, nyquist_curves)
APPENDIX = {"hessian": hessian, "spectra": spectra, "theorem1": theorem1, "exponents": exponents}


def figures(report: Report) -> tuple[Figure, ...]:
    """Return the main figures of a report, as far as there are data for them, models ranked."""
    models = ranked(report.models)
    return tuple(figure for make in MAIN if (figure := make(models)) is not None)


def appendix(report: Report) -> dict[str, tuple[Figure, ...]]:
    """Return the figures of folded results, by subject, as far as there are data for them."""
    models = ranked(report.models)
    drawn_by_subject = {key: make(models) for key, make in APPENDIX.items()}
    return {key: (figure,) for key, figure in drawn_by_subject.items() if figure is not None}
