"""Step ``local``: certified and attacked radii of single inputs, and the least robust inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import nn

from stability.errors import UnsupportedError

from ...models.gated import GatedLayer
from .local import LocalRadius, local_radius

if TYPE_CHECKING:
    from stability.kernel.format.claims import Claim

    from ..campaign.work import Work

NORM = "l2"
SHOWN = 2
"""Number of inputs whose perturbation is kept for a figure."""
LARGEST = 4096
"""Most entries of an input that is kept for a figure."""


def local_step(work: Work) -> None:
    """Run the step ``local`` of an analysis and write its files."""
    model, x, y, _ = work.answers(_count(work))
    if y.ndim > 1:
        raise UnsupportedError("needs one class for each sequence")
    options = {"scale": work.deviations.double().cpu(), "restarts": work.budget.restarts, "seed": work.seed}
    result = local_radius(model, x, y, norm=NORM, **options)
    frame = result.frame().loc[:, ["index", "label", "correct", "radius", "attack_radius", "seconds"]]
    frame["correct"] = result.correct.astype(int)
    frame["attack_radius"] = np.where(np.isinf(result.attack_radius), np.nan, result.attack_radius)
    work.write_table("local.csv", frame)
    work.write_json("local.json", summary(result))
    work.write_table("local_inputs.csv", least_robust(result, x.detach().double().cpu().numpy()))


def _count(work: Work) -> int:
    """Return how many inputs get a radius of their own."""
    kinds = (GatedLayer, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell)
    gated = work.model is not None and any(isinstance(part, kinds) for part in work.model.modules())
    return work.budget.gated if gated else work.budget.certified


def summary(result: LocalRadius) -> dict[str, object]:
    """Return medians of the radii over the correctly classified inputs, and their gap.

    Args:
        result: result of ``local_radius``.

    Returns:
        ``norm``, ``samples``, ``correct``, ``proved``, ``counted`` (correctly classified inputs whose search has a
        fixed number of trials), ``median_radius``, ``median_attack``, ``median_ratio``, ``strip`` (mean of attacked
        minus certified radius where an attack succeeded) and ``seconds`` an input; of a network that packs its
        sequences also ``shortest``, ``longest`` (own steps) and ``unread``.
    """
    document, ratio = result.to_dict(), result.ratio
    lengths = result.lengths
    packed = {} if lengths is None else {"shortest": lengths.min(), "longest": lengths.max(), "unread": result.unread}
    both = result.correct & np.isfinite(result.attack_radius)
    return {
        "norm": document["norm"],
        "samples": document["n"],
        "correct": document["correct"],
        "proved": sum(claim is not None for claim in result.claims),
        "counted": int(result.correct.sum()) - sum(map(_is_exact, result.claims)),
        "median_radius": document["median_radius"],
        "median_attack": document["median_attack"],
        "median_ratio": float(np.median(ratio)) if len(ratio) else None,
        "strip": float((result.attack_radius - result.radius)[both].mean()) if both.any() else None,
        "seconds": float(result.seconds[result.correct].mean()) if result.correct.any() else None,
        **{name: int(value) for name, value in packed.items()},
    }


def _is_exact(claim: Claim | None) -> bool:
    """Return True if the radius is exact: networks without activations need no search."""
    return claim is not None and claim.proof is not None and claim.proof.kind == "local_linear"


def least_robust(result: LocalRadius, x: np.ndarray) -> pd.DataFrame:
    """Return the inputs with the smallest perturbations, by entry: ``sample, t, feature, value, change``.

    Args:
        result: result of ``local_radius``.
        x: ``(n, time, features)``, the inputs.
    """
    rows = np.flatnonzero(result.correct & np.isfinite(result.attack_radius))
    rows = rows[np.argsort(result.attack_radius[rows], kind="stable")][:SHOWN]
    rows = rows if x[0].size <= LARGEST else rows[:0]
    t, feature = (grid.ravel() for grid in np.indices(x.shape[1:]))
    parts = [
        pd.DataFrame({
            "sample": row, "t": t, "feature": feature, "value": x[row].ravel(),
            "change": (result.adversarial[row] - x[row]).ravel(),
        })
        for row in rows
    ]  # fmt: skip
    columns = ["sample", "t", "feature", "value", "change"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns, dtype=float)
