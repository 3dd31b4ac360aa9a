"""Tables and figures of the papers, rerun: ``stability study NAME``."""

from __future__ import annotations

from . import adding, contracting, linear_recurrences, rotrnn_norms
from .base import STUDIES, Job, Study, StudyResult, keep_part, register_study, run_study

__all__ = [
    "STUDIES",
    "Job",
    "Study",
    "StudyResult",
    "adding",
    "contracting",
    "keep_part",
    "linear_recurrences",
    "register_study",
    "rotrnn_norms",
    "run_study",
]
