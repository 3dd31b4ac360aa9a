"""Numerical solvers: Riccati equations, the H-infinity norm, multipliers, semidefinite programs."""
