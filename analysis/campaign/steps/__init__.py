"""Steps of an analysis that belong to no other room: the certificate, and the performance on the data."""
