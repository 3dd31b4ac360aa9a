"""Untrusted searches for proofs and counterexamples, whose results the kernel checks."""
