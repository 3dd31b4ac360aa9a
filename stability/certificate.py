"""Certificates: the verdict about a subject with its proofs, and the file that holds them.

A ``Certificate`` holds everything that is needed to check it again: the system's matrices to the last bit,
the claim in words, the proof's witness. Nothing here proves anything; ``stability.verify`` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stability.display import Displayed, draw_envelope, number
from stability.errors import FileFormatError
from stability.kernel.format.claims import Claim, Evidence, Proof, Verdict, finite_or_none
from stability.kernel.format.serialization import decode, encode, is_sealed, seal
from stability.kernel.format.theorem_table import worded
from stability.recovery import Recovery, memory_horizon, proved_pairs, recovery_time
from stability.storage.documents import read_document
from stability.storage.limits import CLAIMS
from stability.storage.parsed_values import boolean, list_reader, mapping, number_or_none, text, text_or_none, unchanged
from stability.storage.version_2_sentences import is_sentence
from stability.storage.writing import as_path, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "stability-certificate"
VERSION = 3
RENAMED = {"circle": "small_gain", "kyp": "circle"}
"""Criteria of files of version 2 by their names today, which are those of the books."""
SIMULATED = "replayed"
"""Evidence of an inconclusive claim in files of version 2: a simulation, which counts as none."""


@dataclass(frozen=True)
class Finding:
    """Outcome of one criterion.

    Attributes:
        criterion: its name, such as ``circle`` or ``multiplier``.
        holds: whether it holds (numerically; only a verified proof certifies).
        margin: signed distance to the boundary, positive if it holds; ``None`` if unknown.
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

    def summary(self) -> dict[str, Any]:
        """Return the outcome as plain numbers and strings, as a file holds it: without the witness."""
        return {
            "criterion": self.criterion,
            "holds": bool(self.holds),
            "margin": finite_or_none(self.margin),
            "rate": finite_or_none(self.rate),
            "detail": self.detail,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Displayed):
    """Verdict about the strongest claim, the evidence, and the weaker claims that hold as well.

    Attributes:
        subject: the system: ``LureSystem``, ``DrivenSystem`` or another subject type.
        claim: the main claim (exponential incremental stability) with verdict and proof.
        criterion: the criterion that decided, or ``None``.
        rate: certified rate: ``lambda`` in 1/time (continuous) or ``rho`` per step (discrete), or ``None``.
        overshoot: ``C`` of ``|d(t)| <= C exp(-lambda t) |d(0)|`` or ``C rho^t |d(0)|``, or ``None``.
        findings: the outcome of every criterion tried.
        claims: further claims: boundedness, equilibrium, gain.
        meta: free text about the origin (tool version, seed, times); it proves nothing.
    """

    TABLE = "findings"

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
        """Evidence of the main claim: ``proved`` or ``none``."""
        return self.claim.evidence

    @property
    def statement(self) -> str:
        """The main claim's sentence."""
        return self.claim.statement

    @property
    def proof(self) -> Proof | None:
        """The main claim's witness."""
        return self.claim.proof

    def facts(self) -> list[tuple[str, str]]:
        """Return the verdict with its evidence, for a prompt or a notebook."""
        said = [("", str(self.verdict)), ("claim", self.statement), ("evidence", str(self.evidence))]
        if self.rate is not None:
            unit = "per step" if self.subject.is_discrete else "per unit of time"
            said += [("rate", f"{number(self.rate)} {unit}"), ("overshoot", number(self.overshoot))]
        said += [("by", self.criterion)] if self.criterion else []
        further = [f"{claim.name} {claim.verdict}" for claim in self.claims]
        return [*said, *([("further claims", ", ".join(further))] if further else []), ("about", repr(self.subject))]

    def plot(self, ax: Axes | None = None, until: float | None = None) -> Axes:
        """Draw the proved bound on the distance of two trajectories over time, see ``stability.display.draw_envelope``.

        Args:
            ax: axes to draw on; ``None``: a new figure.
            until: the last step or time.

        Returns:
            The axes; with a sentence where nothing is proved.
        """
        pairs = proved_pairs(self)
        title = str(self.claim.name).replace("_", " ") if pairs else f"{self.verdict}: no bound on distances is proved"
        return draw_envelope(pairs, self.subject.is_discrete, ax, title, until)

    def recovery_time(self, size: float = 1.0, tol: float = 1e-3, *, claim: Claim | None = None) -> Recovery | None:
        """Bound the time until a disturbance is below ``tol``: see ``stability.recovery.recovery_time``."""
        return recovery_time(self, size, tol, claim=claim)

    def memory_horizon(self, tol: float = 1e-3, *, claim: Claim | None = None) -> Recovery | None:
        """Bound the number of inputs that determine the state: see ``stability.recovery.memory_horizon``."""
        return memory_horizon(self, tol, claim=claim)

    def save(self, path: str | Path) -> Path:
        """Write the certificate as JSON, aside first and then renamed, so that no half file is ever left.

        Args:
            path: path of the file.

        Returns:
            The path.

        Raises:
            FileFormatError: when the place cannot be written to.
        """
        path = as_path(path)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "subject": encode(self.subject),
            "claim": claim_document(self.claim),
            "criterion": self.criterion,
            "rate": encode(self.rate),
            "overshoot": encode(self.overshoot),
            "findings": [f.summary() for f in self.findings],
            "claims": [claim_document(c) for c in self.claims],
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
        document, written = read_document(as_path(path))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FileFormatError(f"{path} is not a stability certificate")
        version = document.get("version")
        if type(version) is not int or version not in (2, VERSION):
            raise FileFormatError(
                f"{path} has format version {str(version)[:40]!r}; this program reads version {VERSION}, whose rules "
                "are stricter: make the certificate again with `stability certify MODEL -o FILE`"
            )
        if not is_sealed(written, document):
            raise FileFormatError(f"{path} was changed after it was written: its digest does not match")
        if version == 2:
            document = _renamed(document)
        try:
            parts = _parsed("file", document)
            found = cls(**{at.name: parts[at.name] for at in fields(cls)})
            return found if version == VERSION else _reworded(found)
        except FileFormatError as error:
            raise FileFormatError(f"{path} is damaged: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FileFormatError(f"{path} is damaged: {type(error).__name__}: {str(error)[:200]}") from error

    def summary(self) -> dict[str, Any]:
        """Return the verdict and claims as plain numbers and strings, without matrices (for ``--json`` and reports)."""
        return {
            "verdict": str(self.verdict),
            "evidence": str(self.evidence),
            "statement": self.claim.statement,
            "criterion": self.criterion,
            "rate": self.rate,
            "overshoot": self.overshoot,
            "proof": self.proof.kind if self.proof else None,
            "findings": [f.summary() for f in self.findings],
            "claims": [c.summary() for c in self.claims],
            "meta": dict(self.meta),
        }


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a file of version 2 with today's names of criteria; malformed parts are left to the reader."""

    def name(holder: Any) -> Any:
        known = isinstance(holder, dict) and isinstance(holder.get("criterion"), str)
        return {**holder, "criterion": RENAMED.get(holder["criterion"], holder["criterion"])} if known else holder

    findings = document.get("findings")
    return name({**document, "findings": list(map(name, findings)) if isinstance(findings, list) else findings})


def _reworded(certificate: Certificate) -> Certificate:
    """Return a certificate of version 2 with today's sentences, which the checker makes from subject and proof."""

    def words(claim: Claim) -> Claim:
        kind = "open" if claim.proof is None else claim.proof.kind
        with contextlib.suppress(Exception):  # malformed data: the checker says why it refuses them
            return worded(certificate.subject, claim) if is_sentence(kind, claim.statement) else claim
        return claim

    return replace(certificate, claim=words(certificate.claim), claims=tuple(map(words, certificate.claims)))


def claim_document(claim: Claim) -> dict[str, Any]:
    """Return a claim with its proof as in a file."""
    proof = None if claim.proof is None else {"kind": claim.proof.kind, "data": encode(dict(claim.proof.data))}
    said = {**claim.summary(), "proof": proof}
    return {key: said[key] for key in _PARTS["claim"]}  # in the order of the file


def claim_from(value: Any) -> Claim:
    """Invert ``claim_document``, without judging the claim.

    Raises:
        FileFormatError: for anything that ``claim_document`` does not write.
    """
    parts = _parsed("claim", value)
    said = parts.pop("evidence")
    claim = Claim(**parts)
    if said != str(claim.evidence) and not (said == SIMULATED and claim.evidence is Evidence.NONE):
        raise FileFormatError(f"the claim {claim.name!r} calls itself {str(said)[:40]!r}; it is {claim.evidence}")
    return claim


_PARTS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "file": {
        "format": unchanged,
        "version": unchanged,
        "subject": decode,
        "claim": claim_from,
        "criterion": text_or_none,
        "rate": number_or_none,
        "overshoot": number_or_none,
        "findings": list_reader("findings", lambda value: Finding(**_parsed("finding", value))),
        "claims": list_reader("claims", claim_from, CLAIMS),
        "meta": lambda value: mapping(decode(value), "meta"),
        "digest": unchanged,
    },
    "claim": {
        "name": text,
        "statement": text,
        "verdict": lambda value: Verdict(text(value)),
        "evidence": unchanged,
        "proof": lambda value: None if value is None else Proof(**_parsed("proof", value)),
        "value": number_or_none,
    },
    "proof": {"kind": text, "data": lambda value: mapping(decode(value), "a proof's data")},
    "finding": {"criterion": text, "holds": boolean, "margin": number_or_none, "rate": number_or_none, "detail": text},
}
"""Keys of the format, and the reader of each."""


def _parsed(what: str, value: Any) -> dict[str, Any]:
    """Read a mapping key by key; raise an error for keys outside the format."""
    if not isinstance(value, Mapping):
        raise FileFormatError(f"a {what} must be a mapping, not a {type(value).__name__}")
    readers = _PARTS[what]
    unknown, missing = [k for k in value if k not in readers], [k for k in readers if k not in value]
    if unknown or missing:
        word, keys = ("unknown", unknown) if unknown else ("missing", missing)
        raise FileFormatError(f"a {what} with {word} keys: {', '.join(str(k)[:60] for k in keys[:5])}")
    return {key: read(value[key]) for key, read in readers.items()}
