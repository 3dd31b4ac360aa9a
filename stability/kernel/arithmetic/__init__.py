"""Arithmetic with proved error bounds: intervals, balls, definiteness, eigenpairs, exact integers."""
