"""Proofs of local certificates that are forged: see ``test_forgeries``."""

from __future__ import annotations

NAMES = (
    "a tube", "a tube, masked", "closed from its end", "a budget for each step", "closed, step by step", "midpoint",
    "lstm", "gru", "a stack", "pieces", "pieces of steps", "planes", "planes of an lstm", "planes of a gru, masked",
    "planes, clipped", "planes of a stack", "hessians", "hessians of a mean, masked", "hessians, clipped",
    "hessians of steps, clipped", "hessians of kinks", "hessians at kinks", "hessians of a box", "least costs",
    "least costs of kinks, masked", "least costs, clipped",
    "least sums", "least sums of kinks, masked", "least sums, clipped", "sums of a box", "ranges", "ranges of steps",
    "cells of a gru, masked", "cells of an lstm, masked", "cells, clipped",
    "zonotopes", "zonotopes of an lstm, masked", "zonotopes, clipped",
    "linear", "linear, masked", "linear, clipped", "linear, clipped steps", "linear in a box",
)  # fmt: skip
