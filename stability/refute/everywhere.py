"""The witness of equilibria that are unstable under every constant input: it only takes one eigenvalue problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.refute.orbits import centre_of
from stability.refute.spectrum import leading_value
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import closed_loop_orbit
from stability.rules.unstable_everywhere import why_not_everywhere
from stability.systems import DrivenSystem

__all__ = ["unstable_everywhere_data"]


def unstable_everywhere_data(driven: DrivenSystem) -> dict[str, Any] | None:
    """Data of an ``unstable_everywhere`` proof, or ``None`` where the network has none.

    Args:
        driven: the network.

    Returns:
        The data; the rule decides whether they prove anything.
    """
    slopes = np.ones(driven.system.channels)
    if why_not_everywhere(driven) is not None:
        return None
    size, value = leading_value(driven.system, slopes)
    if not size > 0.0:
        return None
    return {"eigenvalue": centre_of(closed_loop_orbit(driven.system, Ball.exact(slopes[None])), value)}
