"""Figures as pieces of SVG, drawn from stored tables alone."""
