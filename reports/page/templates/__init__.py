"""Templates, style sheets and script of the pages."""
