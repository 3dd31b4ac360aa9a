"""Measure recurrent networks: training, spectra, norms, exponents, curvature, attacks."""

from .attacks import apgd, deepfool, fgsm, pgd
from .density import SpectralDensity, spectral_density
from .hessian import HessianSummary, hessian_summary
from .lyapunov import LyapunovSpectrum, certified_bound, lyapunov_exponents
from .margins import contraction_gap, margin_penalty
from .noise import noise_sweep, parameter_noise_sweep
from .norms import NormDrift, norm_drift
from .outcome import Epoch, Progress, TrainResult
from .presets import PRESETS, preset_model, preset_training, train_preset
from .radius import CertifiedRadius, certified_radius
from .runs import Run, read_run
from .spectra import SpectrumTracker
from .sweep import SweepResult, attack_sweep, over_models
from .tasks import TASKS, Task, make_task, task_from_arrays
from .threat import AttackResult
from .training import evaluate, resume_run, train

__all__ = [
    "PRESETS",
    "TASKS",
    "AttackResult",
    "CertifiedRadius",
    "Epoch",
    "HessianSummary",
    "LyapunovSpectrum",
    "NormDrift",
    "Progress",
    "Run",
    "SpectralDensity",
    "SpectrumTracker",
    "SweepResult",
    "Task",
    "TrainResult",
    "apgd",
    "attack_sweep",
    "certified_bound",
    "certified_radius",
    "contraction_gap",
    "deepfool",
    "evaluate",
    "fgsm",
    "hessian_summary",
    "lyapunov_exponents",
    "make_task",
    "margin_penalty",
    "noise_sweep",
    "norm_drift",
    "over_models",
    "parameter_noise_sweep",
    "pgd",
    "preset_model",
    "preset_training",
    "read_run",
    "resume_run",
    "spectral_density",
    "task_from_arrays",
    "train",
    "train_preset",
]
