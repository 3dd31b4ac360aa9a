"""``stability verify``: re-check a certificate without a solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Json, Quiet, say, show_json

__all__ = ["register", "verify"]


def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate file.", metavar="CERTIFICATE")],
    method: Annotated[
        str,
        typer.Option(help="float: directed error bounds, any size; exact: rational arithmetic, small systems."),
    ] = "float",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove a certificate's claims again, rounding errors included; exit 0 valid, 1 invalid."""
    from stability.errors import FileFormatError
    from stability.verify import verify as check

    if not certificate.is_file():
        raise FileFormatError(f"there is no file {certificate}; `stability certify MODEL -o {certificate}` writes one")
    result = check(certificate, method=method)
    if as_json:
        checks = [{"claim": c.claim, "verdict": c.verdict, "valid": c.valid, "reason": c.reason} for c in result.checks]
        show_json(
            {
                "certificate": certificate,
                "valid": result.valid,
                "verdict": result.verdict,
                "reason": result.reason,
                "checks": checks,
            }
        )
    else:
        word = "valid" if result.valid else "INVALID"
        verdict = f" ({result.verdict})" if result.verdict else ""
        say(f"{certificate}: {word}{verdict}", quiet)
        say(f"  {result.reason}", quiet)
        for c in result.checks:
            mark = "✓" if c.valid else "✗"
            say(f"  {mark} {c.claim.replace('_', ' ')} {c.verdict}: {c.reason}", quiet)
    raise typer.Exit(0 if result.valid else 1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(verify)
