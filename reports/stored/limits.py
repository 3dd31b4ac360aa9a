"""Size limits of the files that a page reads; a larger file is named and left out."""

from __future__ import annotations

TABLE_BYTES = 64 * 2**20
"""Largest file of a table; the next two lines are its most rows and columns."""
ROWS = 10**6
COLUMNS = 64
GROUPS = 64
"""Different matrices, attacks, models ... that one table names: each becomes a line or a panel."""
MODELS = 256
"""Most models of a report."""
LETTERS = 500
"""Most letters of a title."""
LARGEST = 1e100
"""Largest number that is drawn; beyond it axes cannot be divided."""
