"""Conversion of foreign objects (state spaces, reservoirs, modules) to systems."""
