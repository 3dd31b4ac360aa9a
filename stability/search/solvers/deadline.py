"""Time limits: one deadline for a whole call, checked between steps.

Without a limit no search reads the clock: searches count their attempts, so results depend on the input, the seed and
the options alone. With a limit, a search that runs out of time returns its best result, and the deadline records the
name of the search.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from stability.errors import ConfigurationError

TOO_LATE = "undecided when the time limit was reached"
STOPPED = "stopped by the time limit: a better rate may exist"
"""Text of findings whose search was stopped by the deadline."""
PACE = 4e9
"""Floating-point operations per second of dense eigenvalue problems on a slow core, for steps of known cost."""


class TimeOverError(Exception):
    """End of a computation within a search, which catches it and returns its best result; callers never see it."""


@dataclass(frozen=True)
class Deadline:
    """Moment on the monotonic clock after which no new step of the work begins.

    Attributes:
        end: that moment, in seconds of ``time.monotonic``; infinite without a limit.
        search: name of the search that asks; once it hears that the time is over, it is remembered as stopped.

    Example:
        >>> deadline = Deadline.from_limit(None)
        >>> deadline.over, deadline.left(), deadline.seconds
        (False, inf, None)
        >>> spent = Deadline.from_limit(0)
        >>> spent.named("small_gain").over, spent.stopped
        (True, ('small_gain',))
    """

    end: float = math.inf
    search: str = ""
    _stopped: dict[str, None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_limit(cls, time_limit: TimeLimit) -> Deadline:
        """Return the deadline of a call, after checking its time limit.

        Args:
            time_limit: seconds from now, ``None`` for no limit, or a deadline, which is returned unchanged.

        Returns:
            The deadline.

        Raises:
            ConfigurationError: a time limit that is no number of seconds >= 0.
        """
        if isinstance(time_limit, Deadline):
            return time_limit
        if time_limit is None:
            return cls()
        # a NaN fails the comparison
        if isinstance(time_limit, bool) or not isinstance(time_limit, numbers.Real) or not float(time_limit) >= 0.0:
            raise ConfigurationError(f"time_limit must be None or a number of seconds >= 0, got {time_limit!r}")
        return cls(math.inf if math.isinf(float(time_limit)) else monotonic() + float(time_limit))

    def named(self, search: str) -> Deadline:
        """Return this deadline in the name of a search; a name that it already has stays.

        Args:
            search: a short name, as it shall stand in ``certificate.meta["cut"]``.
        """
        return self if self.search else replace(self, search=search)

    def share(self, fraction: float) -> Deadline:
        """Return a deadline after this fraction of the remaining time; a stop of it is recorded here too."""
        return self if math.isinf(self.end) else replace(self, end=monotonic() + fraction * self.left())

    def left(self) -> float:
        """Return the remaining seconds: never negative, infinite without a limit."""
        return math.inf if math.isinf(self.end) else max(self.end - monotonic(), 0.0)

    @property
    def seconds(self) -> float | None:
        """Return the remaining seconds as a solver option: ``None`` without a limit, and never quite zero."""
        return None if math.isinf(self.end) else max(self.left(), 1e-3)

    @property
    def over(self) -> bool:
        """Return True once the time is over; call it before a step, so that True records a stopped search."""
        over = not math.isinf(self.end) and monotonic() >= self.end
        if over and self.search:
            self._stopped.setdefault(self.search)
        return over

    def stops(self, search: str) -> bool:
        """Return ``over``, recorded in the name of a search."""
        return self.named(search).over

    def require(self, operations: float = 0.0) -> None:
        """Raise an error when the time is over, for computations called back from library loops.

        Args:
            operations: number of operations of the next step, if it is long and its cost is known.

        Raises:
            TimeOverError: when the time is over, or too short for that step.
        """
        if self.over or not self.affords(operations):
            raise TimeOverError

    def affords(self, operations: float) -> bool:
        """Return True if the remaining time suffices for a step of known cost that cannot be interrupted.

        Without a limit every step has. A no counts as being stopped, as ``over`` does.

        Args:
            operations: floating-point operations of the step, judged at ``PACE`` of them a second.

        Example:
            >>> Deadline.from_limit(None).affords(1e30), Deadline.from_limit(1).affords(1e12)
            (True, False)
        """
        if math.isinf(self.end):
            return True
        fits = operations <= self.left() * PACE
        if not fits and self.search:
            self._stopped.setdefault(self.search)
        return fits

    @property
    def cut(self) -> bool:
        """Return True if the search of this name was stopped."""
        return self.search in self._stopped

    @property
    def meta(self) -> dict[str, Any]:
        """Return the entry ``cut`` of ``certificate.meta``: the stopped searches, if any."""
        return {"cut": self.stopped} if self._stopped else {}

    @property
    def stopped(self) -> tuple[str, ...]:
        """Return the names of the stopped searches in order."""
        return tuple(self._stopped)


TimeLimit = float | Deadline | None
"""Time limit: seconds, no limit, or the deadline of the enclosing call."""
