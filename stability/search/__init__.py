"""Untrusted searches for proofs and counterexamples. The kernel checks whatever they find."""
