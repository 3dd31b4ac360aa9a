"""Searches for sets of states that every trajectory enters under inputs in a box."""
