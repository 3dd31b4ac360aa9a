"""Prefix scans and linear recurrences over whole sequences."""
