"""What a question about stability is answered with: a verdict, its evidence, and a file that keeps both.

A ``Certificate`` holds everything that is needed to check it again: the system's matrices to the last bit,
the claim in words, the proof's witness. Nothing here proves anything; ``stability.verify`` does.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.documents import read_document
from stability.storage.limits import CLAIMS
from stability.storage.writing import write_text
from stability.wire import decode, encode, is_sealed, seal

__all__ = ["FORMAT", "VERSION", "Certificate", "Claim", "Evidence", "Finding", "Proof", "Verdict", "plain"]

FORMAT = "stability-certificate"
VERSION = 2
_KEYS = {
    "file": (
        *("format", "version", "subject", "claim", "criterion", "rate", "overshoot", "findings", "claims", "meta"),
        "digest",
    ),
    "claim": ("name", "statement", "verdict", "evidence", "proof", "value"),
    "proof": ("kind", "data"),
    "finding": ("criterion", "holds", "margin", "rate", "detail"),
}


class Verdict(enum.StrEnum):
    """The three answers; a claim is never certified because something was not found."""

    CERTIFIED = "certified"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Evidence(enum.StrEnum):
    """What stands behind a claim: a proof that can be checked, a replay in floating point, or nothing."""

    PROVED = "proved"
    REPLAYED = "replayed"
    NONE = "none"


@dataclass(frozen=True)
class Finding:
    """The outcome of one criterion.

    Attributes:
        criterion: its name, such as ``circle`` or ``multiplier``.
        holds: whether it holds (numerically; only a verified proof certifies).
        margin: signed distance to the boundary, positive where it holds; ``None`` where there is none.
        detail: one sentence for a reader.
        rate: the rate it gives, or ``None``.
        witness: arrays and numbers that a proof can be made of; empty where it does not hold.
    """

    criterion: str
    holds: bool
    margin: float | None
    detail: str = ""
    rate: float | None = None
    witness: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.holds


@dataclass(frozen=True, eq=False)
class Proof:
    """The witness of a claim.

    Attributes:
        kind: the theorem that turns the data into the claim; ``docs/certificate-format.md`` lists them.
        data: numbers, strings, float64 arrays, or lists of nested mappings.
    """

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Claim:
    """One statement about the subject with its verdict and what stands behind it.

    A certified or refuted claim has a proof. What was only seen in floating point, two trajectories that were
    simulated and stayed apart, is attached to an inconclusive claim in the same place; it proves nothing.

    Attributes:
        name: ``contraction``, ``equilibrium``, ``bounded``, ``regional``, ``gain``.
        statement: the claim in one sentence, quantifiers included.
        verdict: the answer.
        proof: its witness; of an inconclusive claim ``None``, or what can be replayed.
        value: the number of the claim (rate, radius, gain), or ``None``.
    """

    name: str
    statement: str
    verdict: Verdict
    proof: Proof | None = None
    value: float | None = None

    @property
    def evidence(self) -> Evidence:
        """``proved`` for a claim that is certified or refuted, ``replayed`` for an open one with a replay."""
        if self.proof is None:
            return Evidence.NONE
        return Evidence.REPLAYED if self.verdict is Verdict.INCONCLUSIVE else Evidence.PROVED


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verdict about the strongest claim, the evidence, and the weaker claims that hold as well.

    Attributes:
        subject: the system: ``LureSystem``, ``DrivenSystem`` or another subject type.
        claim: the main claim (exponential incremental stability) with verdict and proof.
        criterion: the criterion that decided, or ``None``.
        rate: certified rate: ``lambda`` in 1/time (continuous) or ``rho`` per step (discrete), or ``None``.
        overshoot: ``C`` of ``|d(t)| <= C exp(-lambda t) |d(0)|`` or ``C rho^t |d(0)|``, or ``None``.
        findings: the outcome of every criterion tried.
        claims: further claims: boundedness, equilibrium, regional, gain.
        meta: free text about the origin (tool version, seed, times); it proves nothing.
    """

    subject: Any
    claim: Claim
    criterion: str | None = None
    rate: float | None = None
    overshoot: float | None = None
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The main claim's verdict."""
        return self.claim.verdict

    @property
    def evidence(self) -> Evidence:
        """What stands behind the main claim: ``proved``, ``replayed`` or ``none``."""
        return self.claim.evidence

    @property
    def statement(self) -> str:
        """The main claim's sentence."""
        return self.claim.statement

    @property
    def proof(self) -> Proof | None:
        """The main claim's witness."""
        return self.claim.proof

    def save(self, path: str | Path) -> Path:
        """Write the certificate as JSON, aside first and then renamed, so that no half file is ever left.

        Args:
            path: where to.

        Returns:
            The path.

        Raises:
            FileFormatError: when the place cannot be written to.
        """
        document = {
            "format": FORMAT,
            "version": VERSION,
            "subject": encode(self.subject),
            "claim": _claim_payload(self.claim),
            "criterion": self.criterion,
            "rate": encode(self.rate),
            "overshoot": encode(self.overshoot),
            "findings": [
                {
                    "criterion": f.criterion,
                    "holds": bool(f.holds),
                    "margin": plain(f.margin),
                    "rate": plain(f.rate),
                    "detail": f.detail,
                }
                for f in self.findings
            ],
            "claims": [_claim_payload(c) for c in self.claims],
            "meta": encode(dict(self.meta)),
        }
        return write_text(path, seal(document))

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate that ``save`` wrote, without judging it (``stability.verify`` does that).

        Args:
            path: the file.

        Returns:
            The certificate.

        Raises:
            FileFormatError: when it is missing, unreadable, damaged, tampered with or of another version.
        """
        document, text = read_document(path)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FileFormatError(f"{path} is not a stability certificate")
        version = document.get("version")
        if type(version) is not int or version != VERSION:
            raise FileFormatError(
                f"{path} has format version {str(version)[:40]!r}; this program reads version {VERSION}, whose rules "
                "are stricter: make the certificate again with `stability certify MODEL -o FILE`"
            )
        if not is_sealed(text, document):
            raise FileFormatError(f"{path} was changed after it was written: its digest does not match")
        try:
            _exact_keys("file", document)
            return cls(
                subject=decode(document["subject"]),
                claim=_claim(document["claim"]),
                criterion=_text_or_none(document["criterion"]),
                rate=_number(document["rate"]),
                overshoot=_number(document["overshoot"]),
                findings=tuple(_finding(f) for f in _list(document["findings"], "findings")),
                claims=_claims(document["claims"]),
                meta=_mapping(decode(document["meta"]), "meta"),
            )
        except FileFormatError as error:
            raise FileFormatError(f"{path} is damaged: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FileFormatError(f"{path} is damaged: {type(error).__name__}: {str(error)[:200]}") from error

    def summary(self) -> dict[str, Any]:
        """The answer as plain numbers and strings, without matrices (for ``--json`` and reports)."""
        return {
            "verdict": str(self.verdict),
            "evidence": str(self.evidence),
            "statement": self.claim.statement,
            "criterion": self.criterion,
            "rate": self.rate,
            "overshoot": self.overshoot,
            "proof": self.proof.kind if self.proof else None,
            "findings": [
                {
                    "criterion": f.criterion,
                    "holds": f.holds,
                    "margin": plain(f.margin),
                    "rate": plain(f.rate),
                    "detail": f.detail,
                }
                for f in self.findings
            ],
            "claims": [
                {
                    "name": c.name,
                    "statement": c.statement,
                    "verdict": str(c.verdict),
                    "evidence": str(c.evidence),
                    "value": plain(c.value),
                    "proof": c.proof.kind if c.proof else None,
                }
                for c in self.claims
            ],
            "meta": dict(self.meta),
        }


def plain(value: float | None) -> float | None:
    """A finite float, or ``None``."""
    return None if value is None or not math.isfinite(value) else float(value)


def _exact_keys(what: str, value: Any) -> None:
    """Refuse anything but a mapping with just the keys that the format names."""
    if not isinstance(value, Mapping):
        raise FileFormatError(f"a {what} must be a mapping, not a {type(value).__name__}")
    unknown = [k for k in value if k not in _KEYS[what]]
    missing = [k for k in _KEYS[what] if k not in value]
    if unknown or missing:
        word, keys = ("unknown", unknown) if unknown else ("missing", missing)
        raise FileFormatError(f"a {what} with {word} keys: {', '.join(str(k)[:60] for k in keys[:5])}")


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FileFormatError(f"a number was expected, got {str(value)[:40]!r}")
    if isinstance(value, int) and abs(value) > 2**53:
        raise FileFormatError(f"the integer {str(value)[:40]} is no float64: integers are read up to 2^53")
    if not math.isfinite(value):
        raise FileFormatError("a number is beyond the range of float64")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FileFormatError(f"a string was expected, got {str(value)[:40]!r}")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise FileFormatError(f"{what} must be a list, not a {type(value).__name__}")
    return value


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FileFormatError(f"{what} must be a mapping, not a {type(value).__name__}")
    return value


def _finding(value: Any) -> Finding:
    _exact_keys("finding", value)
    if not isinstance(value["holds"], bool):
        raise FileFormatError(f"holds must be true or false, got {str(value['holds'])[:40]!r}")
    return Finding(
        _text(value["criterion"]),
        value["holds"],
        _number(value["margin"]),
        _text(value["detail"]),
        _number(value["rate"]),
    )


def _claim_payload(claim: Claim) -> dict[str, Any]:
    proof = None if claim.proof is None else {"kind": claim.proof.kind, "data": encode(dict(claim.proof.data))}
    return {
        "name": claim.name,
        "statement": claim.statement,
        "verdict": str(claim.verdict),
        "evidence": str(claim.evidence),
        "proof": proof,
        "value": plain(claim.value),
    }


def _claims(value: Any) -> tuple[Claim, ...]:
    further = _list(value, "claims")
    if len(further) > CLAIMS:
        raise FileFormatError(f"{len(further)} further claims; at most {CLAIMS} are read")
    return tuple(_claim(c) for c in further)


def _claim(value: Any) -> Claim:
    _exact_keys("claim", value)
    proof = None
    if value["proof"] is not None:
        _exact_keys("proof", value["proof"])
        proof = Proof(_text(value["proof"]["kind"]), _mapping(decode(value["proof"]["data"]), "a proof's data"))
    verdict = Verdict(_text(value["verdict"]))
    claim = Claim(_text(value["name"]), _text(value["statement"]), verdict, proof, _number(value["value"]))
    if value["evidence"] != str(claim.evidence):
        said = str(value["evidence"])[:40]
        raise FileFormatError(f"the claim {claim.name!r} calls itself {said!r}; it is {claim.evidence}")
    return claim
