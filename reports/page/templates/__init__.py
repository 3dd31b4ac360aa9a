"""The page's template and its style sheet."""
