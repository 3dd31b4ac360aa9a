"""Parametrisations: from free parameters to constrained matrices and back."""
