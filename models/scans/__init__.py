"""Whole sequences at once: prefix scans, linear recurrences, and the unrolled nonlinear one."""
