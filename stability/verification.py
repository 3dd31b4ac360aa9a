"""Independent checker: it proves every claim of a certificate again.

It imports numpy, the systems, the file format and the rules (one per theorem), but no solver, no torch and no search.
A bad certificate gives a negative answer, never an exception.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.certificate import Certificate
from stability.checkpoint_certificate import (
    CheckpointCertificate,
    CheckpointLayer,
    LayerClaims,
    checkpoint_layers,
    is_checkpoint_certificate,
)
from stability.display import Displayed, draw_envelope, number
from stability.errors import ConfigurationError, StabilityError
from stability.exact_verification import check_exact
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim, Evidence, Proof, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.format.sentences import OPEN, phrase_of
from stability.kernel.format.serialization import digest_of
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.theorems.gated_linear_bounds import FLOAT32_ONE, most_forgotten
from stability.recovery import proved_pairs
from stability.threads import threads_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Check:
    """Outcome for one claim.

    Attributes:
        claim: its name.
        verdict: its verdict.
        valid: whether the claim is proved as stated.
        reason: reason of a refusal, or the proved result.
        evidence: ``proved`` or ``none``.
        statement: its sentence.
    """

    claim: str
    verdict: str
    valid: bool
    reason: str
    evidence: str = "none"
    statement: str = ""


@dataclass(frozen=True, repr=False)
class Verification(Displayed):
    """Outcome for a certificate.

    Attributes:
        valid: every claim of the file is proved as stated, and at least one is certified or refuted.
        reason: reason of a refusal, or the proved result.
        checks: one entry a claim.
        verdict: the certificate's main verdict, or ``None`` where it could not be read.
        evidence: checked evidence of the main claim: ``proved`` or ``none``.
        statement: the main claim's sentence, the only one that its proof supports; empty unless valid.
        rate: the certified rate, or ``None``.
        overshoot: the certified overshoot, or ``None``.
        subject: subject of the claims: kind, name, size, and the digest of its stored numbers; empty if unread.
        pairs: rates and overshoots of all proved contraction claims, which ``plot`` draws; empty unless valid.
        discrete: whether rates are per step.
    """

    TABLE = "checks"

    valid: bool
    reason: str
    checks: tuple[Check, ...] = ()
    verdict: str | None = None
    evidence: str = "none"
    statement: str = ""
    rate: float | None = None
    overshoot: float | None = None
    subject: str = ""
    pairs: tuple[tuple[float, float], ...] = ()
    discrete: bool = False

    def __bool__(self) -> bool:
        return self.valid

    def facts(self) -> list[tuple[str, str]]:
        """Return the answer with the main claim, for a prompt or a notebook."""
        if not self.valid:
            return [("", "INVALID"), ("reason", self.reason)]
        rate = [("rate", number(self.rate)), ("overshoot", number(self.overshoot))] if self.rate is not None else []
        return [("", f"valid ({self.verdict})"), ("claim", self.statement), *rate, ("about", self.subject)]

    def plot(self, ax: Axes | None = None, until: float | None = None) -> Axes:
        """Draw the bound on the distance of two trajectories over time that was proved again.

        Args:
            ax: axes to draw on; ``None``: a new figure.
            until: the last step or time.

        Returns:
            The axes; with a sentence where no bound is proved.
        """
        nothing = "no bound on distances is proved" if self.valid else f"INVALID: {self.reason}"
        title = "proved again" if self.pairs else nothing
        return draw_envelope(self.pairs, self.discrete, ax, title, until)


MAIN = (*OPEN, "forgetting")
"""Possible main claims: contraction under every input or those in a box; bounded states of a gated linear layer."""


def describe_subject(subject: Any) -> str:
    """Identify a subject in one line: kind, name, size, and the SHA-256 of its stored numbers."""
    name = getattr(subject, "name", "")
    system = getattr(subject, "system", subject)
    sizes = [f"{getattr(system, key)} {key}" for key in ("states", "channels") if hasattr(system, key)]
    named = f" {str(name)!r}" if name else ""
    return f"{phrase_of(subject)}{named}, {', '.join(sizes)}, sha256 {digest_of(subject)[:16]}"


def verify_claim(subject: Any, claim: Claim) -> Check:
    """Check one claim about a subject; never raises on a bad claim.

    Args:
        subject: the system.
        claim: the claim with its proof.

    Returns:
        The outcome.
    """
    return _check(claim, lambda: _decide(subject, claim))


def _check(claim: Claim, decide: Callable[[], tuple[bool, str]]) -> Check:
    try:
        valid, reason = decide()
    except Exception as error:  # noqa: BLE001 - whatever a hostile file makes a rule do, the answer is "not proved"
        valid, reason = False, f"the proof is malformed ({_error_text(error)})"
    return Check(claim.name, str(claim.verdict), valid, reason, str(claim.evidence), claim.statement)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _decide(subject: Any, claim: Claim) -> tuple[bool, str]:
    if claim.proof is None:
        if claim.verdict is not Verdict.INCONCLUSIVE:
            return False, f"{claim.verdict}, but without a proof"
        if claim.value is not None or claim.name not in OPEN or claim.statement != worded(subject, claim).statement:
            return False, "an open claim says that contraction is open, in the one sentence for that, and nothing else"
        return True, "neither proved nor refuted, so there is nothing to check"
    if claim.verdict is Verdict.INCONCLUSIVE:
        return False, "nothing proved: the claim is inconclusive, and what stands as its proof proves nothing"
    rule = RULES.get(claim.proof.kind)
    if rule is None:
        return False, f"unknown kind of proof {claim.proof.kind!r}; known: {', '.join(sorted(RULES))}"
    try:
        proof = rule.read(subject, claim)  # first of all: sentences read the data, too
    except Refused as refusal:
        return False, str(refusal)
    if claim.statement != worded(subject, claim).statement:
        return False, "the sentence of the claim is not the one that this proof supports"
    size = getattr(subject, "states", None)  # threads that spin on small matrices cost twenty times the check
    with threads_for(size) if isinstance(size, int) else nullcontext():
        return rule.decide(subject, claim, proof)


@np.errstate(all="ignore")
def verify(
    certificate: Certificate | CheckpointCertificate | str | Path, *, method: str = "float", weights: Any = None
) -> Verification:
    """Re-check a certificate from scratch, rounding errors included, without a solver.

    Args:
        certificate: a certificate or the path of its file.
        method: ``float`` (directed error bounds around a Cholesky factorization, any size) or ``exact``
            (rational arithmetic; for matrix-inequality proofs up to 64 states).
        weights: folder or file of the weights, for the certificate of a checkpoint, which holds none.

    Returns:
        ``valid`` with ``reason`` and one check a claim. A damaged, truncated or altered file is invalid, and
        so is one that proves nothing.

    Raises:
        ConfigurationError: an unknown method, or an argument that is neither a certificate nor a path.

    Example:
        >>> from stability import LureSystem, certify
        >>> outcome = verify(certify(LureSystem.recurrent([[-2.0]], [[1.0]])))
        >>> outcome.valid, outcome.evidence
        (True, 'proved')
        >>> print(outcome.statement)
        Lur'e system (stored matrices, exact arithmetic). For every activation with slopes in [0, 1] and every input \
signal, any two trajectories x, y satisfy |x(t) - y(t)|_2 <= 1.00001 * exp(-0.9999 t) |x(0) - y(0)|_2 for all t >= 0.
    """
    as_choice("method", method, ("float", "exact"))
    if weights is not None or is_checkpoint_certificate(certificate):
        if method != "float":
            raise ConfigurationError("the exact method is for single systems; certificates of checkpoints need float")
        return _verify_checkpoint(certificate, weights)
    if not isinstance(certificate, (Certificate, str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"verify takes a Certificate or the path of its file, got {type(certificate).__name__}"
        )
    if not isinstance(certificate, Certificate):
        try:
            certificate = Certificate.load(certificate)
        except (StabilityError, TypeError, ValueError) as error:
            return Verification(False, str(error))
    main, subject = certificate.claim, certificate.subject
    checks: tuple[Check, ...] = ()
    try:
        problem = _cover_problem(certificate) or _further_claims_problem(main, certificate.claims)
        problem = ACCUMULATES if problem is None and _hides_accumulators(subject, main) else problem
        title = describe_subject(subject)
    except Exception as error:  # noqa: BLE001 - a certificate built in memory may hold anything
        problem, title = f"the certificate is malformed ({_error_text(error)})", ""
    if problem is None:
        checks = tuple(verify_claim(subject, c) for c in (main, *certificate.claims))
        if method == "exact":
            checks = (*checks, _checked_exactly(subject, main, checks[0]))
        problem = _first_problem(main, checks)
    if problem is not None:
        return Verification(False, problem, checks, str(main.verdict), subject=title)
    return Verification(
        True,
        next(check.reason for check in checks),
        checks,
        str(main.verdict),
        str(main.evidence),
        main.statement,
        certificate.rate,
        certificate.overshoot,
        title,
        tuple(proved_pairs(certificate)),
        bool(subject.is_discrete),
    )


def _verify_checkpoint(certificate: Any, weights: Any) -> Verification:
    """Read every layer again, compare its digest and check its claims."""
    if not is_checkpoint_certificate(certificate):
        raise ConfigurationError("weights are for the certificate of a checkpoint; this certificate holds its own")
    if not isinstance(certificate, CheckpointCertificate):
        try:
            certificate = CheckpointCertificate.load(certificate)
        except StabilityError as error:
            return Verification(False, str(error))
    if weights is None:
        reason = "the file holds no weights: give the folder that they are in (weights=FOLDER, or --weights FOLDER)"
        return Verification(False, reason)
    checks: list[Check] = []
    try:
        known = {one.index: one for one in checkpoint_layers(weights)}
        problem = next((text for record in certificate.layers if (text := _layer_problem(record, known, checks))), None)
    except (StabilityError, OSError) as error:
        return Verification(False, f"the weights cannot be read: {error}")
    if len({record.layer for record in certificate.layers}) < len(certificate.layers):
        problem = problem or "a layer stands twice in the file"
    proved = [check for check in checks if check.evidence == Evidence.PROVED]
    verdict = str(certificate.verdict)
    if problem or not proved:
        return Verification(False, problem or "nothing to check: the file proves nothing", tuple(checks), verdict)
    covered = f"{len(certificate.layers)} of {len(known)} gated linear layers"
    reason, subject = f"{len(proved)} claims about {covered} proved again", f"{certificate.name}, {covered}"
    statement = proved[0].statement
    return Verification(True, reason, tuple(checks), verdict, "proved", statement, subject=subject, discrete=True)


ACCUMULATES = "units of this layer are accumulators under every input, and the certificate does not say so"


def _hides_accumulators(layer: Any, main: Claim) -> bool:
    """Return True if a layer is certified, and some of its units are accumulators."""
    if not isinstance(layer, GatedLinearLayer) or main.verdict is not Verdict.CERTIFIED:
        return False
    units = np.flatnonzero(most_forgotten(layer) <= FLOAT32_ONE).astype(float)
    claim = Claim("forgetting", "", Verdict.REFUTED, Proof("accumulator", {"units": units}))
    return bool(units.size) and RULES["accumulator"](layer, claim)[0]


def _layer_problem(record: LayerClaims, stored: Mapping[int, CheckpointLayer], checks: list[Check]) -> str | None:
    """Check the claims of one layer, append the outcomes, and return the first reason of a refusal or ``None``."""
    found = stored.get(record.layer)
    layer = None if found is None else found.build(record.input_set, record.box, record.step_limits)
    read = None if layer is None or found is None else (layer.digest, found.type, layer.taps)
    if read != (record.digest, record.type, record.taps):
        return f"layer {record.layer} of these weights is not the one of the certificate"
    main, *further = record.claims
    if main.name not in ("state_bound", "forgetting"):
        return f"the main claim of layer {record.layer} must be its state bound or its forgetting, not {main.name!r}"
    found_checks = [verify_claim(layer, claim) for claim in record.claims]
    checks += [replace(check, claim=f"layer {record.layer}, {check.claim}") for check in found_checks]
    if _hides_accumulators(layer, main):
        return f"layer {record.layer}: {ACCUMULATES}"
    wrong = next((f"layer {record.layer}, {c.claim}: {c.reason}" for c in found_checks if not c.valid), None)
    return wrong or _further_claims_problem(main, tuple(further))


def _proved_claims(checks: tuple[Check, ...]) -> str:
    """Return the proved further claims, joined."""
    return ", ".join(c.claim for c in checks[1:] if c.evidence == Evidence.PROVED)


def _first_problem(main: Claim, checks: tuple[Check, ...]) -> str | None:
    """Return the first claim that does not hold, or that there is none; ``None`` if all is well."""
    for check in checks:
        if not check.valid:
            return f"{check.claim}: {check.reason}"
    if main.verdict is Verdict.INCONCLUSIVE:
        proved = _proved_claims(checks)
        return "the main claim is undecided" + (f"; further claims proved: {proved}" if proved else "")
    return None


def _checked_exactly(subject: Any, main: Claim, first: Check) -> Check:
    """Check the main claim once more, in rational arithmetic."""
    if not first.valid:
        return first
    if main.proof is None or main.proof.kind != "multiplier_lmi":
        return replace(first, valid=False, reason="there is no exact method for this kind of proof")
    data = main.proof.data
    if main.verdict is not Verdict.CERTIFIED or main.value != data["rate"]:
        return replace(first, valid=False, reason="the exact method is for certified claims of the proof's rate")
    return _check(main, lambda: check_exact(subject.system, data))


def _cover_problem(certificate: Certificate) -> str | None:
    """Return the reason why rate and overshoot on the cover are not those of the main claim, or ``None``."""
    claim = certificate.claim
    if claim.name not in MAIN:
        return f"the main claim must be contraction, not {claim.name!r}"
    if claim.verdict is not Verdict.CERTIFIED or claim.name == "state_bound":
        if certificate.rate is None and certificate.overshoot is None:
            return None
        return "a rate stands on the cover of a certificate that certifies none"
    if certificate.rate != claim.value:
        return f"the cover says rate {certificate.rate}, the claim {claim.value}"
    if claim.proof is not None and claim.proof.data.get("overshoot") != certificate.overshoot:
        return "the cover's overshoot is not the proof's"
    return None


def _further_claims_problem(claim: Claim, further: tuple[Claim, ...]) -> str | None:
    """Return the reason why the further claims do not fit the main one, or ``None``."""
    for other in further:
        if other.evidence is not Evidence.PROVED:
            return f"the further claim {other.name!r} is not proved; only the main claim may be open"
        if other.name == claim.name and claim.verdict is not other.verdict:
            return f"the main claim is {claim.verdict}, a further claim says that contraction is {other.verdict}"
    of = {verdict: {c.name for c in (claim, *further) if c.verdict is verdict} for verdict in Verdict}
    both = sorted(of[Verdict.CERTIFIED] & of[Verdict.REFUTED])
    if both:
        return f"one file says certified and refuted of {both[0]!r}"
    if "contraction" in of[Verdict.CERTIFIED] and "equilibrium" in of[Verdict.REFUTED]:
        return "contraction is certified, and a further claim refutes the attracting equilibrium that follows from it"
    return None
