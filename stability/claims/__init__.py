"""Makers of claims: what a proof that was found says, accepted by its rule before it is written."""
