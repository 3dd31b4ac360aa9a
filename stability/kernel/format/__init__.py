"""Certificate format: serialization, claims, the table of theorems, the sentences of claims."""
