"""Command ``stability verify``: re-check a certificate without a solver."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..formatting import at_most, rate, verdict_word
from ..names import claim_name, printable
from .gate import Gate, verify_each
from .options import Output, choice, no_default

if TYPE_CHECKING:
    from stability.verification import Verification

WORDS = {"certified": "proved", "refuted": "disproved", "inconclusive": "undecided"}
"""Verdicts of single claims as the terminal shows them."""


def verify(
    certificates: Annotated[
        list[Path],
        typer.Argument(
            help="Certificate file, folder of certificates, or folder of proofs by `stability radius`.",
            metavar="CERTIFICATE...",
        ),
    ],
    method: Annotated[
        str,
        choice(
            "Arithmetic: floats with error bounds, or rationals.",
            ("float", "exact"),
            "--method",
        ),
    ] = "float",
    weights: Annotated[
        Path | None, no_default("Checkpoint, for a certificate that holds no weights.", metavar="FOLDER")
    ] = None,
    *,
    gate: Gate,
    output: Output,
) -> None:
    """Check certificates and folders of proofs again, without a solver.

    Exit code: 0 valid, 1 invalid or undecided. Several files, --require or --min-rate print one line for each file;
    the exit code is the worst. With a requirement, exit codes are those of `certify` (docs/gate.md).
    """
    from stability.errors import ConfigurationError, FileFormatError
    from stability.search.local.proof_folder import is_proof_folder
    from stability.verification import verify as check

    certificate = certificates[0]
    if gate.is_active or len(certificates) > 1 or (certificate.is_dir() and not is_proof_folder(certificate)):
        raise typer.Exit(verify_each(certificates, method, gate, output))
    if is_proof_folder(certificate):
        if method != "float":
            raise ConfigurationError("--method must be float for a folder of proofs")
        raise typer.Exit(_verify_folder(certificate, output))
    if not certificate.is_file() and certificate.exists():
        raise FileFormatError(f"{certificate} is neither a regular file nor a folder of proofs")
    if not certificate.is_file():
        raise FileFormatError(f"there is no file {certificate}; `stability certify MODEL -o {certificate}` writes one")
    if weights is not None:
        from ...models import gated_layers

        gated_layers(weights)  # registers the reader, and raises the errors of a damaged file
    result = check(certificate, method=method, weights=weights)
    checks = [
        {"claim": c.claim, "verdict": c.verdict, "evidence": c.evidence, "valid": c.valid, "reason": c.reason}
        | {"statement": c.statement if c.valid else ""}
        for c in result.checks
    ]
    fields = ("valid", "verdict", "evidence", "statement", "rate", "overshoot", "subject", "reason")
    document = {"certificate": certificate, **{name: getattr(result, name) for name in fields}, "checks": checks}
    output.show(document, _text(certificate, result))
    raise typer.Exit(0 if result.valid else 1)


def _verify_folder(path: Path, output: Output) -> int:
    """Check a folder of proofs about single inputs; returns the exit code."""
    from stability.search.local.proof_folder import verify_folder

    result = verify_folder(path, lambda done, count: output.status(f"{done} of {count} proofs ..."))
    output.status()
    fields = ("file", "index", "label", "norm", "budget", "masked", "radius", "valid", "reason", "statement")
    samples = [{name: getattr(s, name) for name in fields} for s in result.samples]
    fields_shown = {name: getattr(result, name) for name in ("valid", "reason", "network")}
    document = {"directory": path, **fields_shown, "proved": sum(s.valid for s in result.samples), "samples": samples}
    lines = [f"{printable(path)}: {'valid' if result.valid else 'INVALID'}", f"  {result.reason}"]
    if result.network:
        lines.append(f"  about {result.network}")
    width = min(100, max(40, shutil.get_terminal_size((100, 24)).columns))
    for s in [s for s in result.samples if not s.valid] or result.samples[:1]:  # valid ones say the same of each input
        text = f"{'✓' if s.valid else '✗'} {s.file}: {s.statement if s.valid else s.reason}"
        lines.append(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    "))
    output.show(document, "\n".join(lines))
    return 0 if result.valid else 1


def _text(path: Path, result: Verification) -> str:
    """Format the checker's result: first the claim and its subject, then the evidence."""
    from ..stored.certificates import claims_nothing

    nothing = claims_nothing(result)
    head = f"valid ({verdict_word(result.verdict).lower()})" if result.valid else "undecided" if nothing else "INVALID"
    lines = [f"{printable(path)}: {head}"]
    width = min(100, max(40, shutil.get_terminal_size((100, 24)).columns))
    facts = [("reason", result.reason)]
    if result.valid:
        facts = [
            ("claim", result.statement),
            ("rate", None if result.rate is None else rate(result.rate, result.discrete)),
            ("overshoot", None if result.overshoot is None else at_most(result.overshoot)),
            ("about", result.subject),
        ]
    for name, text in facts:
        if text is not None:
            lines.append(textwrap.fill(f"{name:<11}{text}", width, initial_indent="  ", subsequent_indent=" " * 13))
    names = {c.claim for c in result.checks}
    for c in result.checks:
        mark = "✗" if not c.valid else "✓" if c.evidence == "proved" else "–"
        text = f"{mark} {claim_name(c.claim, names)} {WORDS.get(c.verdict, c.verdict)}: {c.reason}"
        lines.append(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    "))
        if c.valid and c.evidence == "proved" and c.statement != result.statement:
            lines.append(textwrap.fill(c.statement, width, initial_indent="      ", subsequent_indent="      "))
    return "\n".join(lines)
