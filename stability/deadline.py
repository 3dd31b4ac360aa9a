"""One deadline for a whole call: made from ``time_limit`` at the door, handed inward, asked between steps of the work.

Without a limit nothing here reads the clock: searches count their attempts, so results depend on the input, the seed
and the options alone. With one, running out is an outcome: whoever asks stops with the best found so far, and the
deadline remembers whom it stopped.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic

from stability.errors import ConfigurationError

__all__ = ["Deadline", "TimeLimit"]


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock after which no new step of the work begins.

    Attributes:
        end: that moment, in seconds of ``time.monotonic``; infinite without a limit.

    Example:
        >>> deadline = Deadline.after(None)
        >>> deadline.over, deadline.left(), deadline.seconds
        (False, inf, None)
        >>> spent = Deadline.after(0)
        >>> spent.over, spent.stops("circle"), spent.stopped
        (True, True, ('circle',))
    """

    end: float = math.inf
    _stopped: dict[str, None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def after(cls, time_limit: TimeLimit) -> Deadline:
        """The deadline of a call: the one place where a time limit is checked.

        Args:
            time_limit: seconds from now, ``None`` for no limit, or a deadline, which is handed on as it is.

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

    def left(self) -> float:
        """Seconds left: never negative, infinite without a limit."""
        return math.inf if math.isinf(self.end) else max(self.end - monotonic(), 0.0)

    @property
    def seconds(self) -> float | None:
        """Seconds left as an option of a solver: ``None`` without a limit, and never quite zero."""
        return None if math.isinf(self.end) else max(self.left(), 1e-3)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return not math.isinf(self.end) and monotonic() >= self.end

    def stops(self, search: str) -> bool:
        """Whether the time is over; if it is, the search of this name is remembered as stopped.

        Args:
            search: a short name, as it shall stand in ``certificate.meta["cut"]``.

        Returns:
            ``over``.
        """
        over = self.over
        if over:
            self._stopped.setdefault(search)
        return over

    @property
    def stopped(self) -> tuple[str, ...]:
        """Names of the searches that ended because the time was over, in the order in which they did."""
        return tuple(self._stopped)

    def note(self, searches: Iterable[str]) -> None:
        """Remember searches that another deadline stopped."""
        for search in searches:
            self._stopped.setdefault(search)

    def share(self, fraction: float) -> Deadline:
        """A deadline after this fraction of the time left; what it stops, this one remembers too."""
        if math.isinf(self.end):
            return self
        return Deadline(monotonic() + fraction * self.left(), self._stopped)


TimeLimit = float | Deadline | None
"""What a ``time_limit`` may be: seconds, no limit, or the deadline of the call that this one is a part of."""

