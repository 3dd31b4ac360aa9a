"""The page: its sections, drawn from stored results alone."""
