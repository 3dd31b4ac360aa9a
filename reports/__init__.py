"""HTML report, its figures, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .examine import report
    from .page.html import render

__all__ = ["render", "report"]


def __getattr__(name: str) -> Any:
    """Return a name of the package; its libraries are imported on first use, so that commands start at once."""
    if name == "render":
        from .page.html import render

        return render
    if name == "report":
        from .examine import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
