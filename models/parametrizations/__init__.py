"""Parametrizations: maps from free parameters to constrained matrices, and their inverses."""
