"""Stages of ``certify``: criteria, counterexamples, further claims, claims for a range of inputs.

Every stage takes the findings so far and returns them with its own; no stage removes an earlier finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from stability.certificate import Certificate, Finding
from stability.errors import UnsupportedError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.opaque import OpaqueMap
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.residual_stack import ResidualStack
from stability.search.counterexamples.counterexample_search import refute as search_witness
from stability.search.counterexamples.stack import search_stack
from stability.search.criteria.contraction_claim import fastest_claim, open_claim, overshoot_of
from stability.search.criteria.interval import fastest_gated_claim, gated_findings
from stability.search.criteria.lure import NAMES, Options, guarded_findings, lure_findings
from stability.search.criteria.multiplier import default_tolerance
from stability.search.criteria.pairwise import pairwise_claim, pairwise_criterion
from stability.search.criteria.stack_contraction import layer_findings, stack_claim
from stability.search.further_claims import further_claims
from stability.search.gains.residual import residual_claim
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import allows_box_claims, claims_in_box
from stability.search.input_sets.stack_bounds import stack_bounds
from stability.search.solvers.rates import Rate
from stability.search.trajectories.input_range import InputRange, input_range

FASTER = 1.05
"""Factor by which the decay ``1 - rho`` under inputs in a box must exceed that under every input for a separate claim.
"""
SHARE_OF_REFUTATION = 0.7
"""Share of the remaining time for the search for counterexamples; weaker claims get the rest."""


@dataclass(frozen=True)
class Progress:
    """Claims and findings about one subject between two stages of ``certify``.

    Attributes:
        subject: the subject.
        options: options of the call.
        carried: the proof that the model carries, or ``None``.
        claim: contraction under every input that the subject allows, certified or refuted; ``None`` while it is open.
        criterion: the criterion or the kind of witness that decided ``claim``.
        claim_in_box: contraction under inputs in a box, certified or open; ``None`` if it was not examined.
        findings: the outcome of every criterion tried.
        claims: the further claims.
        meta: notes for the certificate.
        rate: the rate of the criteria that proved the claim: the requested one, or the best one if that is not proved.
        decided: whether no counterexample can exist, or a search for one is useless.
    """

    subject: Any
    options: Options
    carried: Any = None
    claim: Claim | None = None
    criterion: str | None = None
    claim_in_box: Claim | None = None
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    rate: Rate = "best"
    decided: bool = False

    @property
    def is_certified(self) -> bool:
        """Return True if contraction is certified under every input that the subject allows."""
        return self.claim is not None and self.claim.verdict is Verdict.CERTIFIED

    @property
    def box(self) -> InputRange:
        """Return the range of inputs that the call states."""
        return input_range(self.options.input_box, self.subject.inputs, "input_box")

    def extend(self, findings: Sequence[Finding], claim: Claim | None = None, **more: Any) -> Progress:
        """Add findings and the claim, if they prove one."""
        return replace(self, findings=(*self.findings, *findings), claim=claim or self.claim, **more)


Stage = Callable[[Progress], Progress]


def run_stages(stages: Sequence[Stage], progress: Progress) -> Certificate:
    """Run stages one after another and return the certificate.

    The main claim is the one about every input, unless only the claim about inputs in a box remained to be proved.
    """
    for stage in stages:
        progress = stage(progress)
    main, criterion, claims = progress.claim or open_claim(progress.subject), progress.criterion, progress.claims
    if progress.claim_in_box is not None:
        main = progress.claim_in_box
        criterion = "driven" if main.verdict is Verdict.CERTIFIED else None
        claims = claims if progress.claim is None else (progress.claim, *claims)
    overshoot = overshoot_of(main) if main.verdict is Verdict.CERTIFIED else None
    return Certificate(
        progress.subject, main, criterion, main.value, overshoot, progress.findings, claims, progress.meta
    )


def try_criteria(progress: Progress) -> Progress:
    """Evaluate the criteria for the subject's type in order of cost, until one proves contraction."""
    subject, criterion = progress.subject, progress.options.criterion
    for types, names, criteria in _CRITERIA:
        if isinstance(subject, types):
            if criterion not in ("auto", *names):
                known = " or ".join(names) or "auto"
                raise UnsupportedError(
                    f"criterion {criterion} does not apply to this kind of system: use {known}, or leave it out"
                )
            return criteria(progress)
    raise UnsupportedError(f"no criterion applies to {subject.phrase}")


Proved = tuple[Claim, Finding] | None


def _try_at_rates(
    evaluate: Callable[[Progress, Options], tuple[Sequence[Finding], Proved]], progress: Progress
) -> Progress:
    """Evaluate criteria at the requested rate, and at the best rate if that is out of reach."""
    options, findings = progress.options, ()
    for rate in (options.rate, "best") if isinstance(options.rate, float) else (options.rate,):
        findings, proved = evaluate(progress, replace(options, rate=rate))
        if proved is not None:
            return progress.extend(findings, proved[0], criterion=proved[1].criterion, rate=rate, decided=True)
    return progress.extend(findings)


def _prove_lure_system(progress: Progress, options: Options) -> tuple[Sequence[Finding], Proved]:
    system = progress.subject.system
    findings = lure_findings(system, options, progress.carried)
    tol = options.tol if options.tol is not None else default_tolerance(system)
    return findings, fastest_claim(progress.subject, findings, options.rate, tol)


def _prove_gated_cell(progress: Progress, options: Options) -> tuple[Sequence[Finding], Proved]:
    findings = gated_findings(progress.subject, rate=options.rate, time_limit=options.deadline)
    return findings, fastest_gated_claim(progress.subject, findings)


def _prove_pairwise(progress: Progress, options: Options) -> tuple[Sequence[Finding], Proved]:
    findings = guarded_findings("pairwise", lambda: [pairwise_criterion(progress.subject)], options.deadline)
    claim = pairwise_claim(progress.subject, findings[0])
    return findings, None if claim is None else (claim, findings[0])


def _try_stack(progress: Progress) -> Progress:
    """Certify every layer of a stack separately, then the composition."""
    stack = progress.subject
    parts = _certify_layers(progress, refute=progress.options.refute, reads_inputs=stack.directions)
    findings, claim = layer_findings(parts, stack.is_discrete), stack_claim(stack, parts)
    if claim is None or claim.proof is None:
        return progress.extend(findings, decided=all(part.verdict is Verdict.CERTIFIED for part in parts))
    kind = claim.proof.kind
    meta = parts[claim.proof.data["layer"]].meta if kind == "cascade_layer" else {}
    return progress.extend(findings, claim, criterion=kind, meta=meta, decided=True)


def _try_residual_blocks(progress: Progress) -> Progress:
    """Certify every layer of residual blocks separately, then the composition, without a search for counterexamples."""
    parts = _certify_layers(progress, refute=False, reads_inputs=0)
    claim = residual_claim(progress.subject, parts)
    return progress.extend(
        layer_findings(parts, True), claim, criterion=None if claim is None else "cascade", decided=True
    )


def _certify_layers(progress: Progress, *, refute: bool, reads_inputs: int) -> list[Certificate]:
    """Certify every layer separately, from the proof that it carries if it has one.

    The first ``reads_inputs`` layers read the inputs of the whole, and so have their range.
    """
    layers, options, carried = progress.subject.layers, progress.options, progress.carried
    proofs = carried.get("layers", ()) if isinstance(carried, dict) else ()
    proofs = proofs if len(proofs) == len(layers) else (None,) * len(layers)
    rate: Rate = "any" if options.rate == "any" else "best"
    parts: list[Certificate] = []
    for k, (layer, proof) in enumerate(zip(layers, proofs)):
        share = options.deadline.share(1.0 / (len(layers) + 1 - k))  # as much for every layer and for the whole
        region = options.use.get("input_range") if k < reads_inputs else None
        use = {} if region is None else {"input_range": region}
        part = replace(options, criterion="auto", rate=rate, deadline=share, use=use, refute=refute, input_box=None)
        parts.append(run_stages((try_criteria, search_counterexamples), Progress(layer, part, proof)))
    return parts


def _explain_opaque(progress: Progress) -> Progress:
    """Return the reason why no criterion applies to an opaque step as the only finding."""
    return progress.extend((Finding("form", False, None, progress.subject.why),), decided=True)


_CRITERIA: tuple[tuple[tuple[type, ...], tuple[str, ...], Stage], ...] = (
    ((LureSystem, DrivenSystem), NAMES, partial(_try_at_rates, _prove_lure_system)),
    ((GatedCell,), ("interval",), partial(_try_at_rates, _prove_gated_cell)),
    ((PairwiseSystem,), ("pairwise",), partial(_try_at_rates, _prove_pairwise)),
    ((LayerStack,), ("cascade", "interval", "pairwise", *NAMES), _try_stack),
    ((ResidualStack,), ("cascade",), _try_residual_blocks),
    ((OpaqueMap,), (), _explain_opaque),
)
"""Criteria for each type of subject, with the names that select one."""


def search_counterexamples(progress: Progress) -> Progress:
    """Search for a proof that the subject does not contract, if the criteria left this open."""
    subject, options = progress.subject, progress.options
    if not options.refute or progress.decided or options.deadline.stops("refutation"):
        return progress
    limit = options.deadline.share(SHARE_OF_REFUTATION).named("refutation")
    if isinstance(subject, LayerStack):  # the layers of its lowest level were searched by themselves
        region = input_range(options.use.get("input_range"), subject.inputs)
        result = search_stack(subject, search_witness, seed=options.seed, time_limit=limit, lowest=False, region=region)
        result = replace(result, findings=())
    else:
        result = search_witness(subject, seed=options.seed, time_limit=limit, **options.use)
    if result.proof is None:
        return progress.extend(result.findings)
    known = {"input_in_data_range": result.input_in_data_range, "states_reachable": result.states_reachable}
    meta = {"witness": known} if options.use else {}
    return progress.extend(result.findings, result.claim, criterion=result.proof.kind, meta=meta)


def add_further_claims(progress: Progress) -> Progress:
    """Add further true claims: bounds, equilibria, gains, slower rates of smaller overshoot."""
    main = progress.claim or open_claim(progress.subject)
    more = further_claims(progress.subject, main, rate=progress.rate, deadline=progress.options.deadline)
    return replace(progress, claims=(*progress.claims, *more))


def claim_contraction_in_box(progress: Progress) -> Progress:
    """Examine contraction under inputs in the stated box, if this can exceed the claim about every input."""
    subject, options = progress.subject, progress.options
    if options.input_box is None or not allows_box_claims(subject):
        return progress
    box = progress.box
    progress = replace(progress, meta={**progress.meta, "input_box": [box.low.tolist(), box.high.tolist()]})
    if (progress.meta.get("witness") or {}).get("input_in_data_range") is True:  # the box is refuted, too
        return progress
    if progress.is_certified and (options.rate != "best" or options.deadline.stops("driven")):
        return progress
    settings = {"rate": options.rate, "tol": options.tol, "time_limit": options.deadline}
    claim, finding = driven_contraction(subject, options.input_box, **settings)
    more = claims_in_box(subject, claim, finding, options.deadline, progress.claims) if options.rate != "any" else ()
    if not progress.is_certified:
        findings, claims = (*progress.findings, finding), (*progress.claims, *more)
        return replace(progress, claim_in_box=claim, findings=findings, claims=claims)
    rate, every = claim.value or 1.0, progress.claim.value if progress.claim is not None else None
    faster = claim.verdict is Verdict.CERTIFIED and 1.0 - rate > FASTER * (1.0 - (every or 0.0))
    more = tuple(c for c in more if c.name != "equilibrium_in_box")  # there is one for every input
    return replace(progress, claims=(*progress.claims, *((claim,) if faster else ()), *more))


def bound_stack_in_box(progress: Progress) -> Progress:
    """Bound the final states of a stack under inputs in its own or the stated box, if no other claim does."""
    subject, options = progress.subject, progress.options
    if not isinstance(subject, LayerStack) or options.rate == "any":
        return progress
    first = subject.layers[0]
    box = None if first.input_low is None or first.input_high is None else (first.input_low, first.input_high)
    known = any(c.name == "bounded_in_box" for c in progress.claims)
    if (box is None and options.input_box is None) or known or options.deadline.stops("bounds in the box"):
        return progress
    low, high = box or (progress.box.low, progress.box.high)
    claim = stack_bounds(subject, low, high, time_limit=options.deadline)
    if claim is None:
        return progress
    meta = progress.meta if box else {**progress.meta, "input_box": [low.tolist(), high.tolist()]}
    return replace(progress, claims=(*progress.claims, claim), meta=meta)
