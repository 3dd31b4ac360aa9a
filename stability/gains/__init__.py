"""Incremental gains: how much outputs change when input sequences do."""
