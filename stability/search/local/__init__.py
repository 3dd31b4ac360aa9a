"""Searches for certified radii of single inputs."""
