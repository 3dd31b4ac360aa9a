"""Simulated trajectories and the input ranges of searches."""
