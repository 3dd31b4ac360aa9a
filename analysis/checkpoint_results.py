"""Results about a checkpoint with gated linear layers: proven bounds of every unit beside measurements on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from stability.checkpoint_certificate import CheckpointCertificate, LayerClaims, horizon_ends

from .gated_layers import GatedLayerMeasurement


@dataclass(frozen=True)
class CheckpointResults:
    """Claims about the layers of a checkpoint, and measurements.

    Attributes:
        path: folder or file, as the user names it.
        certificate: the claims.
        skipped: numbers of the layers that are not recurrent, and what they are.
        measured: measurements by the number of the layer.
        data: the data of the measurements; empty without.
        not_measured: reason why there are no measurements though data are given.
    """

    path: str
    certificate: CheckpointCertificate
    skipped: Mapping[int, str] = field(default_factory=dict)
    measured: Mapping[int, GatedLayerMeasurement] = field(default_factory=dict)
    data: str = ""
    not_measured: str = ""

    def document(self) -> dict[str, Any]:
        """Return the JSON object: that of the certificate, with ``measured`` in each layer that has measurements."""
        summary, units = self.certificate.summary(), self.units()
        layers = [row | _summary(units[row["layer"]]) for row in summary["layers"]]
        return {"model": self.path, **summary, "layers": layers, "data": self.data, "not_measured": self.not_measured}

    def units(self) -> dict[int, dict[str, np.ndarray]]:
        """Return numbers of every channel, mode or head, by the number of the layer.

        Returns:
            As far as known, ``(units,)`` each: ``horizon`` in steps (infinite: none is proven), ``state_bound``,
            ``gain``, ``measured_horizon``, ``measured_state``, and ``ratio``, proven over measured state (NaN where the
            measured state is zero).
        """
        return {layer.layer: _units(layer, self.measured.get(layer.layer)) for layer in self.certificate.layers}

    def table(self) -> pd.DataFrame:
        """Return the numbers of all units, one row each."""
        frames = [pd.DataFrame(values).rename_axis("unit").reset_index() for values in self.units().values()]
        return pd.concat(frames, keys=list(self.units()), names=["layer"]).reset_index(0).reset_index(drop=True)


def _units(layer: LayerClaims, record: GatedLayerMeasurement | None) -> dict[str, np.ndarray]:
    claimed = (layer.horizons(), layer.units("state_bound"), layer.units("state_gain"))
    known = {name: values for name, values in zip(("horizon", "state_bound", "gain"), claimed) if values is not None}
    if record is None:
        return known
    units = len(next(iter(known.values()), record.state))
    # a delta rule with one decay a key channel has claims about heads
    state, horizon = (values.reshape(units, -1).max(axis=1) for values in (record.state, record.horizon))
    known |= {"measured_horizon": horizon, "measured_state": state}
    if "state_bound" in known:
        known["ratio"] = np.divide(known["state_bound"], state, where=state > 0.0, out=np.full(units, np.nan))
    return known


def _summary(units: Mapping[str, np.ndarray]) -> dict[str, Any]:
    if "measured_horizon" not in units:
        return {}
    median, most = horizon_ends(units["measured_horizon"])
    ratio = [r for r in units.get("ratio", ()) if np.isfinite(r)]
    ends = {"median": float(np.median(ratio)), "max": float(max(ratio))} if ratio else None
    state = float(units["measured_state"].max())
    return {"measured": {"horizon": {"median": median, "max": most}, "state": state, "ratio": ends}}
