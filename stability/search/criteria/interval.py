r"""Contraction of LSTM and GRU cells on an invariant box.

Two tests over the same state box, both with witnesses that the kernel checks:

* **interval**: a positive vector ``d`` with ``sup |J| d <= rho d`` over the box certifies
  ``max_i |delta_i(t)| / d_i`` to shrink by ``rho`` a step (Collatz-Wielandt).
* **interval_lmi**: the difference of two trajectories is a Lur'e system with one slope interval a channel, taken
  from the gates; the multiplier inequality then gives a quadratic norm. It sees the signs of the weights.

Published conditions of the same kind, which these contain: Terzi, Bonassi, Farina, Scattolini, "Learning model
predictive control with long short-term memory networks", Int. J. Robust Nonlinear Control 31 (2021), theorem 1
(delta-ISS, LSTM); Bonassi, Farina, Scattolini, "On the stability properties of gated recurrent units neural
networks", Systems & Control Letters 157 (2021), theorem 2 (delta-ISS, GRU).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.errors import UnsupportedError
from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.claims import Claim
from stability.kernel.systems.gated_bounds import JacobianBound, embedding, invariant_box
from stability.kernel.systems.gated_cell import GatedCell
from stability.proposals import accepted_claim
from stability.search.criteria.multiplier import multiplier_criterion, rate_ceiling
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit
from stability.search.solvers.rates import Rate
from stability.search.solvers.spectral_bounds import rate_proof

Array = np.ndarray
BACK_OFF = 1.0 + 1e-10
"""Factor of a stored rate over the computed one, so that another machine's rounding verifies it too."""
_FARTHEST, _SWEEPS = 1e3, 400
"""Largest ratio of weights in the norm; most power iterations."""
_FOR_THE_BOX = 1.0 / 3.0
"""Share of the time for the search of a box; the proof takes about as many rounds."""
EIGENVALUES = 100.0
"""Operations of the first eigenvalue problem on a slow core, in units of n^3; it cannot be interrupted."""


def interval_criterion(cell: GatedCell, *, time_limit: TimeLimit = None) -> Finding:
    """Evaluate entrywise bounds of the Jacobian over the invariant box, with a Perron vector.

    Args:
        cell: the cell.
        time_limit: seconds; the best vector until then is the answer.

    Returns:
        The finding; ``rate`` is ``rho``, ``margin`` is ``1 - rho``. The witness holds ``low``, ``high`` (the state
        box), ``d``, ``rate`` and ``overshoot``.

    Raises:
        UnsupportedError: when it is no gated cell.

    Example:
        >>> cell = GatedCell("gru", np.ones((3, 1)), 0.1 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
        >>> finding = interval_criterion(cell)
        >>> finding.holds, round(finding.rate, 2)
        (True, 0.79)
    """
    deadline = Deadline.from_limit(time_limit).named("interval")
    box = _invariant_box(cell, deadline)
    if box is None:
        return Finding("interval", False, None, _why_no_box(cell, deadline))
    rate, d = _perron(JacobianBound(cell, box).apply, cell.states, deadline)
    if deadline.cut and not rate < 1.0:
        return Finding("interval", False, None, TOO_LATE)
    if not np.isfinite(rate):
        return Finding("interval", False, None, "the bounds of the Jacobian overflow: the weights are too large")
    rate *= BACK_OFF
    if not rate < 1.0:
        words = f"the entrywise bound of the Jacobian has spectral radius {rate:.4g}, to be below 1"
        return Finding("interval", False, 1.0 - rate, words)
    overshoot = float(np.nextafter(d.max() / d.min(), np.inf))
    witness = {"low": box.low, "high": box.high, "d": d, "rate": rate, "overshoot": overshoot}
    width = float(box.magnitude.max())
    words = f"|J| d <= {rate:.6g} d over the invariant box, largest half-width {width:.3g}"
    return Finding("interval", True, 1.0 - rate, words, rate, witness)


def interval_lmi_criterion(cell: GatedCell, *, rate: Rate = "best", time_limit: TimeLimit = None) -> Finding:
    """Evaluate the multiplier inequality of the difference system over the invariant box.

    Args:
        cell: the cell.
        rate: ``"best"``, ``"any"`` or a number, as for ``multiplier_criterion``.
        time_limit: seconds; the best rate until then is the answer.

    Returns:
        The finding; the witness holds ``low``, ``high``, ``P``, ``L``, ``rate``.

    Raises:
        UnsupportedError: when it is no gated cell.
    """
    deadline = Deadline.from_limit(time_limit).named("interval_lmi")
    if deadline.over:
        return Finding("interval_lmi", False, None, TOO_LATE)
    box = _invariant_box(cell, deadline)
    if box is None:
        return Finding("interval_lmi", False, None, _why_no_box(cell, deadline))
    if not deadline.affords(EIGENVALUES * cell.states**3):
        return Finding("interval_lmi", False, None, TOO_LATE)
    system = embedding(cell, box)
    ceiling = rate_ceiling(system, deadline=deadline, enough=1.0)
    if not ceiling < 1.0:
        words = f"some constant gates give spectral radius {ceiling:.4g}, so no quadratic norm contracts"
        return Finding("interval_lmi", False, 1.0 - ceiling, words)
    # six channels a unit: a rate to one part in a hundred is worth the wait, more is not
    tol = 1e-3 if cell.states <= 32 else 1e-2
    finding = multiplier_criterion(system, rate=rate, tol=tol, time_limit=deadline)
    witness = {"low": box.low, "high": box.high, "rate": finding.rate, **finding.witness} if finding.holds else {}
    return replace(finding, criterion="interval_lmi", witness=witness)


def gated_findings(cell: GatedCell, *, rate: Rate = "best", time_limit: TimeLimit = None) -> tuple[Finding, ...]:
    """Evaluate both tests, the cheap one first; with ``rate="any"`` the second only if the first fails.

    Args:
        cell: the cell.
        rate: ``"best"``, ``"any"`` or a number.
        time_limit: seconds for both.

    Returns:
        One or two findings.
    """
    deadline = Deadline.from_limit(time_limit)
    first = interval_criterion(cell, time_limit=deadline)
    if first.margin is None:  # no invariant box: the second test has nothing to stand on either
        return (first,)
    if first.holds and first.rate is not None and not isinstance(rate, str) and first.rate > rate:
        detail = f"{first.detail}; slower than the requested rate {rate:g}"
        first = Finding("interval", False, rate - first.rate, detail, first.rate)
    if first.holds and rate != "best":
        return (first,)
    return first, interval_lmi_criterion(cell, rate=rate, time_limit=deadline)


def fastest_gated_claim(cell: GatedCell, findings: Iterable[Finding]) -> tuple[Claim, Finding] | None:
    """Return the claim of the fastest finding that its rule accepts.

    Args:
        cell: the cell.
        findings: result of ``gated_findings``.

    Returns:
        The certified claim with the finding behind it, or ``None``.
    """
    usable = [f for f in findings if f.holds and f.rate is not None and f.rate < 1.0]
    for finding in sorted(usable, key=lambda f: f.rate or 1.0):
        data: dict[str, Any] = dict(finding.witness)
        if "P" in data:
            data |= rate_proof(data, finding.rate) or {}
        claim = accepted_claim(cell, "interval_lmi" if "P" in data else "interval_jacobian", data)
        if claim is not None:
            return claim, finding
    return None


def _invariant_box(cell: GatedCell, deadline: Deadline) -> Interval | None:
    """Return the invariant box of a gated cell, cached unless the deadline interrupts."""
    if not isinstance(cell, GatedCell):
        raise UnsupportedError(f"the interval criterion needs a GatedCell (LSTM or GRU), got {type(cell).__name__}")
    return invariant_box(cell, affords=deadline.share(_FOR_THE_BOX).affords)


def _why_no_box(cell: GatedCell, deadline: Deadline) -> str:
    if deadline.cut:
        return TOO_LATE
    if cell.input_low is None:
        return "a forget gate comes arbitrarily close to 1 under large inputs: state a range of inputs (input_box)"
    return "a forget gate may reach 1 in float64, so no invariant box of the cell state is known"


def _perron(apply: Callable[[Array], Array], n: int, deadline: Deadline) -> tuple[float, Array]:
    """Return a positive ``d`` with a small ``max apply(d) / d``, by damped power iteration with a floor under ``d``."""
    best, weights = np.inf, np.ones(n)
    for floor in (0.1, 1.0 / _FARTHEST):
        d, stalled = weights, 0
        for _ in range(_SWEEPS):
            if deadline.over or stalled > 20:
                break
            with np.errstate(over="ignore", invalid="ignore"):
                image = apply(d)
                rate = float(np.max(image / d))
            if not np.isfinite(rate):
                break
            stalled += 1
            if rate < best * (1.0 - 1e-9):
                best, weights, stalled = rate, d, 0
            d = 0.5 * d + 0.5 * image / image.max()
            d = np.maximum(d / d.max(), floor)
    return best, weights
