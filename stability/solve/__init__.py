"""What searches for proofs: Riccati equations, the H-infinity norm, multipliers, semidefinite programs."""
