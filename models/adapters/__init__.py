"""Adapters that read torch modules, state dicts and quantized modules as subjects of claims, with cross-checks."""
