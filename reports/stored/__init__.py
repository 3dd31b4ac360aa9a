"""What a run holds, read strictly: documents, tables and certificates."""
