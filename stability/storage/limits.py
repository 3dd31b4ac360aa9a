"""Limits of the memory that readers allocate, checked in advance.

The layers above have similar files; ``docs/your-model.md`` shows the main limits in one table.
"""

from __future__ import annotations

DOCUMENT_BYTES = 512 * 2**20
"""Most bytes of a JSON document. Its text, its strings and the arrays decoded from them are in memory at once."""
DOCUMENT_VALUES = 2**20
"""Most commas, colons and brackets of a JSON document: each value costs about a hundred bytes of memory. Arrays are
strings, so that no certificate comes near.
"""
DEPTH = 64
"""Most levels of nested lists and mappings."""
DIGITS = 40
"""Most digits of an integer."""
CLAIMS = 64
"""Most further claims of a certificate: each is proved again."""
NUMBERS = 2**25
"""Most numbers in all arrays of a ``.npz``, or of one recurrent part of a state dict: 256 MiB as float64, of which
about four copies exist at once.
"""
MEMBERS = 20_000
"""Most members of an archive (``.npz``, ``.pt``)."""
