"""Certified robustness radii of single decisions."""

from .certified import CertifiedRadius, certified_radius

__all__ = ["CertifiedRadius", "certified_radius"]
