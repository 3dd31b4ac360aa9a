"""Requirements on many models or certificates: one result line each, and the worst exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stability.errors import ConfigurationError, FileFormatError, StabilityError

from ..boxes import interval
from ..names import cut, printable
from . import console
from .options import Output, no_default
from .outputs import is_certificate

if TYPE_CHECKING:
    from stability.certificate import Certificate

CODES = {"certified": 0, "inconclusive": 1, "refuted": 3}
SEVERITY = (0, 1, 3, 2)
"""Exit codes from best to worst: refuted is worse than inconclusive, no answer is worse than any."""
LONGEST = 300


@dataclass(frozen=True)
class Gate:
    """Requirements that every model must reach to pass."""

    require: Annotated[
        str | None,
        no_default(
            "Verdict that every model must reach: proved (certified) or unrefuted (certified or inconclusive).",
            "--require",
        ),
    ] = None
    min_rate: Annotated[
        float | None,
        no_default(
            "Required rate of every proof: at most this per step; for a flow at least this.",
            "--min-rate",
        ),
    ] = None

    allow_box: Annotated[
        bool,
        typer.Option(
            "--allow-box", help="Let a proof for inputs in a box pass where stability under every input is refuted."
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.require not in (None, "proved", "unrefuted"):
            raise ConfigurationError(f"--require takes proved or unrefuted, got {self.require!r}")
        if self.min_rate is not None and not 0.0 < self.min_rate < float("inf"):
            raise ConfigurationError(f"--min-rate must be a positive number, got {self.min_rate!r}")
        if self.require == "unrefuted" and self.min_rate is not None:
            raise ConfigurationError("--min-rate asks for a proof, --require unrefuted for none: leave one out")

    @property
    def is_active(self) -> bool:
        """Return True if anything is required."""
        return self.require is not None or self.min_rate is not None


@dataclass(frozen=True)
class Line:
    """Result line of one model or certificate.

    Attributes:
        name: as it was given.
        verdict: ``certified``, ``refuted`` or ``inconclusive``; ``error`` where there is no answer, ``invalid`` for a
            certificate that is none.
        evidence: ``proved`` or ``none``.
        rate: proved, or ``None``.
        overshoot: its constant.
        code: exit code of this one.
        reason: why it does not pass, or why there is no answer; else empty.
        certificate: the file, where one was written.
        inputs: box of the inputs that the claim is about; empty for every input.
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
        """Print it: one line of text, or one JSON object on a line."""
        if output.as_json:
            console.show_json_line(asdict(self))
            return
        rate = "" if self.rate is None else f"rate {self.rate!r}"  # all digits: it says no more than is proved
        overshoot = "" if self.overshoot is None else f"C {self.overshoot!r}"
        sign = "✓" if self.code == 0 else "✗"
        remarks = "; ".join(filter(None, (self.inputs and f"inputs in {self.inputs}", self.reason)))
        why = f"  ({cut(printable(remarks), LONGEST)})" if remarks else ""
        output.show({}, f"{sign} {self.verdict:<13}{rate:<27}{overshoot:<23}{printable(self.name)}{why}".rstrip())


def gate_line(
    name: str, answer: Mapping[str, Any], certificate: Certificate | None, gate: Gate, file: Path | None = None
) -> Line:
    """Compare an answer with the requirements and return its line.

    Args:
        name: name of the model or file.
        answer: ``verdict``, ``evidence``, ``rate`` and ``overshoot``; ``meta`` where a rate may have been asked for.
        certificate: the certificate, or ``None`` for proofs about single inputs.
        gate: requirements.
        file: the certificate.

    Returns:
        The line, with its exit code.
    """
    verdict, rate = str(answer["verdict"]), answer["rate"]
    code, reason = CODES[verdict], ""
    if gate.require == "unrefuted" and verdict == "inconclusive":
        code = 0
    rate_missed = answer.get("meta", {}).get("asked_rate_reached") is False
    if code == 0 and verdict == "certified" and rate_missed:
        code, reason = 1, "certified, but not at the requested rate"
    if code == 0 and gate.min_rate is not None:
        discrete = certificate is not None and certificate.subject.is_discrete
        fast = rate is not None and (rate <= gate.min_rate if discrete else rate >= gate.min_rate)
        if not fast:
            code, reason = 1, f"slower than the required rate {gate.min_rate:g}"
    box, elsewhere = ("", False) if certificate is None else inputs_of(certificate)
    if code == 0 and gate.is_active and elsewhere and not gate.allow_box:
        code, reason = 1, "not stable for every input; --allow-box accepts the proof for this box"
    path = None if file is None else str(file)
    return Line(name, verdict, str(answer["evidence"]), rate, answer["overshoot"], code, reason, path, box)


def inputs_of(certificate: Certificate) -> tuple[str, bool]:
    """Return the input box of the main claim, and whether stability under every input is refuted as well.

    Args:
        certificate: any.

    Returns:
        The box in words, empty for every input.
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
    """Certify many models, with one line each; the others continue if one fails.

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
        FileFormatError: the folder cannot be made.
        StabilityError: a certificate would replace what is not to be lost; nothing was computed.
    """
    lines: list[Line] = []
    models = list(models)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFormatError(f"cannot make the folder {out}: {error.strerror or error}") from error
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
            model_lines = [
                gate_line(f"{name}#{part}" if part else name, c.summary(), c, gate, save(c, number, name, part))
                for part, c in answers(name).items()
            ]
        except (StabilityError, typer.BadParameter) as error:
            model_lines = [Line(name, "error", reason=str(error))]
        output.status()
        for line in model_lines:
            line.show(output)
        lines += model_lines
    return worst(lines)


def file_name(number: int, name: str, part: str) -> str:
    """Return the file name of a certificate among many; the model's number keeps equal names apart.

    >>> file_name(3, "models/a b.npz", "")
    '003-a-b.certificate.json'
    """
    stem = Path(name.rpartition(":")[2] if not Path(name).exists() else name).stem
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in f"{stem}.{part}" if c != "#")
    return f"{number:03d}-{safe.strip('-')[:80] or 'model'}.certificate.json"


def verify_each(paths: Iterable[Path], method: str, gate: Gate, output: Output) -> int:
    """Check many certificates and folders of proofs again, with one line each.

    Args:
        paths: files and folders.
        method: arithmetic, see ``stability.verify``.
        gate: requirements besides validity.
        output: how lines are printed.

    Returns:
        The worst exit code.
    """
    path_list, lines = list(paths), []
    for one in path_list:
        try:
            files = certificates_in(one)
        except FileFormatError as error:
            if len(path_list) == 1:
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
        return Line(name, "error", reason="there is no such file")
    try:
        is_empty = False
        if is_proof_folder(path):
            result = verify_folder(path)
            fields: dict[str, Any] = {"verdict": "certified", "evidence": "proved", "rate": None, "overshoot": None}
        else:
            result = verify(path, method=method)
            fields = {key: getattr(result, key) for key in ("verdict", "evidence", "rate", "overshoot")}
            is_empty = claims_nothing(result)
            certificate = Certificate.load(path) if result.valid else None
    except StabilityError as error:
        return Line(name, "error", reason=str(error))
    if not result.valid and not is_empty:
        return Line(name, "invalid", code=1, reason=result.reason)
    line = gate_line(name, fields, certificate, gate)
    if is_empty:
        return replace(line, reason=result.reason)
    return line if gate.is_active else replace(line, code=0)  # a valid refutation is valid


def certificates_in(path: Path) -> list[Path]:
    """List the certificates of a folder, sorted by name; a file or a folder of proofs counts as one certificate.

    Raises:
        FileFormatError: a folder without any.
    """
    from stability.search.local.proof_folder import is_proof_folder

    if not path.is_dir() or is_proof_folder(path):
        return [path]
    proofs = [p for p in path.rglob("*") if p.is_dir() and is_proof_folder(p)]
    files = [p for p in path.rglob("*.json") if p.parent not in proofs and is_certificate(p)]
    if not proofs and not files:
        raise FileFormatError(
            f"{path} is a folder without a network.json or certificates: `stability radius MODEL --proofs DIR` and "
            "`stability certify MODEL ... -o DIR` write them"
        )
    return sorted([*proofs, *files])


def worst(lines: Iterable[Line]) -> int:
    """Return the worst exit code of the lines.

    >>> worst([Line("a", "certified", code=0), Line("b", "refuted", code=3), Line("c", "inconclusive", code=1)])
    3
    """
    return max((line.code for line in lines), key=SEVERITY.index, default=0)
