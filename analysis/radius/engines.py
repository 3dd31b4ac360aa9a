"""The searches for local certificates by their norm; what they give was accepted by the checker's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.certificate import Claim
from stability.local import ellipsoids, planes
from stability.local.classifier import Classifier

ENGINES: dict[str, Callable[..., list[Claim | None]]] = {
    "l2": ellipsoids.largest_balls,
    "linf": planes.largest_balls,
}
"""``largest_balls`` of each norm."""


def largest_balls(
    norm: str, subject: Classifier, x: NDArray[np.float64], y: NDArray[np.int64], **told: Any
) -> list[Claim | None]:
    """Claims about balls around inputs, as large as the engine of a norm finds them; ``None`` where it finds none."""
    return ENGINES[norm](subject, x, y, **told)
