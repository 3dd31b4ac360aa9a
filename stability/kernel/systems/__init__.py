"""Subjects of claims: Lur'e systems, networks with inputs, gated cells, stacks, classifiers."""
