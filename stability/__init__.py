"""Certify the global stability of recurrent neural networks and measure their robustness.

``certify`` returns a ``Certificate``; ``verify`` checks its proofs again without a solver. Models are in
``stability.models``, measurements in ``stability.analysis``, pages and the command line in
``stability.reports``.

Each public name is imported on first access, so that ``import stability`` is fast. No module has the name of a public
function, since importing the module would replace the function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stability.certificate import Certificate, Finding
    from stability.certification import certify
    from stability.conversion.feedback import feedback
    from stability.conversion.subjects import register_converter
    from stability.disk_margins import DiskMargin, disk_margin
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
    from stability.feedback_loops import Nyquist, nyquist
    from stability.kernel.format.claims import Claim, Proof, Verdict
    from stability.kernel.systems.driven import DrivenSystem
    from stability.kernel.systems.execution import ExecutionModel
    from stability.kernel.systems.gated_cell import GatedCell
    from stability.kernel.systems.layer_stack import Cascade, LayerStack
    from stability.kernel.systems.lure import LureSystem
    from stability.kernel.systems.pairwise import PairwiseSystem
    from stability.loop_margin import GainMargin, StepBound, gain_margin, largest_step, step_margin
    from stability.recovery import Recovery, memory_horizon, recovery_time
    from stability.search.counterexamples.counterexample_search import refute
    from stability.search.counterexamples.refutation import Refutation
    from stability.search.criteria.circle import kyp_lmi
    from stability.search.criteria.contraction_claim import smallest_overshoot
    from stability.search.criteria.multiplier import multiplier_criterion
    from stability.search.criteria.small_gain import circle_criterion
    from stability.search.criteria.theorem1 import Theorem1, theorem1
    from stability.search.equilibria.enumeration import fixed_points
    from stability.search.equilibria.result import FixedPoint, FixedPoints
    from stability.search.gains.gain import Gain
    from stability.search.gains.lure import incremental_gain
    from stability.search.input_sets.bounded import bounded
    from stability.search.input_sets.regional import regional
    from stability.search.solvers.hinf import hinf_norm
    from stability.verification import Verification, verify

__version__ = "0.1.0"
_NAMES = {
    "stability.certificate": "Certificate Finding",
    "stability.kernel.format.claims": "Claim Proof Verdict",
    "stability.certification": "certify",
    "stability.search.input_sets.bounded": "bounded",
    "stability.search.input_sets.regional": "regional",
    "stability.search.criteria.small_gain": "circle_criterion",
    "stability.search.criteria.contraction_claim": "smallest_overshoot",
    "stability.search.criteria.circle": "kyp_lmi",
    "stability.search.criteria.multiplier": "multiplier_criterion",
    "stability.search.criteria.theorem1": "Theorem1 theorem1",
    "stability.errors": (
        "ConfigurationError DimensionError FileFormatError IllPosedError NonFiniteError RankError StabilityError "
        "UnsupportedError"
    ),
    "stability.search.equilibria.enumeration": "fixed_points",
    "stability.search.equilibria.result": "FixedPoint FixedPoints",
    "stability.search.gains.gain": "Gain",
    "stability.search.gains.lure": "incremental_gain",
    "stability.kernel.systems.gated_cell": "GatedCell",
    "stability.disk_margins": "DiskMargin disk_margin",
    "stability.loop_margin": "GainMargin StepBound gain_margin largest_step step_margin",
    "stability.feedback_loops": "Nyquist nyquist",
    "stability.recovery": "Recovery memory_horizon recovery_time",
    "stability.search.counterexamples.counterexample_search": "refute",
    "stability.search.counterexamples.refutation": "Refutation",
    "stability.search.solvers.hinf": "hinf_norm",
    "stability.kernel.systems.layer_stack": "Cascade LayerStack",
    "stability.kernel.systems.driven": "DrivenSystem",
    "stability.kernel.systems.execution": "ExecutionModel",
    "stability.kernel.systems.lure": "LureSystem",
    "stability.kernel.systems.pairwise": "PairwiseSystem",
    "stability.conversion.feedback": "feedback",
    "stability.conversion.subjects": "register_converter",
    "stability.verification": "Verification verify",
}
"""Public names by the module that defines them."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [
    "Cascade", "DrivenSystem", "GatedCell", "LayerStack", "LureSystem", "PairwiseSystem", "register_converter",
    "Certificate", "Claim", "DiskMargin", "Finding", "Gain", "GainMargin", "Nyquist", "Proof", "Recovery", "Refutation",
    "StepBound", "Theorem1", "Verdict", "Verification",
    "bounded", "certify", "circle_criterion", "disk_margin", "feedback", "gain_margin", "hinf_norm", "incremental_gain",
    "kyp_lmi",
    "largest_step", "memory_horizon", "multiplier_criterion", "nyquist", "recovery_time", "refute", "regional",
    "smallest_overshoot", "step_margin", "theorem1", "verify",
    "ConfigurationError", "DimensionError", "FileFormatError", "IllPosedError", "NonFiniteError", "RankError",
    "StabilityError", "UnsupportedError", "ExecutionModel", "FixedPoint", "FixedPoints", "fixed_points",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        submodule = f"{__name__}.{name}"
        try:
            return import_module(submodule)
        except ModuleNotFoundError as error:
            if error.name != submodule:
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
