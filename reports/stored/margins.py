"""Margins of a proof: factors of slopes and step, whose own certificates are checked again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.errors import StabilityError
from stability.kernel.format.claims import Verdict
from stability.scaled_loops import loop_system, scale_slopes, scale_step
from stability.systems import LureSystem
from stability.verification import verify

SCALED: dict[str, Callable[[LureSystem, float], LureSystem | None]] = {"gain": scale_slopes, "step": scale_step}
"""Target of a factor: the slopes (the same as the weights into the activation), or an integrator's step."""
ENDS = {"certified": Verdict.CERTIFIED, "destabilising": Verdict.REFUTED}
MATRICES = ("A", "B", "C", "D", "alpha", "beta", "dt")


def read_margins(folder: Path, document: Mapping[str, Any], changed: Collection[str] = ()) -> dict[str, float]:
    """Return the factors of a model whose certificates verify and are about the model's loop scaled by that factor.

    Args:
        folder: folder of the model, whose certificate verifies.
        document: ``margin.json``.
        changed: files that are not those that the analysis wrote.

    Returns:
        Factors by name: ``gain_certified``, ``gain_destabilising``, ``step_certified``, ``step_destabilising``.
    """
    names = [f"{kind}_{end}" for kind in SCALED for end in ENDS]
    factors = {n: float(document[n]) for n in names if document.get(n) is not None and np.isfinite(document[n])}
    if not factors:
        return {}
    try:
        loop = loop_system(Certificate.load(folder / "certificate.json").subject)
    except StabilityError:
        return {}
    return {n: f for n, f in factors.items() if f"margin_{n}.json" not in changed and _holds(folder, n, f, loop)}


def _holds(folder: Path, name: str, factor: float, loop: LureSystem) -> bool:
    kind, end = name.split("_")
    path = folder / f"margin_{name}.json"
    if not path.is_file() or not verify(path).valid:
        return False
    stored, scaled = Certificate.load(path), SCALED[kind](loop, factor)
    if stored.verdict is not ENDS[end] or not isinstance(stored.subject, LureSystem) or scaled is None:
        return False
    return all(np.array_equal(getattr(stored.subject, m), getattr(scaled, m)) for m in MATRICES)
