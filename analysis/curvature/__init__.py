"""Hessians of losses: products, ends of the spectrum, trace and density."""

from .density import SpectralDensity, spectral_density
from .hessian import HessianSummary, hessian_summary
from .products import HessianOperator

__all__ = ["HessianOperator", "HessianSummary", "SpectralDensity", "hessian_summary", "spectral_density"]
