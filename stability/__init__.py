"""Certify the global stability of recurrent neural networks and measure their robustness.

``certify`` answers with a ``Certificate``; ``verify`` re-proves it without a solver. Models live in
``stability.models``, measurements in ``stability.analysis``, pages and the command line in
``stability.reports``.

Each name is loaded when it is asked for: who certifies matrices does not wait for what searches a gain.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stability.certificate import Certificate, Claim, Finding, Proof, Verdict
    from stability.certify import certify
    from stability.claims.bounded import bounded
    from stability.claims.regional import regional
    from stability.criteria.circle import circle_criterion
    from stability.criteria.kyp import kyp_lmi
    from stability.criteria.multiplier import multiplier_criterion
    from stability.criteria.theorem1 import Theorem1, theorem1
    from stability.errors import (
        ConfigurationError,
        DimensionError,
        FileFormatError,
        IllPosedError,
        NonFiniteError,
        RankError,
        StabilityError,
        UnsupportedError,
    )
    from stability.extremes import StepBound, largest_step, smallest_overshoot
    from stability.gains.gain import Gain
    from stability.gains.lure import incremental_gain
    from stability.gated.cell import GatedCell
    from stability.loop_margin import GainMargin, gain_margin, step_margin
    from stability.loops import LoopComparison, Nyquist, compare_loops, nyquist
    from stability.recovery import Recovery, memory_horizon, recovery_time
    from stability.refute import Refutation, refute
    from stability.solve.hinf import hinf_norm
    from stability.stacks.stack import Cascade, LayerStack
    from stability.systems import DrivenSystem, LureSystem
    from stability.systems.pairwise import PairwiseSystem
    from stability.systems.subjects import register_converter
    from stability.verify import Verification, verify

__version__ = "0.1.0"
_NAMES = {
    "stability.certificate": "Certificate Claim Finding Proof Verdict",
    "stability.certify": "certify",
    "stability.claims.bounded": "bounded",
    "stability.claims.regional": "regional",
    "stability.criteria.circle": "circle_criterion",
    "stability.criteria.kyp": "kyp_lmi",
    "stability.criteria.multiplier": "multiplier_criterion",
    "stability.criteria.theorem1": "Theorem1 theorem1",
    "stability.errors": (
        "ConfigurationError DimensionError FileFormatError IllPosedError NonFiniteError RankError StabilityError "
        "UnsupportedError"
    ),
    "stability.extremes": "StepBound largest_step smallest_overshoot",
    "stability.gains.gain": "Gain",
    "stability.gains.lure": "incremental_gain",
    "stability.gated.cell": "GatedCell",
    "stability.loop_margin": "GainMargin gain_margin step_margin",
    "stability.loops": "LoopComparison Nyquist compare_loops nyquist",
    "stability.recovery": "Recovery memory_horizon recovery_time",
    "stability.refute": "Refutation refute",
    "stability.solve.hinf": "hinf_norm",
    "stability.stacks.stack": "Cascade LayerStack",
    "stability.systems": "DrivenSystem LureSystem",
    "stability.systems.pairwise": "PairwiseSystem",
    "stability.systems.subjects": "register_converter",
    "stability.verify": "Verification verify",
}
"""What is defined where."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [
    # systems
    "LayerStack",
    "DrivenSystem",
    "GatedCell",
    "LureSystem",
    "PairwiseSystem",
    "register_converter",
    # answers
    "Certificate",
    "Claim",
    "Finding",
    "Gain",
    "GainMargin",
    "LoopComparison",
    "Nyquist",
    "Proof",
    "Recovery",
    "Refutation",
    "StepBound",
    "Theorem1",
    "Verdict",
    "Verification",
    # questions
    "bounded",
    "certify",
    "circle_criterion",
    "compare_loops",
    "gain_margin",
    "hinf_norm",
    "incremental_gain",
    "kyp_lmi",
    "largest_step",
    "memory_horizon",
    "nyquist",
    "multiplier_criterion",
    "recovery_time",
    "refute",
    "regional",
    "smallest_overshoot",
    "step_margin",
    "theorem1",
    "verify",
    # errors
    "ConfigurationError",
    "DimensionError",
    "FileFormatError",
    "IllPosedError",
    "NonFiniteError",
    "RankError",
    "StabilityError",
    "UnsupportedError",
    "Cascade",
]


class _Package(ModuleType):
    """The package, some of whose functions have the names of the files that they lie in."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Where the import system binds a file to its name, ``stability.certify`` is the function all the same."""
        if isinstance(value, ModuleType) and name in _HOMES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        submodule = f"{__name__}.{name}"
        try:
            return import_module(submodule)
        except ModuleNotFoundError as error:
            if error.name != submodule:
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
