"""Measure recurrent networks: training, spectra, norms, exponents, curvature, attacks."""

from .attacks.apgd import apgd
from .attacks.deepfool import deepfool
from .attacks.gradient import fgsm, pgd
from .attacks.noise import noise_sweep, parameter_noise_sweep
from .attacks.scores import ScoreSweep, attack_scores, noise_scores
from .attacks.sweep import SweepResult, attack_sweep
from .attacks.threat import AttackResult
from .curvature.density import SpectralDensity, spectral_density
from .curvature.hessian import HessianSummary, hessian_summary
from .dynamics.arithmetic import ArithmeticRun, run_in, state_formats
from .dynamics.gated_runs import GatedRun, gated_run
from .dynamics.lyapunov import LyapunovSpectrum, certified_bound, lyapunov_exponents
from .dynamics.norms import NormDrift, norm_drift
from .dynamics.recovery import MeasuredRecovery, measured_recovery
from .dynamics.rounding import RoundingDistance, rounding_distance
from .dynamics.running_bounds import running_bounds
from .floors import FloorRepair, set_floors
from .gated_layers import GatedLayerMeasurement, measure_layers
from .radius.certified import CertifiedRadius, certified_radius
from .radius.local import LocalRadius, local_radius
from .tasks import TASKS, Task, make_task, task_from_arrays
from .training.exponents import finite_time_exponents, lyapunov_penalty
from .training.front import resume_run, train
from .training.margins import contraction_gap, margin_penalty
from .training.measured import evaluate
from .training.outcome import Epoch, Progress, TrainResult
from .training.presets import PRESETS, preset_model, preset_training, train_preset
from .training.readout import Readout, fit_readout
from .training.runs import Run, read_run
from .training.spectra import SpectrumTracker

__all__ = [
    "ArithmeticRun",
    "run_in",
    "running_bounds",
    "state_formats",
    "GatedRun",
    "gated_run",
    "PRESETS",
    "TASKS",
    "AttackResult",
    "CertifiedRadius",
    "Epoch",
    "FloorRepair",
    "GatedLayerMeasurement",
    "HessianSummary",
    "LocalRadius",
    "LyapunovSpectrum",
    "MeasuredRecovery",
    "NormDrift",
    "Progress",
    "Readout",
    "RoundingDistance",
    "Run",
    "ScoreSweep",
    "SpectralDensity",
    "SpectrumTracker",
    "SweepResult",
    "Task",
    "TrainResult",
    "apgd",
    "attack_scores",
    "attack_sweep",
    "certified_bound",
    "certified_radius",
    "contraction_gap",
    "deepfool",
    "evaluate",
    "fgsm",
    "finite_time_exponents",
    "fit_readout",
    "hessian_summary",
    "lyapunov_exponents",
    "local_radius",
    "lyapunov_penalty",
    "make_task",
    "margin_penalty",
    "measure_layers",
    "measured_recovery",
    "noise_scores",
    "noise_sweep",
    "norm_drift",
    "parameter_noise_sweep",
    "pgd",
    "preset_model",
    "preset_training",
    "read_run",
    "resume_run",
    "rounding_distance",
    "set_floors",
    "spectral_density",
    "task_from_arrays",
    "train",
    "train_preset",
]
