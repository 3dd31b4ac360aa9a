"""Searches for certified radii: how far one input may move before its class can change."""
