"""Hessians of losses: products, extreme eigenvalues, trace and spectral density."""

from .density import SpectralDensity, spectral_density
from .hessian import HessianSummary, hessian_summary
from .products import HessianOperator

__all__ = ["HessianOperator", "HessianSummary", "SpectralDensity", "hessian_summary", "spectral_density"]
