"""Searches for counterexamples to contraction: unstable equilibria and periodic orbits."""
