"""Dynamics of hidden states: norms, Lyapunov exponents, recovery, and their theoretical bounds."""

from .arithmetic import ArithmeticRun, run_in, state_formats
from .lyapunov import LyapunovSpectrum, certified_bound, lyapunov_exponents
from .norms import NormDrift, norm_drift
from .recovery import MeasuredRecovery, measured_recovery

__all__ = [
    "ArithmeticRun",
    "run_in",
    "state_formats",
    "LyapunovSpectrum",
    "MeasuredRecovery",
    "NormDrift",
    "certified_bound",
    "lyapunov_exponents",
    "measured_recovery",
    "norm_drift",
]
