"""Readers of model files that check sizes before they allocate memory."""
