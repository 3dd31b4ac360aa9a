"""Search for a counterexample to contraction, by the type of the subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stability.arguments import as_positive, as_vector
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.search.counterexamples.gated import search_gated
from stability.search.counterexamples.lure import search_lure_system, search_network
from stability.search.counterexamples.refutation import Candidate, Refutation, RefutationTask, first_accepted
from stability.search.counterexamples.stack import search_stack
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.trajectories.input_range import ANYWHERE
from stability.search.trajectories.input_range import input_range as checked_range


def refute(
    subject: Any,
    *,
    seed: int = 0,
    time_limit: TimeLimit = None,
    input_range: Any = None,
    start: Any = None,
    horizon: int | None = None,
    effort: float = 1.0,
) -> Refutation:
    """Search for a witness against exponential incremental stability.

    For a bare ``LureSystem`` ("for every activation with these slopes"): constant slopes ``K`` that make
    ``A + B K (I - D K)^{-1} C`` unstable. For a network ("its weights, bias and activation, for every
    input"): an unstable linear part that the bounded activation cannot hold back, an unstable equilibrium or orbit
    under a constant or periodic input, or two equilibria or orbits under one input. Constant slopes are only a finding
    there. For a stack: a witness against a layer of its lowest level, one against the stack as one network, or two
    orbits of the whole stack. For a network with an activation on pairs: what its norms, eigenvalues and biases decide.
    Every witness returned has passed its rule: it is a proof.

    Args:
        subject: a system, or anything that ``stability.conversion.subjects.as_subject`` turns into one.
        seed: seed of the random starts.
        time_limit: seconds, or the deadline of the call that this one is part of: a safety net, respected between
            eigenvalue problems. What is tried is counted, so that without it the answer depends on nothing else.
        input_range: ``(low, high)``, the range of the data's inputs, where witnesses are looked for first.
        start: the initial state in use, zero by default.
        horizon: number of steps in use; the result says whether the witness's states are reachable within it.
        effort: multiplies the number of attempts.

    Returns:
        The witness, or none; without one nothing is proved.

    Raises:
        ConfigurationError: a seed, time limit, range, horizon or effort that is none.
        DimensionError: a range or start of another size than the network's.
        UnsupportedError: when the subject is no system.

    Source:
        Ascent of the spectral abscissa: J. V. Burke, A. S. Lewis, M. L. Overton, "Two numerical methods for
        optimizing matrix stability" (2002); equilibria and orbits by R. Krawczyk's test (1969).

    Example:
        >>> refute(LureSystem.recurrent([[-1.0]], [[2.0]])).proof.kind
        'destabilising_slopes'
        >>> refute(LureSystem.recurrent([[-2.0]], [[1.0]])).proof is None
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    effort = as_positive("effort", effort)
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 0):
        raise ConfigurationError(f"horizon must be None or a number of steps >= 0, got {horizon!r}")
    target = as_subject(subject)
    search = _SEARCHES.get(type(target))
    if search is None:
        detail = "no search for counterexamples exists for this kind of system; this proves nothing"
        return Refutation(None, "", (), detail)
    bare = isinstance(target, LureSystem)
    if start is not None and not bare:
        n = target.states
        start = as_vector("start", start, n, f"start must be a vector of {n} real numbers")
    return search(
        RefutationTask(
            target,
            int(seed),
            Deadline.from_limit(time_limit).named("refutation"),
            ANYWHERE if bare else checked_range(input_range, target.inputs),
            None if bare else start,
            None if horizon is None else int(horizon),
            effort,
        )
    )


def _search_layers(search: RefutationTask) -> Refutation:
    return search_stack(search.subject, refute, seed=search.seed, time_limit=search.deadline, region=search.region)


def search_pairwise(search: RefutationTask) -> Refutation:
    """Try an isometry, an eigenvalue of ``W`` and jumps of the activation, in this order."""
    return first_accepted(
        search, _pairwise_candidates(search.subject), "the norm and eigenvalues of W and the biases do not decide it"
    )


def _pairwise_candidates(subject: PairwiseSystem) -> Iterator[Candidate]:
    yield "pair_isometry", {}
    if subject.activation != "modrelu":
        return
    if not subject.orthogonal:
        values = np.linalg.eigvals(subject.W)
        largest = values[np.argmax(np.abs(values))]
        if abs(largest) >= 1.0 - 1e-9:
            yield "pair_linear", {"eigenvalue": [float(largest.real), abs(float(largest.imag))]}
    for pair in np.argsort(-subject.b)[: int((subject.b > 0.0).sum())]:
        yield "pair_jump", {"pair": int(pair)}


_SEARCHES: dict[type, Callable[[RefutationTask], Refutation]] = {
    LureSystem: search_lure_system,
    DrivenSystem: search_network,
    GatedCell: search_gated,
    PairwiseSystem: search_pairwise,
    LayerStack: _search_layers,
}
