"""Limits of what readers allocate, checked before memory is taken.

Every floor has such a file; ``docs/files.md`` shows them in one table.
"""

from __future__ import annotations

DOCUMENT_BYTES = 512 * 2**20
"""Of a JSON document. Its text, its strings and the arrays decoded from them are in memory at once."""
DOCUMENT_VALUES = 2**20
"""Commas, colons and brackets of a JSON document: each value costs about a hundred bytes, whatever it takes in the
file. Arrays are strings, so that no certificate comes near."""
DEPTH = 64
"""Of nested lists and mappings."""
DIGITS = 40
"""Of an integer."""
CLAIMS = 64
"""Further claims of a certificate: each is proved again."""
NUMBERS = 2**25
"""Of all arrays of a ``.npz``, or of one recurrent part of a state dict: 256 MiB as float64, of which about four copies
live at once."""
MEMBERS = 20_000
"""Of an archive (``.npz``, ``.pt``)."""
