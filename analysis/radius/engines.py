"""The searches for local certificates by their norm; what they give was accepted by the checker's rules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.certificate import Claim
from stability.local.classifier import Classifier

Engine = Callable[..., list[Claim | None]]
_FILES = {"l2": "stability.local.ellipsoids", "linf": "stability.local.planes"}
ENGINES: dict[str, Engine] = {
    norm: import_module(name).largest_balls for norm, name in _FILES.items() if find_spec(name) is not None
}
"""``largest_balls`` of each norm."""


def largest_balls(
    norm: str, subject: Classifier, x: NDArray[np.float64], y: NDArray[np.int64], **told: Any
) -> list[Claim | None]:
    """Claims about balls around inputs, as large as the engine of a norm finds them; ``None`` where it finds none."""
    engine = ENGINES.get(norm)
    return [None] * len(x) if engine is None else engine(subject, x, y, **told)
