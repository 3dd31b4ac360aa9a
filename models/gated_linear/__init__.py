"""Gated linear recurrences: residual blocks whose transition is linear in the state and depends on the input."""
