"""One input, one decision: how far the input may move before the class can change."""
