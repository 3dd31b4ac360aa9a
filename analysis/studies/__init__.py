"""Tables and figures of the papers, rerun: ``stability study NAME``."""

from __future__ import annotations

from . import (
    adding,
    certified_robustness,
    contracting,
    errata,
    linear_recurrences,
    long_sequences,
    lrnn_ablation,
    lrnn_certified,
    lrnn_pendulum,
    lrnn_pixels,
    lrnn_robustness,
    lrnn_spectra,
    norm_drift,
    orthogonal_characters,
    orthogonal_copying,
    orthogonal_generation,
    orthogonal_pixels,
    qr_gradients,
    rotrnn_norms,
    speech_frames,
)
from .base import STUDIES, Job, Study, Training, register_study, run_study
from .parts import Part, keep_part
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
    "certified_robustness",
    "contracting",
    "errata",
    "Part",
    "keep_part",
    "linear_recurrences",
    "long_sequences",
    "lrnn_ablation",
    "lrnn_certified",
    "lrnn_pendulum",
    "lrnn_pixels",
    "lrnn_robustness",
    "lrnn_spectra",
    "norm_drift",
    "orthogonal_characters",
    "orthogonal_copying",
    "orthogonal_generation",
    "orthogonal_pixels",
    "qr_gradients",
    "register_study",
    "rotrnn_norms",
    "run_study",
    "speech_frames",
]
