"""Model files whose sizes are looked at before anything in them is made."""
