r"""RMS normalization of a signal inside a layer, as in FalconMamba and Jamba."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.directed_functions import lower, upper
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.serialization import subject
from stability.kernel.systems.input_signals import Array, Derived, NormBall, Rows, Signal, as_signal


@subject("normalized_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Normalized(Derived):
    r"""RMSNorm of a signal of ``n`` entries: :math:`w * x / \sqrt{|x|^2 / n + \epsilon}`.

    Extremes and norms are those of the ball :math:`w * z`, :math:`\|z\|_2 \le \sqrt n`, whatever the source. The
    Jacobian without ``w`` has the norm :math:`1 / \sqrt{|x|^2 / n + \epsilon} \le 1 / \sqrt\epsilon` at most.

    Args:
        weight: ``w (n,)``.
        source: signal ``x``.
        eps: epsilon, > 0.

    Raises:
        DimensionError: a weight that is no vector.
        ConfigurationError: an epsilon that is not positive, or sizes that do not fit.
    """

    weight: Any
    source: Signal
    eps: float
    ball: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.eps, float) and 0.0 < self.eps < np.inf):
            raise ConfigurationError(f"a normalized signal needs a positive eps, got {self.eps!r:.40}")
        ball = NormBall(self.weight)
        if as_signal(self.source).size != ball.size:
            raise ConfigurationError(f"{ball.size} weights do not fit to a signal of {self.source.size} entries")
        self._set(weight=ball.weight, ball=ball)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        r"""Return :math:`\mp \sqrt n \|g * w\|_2`, rounded outwards."""
        return self.ball.extremes(rows)

    def _bounds(self) -> tuple[Array, Array]:
        return self.ball.bounds

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the norms of the ball."""
        return self.ball.norms(groups, scales)

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the largest ``|s w|`` of every part times the source's constant over ``sqrt(eps)``."""
        factors = self.ball.lipschitz_norms(groups, self._scales(scales) * self.weight)
        slope = self.source.whole_constant / lower(np.sqrt(self.eps), 4 * EPS)
        return upper(factors * slope, 16 * EPS)
