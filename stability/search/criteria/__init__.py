"""Stability criteria: small gain, circle, KYP, multipliers, Schur test, Theorem 1, interval Jacobians."""
