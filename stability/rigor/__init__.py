"""Numbers with their errors: intervals, balls, definiteness, eigenvalues, equilibria; and exact arithmetic."""
