"""Simulated trajectories and the input ranges that searches draw from."""
