"""Honesty measured: systems whose answer is known by construction, and proofs made false on purpose."""
