"""Recurrences, cells and convolutions with both derivatives written out, and the door that puts them into a model."""
