"""Tables and figures of the papers, rerun: ``stability study NAME``."""

from __future__ import annotations

from . import adding, contracting, linear_recurrences, rotrnn_norms
from .base import STUDIES, Job, Study, Training, keep_part, register_study, run_study
from .result import Compared, Figure, StudyResult

__all__ = [
    "STUDIES",
    "Compared",
    "Figure",
    "Job",
    "Study",
    "StudyResult",
    "Training",
    "adding",
    "contracting",
    "keep_part",
    "linear_recurrences",
    "register_study",
    "rotrnn_norms",
    "run_study",
]
