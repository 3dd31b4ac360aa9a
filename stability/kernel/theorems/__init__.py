"""Theorems, one file each: the data of its proof, the sentence that it supports, the check.

``stability.kernel.format.theorem_table.RULES`` is the table of all of them.
"""
