"""Certify the global stability of recurrent neural networks and measure their robustness.

``certify`` answers with a ``Certificate``; ``verify`` re-proves it without a solver. Models live in
``stability.models``, measurements in ``stability.analysis``, pages and the command line in
``stability.reports``.
"""

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
from stability.recovery import Recovery, memory_horizon, recovery_time
from stability.refute import Refutation, refute
from stability.solve.hinf import hinf_norm
from stability.stacks.stack import Cascade, LayerStack
from stability.systems import DrivenSystem, LureSystem
from stability.systems.pairwise import PairwiseSystem
from stability.systems.subjects import register_converter
from stability.verify import Verification, verify

__version__ = "0.1.0"

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
    "hinf_norm",
    "incremental_gain",
    "kyp_lmi",
    "largest_step",
    "memory_horizon",
    "multiplier_criterion",
    "recovery_time",
    "refute",
    "regional",
    "smallest_overshoot",
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
