"""The searches for local certificates by their norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.certificate import Claim
from stability.local.classifier import Classifier

ENGINES: dict[str, Callable[..., list[Claim | None]]] = {}


def largest_balls(
    norm: str, subject: Classifier, x: NDArray[np.float64], y: NDArray[np.int64], **told: Any
) -> list[Claim | None]:
    """Claims about balls around inputs, as large as they are found, by the engine of a norm."""
    engine = ENGINES.get(norm)
    return [None] * len(x) if engine is None else engine(subject, x, y, **told)
