r"""Measured recovery time: two runs under the same inputs, one of them disturbed once.

The network reads a sequence, then its state is disturbed by a vector of given norm, and both copies read the same
sequence repeatedly. The recovery time is the last step at which they differ by the tolerance. The certified bound for
every state, disturbance and input is ``stability.recovery.recovery_time``; no measured time may exceed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import NonFiniteError

from ..drawn import Curve
from ..guard import check_int, check_number
from ..results import Record
from ..unroll import after_sequences, flat_state, shaped_state

if TYPE_CHECKING:
    from ..campaign.work import Work

SIZE, TOL, LIMIT, FORGOTTEN = 1.0, 1e-3, 1000, 1e-6
"""Settings of a report: norm of the disturbance, tolerance, most steps, and the share of the
tolerance below which a difference counts as gone for good.
"""


@dataclass(frozen=True, eq=False)
class MeasuredRecovery(Record):
    """Steps until disturbed runs have returned to the undisturbed ones.

    Attributes:
        size: Euclidean norm of the disturbance.
        tol: a run has returned when the difference stays below this number.
        steps: ``(sequences, directions)``, NaN if the runs still differed at the end.
        limit: number of steps after the disturbance.
    """

    curve = Curve("step", ("still_apart",), words="share of runs not yet recovered", steps=True)

    size: float
    tol: float
    steps: np.ndarray = field(repr=False)
    limit: int

    def curves(self) -> pd.DataFrame:
        """Return the share of runs that have not returned, after each step at which a run returned."""
        every = np.sort(self.steps, axis=None)
        at = np.unique(np.concatenate([[0.0], every[np.isfinite(every)], [float(self.limit)]]))
        return pd.DataFrame({"step": at, "still_apart": [1.0 - float((every <= step).mean()) for step in at]})

    @property
    def worst(self) -> float | None:
        """Longest recovery time of all runs in steps; ``None`` if one did not return."""
        return None if np.isnan(self.steps).any() else float(self.steps.max())

    @property
    def median(self) -> float | None:
        """Median recovery time of all runs in steps; ``None`` if half of them did not return."""
        middle = float(np.sort(np.where(np.isnan(self.steps), np.inf, self.steps), axis=None)[self.steps.size // 2])
        return middle if np.isfinite(middle) else None

    @property
    def recovered(self) -> float:
        """Share of runs that returned."""
        return float(1.0 - np.isnan(self.steps).mean())


def measured_recovery(
    model: nn.Module,
    x: Tensor,
    *,
    size: float = SIZE,
    tol: float = TOL,
    directions: int = 4,
    limit: int = LIMIT,
    seed: int = 0,
    part: str | None = None,
) -> MeasuredRecovery:
    """Measure the steps until a disturbance of the state has decayed, along given sequences, in float64.

    Args:
        model: a recurrent layer, or a model that contains one (``torch.nn``'s included).
        x: ``(batch, time, features)``, inputs of the model; the disturbance follows the last step, then ``x`` is
            repeated.
        size: Euclidean norm of the disturbance of the complete state (``(h, c)`` of an LSTM).
        tol: difference below which a run has returned.
        directions: number of random disturbances of each sequence's state.
        limit: most steps after the disturbance.
        seed: seed of the directions.
        part: path of the layer, if the model contains several.

    Returns:
        The number of steps until each run returned.

    Raises:
        ConfigurationError: bad options or a bad tensor.
        DimensionError: a wrong shape.
        NonFiniteError: states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> from stability.models import ContractingRNN
        >>> measured_recovery(ContractingRNN(1, 4, rate=0.5), torch.zeros(2, 5, 1), tol=0.26).worst <= 2
        True
    """
    size, tol = check_number("size", size, strict=True), check_number("tol", tol, strict=True)
    directions, limit = check_int("directions", directions), check_int("limit", limit)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        layer, prepared, drives, state = after_sequences(model, x, part)
        flat = flat_state(state)
        batch, n = flat.shape
        generator = torch.Generator().manual_seed(check_int("seed", seed, 0))
        push = torch.randn(directions, batch, n, generator=generator, dtype=torch.float64).to(flat.device)
        push *= size / push.norm(dim=2, keepdim=True)
        runs = torch.cat([flat[None], flat + push]).reshape(-1, n)
        state, copies = shaped_state(runs, state), directions + 1
        drives = [d.repeat(copies, *[1] * (d.dim() - 1)) for d in drives]
        last = torch.where(push.norm(dim=2) >= tol, 0.0, -1.0)
        for t in range(1, limit + 1):
            state = layer.transition(drives[(t - 1) % len(drives)], state, prepared)
            flat = flat_state(state).reshape(copies, batch, n)
            far = (flat[1:] - flat[0]).norm(dim=2)
            if not torch.isfinite(far).all():
                raise NonFiniteError(f"the state {t} steps after the disturbance", "the network diverges")
            last[far >= tol] = t
            if float(far.max()) < FORGOTTEN * tol:
                break
    steps = np.where(last.cpu().numpy() >= limit, np.nan, last.cpu().numpy() + 1.0)
    return MeasuredRecovery(size, tol, steps.T, limit)


def recovery_step(work: Work) -> None:
    """Run the step ``recovery`` of an analysis and write its files."""
    model, x = work.whole_sequences(min(work.budget.samples, work.budget.trajectories))
    result = measured_recovery(model, x, seed=work.seed)
    work.write_result("recovery.json", result, runs=result.steps.size)
