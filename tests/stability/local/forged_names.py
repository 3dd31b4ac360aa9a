"""Proofs of local certificates that are forged: see ``test_forgeries``."""

from __future__ import annotations

NAMES = (
    "a tube", "a tube, masked", "closed from its end", "a budget for each step", "closed, step by step", "midpoint",
    "lstm", "gru", "a stack", "planes", "planes of an lstm", "planes of a gru, masked",
    "planes, clipped", "planes of a stack",
    "zonotopes", "zonotopes of an lstm, masked", "zonotopes, clipped",
    "linear", "linear, masked", "linear, clipped", "linear, clipped steps", "linear in a box",
)  # fmt: skip
