r"""Contraction under inputs in a box: search for absorbing sets and the multiplier inequality on them.

A claim about every input is lost with the first input under which a network does not contract. Inputs of a range, and
biases that keep units saturated, leave the activation's derivative a narrower interval in every channel, on which the
same inequality may hold. The rule ``driven_lmi`` makes the sets again; here they are made until they no longer shrink:
zonotopes first, then linear bounds traced back through several steps, at last with the latest inputs told apart. Where
they stay wide, trajectories are drawn to one run that does not (``search/input_sets/near_run.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.errors import ConfigurationError, StabilityError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided_in_box
from stability.kernel.systems.delayed_stack import delayed_network
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.absorbing_sets import why_no_zonotopes
from stability.kernel.theorems.driven_lmi import slopes_on
from stability.proposals import accepted_claim
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.input_sets.flows import flow_contraction
from stability.search.input_sets.narrowing import NarrowedBounds, initial_box, narrowed_bounds
from stability.search.input_sets.near_run import contraction_near_run
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import Rate
from stability.search.solvers.spectral_bounds import rate_proof
from stability.search.trajectories.input_range import input_range

Array = np.ndarray
_HOPELESS = -0.4
"""Margin on linear bounds below which deeper bounds or split inputs have not helped in tests."""
TOLERANCE = 1e-3
"""Tolerance of the best rate: a finer one is useless on sets that are bounds themselves, and for a stack whose layers
only feed one another it needs unbounded scales and overshoots.
"""
_SAYS = 0.1
"""Share of the linear part's decay below which a rate is searched again on narrower sets."""
_STILL = 0.8
"""Relative width of the sets below which another search near a run starts."""


def driven_contraction(
    subject: DrivenSystem | LayerStack,
    input_box: Any,
    *,
    rate: Rate = "best",
    tol: float | None = None,
    time_limit: TimeLimit = None,
) -> tuple[Claim, Finding]:
    r"""Prove that any two trajectories approach each other under every input in a box, from a known step on.

    Args:
        subject: a network: a map, its activation bounded and smooth (tanh, sigmoid) or piecewise linear (of one
            without a bound, like ReLU, without feedthrough), or a stack of such layers with one activation; or a
            flow without feedthrough whose activation is bounded and whose linear part is stable.
        input_box: ``(low, high)``, numbers or ``(p,)``.
        rate: ``"best"``, ``"any"``, or a number: at least this rate.
        tol: relative tolerance of the best rate, see ``multiplier_criterion``; 1e-3 by default.
        time_limit: seconds.

    Returns:
        The claim ``driven_contraction``, certified or open, and the outcome in words; of an open one the witness holds
        the data of the last sets (``claims_in_box`` says what they prove).

    Raises:
        ConfigurationError: no box, or an empty one.
        DimensionError: a box of another size than the inputs.

    Cost:
        ``O((w + 1) n^2 (n + m))`` a step of the zonotopes with a window of ``w`` steps, ``O(k s m^2 n)`` a round of
        linear bounds over ``k`` steps and ``s`` sequences of cells, and after each kind a search for multipliers.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[1.5]], dt=1.0)
        >>> claim, _ = driven_contraction(DrivenSystem(cell, "tanh", [[1.0]], [1.5]), (-0.1, 0.1))
        >>> str(claim.verdict), claim.value < 0.05
        ('certified', True)
    """
    box = input_range(input_box, subject.inputs, "input_box")
    if not box.bounded:
        raise ConfigurationError("input_box must be (low, high), the range of the inputs, got None")
    low, high = (np.ascontiguousarray(np.broadcast_to(end, (subject.inputs,))) for end in (box.low, box.high))
    tol, deadline = TOLERANCE if tol is None else tol, Deadline.from_limit(time_limit).named("driven")
    with np.errstate(all="ignore"):
        if isinstance(subject, LayerStack) or subject.is_discrete:
            return _contraction_of_map(subject, low, high, rate, tol, deadline)
        claim, finding = flow_contraction(subject, low, high, rate, tol, deadline)
        return claim or Claim("driven_contraction", undecided_in_box(subject), Verdict.INCONCLUSIVE), finding


def _contraction_of_map(
    whole: DrivenSystem | LayerStack, low: Array, high: Array, rate: Rate, tol: float, deadline: Deadline
) -> tuple[Claim, Finding]:
    subject = delayed_network(whole) if isinstance(whole, LayerStack) else whole
    first = (
        subject if isinstance(subject, str) else why_no_zonotopes(subject) or initial_box(subject, low, high, deadline)
    )
    if isinstance(first, str) or isinstance(subject, str):
        return _open_claim(whole, str(first))
    if isinstance(whole, LayerStack) and "Y" in first:
        return _open_claim(whole, "for stacks the proof needs linear parts whose absolute values decay: |A| r < r")
    search = _Search(whole, subject, rate, tol, deadline, _SAYS * (1.0 - first["share"]) if rate == "best" else 0.0)
    width, data = math.inf, {}
    for sets in narrowed_bounds(subject, low, high, first, deadline):
        width, data = sets.width, sets.data
        try:
            if search.examine_sets(sets):
                break
        except StabilityError as error:
            why = f"the slope bounds define no valid system: {error}"
            return search.best or _open_claim(whole, why, search.margin, data)
    words = "the time limit was reached" if deadline.cut else f"no proof for state sets of mean width {width:.3g}"
    return search.best or _open_claim(whole, words, search.margin, data)


class _Search:
    """Search on a sequence of narrowing sets, with the best claim so far.

    Attributes:
        best: the claim of the fastest rate, with its outcome; ``None`` before the first.
        margin: the largest by which the inequality held on sets, or failed.
    """

    def __init__(
        self,
        whole: DrivenSystem | LayerStack,
        subject: DrivenSystem,
        rate: Rate,
        tol: float,
        deadline: Deadline,
        enough: float,
    ) -> None:
        self._whole, self._subject, self._rate, self._tol = whole, subject, rate, tol
        self._deadline, self._enough, self._tried = deadline, enough, math.inf
        self.best: tuple[Claim, Finding] | None = None
        self.margin: float | None = None

    def examine_sets(self, sets: NarrowedBounds) -> bool:
        """Search on these sets, and near a run in them; return True if narrower ones are not needed.

        Raises:
            StabilityError: the slopes on them make no system.
        """
        if not self._subject.system.channels:
            return False  # the rate of a linear map is the same under every input: its sets bound the states alone
        inner = slopes_on(self._subject, sets.low, sets.high)
        finding = multiplier_criterion(
            inner, rate=self._rate, solver="riccati", tol=self._tol, time_limit=self._deadline
        )
        self.margin = finding.margin if self.margin is None else max(self.margin, finding.margin or self.margin)
        claim, before = _claim(self._whole, finding, sets), _margin(self.best)
        if claim is None and self.best is not None:
            return True
        if claim is not None:
            words = f"for state sets of mean width {sets.width:.3g}, {sets.settled} steps after entry"
            reached = self._keep((claim, Finding("driven", True, finding.margin, words, finding.rate)))
            if reached >= self._enough or reached < 1.1 * before:
                return True
        if self._near_a_run(sets) >= self._enough and self.best is not None:
            return True
        hopeless = finding.margin is not None and finding.margin < _HOPELESS
        return claim is None and "backward" in sets.data and hopeless

    def _near_a_run(self, sets: NarrowedBounds) -> float:
        """Search near a run in the sets, if they are new; return the best margin after it."""
        if self._whole is self._subject and sets.width < _STILL * self._tried:
            self._tried = sets.width
            claim = contraction_near_run(self._subject, sets.data, self._rate, self._tol, self._deadline)
            if claim is not None:
                self._keep(claim)
        return _margin(self.best)

    def _keep(self, result: tuple[Claim, Finding]) -> float:
        """Keep the finding if it decays faster than the best so far; return its margin."""
        if self.best is None or _margin(result) > _margin(self.best):
            self.best = result
        return _margin(result)


def _margin(result: tuple[Claim, Finding] | None) -> float:
    """Return the proved decay margin of a finding; zero without one."""
    return 0.0 if result is None else result[1].margin or 0.0


def _open_claim(
    subject: DrivenSystem | LayerStack, why: str, margin: float | None = None, sets: Mapping[str, Any] | None = None
) -> tuple[Claim, Finding]:
    claim = Claim("driven_contraction", undecided_in_box(subject), Verdict.INCONCLUSIVE)
    return claim, Finding("driven", False, margin, why, witness=sets or {})


def _claim(subject: DrivenSystem | LayerStack, finding: Finding, sets: NarrowedBounds) -> Claim | None:
    """Return the claim if its rule accepts it."""
    proof = rate_proof(finding.witness, finding.rate) if finding.holds else None
    if proof is None:
        return None
    data = {**proof, **sets.data}
    if isinstance(subject, LayerStack):
        return accepted_claim(subject, "stack_driven", {**data, "levels": len(subject.layers)})
    return accepted_claim(subject, "driven_lmi", data)
