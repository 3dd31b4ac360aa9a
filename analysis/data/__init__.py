"""The data that ships with the package: MNIST images, spoken digits, a text; each with its licence beside it."""
