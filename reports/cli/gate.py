"""Results of many models or certificates: requirements, one line for each, and the worst exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stability.errors import ConfigurationError, FileFormatError, StabilityError

from ..boxes import interval
from ..formatting import at_most, verdict_word
from ..names import cut, printable
from . import console
from .options import Output, no_default
from .outputs import is_certificate

if TYPE_CHECKING:
    from stability.certificate import Certificate

CODES = {"certified": 0, "inconclusive": 1, "refuted": 3}
SEVERITY = (0, 1, 3, 2)
"""Exit codes from best to worst: refuted is worse than inconclusive, and a missing result is the worst."""
MAX_DETAILS = 300  # characters of the details in a line


@dataclass(frozen=True)
class Gate:
    """Requirements that every model must meet to pass."""

    require: Annotated[
        str | None, no_default("Required: proved, or unrefuted (not refuted).", "--require", metavar="VERDICT")
    ] = None
    min_rate: Annotated[
        float | None, no_default("Slowest rate that passes, per step or unit of time.", metavar="RATE")
    ] = None
    allow_box: Annotated[bool, typer.Option("--allow-box", help="Acceptance of a proof for inputs in a box.")] = False

    def __post_init__(self) -> None:
        if self.require not in (None, "proved", "unrefuted"):
            raise ConfigurationError(f"--require must be proved or unrefuted, got {self.require!r}")
        if self.min_rate is not None and not 0.0 < self.min_rate < float("inf"):
            raise ConfigurationError(f"--min-rate must be a positive number, got {self.min_rate!r}")
        if self.require == "unrefuted" and self.min_rate is not None:
            raise ConfigurationError("--min-rate needs a proof and --require unrefuted does not: leave one of them out")

    @property
    def is_active(self) -> bool:
        """Return True if anything is required."""
        return self.require is not None or self.min_rate is not None


@dataclass(frozen=True)
class Line:
    """Result line of one model or certificate.

    Attributes:
        name: model or file, as given on the command line.
        verdict: ``certified``, ``refuted`` or ``inconclusive``; ``error`` if there is no result, ``invalid`` for a
            certificate that does not verify.
        evidence: ``proved`` or ``none``.
        rate: proved rate, or ``None``.
        overshoot: proved overshoot constant, or ``None``.
        code: exit code of this line.
        reason: reason why the model does not pass or has no result; else empty.
        certificate: path of the written certificate, or ``None``.
        inputs: box of inputs for which the claim holds; empty for every input.
    """

    name: str
    verdict: str
    evidence: str = "none"
    rate: float | None = None
    overshoot: float | None = None
    code: int = 2
    reason: str = ""
    certificate: str | None = None
    inputs: str = ""

    def show(self, output: Output) -> None:
        """Print the result as one line of text, or as one JSON object on a line."""
        if output.as_json:
            console.show_json_line(asdict(self))
            return
        rate = (
            "" if self.rate is None else f"rate {self.rate!r}"
        )  # all digits: rounding could claim more than is proved
        overshoot = "" if self.overshoot is None else f"overshoot {at_most(self.overshoot)}"
        verdict = self.verdict if self.verdict in ("error", "invalid") else verdict_word(self.verdict).lower()
        sign = "✓" if self.code == 0 else "✗"
        details = "; ".join(filter(None, (self.inputs and f"inputs in {self.inputs}", self.reason)))
        remark = f"  ({cut(printable(details), MAX_DETAILS)})" if details else ""
        output.show({}, f"{sign} {verdict:<19}{rate:<25}{overshoot:<20}{printable(self.name)}{remark}".rstrip())


def compare_with_gate(
    name: str, result: Mapping[str, Any], certificate: Certificate | None, gate: Gate, file: Path | None = None
) -> Line:
    """Compare a result with the gate and return its line.

    Args:
        name: name of the model or file.
        result: ``verdict``, ``evidence``, ``rate`` and ``overshoot``; ``meta`` where a rate may have been asked for.
        certificate: the certificate, or ``None`` for proofs about single inputs.
        gate: requirements.
        file: the certificate.

    Returns:
        The line, with its exit code.
    """
    verdict, rate = str(result["verdict"]), result["rate"]
    code, reason = CODES[verdict], ""
    if gate.require == "unrefuted" and verdict == "inconclusive":
        code = 0
    missed = result.get("meta", {}).get("asked_rate_reached") is False
    if code == 0 and verdict == "certified" and missed:
        code, reason = 1, "proven stable, but slower than --rate"
    if code == 0 and gate.min_rate is not None:
        discrete = certificate is not None and certificate.subject.is_discrete
        fast = rate is not None and (rate <= gate.min_rate if discrete else rate >= gate.min_rate)
        if not fast:
            code, reason = 1, f"slower than --min-rate {gate.min_rate:g}"
    box, elsewhere = ("", False) if certificate is None else inputs_of(certificate)
    if code == 0 and gate.is_active and elsewhere and not gate.allow_box:
        code, reason = 1, "proven stable in the box only, and not stable for other inputs; --allow-box accepts it"
    certificate_file = None if file is None else str(file)
    return Line(name, verdict, str(result["evidence"]), rate, result["overshoot"], code, reason, certificate_file, box)


def inputs_of(certificate: Certificate) -> tuple[str, bool]:
    """Return the input box of the main claim, and whether stability under every input is refuted as well.

    Args:
        certificate: certificate of any claim.

    Returns:
        The box as text, empty for every input; True if stability under every input is refuted.
    """
    import numpy as np

    from ..stored.certificates import view

    summary, subject = view(certificate), certificate.subject
    first = getattr(subject, "layers", (subject,))[0]
    driven = summary["driven"] or {"low": getattr(first, "input_low", None), "high": getattr(first, "input_high", None)}
    low, high = (None if end is None else np.asarray(end).tolist() for end in (driven["low"], driven["high"]))
    refuted = any(c.name == "contraction" and str(c.verdict) == "refuted" for c in certificate.claims)
    return interval([low, high]), refuted


def certify_each(
    models: Iterable[str],
    answers: Callable[[str], Mapping[str, Certificate]],
    gate: Gate,
    out: Path | None,
    output: Output,
    allow: Callable[[Path], None],
) -> int:
    """Certify many models and print one line for each; an error of one model does not stop the others.

    Args:
        models: their names.
        answers: the certificates of a model by part, ``""`` for the whole.
        gate: requirements.
        out: folder for their certificates.
        output: how lines are printed.
        allow: raises where no certificate may go to a file.

    Returns:
        The worst exit code.

    Raises:
        FileFormatError: the folder cannot be created.
        StabilityError: a certificate would replace a file of another kind; nothing was computed.
    """
    lines: list[Line] = []
    models = list(models)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFormatError(f"cannot create the folder {out}: {error.strerror or error}") from error
        for number, name in enumerate(models):
            allow(out / file_name(number, name, ""))

    def save(certificate: Certificate, number: int, name: str, part: str) -> Path | None:
        if out is None:
            return None
        if part:
            allow(out / file_name(number, name, part))
        return certificate.save(out / file_name(number, name, part))

    for number, name in enumerate(models):
        output.status(f"certifying {name} ...")
        try:
            results = [
                compare_with_gate(f"{name}#{part}" if part else name, c.summary(), c, gate, save(c, number, name, part))
                for part, c in answers(name).items()
            ]
        except (StabilityError, typer.BadParameter) as error:
            results = [Line(name, "error", reason=str(error))]
        output.status()
        for line in results:
            line.show(output)
        lines += results
    return worst(lines)


def file_name(number: int, name: str, part: str) -> str:
    """Return the file name of one of several certificates; the number distinguishes models of equal names.

    >>> file_name(3, "models/a b.npz", "")
    '003-a-b.certificate.json'
    """
    stem = Path(name.rpartition(":")[2] if not Path(name).exists() else name).stem
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in f"{stem}.{part}" if c != "#")
    return f"{number:03d}-{safe.strip('-')[:80] or 'model'}.certificate.json"


def verify_each(paths: Iterable[Path], method: str, gate: Gate, output: Output) -> int:
    """Verify many certificates and folders of proofs; print one line for each.

    Args:
        paths: files and folders.
        method: arithmetic, see ``stability.verify``.
        gate: requirements besides validity.
        output: how lines are printed.

    Returns:
        The worst exit code.
    """
    arguments, lines = list(paths), []
    for one in arguments:
        try:
            files = certificates_in(one)
        except FileFormatError as error:
            if len(arguments) == 1:
                raise
            files, refused = [], Line(str(one), "error", reason=str(error))
            refused.show(output)
            lines.append(refused)
        for path in files:
            output.status(f"{path} ...")
            line = _verified(path, method, gate)
            output.status()
            line.show(output)
            lines.append(line)
    return worst(lines)


def _verified(path: Path, method: str, gate: Gate) -> Line:
    from stability.certificate import Certificate
    from stability.search.local.proof_folder import is_proof_folder, verify_folder
    from stability.verification import verify

    from ..stored.certificates import claims_nothing

    name, certificate = str(path), None
    if not path.exists():
        return Line(name, "error", reason="file not found")
    try:
        nothing = False
        if is_proof_folder(path):
            result = verify_folder(path)
            answer: dict[str, Any] = {"verdict": "certified", "evidence": "proved", "rate": None, "overshoot": None}
        else:
            result = verify(path, method=method)
            answer = {key: getattr(result, key) for key in ("verdict", "evidence", "rate", "overshoot")}
            nothing = claims_nothing(result)
            certificate = Certificate.load(path) if result.valid else None
    except StabilityError as error:
        return Line(name, "error", reason=str(error))
    if not result.valid and not nothing:
        return Line(name, "invalid", code=1, reason=result.reason)
    line = compare_with_gate(name, answer, certificate, gate)
    if nothing:
        return replace(line, reason=result.reason)
    return line if gate.is_active else replace(line, code=0)  # a valid refutation is valid


def certificates_in(path: Path) -> list[Path]:
    """List the certificates of a folder, sorted by name; a file or a folder of proofs counts as one certificate.

    Raises:
        FileFormatError: the folder holds no certificates and no proofs.
    """
    from stability.search.local.proof_folder import is_proof_folder

    if not path.is_dir() or is_proof_folder(path):
        return [path]
    proofs = [p for p in path.rglob("*") if p.is_dir() and is_proof_folder(p)]
    files = [p for p in path.rglob("*.json") if p.parent not in proofs and is_certificate(p)]
    if not proofs and not files:
        raise FileFormatError(
            f"{path} holds neither certificates nor proofs: `stability radius MODEL --proofs DIR` and "
            "`stability certify MODEL ... -o DIR` write them"
        )
    return sorted([*proofs, *files])


def worst(lines: Iterable[Line]) -> int:
    """Return the worst exit code of the lines.

    >>> worst([Line("a", "certified", code=0), Line("b", "refuted", code=3), Line("c", "inconclusive", code=1)])
    3
    """
    return max((line.code for line in lines), key=SEVERITY.index, default=0)
