"""What a page is drawn from at most; beyond that a file is named and left out, never half read."""

from __future__ import annotations

TABLE_BYTES = 64 * 2**20
"""Of a table."""
ROWS = 10**6
COLUMNS = 64
GROUPS = 64
"""Different matrices, attacks, models ... that one table names: each becomes a line or a panel."""
MODELS = 256
"""Of a report."""
LETTERS = 500
"""Of a title."""
LARGEST = 1e100
"""Of a number that is drawn; beyond it axes cannot be divided."""
