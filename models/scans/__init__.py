"""Whole sequences at once: prefix scans and linear recurrences."""
