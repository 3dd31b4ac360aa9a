"""Strict readers of the files of a run: documents, tables and certificates."""
