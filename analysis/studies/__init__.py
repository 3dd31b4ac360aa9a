"""Tables and figures of the papers, rerun: ``stability study NAME``."""

from __future__ import annotations

from . import (
    certified,
    factorizations,
    lipschitz,
    lipschitz_robustness,
    lipschitz_spectra,
    orthogonal,
    rotations,
)
from .base import STUDIES, Case, Study, register_study, run_study
from .result import Compared, Figure, StudyResult

__all__ = [
    "STUDIES",
    "Case",
    "Compared",
    "Figure",
    "Study",
    "StudyResult",
    "certified",
    "factorizations",
    "lipschitz",
    "lipschitz_robustness",
    "lipschitz_spectra",
    "orthogonal",
    "register_study",
    "rotations",
    "run_study",
]
