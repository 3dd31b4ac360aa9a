"""Command line entry point of ``python -m stability``."""

from stability.reports.cli import main

if __name__ == "__main__":
    main()
