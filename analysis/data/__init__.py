"""Data shipped with the package: MNIST images, spoken digits, a text; each with its license."""
