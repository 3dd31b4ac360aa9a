"""What states do over time: norms, exponents, and what theory and proofs allow."""

from .lyapunov import LyapunovSpectrum, certified_bound, lyapunov_exponents
from .norms import NormDrift, norm_drift

__all__ = ["LyapunovSpectrum", "NormDrift", "certified_bound", "lyapunov_exponents", "norm_drift"]
