"""From a system to a verdict: criteria from cheap to strong, then the search for a witness against, then weaker claims.

A criterion that holds proposes a witness; the rule that ``verify`` uses decides whether it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stability.certificate import Certificate, Finding
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.arithmetic.definiteness import refuse_flushing
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.opaque import OpaqueMap
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.residual_stack import ResidualStack
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.counterexamples.counterexample_search import refute as search_witness
from stability.search.counterexamples.refutation import Refutation
from stability.search.criteria.contraction_claim import contraction_claim, open_claim, overshoot_of
from stability.search.criteria.interval import gated_findings, gated_proof
from stability.search.criteria.ladder import Question, fast_enough, lure_findings, tried
from stability.search.criteria.multiplier import default_tolerance
from stability.search.criteria.pairwise import pairwise_claim, pairwise_criterion
from stability.search.criteria.stack_contraction import layer_findings, stack_claim
from stability.search.criteria.witness import Witness
from stability.search.further_claims import further_claims, stack_ends
from stability.search.gains.residual import residual_claim
from stability.search.input_sets.limit_sets import takes_box
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import Rate, parse_rate
from stability.search.trajectories.input_range import input_range as checked_range
from stability.threads import threads_for

_OF_SYSTEMS = ("theorem1a", "theorem1b", "schur", "circle", "kyp", "multiplier", "linear")
ALIASES = {"small_gain": "circle", "positive_real": "kyp"}
"""Criteria as books name them. ``circle`` is the circle criterion of the sector [-M, M], the small gain theorem; that
of the sector [alpha, beta] itself, which most books mean by the name, is ``kyp``.
"""
FASTER = 1.05
"""How much more a claim about inputs in a box must say than the one about every input to stand beside it."""
CRITERIA = ("auto", *_OF_SYSTEMS, "interval", "pairwise", "cascade")


@dataclass(frozen=True)
class _Found:
    """What the criteria found: the claim that they prove, and by which of them; or that there is none yet."""

    findings: tuple[Finding, ...]
    claim: Claim | None = None
    criterion: str | None = None
    rate: Rate = "best"  # of the claim: the one asked for, or the best where that was out of reach
    meta: Mapping[str, Any] = field(default_factory=dict)
    decided: bool = False  # no witness is worth a search


def certify(
    subject: Any,
    *,
    criterion: str = "auto",
    solver: str = "auto",
    rate: Rate = "best",
    tol: float | None = None,
    time_limit: TimeLimit = None,
    refute: bool = True,
    criteria: str = "needed",
    seed: int = 0,
    input_box: Any = None,
    input_range: Any = None,
    start: Any = None,
    horizon: int | None = None,
) -> Certificate:
    """Certify global exponential incremental stability (contraction), refute it, or say that neither was found.

    Args:
        subject: a ``LureSystem`` (the claim is about every activation with its slopes), a ``DrivenSystem``, a layer
            or module with a system (the claim is about that network under every input), a ``GatedCell`` or a
            ``LayerStack``; once ``stability.models`` is imported also a model's name or path, as on the command line,
            or its state dict.
        criterion: ``"auto"`` for the whole ladder, or one of ``CRITERIA``; also ``"small_gain"`` for ``circle`` and
            ``"positive_real"`` for ``kyp``, the circle criterion of the books (see ``ALIASES``).
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
        criteria: ``"needed"``: once the multiplier inequality is proved, those that it contains (circle, KYP) are
            evaluated for their margins; ``"all"``: each searches for its own best rate as well.
        seed: of the searches.
        input_box: ``(low, high)``, numbers or ``(p,)``, that every input stays in: the claim is about those inputs.
            A network that contracts under every input keeps that claim, with a faster rate under those inputs beside
            it where one is proved; for another one sets of states are computed that it enters under such inputs, and
            the claim is ``driven_contraction``, with what was found about every input (a refutation, say) among the
            further claims, as are where the states end and that each constant input has one equilibrium. Gated cells
            take the box into all their claims.
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
    criterion = as_choice("criterion", ALIASES.get(str(criterion), criterion), CRITERIA)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    refuse_flushing()
    own = getattr(subject, "witness", None)
    own = own() if callable(own) else None
    target = boxed(as_subject(subject), input_box)
    rate = rate if isinstance(rate, str) and rate in ("any", "best") else parse_rate(rate, target)
    input_range = input_box if input_range is None else input_range
    use = {"input_range": input_range, "start": start, "horizon": horizon}
    use = {key: value for key, value in use.items() if value is not None}
    searched = as_choice("criteria", criteria, ("needed", "all")) == "all"
    question = Question(criterion, solver, rate, tol, deadline, int(seed), use, refute, searched)
    with threads_for(target.states):
        certificate = _certify(target, question, own)
        if input_box is not None and takes_box(target):
            certificate = _in_box(certificate, input_box, question)
        if input_box is not None and isinstance(target, LayerStack) and rate != "any":
            certificate = stack_ends(certificate, checked_range(input_box, target.inputs, "input_box"), deadline)
    meta = {**certificate.meta, **deadline.meta}
    if target.part:
        meta["part"] = target.part
    if isinstance(rate, float):
        found = certificate.rate if certificate.verdict is Verdict.CERTIFIED else None
        meta["asked_rate"] = rate
        meta["asked_rate_reached"] = found is not None and fast_enough(found, rate, target.is_discrete)
    return replace(certificate, meta={**meta, "seconds": round(time.monotonic() - started, 4), "seed": int(seed)})


def boxed(subject: Any, input_box: Any) -> Any:
    """A subject whose inputs stay in a box; one whose claims hold for every input is as it was.

    Raises:
        ConfigurationError: a subject without inputs, or no box.
    """
    if input_box is None:
        return subject
    if not hasattr(subject, "inputs"):
        raise ConfigurationError(
            f"an input box has no meaning for a {type(subject).__name__}: it has no inputs; give E (U in a file), the "
            "input matrix"
        )
    box = checked_range(input_box, subject.inputs, "input_box")
    with_inputs = getattr(subject, "with_inputs", None)
    return subject if with_inputs is None else with_inputs(box.low, box.high)


def _in_box(bare: Certificate, input_box: Any, question: Question) -> Certificate:
    """What holds of a network under inputs in a box: what is certified under every input stays the main claim."""
    box = checked_range(input_box, bare.subject.inputs, "input_box")
    meta = {**bare.meta, "input_box": [box.low.tolist(), box.high.tolist()]}
    inside = bare.verdict is Verdict.REFUTED and (bare.meta.get("witness") or {}).get("input_in_data_range") is True
    certified = bare.verdict is Verdict.CERTIFIED
    if inside or (certified and (question.rate != "best" or question.deadline.stops("driven"))):
        return replace(bare, meta=meta)
    from stability.search.input_sets.driven import driven_contraction  # with zonotopes
    from stability.search.input_sets.limit_sets import claims_in_box

    claim, finding = driven_contraction(
        bare.subject, input_box, rate=question.rate, tol=question.tol, time_limit=question.deadline
    )
    proved = claim.verdict is Verdict.CERTIFIED
    more = () if question.rate == "any" else claims_in_box(bare.subject, claim, finding, question.deadline, bare.claims)
    if certified:  # with one equilibrium for every input
        faster = proved and 1.0 - (claim.value or 1.0) > FASTER * (1.0 - (bare.rate or 0.0))
        more = tuple(c for c in more if c.name != "equilibrium_in_box")
        return replace(bare, claims=(*bare.claims, *((claim,) if faster else ()), *more), meta=meta)
    claims = tuple(c for c in (bare.claim, *bare.claims, *more) if c.verdict is not Verdict.INCONCLUSIVE)
    return replace(
        bare,
        claim=claim,
        criterion="driven" if proved else None,
        rate=claim.value,
        overshoot=overshoot_of(claim) if proved else None,
        findings=(*bare.findings, finding),
        claims=claims,
        meta=meta,
    )


def _lure_claim(subject: Any, findings: list[Finding], wanted: Rate, tol: float) -> tuple[Claim, Finding] | None:
    """The claim of the fastest finding whose witness its rule accepts, with its overshoot; among those as fast within
    the tolerance, the one of the smallest overshoot.
    """
    system = subject.system
    discrete = system.is_discrete
    sign = 1.0 if discrete else -1.0
    usable = [f for f in findings if f.holds and f.rate is not None and "P" in f.witness]
    made: list[tuple[Claim, Finding, float]] = []
    for finding in sorted(usable, key=lambda f: sign * round(float(f.rate or 0.0), 9)):
        rate = float(finding.rate or 0.0)
        if not fast_enough(rate, wanted, discrete):
            continue
        if made and abs(rate - made[0][2]) > tol * (1.0 - made[0][2] if discrete else made[0][2]):
            break
        p = np.ascontiguousarray(finding.witness["P"], dtype=np.float64)
        multipliers = np.ascontiguousarray(finding.witness["L"], dtype=np.float64)
        if finding.criterion not in ("multiplier", "construction") and not check_lmi(system, p, multipliers, rate)[0]:
            continue
        claim = contraction_claim(subject, Witness(rate, {"P": p, "L": multipliers}))
        if claim is not None:
            made.append((claim, finding, rate))
    return min(made, key=lambda x: round(overshoot_of(x[0]), 9))[:2] if made else None


def _lure(subject: LureSystem | DrivenSystem, question: Question, own: Any) -> _Found:
    """A Lur'e system or a network with one: the ladder, at the rate asked for, else at the best there is."""
    system = subject.system
    wanted = parse_rate(question.rate, system)
    tol = question.tol if question.tol is not None else default_tolerance(system)
    for rate in (wanted, "best") if isinstance(wanted, float) else (wanted,):
        asked = question if rate == wanted else replace(question, rate=rate)
        findings = lure_findings(system, asked, own)
        made = _lure_claim(subject, findings, rate, tol)
        if made is not None:
            return _Found(tuple(findings), made[0], made[1].criterion, asked.rate, decided=True)
    return _Found(tuple(findings))


def _refuse_other(own: str, question: Question, whose: str) -> None:
    if question.criterion not in ("auto", own):
        about = "Lur'e systems" if question.criterion in _OF_SYSTEMS else "other subjects"
        raise UnsupportedError(f"the {question.criterion} criterion is about {about}; {whose} has criterion {own}")


def _gated(cell: GatedCell, question: Question, own: Any) -> _Found:
    """A gated cell: bounds of its gates over an invariant box, at the rate asked for, else at the best there is."""
    _refuse_other("interval", question, "a gated cell")
    for rate in (question.rate, "best") if isinstance(question.rate, float) else (question.rate,):
        findings = gated_findings(cell, rate=rate, time_limit=question.deadline)
        made = gated_proof(cell, findings)
        if made is not None:
            return _Found(findings, made[0], made[1].criterion, rate, decided=True)
    return _Found(findings)


def _pairs(subject: PairwiseSystem, question: Question, own: Any) -> _Found:
    """An activation on pairs of units: a norm of the weights that it does not stretch."""
    _refuse_other("pairwise", question, "a network with an activation on pairs")
    findings = tuple(tried("pairwise", lambda: [pairwise_criterion(subject)], question.deadline))
    claim = pairwise_claim(subject, findings[0])
    return _Found(findings, claim, findings[0].criterion if claim else None, decided=claim is not None)


def _stack(stack: LayerStack, question: Question, own: Any) -> _Found:
    """A stack: every layer by itself, from the proof that it carries where it has one, then the composition."""
    carried = own.get("layers", ()) if isinstance(own, dict) else ()
    carried = carried if len(carried) == len(stack.layers) else (None,) * len(stack.layers)
    rate: Rate = "any" if question.rate == "any" else "best"
    parts: list[Certificate] = []
    for k, (layer, one) in enumerate(zip(stack.layers, carried)):
        share = question.deadline.share(1.0 / (len(carried) + 1 - k))  # as much for every layer and for the whole
        region = question.use.get("input_range") if k < stack.directions else None  # who reads the inputs themselves
        use = {} if region is None else {"input_range": region}
        part = replace(question, criterion="auto", rate=rate, deadline=share, use=use, further=False)
        parts.append(_certify(layer, part, one))
    findings, claim = layer_findings(parts, stack.is_discrete), stack_claim(stack, parts)
    if claim is None or claim.proof is None:
        return _Found(findings, decided=all(part.verdict is Verdict.CERTIFIED for part in parts))
    kind = claim.proof.kind
    meta = parts[claim.proof.data["layer"]].meta if kind == "cascade_layer" else {}
    decided = claim.verdict is not Verdict.INCONCLUSIVE or all(part.verdict is Verdict.CERTIFIED for part in parts)
    return _Found(findings, claim, kind, meta=meta, decided=decided)


def _opaque(step: OpaqueMap, question: Question, own: Any) -> _Found:
    """A step that nothing here is about: the reason stands where margins would."""
    _refuse_other("auto", question, "a step that no criterion can read")
    return _Found((Finding("form", False, None, step.why),), decided=True)


def _residual(network: ResidualStack, question: Question, own: Any) -> _Found:
    """Residual blocks: every layer by itself, then the composition; no witness against the whole is looked for."""
    _refuse_other("cascade", question, "a network of residual blocks")
    carried = own.get("layers", ()) if isinstance(own, dict) else ()
    carried = carried if len(carried) == len(network.layers) else (None,) * len(network.layers)
    rate: Rate = "any" if question.rate == "any" else "best"
    parts: list[Certificate] = []
    for k, (layer, one) in enumerate(zip(network.layers, carried)):
        share = question.deadline.share(1.0 / (len(carried) + 1 - k))
        part = replace(question, criterion="auto", rate=rate, deadline=share, use={}, further=False, refute=False)
        parts.append(_certify(layer, part, one))
    claim = residual_claim(network, parts)
    return _Found(layer_findings(parts, True), claim, None if claim is None else "cascade", decided=True)


_CRITERIA: tuple[tuple[tuple[type, ...], Callable[[Any, Question, Any], _Found]], ...] = (
    ((LureSystem, DrivenSystem), _lure),
    ((GatedCell,), _gated),
    ((PairwiseSystem,), _pairs),
    ((LayerStack,), _stack),
    ((OpaqueMap,), _opaque),
    ((ResidualStack,), _residual),
)
"""Who asks the criteria about which subjects."""


def _certify(subject: Any, question: Question, own: Any) -> Certificate:
    """Criteria, then the search for a witness against, then further claims."""
    criteria = next((find for types, find in _CRITERIA if isinstance(subject, types)), None)
    if criteria is None:
        raise UnsupportedError(f"there is no criterion for a {type(subject).__name__}")
    found = criteria(subject, question, own)
    claim, criterion, findings, meta = found.claim, found.criterion, found.findings, found.meta
    if question.refute and not found.decided and not question.deadline.stops("refutation"):
        result = _search(subject, question)
        findings += result.findings
        if result.proof is not None and (claim is None or result.found):
            claim, criterion, meta = result.claim, result.proof.kind, _witness_meta(result, question)
    claim = claim or open_claim(subject)
    overshoot = overshoot_of(claim) if claim.verdict is Verdict.CERTIFIED else None
    further = further_claims(subject, claim, rate=found.rate, deadline=question.deadline) if question.further else ()
    return Certificate(subject, claim, criterion, claim.value, overshoot, findings, further, meta)


def _search(subject: Any, question: Question) -> Refutation:
    limit = question.deadline.share(0.7).named("refutation")  # the rest for weaker claims
    if isinstance(subject, LayerStack):  # the layers of its lowest level were searched by themselves
        seen = checked_range(question.use.get("input_range"), subject.inputs)
        from stability.search.counterexamples.stack import search_stack

        found = search_stack(subject, search_witness, seed=question.seed, time_limit=limit, lowest=False, region=seen)
        return replace(found, findings=())
    return search_witness(subject, seed=question.seed, time_limit=limit, **question.use)


def _witness_meta(result: Refutation, question: Question) -> dict[str, Any]:
    """What ``meta`` says of a witness: whether it can happen in use, where anything is known of the use."""
    if not question.use:
        return {}
    known = {"input_in_data_range": result.input_in_data_range, "states_reachable": result.states_reachable}
    return {"witness": known}
