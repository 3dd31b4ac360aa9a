"""The option ``--unit``: sizes of perturbations in the unit of the data, or in each feature's standard deviation."""

from __future__ import annotations

from typing import Annotated, Any

from stability.kernel.checks import as_choice

from .options import Output, choice

_UNITS = ("raw", "std")
Unit = Annotated[str, choice("Unit of sizes: that of the data, or standard deviations.", _UNITS, "--unit")]
WORDS = {
    "raw": "\nSizes are in the unit of the data; with --unit std, in standard deviations of each feature.",
    "std": "\nSizes are in units of each feature's standard deviation.",
}


def scale_of(unit: str, model: Any, x: Any, real_steps: Any, output: Output) -> Any:
    """Return the standard deviation of each feature, ``None`` for the unit of the data; name constant features.

    Args:
        unit: ``raw`` or ``std``.
        model: see ``stability.analysis.attacks.units.deviations``.
        x: all sequences.
        real_steps: steps of each sequence without padding, or ``None``.
        output: output options of the command.
    """
    if as_choice("--unit", unit, _UNITS) == "raw":
        return None
    from ...analysis.attacks.units import constant_words, deviations

    scale = deviations(model, x, real_steps)
    if words := constant_words(scale):
        output.caution(words)
    return scale
