"""Files: atomic writing, locks, the list of a run's files."""
