"""Estimated memory and time of a certificate."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cholesky

from stability.conversion.subjects import as_subject
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.threads import threads_for

LARGE = 512
"""Number of states from which ``certify`` announces its cost."""
DOUBLES = 35.0
"""Peak memory of a proof in units of ``n^2`` doubles, the interpreter included, measured at 2,048 states."""
FACTORISATIONS = 16.0
"""Time of a proof in units of one Cholesky factorization of a ``2n`` matrix, measured at 1,024 states."""
ATTEMPTS = 20
"""Approximate number of proofs in a search for the best rate, measured at 256 states."""
_PROBE = 400  # rows of the matrix whose factorization is timed


@dataclass(frozen=True)
class Cost:
    """Estimated memory and time of the multiplier inequality of a system.

    Attributes:
        states: ``n``, with the channels where there are more of them.
        memory: bytes of one proof.
        available: free memory of this machine in bytes; ``None`` if unknown.
        seconds: expected time in seconds of one proof (``rate="any"``), extrapolated from a small factorization.
        best: tolerance of the best rate.
    """

    states: int
    memory: int
    available: int | None
    seconds: float
    best: float

    @property
    def fits(self) -> bool:
        """Return True if the memory suffices, as far as is known."""
        return self.available is None or self.memory <= self.available

    @property
    def advice(self) -> str:
        """Return advice in a sentence if memory or time does not suffice; empty otherwise."""
        if not self.fits:
            return (
                "more memory than is free: certify the parts of a stack one by one (FILE#part), use fewer units, or "
                "use a machine with more memory"
            )
        if self.best > 60.0:
            return "to save time, use rate any (any proof at all), or a time limit (the best rate found until then)"
        return ""


def certification_cost(subject: Any) -> Cost | None:
    """Estimate the cost of ``certify`` for a Lur'e system or a network with one.

    Args:
        subject: a system, or anything with one.

    Returns:
        The estimate; ``None`` for subjects whose proofs are other ones (gated cells, stacks, pairs).

    Example:
        >>> cost = certification_cost(LureSystem.recurrent(-2.0 * np.eye(600), np.zeros((600, 600))))
        >>> cost.states, round(cost.memory / 2**20), cost.fits
        (600, 96, True)
    """
    target = as_subject(subject)
    if not isinstance(target, (LureSystem, DrivenSystem)):
        return None
    system = target.system
    n = max(system.states, system.channels)
    probe = np.eye(_PROBE) + 1e-3
    with threads_for(n):
        began = time.perf_counter()
        cholesky(probe, check_finite=False)
        unit = time.perf_counter() - began
    once = FACTORISATIONS * unit * (2.0 * n / _PROBE) ** 3
    return Cost(n, int(8 * DOUBLES * n * n), free_memory(), once, ATTEMPTS * once)


def free_memory() -> int | None:
    """Return the bytes of free memory; ``None`` if the operating system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def cost_notice(subject: Any, rate: Any = "best", time_limit: TimeLimit = None) -> str:
    """Announce the cost of a long certification in a sentence; empty for small systems.

    Args:
        subject: a system, see ``certify``.
        rate: requested rate.
        time_limit: that was given.

    Example:
        >>> cost_notice(LureSystem.linear([[-1.0]]))
        ''
    """
    states = max(getattr(subject, "states", 0), getattr(getattr(subject, "system", None), "channels", 0))
    if states < LARGE:
        return ""
    cost = certification_cost(subject)
    if cost is None:
        return ""
    seconds = cost.seconds if rate == "any" else cost.best
    limit = Deadline.from_limit(time_limit).seconds
    within = "" if limit is None else f", stopped after {limit:.0f} s"
    words = f"{cost.states} states: about {_duration_text(seconds)}{within}, {cost.memory / 2**30:.2g} GiB"
    return f"{words}; {cost.advice}" if cost.advice else words


def _duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
