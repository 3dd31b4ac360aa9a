"""Searches for incremental gains: bounds of output differences by input differences."""
