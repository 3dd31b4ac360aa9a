r"""Two runs under one input, replayed in floating point, and when that counts as evidence against contraction.

A replay proves nothing: rounding alone keeps two runs of a contracting network apart, and slow contraction looks
like none. So each run has a companion, which starts beside it on the line to the other run, a thousandth of the way:
:math:`c_1 = x_1 + \theta (x_2 - x_1)`. Where the gap of the runs shrinks too slowly to be seen, the companion's
distance does so as well, at the same relative speed. It has to *fall* to a tenth while the gap stays (each run
attracts its neighbours, and not the other run) or to *rise* tenfold (neighbours part). What moves so little that
neither can be told is no evidence. And the gap must lie far above rounding at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
THETA = 1e-3
FLOOR = 1e-6  # the gap, relative to one plus the largest state
KEEP = 1.0 - 1e-6  # of the gap, from the first half of the run to the second
FALL, RISE = 0.1, 10.0  # of a companion's distance, in the last quarter of the run
MIN_LENGTH = 8


@dataclass(frozen=True, eq=False)
class Replay:
    """What was seen along two runs.

    Attributes:
        gaps: ``(steps + 1,)`` Euclidean distances of the two runs, from the start on.
        sizes: ``(steps + 1,)`` the largest absolute entry of the two states.
        beside: ``(2, steps + 1)`` distances of each run from its companion, relative to the start.
        last: ``(2, n)`` the states at the end.
    """

    gaps: Array
    sizes: Array
    beside: Array
    last: Array


def replay(advance: Callable[[Array, Array], Array], first: Array, second: Array, inputs: Array, steps: int) -> Replay:
    """Run two states and their companions under a periodic input.

    Args:
        advance: one step for a batch, ``(4, n)``, ``(4, p)`` to ``(4, n)``.
        first: ``(n,)`` state.
        second: ``(n,)`` state.
        inputs: ``(k, p)`` inputs, used in turn; ``(p,)`` a constant one.
        steps: how many.

    Returns:
        The distances; NaN from the first step on that is not finite.

    Example:
        >>> run = replay(lambda x, u: 0.5 * x, np.ones(1), -np.ones(1), np.zeros(1), 8)
        >>> run.gaps[:3].tolist()
        [2.0, 1.0, 0.5]
    """
    inputs = np.atleast_2d(inputs)
    x = np.stack([first, second, first + THETA * (second - first), second + THETA * (first - second)])
    gaps, sizes, beside = np.full(steps + 1, np.nan), np.full(steps + 1, np.nan), np.full((2, steps + 1), np.nan)
    for t in range(steps + 1):
        difference, near = x[0] - x[1], x[2:] - x[:2]
        gaps[t], sizes[t] = np.sqrt(difference @ difference), np.abs(x[:2]).max()
        beside[:, t] = np.sqrt(np.einsum("in,in->i", near, near))
        if not np.isfinite(x).all():
            break
        if t < steps:
            x = advance(x, np.broadcast_to(inputs[t % len(inputs)], (4, inputs.shape[1])))
    with np.errstate(all="ignore"):
        return Replay(gaps, sizes, beside / beside[:, :1], x[:2])


def least_gap(run: Replay) -> float:
    """The gap that the run may be said to keep: half of the least one seen."""
    return 0.5 * float(run.gaps.min())


def why_not_apart(run: Replay, gap: float) -> str | None:
    """Why a run is no evidence that its two trajectories stay apart; ``None`` where it is.

    Args:
        run: the replay.
        gap: the stated least distance.

    Returns:
        The reason in a clause, or ``None``.

    Example:
        >>> bistable = replay(lambda x, u: np.tanh(3 * x), np.ones(1), -np.ones(1), np.zeros(1), 100)
        >>> why_not_apart(bistable, 1.0) is None
        True
        >>> still = replay(lambda x, u: (1 - 1e-13) * x, np.ones(1), -np.ones(1), np.zeros(1), 100)
        >>> why_not_apart(still, 1.0)
        'neighbours of the trajectories neither join them nor leave them: slow contraction would look the same'
    """
    gaps, half, last = run.gaps, len(run.gaps) // 2, len(run.gaps) - len(run.gaps) // 4
    if len(gaps) < MIN_LENGTH:
        return "the run is too short"
    if not np.isfinite(gaps).all():
        return "a replayed trajectory does not stay finite"
    if not (gap > 0.0 and gaps.min() >= gap):
        return "the replayed trajectories come closer than the stated gap"
    if not (gaps >= FLOOR * (1.0 + run.sizes)).all() or gap < FLOOR * (1.0 + float(run.sizes.max())):
        return "the gap is too small against the size of the states to be told from rounding"
    fell = run.beside[:, last:].max(axis=1) <= FALL
    rose = np.median(run.beside[:, last:], axis=1) >= RISE
    if not (fell | rose).all():
        return "neighbours of the trajectories neither join them nor leave them: slow contraction would look the same"
    first, second = float(gaps[:half].min()), float(gaps[half:].min())
    if not second >= (KEEP if fell.all() else FALL) * first:
        return "the replayed trajectories approach each other"
    return None
