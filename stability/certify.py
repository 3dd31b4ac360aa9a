"""From a system to a verdict: criteria from cheap to strong, then the search for a witness against, then weaker claims.

A criterion that holds proposes a witness; the rule that ``verify`` uses decides whether it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stability.certificate import Certificate, Claim, Finding, Verdict
from stability.claims.bounded import bounded, equilibrium_claim
from stability.claims.cascade import Cascade, cascade_claim, layer_findings
from stability.claims.contraction import calmer_claims, contraction_claim, open_claim
from stability.claims.nonexpansive import nonexpansive
from stability.claims.regional import regional
from stability.criteria.circle import circle_criterion
from stability.criteria.interval import gated_findings, gated_proof
from stability.criteria.kyp import kyp_criterion
from stability.criteria.linear import linear_criterion
from stability.criteria.multiplier import default_tolerance, multiplier_criterion
from stability.criteria.schur import schur_criterion
from stability.criteria.theorem1 import theorem1_system
from stability.criteria.witness import Witness
from stability.errors import ConfigurationError, StabilityError, UnsupportedError
from stability.gated.cell import GatedCell
from stability.refute import Refutation
from stability.refute import refute as search_witness
from stability.refute.inputs import input_range as checked_range
from stability.refute.stack import search_stack
from stability.rigor.definite import refuse_flushing
from stability.rules.multiplier_lmi import check_lmi
from stability.solve.deadline import Deadline, TimeLimit
from stability.solve.rates import Rate, parse_rate
from stability.systems import DrivenSystem, LureSystem
from stability.systems.subjects import as_subject

__all__ = ["CRITERIA", "certify"]

CRITERIA = ("auto", "theorem1a", "theorem1b", "schur", "circle", "kyp", "multiplier", "linear", "interval", "cascade")
_LARGE = 256
"""Beyond this many states, ``auto`` leaves out the criteria that the multiplier inequality contains."""


@dataclass(frozen=True)
class _Question:
    """The options of one call, checked."""

    criterion: str
    solver: str
    rate: Rate
    tol: float | None
    deadline: Deadline
    seed: int
    use: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the use: range of inputs, initial state, number of steps."""
    further: bool = True
    """Whether the claims beside the main one are wanted."""

    def wants(self, name: str) -> bool:
        return self.criterion in ("auto", name)


def certify(
    subject: Any,
    *,
    criterion: str = "auto",
    solver: str = "auto",
    rate: Rate = "best",
    tol: float | None = None,
    time_limit: TimeLimit = None,
    refute: bool = True,
    seed: int = 0,
    input_range: Any = None,
    start: Any = None,
    horizon: int | None = None,
) -> Certificate:
    """Certify global exponential incremental stability (contraction), refute it, or say that neither was found.

    Args:
        subject: a ``LureSystem`` (the claim is about every activation with its slopes), a ``DrivenSystem``, a layer
            or module with a system (the claim is about that network under every input), a ``GatedCell``, a ``Cascade``.
        criterion: ``"auto"`` for the whole ladder, or one of ``CRITERIA``.
        solver: ``"riccati"`` (structured), ``"cvxpy"`` (SDP) or ``"auto"``, for the multiplier criterion.
        rate: ``"best"``, within ``tol``, in a metric of small overshoot, with slower rates of smaller overshoot among
            the further claims; ``"any"`` for existence only, the fastest; or a number: at least this rate. Where that
            is out of reach but another is proved, the certificate has the best rate, and says so: ``meta`` has the
            number as ``asked_rate`` and whether it was reached as ``asked_rate_reached``.
        tol: relative tolerance of the best rate (1e-6 up to 64 states, 1e-3 beyond, by default).
        time_limit: seconds for the whole call, kept to within a factorisation. When they are over, the best so far is
            the answer, and ``certificate.meta["cut"]`` names the searches that were stopped. Without a limit the
            searches count their attempts: equal subject, options and seed give the equal certificate.
        refute: search for a witness against the claim where no proof was found.
        seed: of the searches.
        input_range: ``(low, high)``, the range of the data's inputs: witnesses against are looked for there first. The
            claim stays one about every input. With it, or with a horizon, ``certificate.meta["witness"]`` says whether
            the witness can happen: ``input_in_data_range``, ``states_reachable`` (``None``: not known).
        start: the initial state in use, zero by default.
        horizon: the number of steps in use.

    Returns:
        A certificate; ``certificate.verdict`` is certified, refuted or inconclusive. What it proves,
        ``stability.verify`` re-proves.

    Raises:
        ConfigurationError: bad options, or a processor that was told to take subnormal numbers for zero.
        UnsupportedError: an object nobody knows a system for, or a criterion that is not about its kind.

    Example:
        >>> certificate = certify(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> str(certificate.verdict), certificate.criterion, round(certificate.rate, 5), round(certificate.overshoot, 5)
        ('certified', 'theorem1a', 1.0, 1.0)
        >>> str(certify(LureSystem.recurrent([[-1.0]], [[2.0]])).verdict)
        'refuted'
    """
    started, deadline = time.monotonic(), Deadline.after(time_limit)
    if criterion not in CRITERIA:
        raise ConfigurationError(f"unknown criterion {criterion!r}; the known ones are {', '.join(CRITERIA)}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    refuse_flushing()
    own = getattr(subject, "witness", None)
    own = own() if callable(own) else None
    target = as_subject(subject)
    rate = rate if isinstance(rate, str) and rate in ("any", "best") else parse_rate(rate, target)
    use = {"input_range": input_range, "start": start, "horizon": horizon}
    use = {key: value for key, value in use.items() if value is not None}
    question = _Question(criterion, solver, rate, tol, deadline, int(seed), use)
    if isinstance(target, (LureSystem, DrivenSystem)):
        certificate = _certify_lure(target, question, refute, own)
    elif isinstance(target, GatedCell):
        certificate = _certify_gated(target, question, refute)
    elif isinstance(target, Cascade):
        certificate = _certify_cascade(target, question, refute, own)
    else:
        raise UnsupportedError(f"there is no criterion for a {type(target).__name__}")
    meta = {**certificate.meta, **deadline.meta}
    if target.part:
        meta["part"] = target.part
    if isinstance(rate, float):
        found = certificate.rate if certificate.verdict is Verdict.CERTIFIED else None
        meta["asked_rate"] = rate
        meta["asked_rate_reached"] = found is not None and _fast_enough(found, rate, target.is_discrete)
    return replace(certificate, meta={**meta, "seconds": round(time.monotonic() - started, 4), "seed": int(seed)})


def _own_finding(system: LureSystem, witness: Any) -> list[Finding]:
    """The proof that a model contracting by construction carries, if it holds for the system as stored."""
    if not isinstance(witness, dict) or not {"P", "L", "rate"} <= set(witness):
        return []
    p, multipliers, rate = np.array(witness["P"], float), np.array(witness["L"], float), float(witness["rate"])
    p = 0.5 * (p + p.T)
    valid, reason = check_lmi(system, p, multipliers, rate)
    if not valid:
        return [Finding("construction", False, None, f"the model's own witness does not hold: {reason}")]
    margin = 1.0 - rate if system.is_discrete else rate
    return [Finding("construction", True, margin, "contracting by construction", rate, {"P": p, "L": multipliers})]


def _tried(name: str, criterion: Callable[[], Finding], deadline: Deadline) -> Finding:
    """A criterion's finding; on entries so extreme that LAPACK gives up, or with no time left, the finding says so."""
    if deadline.stops(name):
        return Finding(name, False, None, "not tried: the time limit came first")
    try:
        with np.errstate(all="ignore"):
            return criterion()
    except StabilityError:
        raise
    except (ArithmeticError, np.linalg.LinAlgError, ValueError) as error:
        return Finding(
            name, False, None, f"numerically out of reach: {str(error).splitlines()[0] if str(error) else error!r}"
        )


def _lure_findings(system: LureSystem, question: _Question, witness: Any) -> list[Finding]:
    """The ladder, from cheap to strong."""
    findings, deadline = _own_finding(system, witness) if question.criterion == "auto" else [], question.deadline
    linear = system.channels == 0 or bool((system.alpha == system.beta).all())
    if question.criterion == "linear" and not linear:
        raise UnsupportedError("the linear criterion is for systems without a nonlinear channel")
    if linear and question.wants("linear"):
        findings.append(_tried("linear", lambda: linear_criterion(system, rate=question.rate), deadline))
        if question.criterion == "linear" or findings[-1].holds or system.channels == 0:
            return findings
    existence = question.rate == "any"
    if question.criterion in ("auto", "theorem1a", "theorem1b") and not (system.states > _LARGE and existence):
        findings += _theorem1(system, question.criterion, deadline)
    if existence and any(f.holds and f.witness for f in findings):
        return findings
    if question.wants("schur"):
        findings.append(
            _tried("schur", lambda: schur_criterion(system, rate=question.rate, time_limit=deadline), deadline)
        )
    if existence and findings and findings[-1].holds and findings[-1].witness:
        return findings
    small = system.states <= _LARGE and not existence
    short = deadline if question.criterion != "auto" else deadline.share(0.3)  # the strongest criterion comes last
    if question.criterion == "circle" or (question.criterion == "auto" and small):
        findings.append(
            _tried("circle", lambda: circle_criterion(system, rate=question.rate, time_limit=short), deadline)
        )
    if question.criterion == "kyp" or (question.criterion == "auto" and small):
        findings.append(_tried("kyp", lambda: kyp_criterion(system, rate=question.rate, time_limit=short), deadline))
    if question.wants("multiplier"):
        options: dict[str, Any] = {"rate": question.rate, "solver": question.solver, "tol": question.tol}
        findings.append(
            _tried("multiplier", lambda: multiplier_criterion(system, **options, time_limit=deadline), deadline)
        )
    return findings


def _theorem1(system: LureSystem, criterion: str, deadline: Deadline) -> list[Finding]:
    """Theorem 1; for a discretised system about the differential equation behind it, and then it cannot certify."""
    behind = system.origin.base if system.origin is not None else system
    if deadline.stops("theorem1"):
        return [Finding("theorem1", False, None, "not tried: the time limit came first")]
    try:
        with np.errstate(all="ignore"):
            found = theorem1_system(behind, time_limit=deadline)
    except (ArithmeticError, np.linalg.LinAlgError):
        return [Finding("theorem1", False, None, "numerically out of reach")]
    out = (
        [found.a, found.b_published, found.b_sound]
        if criterion == "auto"
        else ([found.a] if criterion == "theorem1a" else [found.b_published, found.b_sound])
    )
    if behind is system:
        return out
    about = "about the differential equation, not the map that runs"
    return [Finding(f.criterion, f.holds, f.margin, f"{about}: {f.detail}", f.rate) for f in out]


def _fast_enough(rate: float, wanted: Rate, discrete: bool) -> bool:
    if isinstance(wanted, str):
        return True
    return rate <= wanted if discrete else rate >= wanted


def _lure_claim(
    subject: Any, system: LureSystem, findings: list[Finding], wanted: Rate, tol: float
) -> tuple[Claim, Finding, float] | None:
    """The claim of the fastest finding whose witness its rule accepts, with its overshoot; among those as fast within
    the tolerance, the one of the smallest overshoot.
    """
    discrete = system.is_discrete
    sign = 1.0 if discrete else -1.0
    usable = [f for f in findings if f.holds and f.rate is not None and "P" in f.witness]
    made: list[tuple[Claim, Finding, float]] = []
    for finding in sorted(usable, key=lambda f: sign * round(float(f.rate or 0.0), 9)):
        rate = float(finding.rate or 0.0)
        if not _fast_enough(rate, wanted, discrete):
            continue
        if made and abs(rate - made[0][2]) > tol * (1.0 - made[0][2] if discrete else made[0][2]):
            break
        p = np.ascontiguousarray(finding.witness["P"], dtype=np.float64)
        multipliers = np.ascontiguousarray(finding.witness["L"], dtype=np.float64)
        if finding.criterion not in ("multiplier", "construction") and not check_lmi(system, p, multipliers, rate)[0]:
            continue
        claim = contraction_claim(subject, Witness(rate, {"P": p, "L": multipliers}))
        if claim is not None and claim.proof is not None:
            made.append((claim, finding, rate))
    if not made:
        return None
    claim, finding, _ = min(made, key=lambda x: round(x[0].proof.data["overshoot"], 9) if x[0].proof else np.inf)
    return claim, finding, claim.proof.data["overshoot"] if claim.proof else 1.0


def _certify_lure(subject: Any, question: _Question, refute: bool, witness: Any) -> Certificate:
    system = subject.system
    wanted = parse_rate(question.rate, system)
    findings = _lure_findings(system, question, witness)
    tol = question.tol if question.tol is not None else default_tolerance(system)
    made = _lure_claim(subject, system, findings, wanted, tol)
    if made is None and isinstance(wanted, float):  # not at this rate: then at the best there is
        question = replace(question, rate="best")
        findings = _lure_findings(system, question, witness)
        made = _lure_claim(subject, system, findings, "best", tol)
    if made is not None:
        claim, finding, overshoot = made
        extra = () if question.rate == "any" else _weaker(subject, claim, question)
        if question.rate == "best" and question.further:
            extra = (*calmer_claims(subject, claim, time_limit=question.deadline), *extra)
        return Certificate(subject, claim, finding.criterion, claim.value, overshoot, tuple(findings), extra)
    if refute and not question.deadline.stops("refutation"):
        limit = question.deadline.share(0.7).named("refutation")  # the rest for weaker claims
        result = search_witness(subject, seed=question.seed, time_limit=limit, **question.use)
        findings += list(result.findings)
        if result.proof is not None:
            claim = result.claim or open_claim(subject)
            further, meta = _weaker(subject, claim, question), _witness_meta(result, question)
            return Certificate(subject, claim, result.proof.kind, None, None, tuple(findings), further, meta)
    claim = open_claim(subject)
    return Certificate(subject, claim, None, None, None, tuple(findings), _weaker(subject, claim, question))


def _witness_meta(result: Refutation, question: _Question) -> dict[str, Any]:
    """What ``meta`` says of a witness: whether it can happen in use, where anything is known of the use."""
    if not question.use:
        return {}
    known = {"input_in_data_range": result.input_in_data_range, "states_reachable": result.states_reachable}
    return {"witness": known}


def _weaker(subject: Any, main: Claim, question: _Question) -> tuple[Claim, ...]:
    """Further claims, each proved or left out: the strongest true statements below (or about) the main one."""
    if not question.further:
        return ()
    deadline = question.deadline
    makers: list[Callable[[], Claim | None]] = [lambda: equilibrium_claim(subject, main)]
    if isinstance(subject, DrivenSystem):
        makers.append(lambda: bounded(subject, time_limit=deadline))
    if main.verdict is not Verdict.CERTIFIED:
        makers.append(lambda: nonexpansive(subject, time_limit=deadline))
        if isinstance(subject, DrivenSystem):
            makers.append(lambda: regional(subject, time_limit=deadline))
    claims = []
    for make in makers:
        if deadline.stops("further claims"):
            break
        claim = make()
        if claim is not None and claim.verdict is not Verdict.INCONCLUSIVE:
            claims.append(claim)
    return tuple(claims)


def _certify_gated(cell: GatedCell, question: _Question, refute: bool) -> Certificate:
    if question.criterion not in ("auto", "interval"):
        raise UnsupportedError(
            f"the {question.criterion} criterion is about Lur'e systems; a gated cell has criterion interval"
        )
    findings = list(gated_findings(cell, rate=question.rate, time_limit=question.deadline))
    made = gated_proof(cell, findings)
    if made is None and isinstance(question.rate, float):  # not at this rate: then at the best there is
        findings = list(gated_findings(cell, time_limit=question.deadline))
        made = gated_proof(cell, findings)
    if made is not None:
        claim, finding = made
        return Certificate(
            cell,
            claim,
            finding.criterion,
            claim.value,
            claim.proof.data["overshoot"] if claim.proof else None,
            tuple(findings),
        )
    if refute and not question.deadline.stops("refutation"):
        limit = question.deadline.share(0.7).named("refutation")  # the rest for weaker claims
        result = search_witness(cell, seed=question.seed, time_limit=limit, **question.use)
        findings += list(result.findings)
        if result.proof is not None:
            claim, meta = result.claim or open_claim(cell), _witness_meta(result, question)
            return Certificate(cell, claim, result.proof.kind, None, None, tuple(findings), meta=meta)
    return Certificate(cell, open_claim(cell), None, None, None, tuple(findings))


def _certify_layer(layer: Any, question: _Question, refute: bool, own: Any) -> Certificate:
    """One layer of a stack by itself, from the proof that it carries where it has one."""
    part = replace(question, criterion="auto", rate="any" if question.rate == "any" else "best", further=False)
    if isinstance(layer, GatedCell):
        return _certify_gated(layer, part, refute)
    return _certify_lure(layer, part, refute, own)


def _certify_cascade(cascade: Cascade, question: _Question, refute: bool, own: Any) -> Certificate:
    """A stack: every layer by itself, then the composition."""
    carried = own.get("layers", ()) if isinstance(own, dict) else ()
    carried = carried if len(carried) == len(cascade.layers) else (None,) * len(cascade.layers)
    parts: list[Certificate] = []
    for k, (layer, one) in enumerate(zip(cascade.layers, carried)):
        share = question.deadline.share(1.0 / (len(carried) + 1 - k))  # as much for every layer and for the whole
        region = question.use.get("input_range") if k < cascade.directions else None  # who reads the inputs themselves
        use = {} if region is None else {"input_range": region}
        parts.append(_certify_layer(layer, replace(question, deadline=share, use=use), refute, one))
    findings = layer_findings(parts, cascade.is_discrete)
    claim = cascade_claim(cascade, parts)
    unproved = claim is None or claim.verdict is Verdict.INCONCLUSIVE
    unproved = unproved and any(part.verdict is not Verdict.CERTIFIED for part in parts)
    if unproved and refute and not question.deadline.stops("refutation"):
        limit = question.deadline.share(0.7).named("refutation")  # the rest for weaker claims
        seen = checked_range(question.use.get("input_range"), cascade.inputs)
        result = search_stack(cascade, search_witness, seed=question.seed, time_limit=limit, lowest=False, region=seen)
        if result.proof is not None and (claim is None or result.found):
            claim, meta = result.claim or open_claim(cascade), _witness_meta(result, question)
            return Certificate(cascade, claim, result.proof.kind, None, None, findings, meta=meta)
    if claim is None:
        return Certificate(cascade, open_claim(cascade), None, None, None, findings)
    kind, overshoot = (claim.proof.kind, claim.proof.data.get("overshoot")) if claim.proof else (None, None)
    meta = parts[claim.proof.data["layer"]].meta if claim.proof is not None and kind == "cascade_layer" else {}
    return Certificate(cascade, claim, kind, claim.value, overshoot, findings, meta=meta)
