"""Search for a certificate: ``certify`` checks its arguments and runs the stages one after another.

A criterion that holds proposes a witness; the rule that ``verify`` uses decides whether it counts.
"""

from __future__ import annotations

import time
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.checkpoint_certificate import find_checkpoint_layers
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.arithmetic.definiteness import FLUSHED, flushes_small_numbers
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.parts import part_of
from stability.search.as_it_runs import as_model, with_run
from stability.search.certification_stages import (
    Progress,
    add_further_claims,
    bound_stack_in_box,
    claim_contraction_in_box,
    run_stages,
    search_counterexamples,
    try_criteria,
)
from stability.search.criteria.lure import NAMES, Options
from stability.search.gated_linear import certify_checkpoint, certify_gated_layer
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import Rate, parse_rate, reaches_rate
from stability.search.trajectories.input_range import input_range as checked_range
from stability.threads import threads_for

ALIASES = {"kyp": "circle", "positive_real": "circle"}
"""Aliases of the circle criterion, which is decided as strict positive realness (Kalman-Yakubovich-Popov)."""
CRITERIA = ("auto", *NAMES, "interval", "pairwise", "cascade")
STAGES = (
    try_criteria,  # criteria for the subject's type, in order of cost, until one proves contraction
    search_counterexamples,  # if no criterion holds
    add_further_claims,  # bounds, equilibria, gains, slower rates with a smaller overshoot
    claim_contraction_in_box,  # contraction under inputs in a stated box
    bound_stack_in_box,
)


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
    arithmetic: Any = None,
) -> Any:
    """Certify or refute global exponential incremental stability (contraction), or bounds of gated linear layers.

    Args:
        subject: a ``LureSystem`` (the claim is about every activation with its slopes), a ``DrivenSystem``, a layer
            or module with a system (the claim is about that network under every input), a ``GatedCell`` or a
            ``LayerStack`` or a ``GatedLinearLayer``; once ``stability.models`` is imported also a model's name or path,
            as on the command line, or its state dict.
        criterion: ``"auto"`` for all that apply, or one of ``CRITERIA``; also ``"kyp"`` for ``circle`` (see
            ``ALIASES``).
        solver: ``"riccati"`` (structured), ``"cvxpy"`` (SDP) or ``"auto"``, for the multiplier criterion.
        rate: ``"best"``: the best rate within ``tol``, with a small overshoot; slower rates with a smaller overshoot
            are further claims. ``"any"``: only some rate, the fastest search. A number: at least this rate; if it
            cannot be proved, the certificate has the best rate that can. Then ``meta`` holds the number as
            ``asked_rate``, and as ``asked_rate_reached`` whether it was proved.
        tol: relative tolerance of the best rate; by default 1e-6 up to 64 states and 1e-3 for more.
        time_limit: seconds for the whole call, exceeded by at most one factorization. After that time the best result
            so far is returned, and ``certificate.meta["cut"]`` names the searches that were stopped. Without a limit
            the searches count their attempts, so that equal subject, options and seed give an equal certificate.
        refute: search for a counterexample if no proof was found.
        criteria: ``"needed"``: once the multiplier inequality is proved, the criteria that it implies (small gain,
            circle) are evaluated for their margins only; ``"all"``: each also searches for its own best rate.
        seed: seed of the searches.
        input_box: ``(low, high)``, numbers or ``(p,)``: bounds of every input, for claims about such inputs. If the
            network contracts under every input, that is the main claim, and a faster rate in the box may be a further
            one. Otherwise the main claim is ``driven_contraction``, proved on sets of states that the network enters
            under such inputs; the result for every input, such as a refutation, is then a further claim. All claims
            about gated cells are about the box.
        input_range: ``(low, high)``, the range of the data's inputs, in which counterexamples are searched first. The
            claim is still about every input. With a range or a horizon, ``certificate.meta["witness"]`` says whether
            the counterexample can occur in use: ``input_in_data_range``, ``states_reachable`` (``None``: not known).
        start: the initial state in use, zero by default.
        horizon: the number of steps in use. A network on pairs that forgets too slowly for a bound of its rounding at
            all times has one for so many steps.
        arithmetic: adds the claim ``as_it_runs``: a bound, at all steps, on the distance between a run in this
            arithmetic and the network in exact arithmetic, for inputs in ``input_box``, or for a gated linear layer in
            its own input set. A format (``"float32"``,
            ``"bfloat16"``, ``"float16"``, ``"int8"`` or ``"int8:64"`` for the state), ``"module"`` for that of a torch
            module (its dtype, or dynamic quantization), or an ``ExecutionModel``. Where
            nothing is proved, ``certificate.meta["as_it_runs"]`` has the reason.

    Returns:
        A ``Certificate``, or a ``CheckpointCertificate`` for the path of a checkpoint with gated linear layers and for
        a module with several of them; ``certificate.verdict`` is certified, refuted or inconclusive. For a gated linear
        layer the state bound is certified. ``stability.verify`` checks all proofs again.

    Raises:
        ConfigurationError: invalid options, or a processor that flushes subnormal numbers to zero.
        UnsupportedError: an object without a known system, or a criterion for another type.

    Example:
        >>> from stability import LureSystem
        >>> certificate = certify(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> str(certificate.verdict), certificate.criterion, round(certificate.rate, 5), round(certificate.overshoot, 5)
        ('certified', 'theorem1a', 1.0, 1.0)
        >>> str(certify(LureSystem.recurrent([[-1.0]], [[2.0]])).verdict)
        'refuted'
    """
    started, deadline = time.monotonic(), Deadline.from_limit(time_limit)
    criterion = as_choice("criterion", ALIASES.get(str(criterion), criterion), CRITERIA)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    if flushes_small_numbers():
        raise ConfigurationError(f"nothing can be proved here: {FLUSHED}")
    layers = find_checkpoint_layers(subject)
    if layers is not None and (isinstance(subject, (str, PathLike)) or len(list(layers)) > 1):
        _refuse_contraction(criterion, rate)
        return certify_checkpoint(subject, arithmetic=None if arithmetic is None else as_model(arithmetic, subject))
    carried = getattr(subject, "witness", None)
    carried = carried() if callable(carried) else None
    target, model = as_subject(subject), None if arithmetic is None else as_model(arithmetic, subject)
    if isinstance(target, GatedLinearLayer):  # whose claims hold for every input
        _refuse_contraction(criterion, rate)
        return with_run(certify_gated_layer(target), model, None)
    target = restrict_inputs(target, input_box)
    rate = rate if isinstance(rate, str) and rate in ("any", "best") else parse_rate(rate, target)
    use = {"input_range": input_box if input_range is None else input_range, "start": start, "horizon": horizon}
    use = {key: value for key, value in use.items() if value is not None}
    searched = as_choice("criteria", criteria, ("needed", "all")) == "all"
    options = Options(criterion, solver, rate, tol, deadline, int(seed), use, refute, searched, input_box)
    with threads_for(target.states):
        certificate = run_stages(STAGES, Progress(target, options, carried))
    meta = {**certificate.meta, **deadline.meta}
    if part := part_of(target):
        meta["part"] = part
    if isinstance(rate, float):
        proved_rate = certificate.rate if certificate.verdict is Verdict.CERTIFIED else None
        meta["asked_rate"] = rate
        meta["asked_rate_reached"] = proved_rate is not None and reaches_rate(proved_rate, rate, target.is_discrete)
    box = None if input_box is None else checked_range(input_box, target.inputs, "input_box")
    certificate = with_run(
        replace(certificate, meta=meta), model, None if box is None else (box.low, box.high), horizon
    )
    meta = {**certificate.meta, "seconds": round(time.monotonic() - started, 4), "seed": int(seed)}
    return replace(certificate, meta=meta)


def certify_contraction(subject: Any, **options: Any) -> Certificate:
    """Certify a subject, and refuse a certificate that is about bounded states in place of contraction.

    Args:
        subject: see ``certify``.
        **options: those of ``certify``.

    Raises:
        UnsupportedError: a gated linear layer.
    """
    certificate = certify(subject, **options)
    if not isinstance(certificate, Certificate) or isinstance(certificate.subject, GatedLinearLayer):
        raise UnsupportedError("no theorem proves contraction of gated linear layers; certify proves state bounds")
    return certificate


def _refuse_contraction(criterion: str, rate: Rate) -> None:
    if criterion != "auto" or rate not in ("any", "best"):
        raise UnsupportedError(
            "a criterion or a rate is about contraction, and no theorem proves that of a gated linear layer: leave "
            "criterion and rate out"
        )


def restrict_inputs(subject: Any, input_box: Any) -> Any:
    """Restrict the inputs of a subject to a box; a subject whose claims hold for every input is returned unchanged.

    Raises:
        ConfigurationError: a subject without inputs, or an invalid box.
    """
    if input_box is None:
        return subject
    if not hasattr(subject, "inputs"):
        raise ConfigurationError(
            "input_box needs a system with inputs, and this one has none: give its input matrix (E in DrivenSystem, U "
            "in a file), or leave input_box out"
        )
    box = checked_range(input_box, subject.inputs, "input_box")
    with_inputs = getattr(subject, "with_inputs", None)
    return subject if with_inputs is None else with_inputs(box.low, box.high)
