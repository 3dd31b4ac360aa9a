"""Shown: the HTML report, its figures, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .page.html import render

__all__ = ["render"]


def __getattr__(name: str) -> Any:
    """``render`` loads its drawing library when it is asked for: ``stability verify`` starts at once."""
    if name == "render":
        from .page.html import render

        return render
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
