"""All equilibria of a network under a constant input, and proofs that there are no others."""
