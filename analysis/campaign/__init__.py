"""Several models trained and analysed: steps, files, processes, and the record of how far each has come."""
