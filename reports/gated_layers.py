"""Results about a checkpoint with gated linear layers: proven bounds of every layer beside measurements on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.checkpoint_certificate import CheckpointCertificate, LayerClaims, horizon_ends

from .formatting import bound, count, number, verdict_word

if TYPE_CHECKING:
    import pandas as pd

INPUTS = {
    "norm": "every input of the norm in front of a layer",
    "vocabulary": "every sequence of tokens",
    "box": "all inputs of a layer that stay in its box; nothing is claimed about other inputs",
}
"""Inputs of the claims, by input set."""
STEP_LIMITS = (
    "The limits of Mamba-2's step in config.json are applied. transformers and mamba_ssm apply them to whole "
    "sequences, not when they decode token by token: the claims do not hold for decoding."
)


@dataclass(frozen=True)
class CheckpointResults:
    """Claims about the layers of a checkpoint, and measurements.

    Attributes:
        path: folder or file, as the user names it.
        certificate: the claims.
        skipped: numbers of the layers that are not recurrent, and what they are.
        measured: measurements by the number of the layer, see ``analysis.gated_layers``.
        data: the data of the measurements; empty without.
        not_measured: reason why there are no measurements though data are given.
    """

    path: str
    certificate: CheckpointCertificate
    skipped: Mapping[int, str] = field(default_factory=dict)
    measured: Mapping[int, Any] = field(default_factory=dict)
    data: str = ""
    not_measured: str = ""

    def document(self) -> dict[str, Any]:
        """Return the JSON object: that of the certificate, with ``measured`` in each layer that has measurements."""
        summary = self.certificate.summary()
        layers = [{**row, **self._measured(layer)} for row, layer in zip(summary["layers"], self.certificate.layers)]
        more = {"data": self.data or None, "not_measured": self.not_measured or None}
        return {"model": self.path, **summary, "layers": layers, **more}

    def _measured(self, layer: LayerClaims) -> dict[str, Any]:
        units = self.units(layer)
        if "measured_horizon" not in units:
            return {}
        median, most = horizon_ends(units["measured_horizon"])
        ratio = units.get("ratio", np.empty(0))
        ratio = ratio[np.isfinite(ratio)]
        return {
            "measured": {
                "horizon": {"median": median, "max": most},
                "state": float(units["measured_state"].max()),
                "ratio": {"median": float(np.median(ratio)), "max": float(ratio.max())} if ratio.size else None,
            }
        }

    def units(self, layer: LayerClaims) -> dict[str, np.ndarray]:
        """Return numbers of every unit of a layer.

        Args:
            layer: a layer of the certificate.

        Returns:
            As far as known, ``(units,)`` each: ``horizon`` in steps (infinite: none is proven), ``state_bound``,
            ``gain``, ``measured_horizon``, ``measured_state``, and ``ratio``, proven over measured state (NaN where the
            measured state is zero).
        """
        claimed = {
            "horizon": layer.horizons(),
            "state_bound": layer.units("state_bound"),
            "gain": layer.units("state_gain"),
        }
        known: dict[str, np.ndarray] = {name: values for name, values in claimed.items() if values is not None}
        record = self.measured.get(layer.layer)
        if record is not None:
            units = len(next(iter(known.values()), record.state))
            # a delta rule with one decay a key channel has claims about heads
            known["measured_horizon"] = np.asarray(record.horizon, float).reshape(units, -1).max(axis=1)
            known["measured_state"] = np.asarray(record.state, float).reshape(units, -1).max(axis=1)
        if "state_bound" in known and "measured_state" in known:
            state = known["measured_state"]
            known["ratio"] = np.where(state > 0.0, known["state_bound"] / np.where(state > 0.0, state, 1.0), np.nan)
        return known

    def table(self) -> pd.DataFrame:
        """Return the numbers of all units, one row each."""
        import pandas as pd

        frames = [
            pd.DataFrame({"layer": layer.layer, "unit": np.arange(len(next(iter(units.values())))), **units})
            for layer in self.certificate.layers
            if (units := self.units(layer))
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"layer": [], "unit": []})

    def scope(self) -> list[str]:
        """Return sentences that say for which inputs and which run the claims hold."""
        first = self.certificate.layers[0]
        text = (
            f"Claims hold at every length, in exact arithmetic with the stored weights, for {INPUTS[first.input_set]}."
        )
        return [text, *([STEP_LIMITS] if first.step_limits else [])]

    def meanings(self) -> list[tuple[str, str]]:
        """Return the columns of the tables with their meanings."""
        tol = self.certificate.layers[0].summary()["horizon"]["tol"]
        found = [
            ("unit", "a channel, a mode or a head"),
            ("state bound", "largest state entry of a channel or mode, or Frobenius norm of a head's state"),
            ("gain", "largest change of a unit's state per largest change of the input in one step"),
            ("horizon", f"steps until the weight of an input is below {tol:g}, in the median and the worst unit"),
            ("no limit", "number of units for which no number of steps is proven"),
            ("accumulators", "number of units that forget nothing in float32, whatever the input"),
        ]
        if self.measured:
            found.append(("bound / measured", "proven state bound over largest measured state, in the median unit"))
            found.append(("measured horizon", "largest on the data; it ends with a sequence"))
        return found


def headline(certificate: CheckpointCertificate) -> str:
    """Return the verdict with the number of layers.

    Example:
        >>> headline(CheckpointCertificate("a", ()))
        'Undecided (0 gated linear layers)'
    """
    layers = len(certificate.layers)
    return f"{verdict_word(str(certificate.verdict))} ({layers} gated linear layer{'s' * (layers != 1)})"


def upper(value: float | None) -> str:
    """Format a proven upper bound, rounded up; a dash for none."""
    return bound(value, 4, up=True)


def steps(value: int | None) -> str:
    """Format a horizon in steps; ``never`` for none."""
    return "never" if value is None else count(value) if value < 10**6 else bound(value, 2, up=True)


COLUMNS = (
    ("", "layer"), ("", "type"), ("", "verdict"), ("state", "bound"), ("", "gain"), ("median", "horizon"),
    ("worst", "horizon"), ("no", "limit"), ("accumu-", "lators"),
)  # fmt: skip
"""Headings of the proven numbers of a layer, in two lines."""
MEASURED = (
    ("", "layer"), ("largest", "state"), ("bound /", "measured"), ("median", "horizon"), ("worst", "horizon"),
)  # fmt: skip
"""Headings of the measured numbers of a layer."""


def proven_cells(row: Mapping[str, Any]) -> Iterable[str]:
    """Return the cells of ``COLUMNS`` behind the verdict for a layer of the JSON object."""
    no_decay = row["decay_max"] is None
    horizon = ["–" if no_decay else steps(row["horizon"][key]) for key in ("median", "max")]
    return (
        upper(row["state_bound"]),
        upper(row["gain"]),
        *horizon,
        "–" if no_decay else count(row["never"]),
        str(len(row["accumulators"])),
    )


def measured_cells(row: Mapping[str, Any]) -> Iterable[str]:
    """Return the cells of ``MEASURED`` behind the layer's number for a layer of the JSON object."""
    measured = row["measured"]
    ratio = measured["ratio"]
    return (
        number(measured["state"], 4),
        "–" if ratio is None else number(ratio["median"]),
        *(steps(measured["horizon"][key]) for key in ("median", "max")),
    )
