"""Analysis of one control loop: certificates, margins and times for its sector of slopes and for its nominal loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.certification import certify
from stability.disk_margins import DiskMargin, certified_sectors, disk_margin
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.lure import LureSystem
from stability.loop_margin import GainMargin, gain_margin, largest_step
from stability.scaled_loops import loop_system, nominal_loop
from stability.search.solvers.deadline import Deadline, TimeLimit

SETTLED = 0.02
"""Share of a disturbance at which a loop counts as settled, as in textbooks."""


@dataclass(frozen=True, eq=False, repr=False)
class LoopAnalysis:
    """Results about a loop with all slopes of its sector, and about its nominal loop with constant slopes.

    Attributes:
        system: the loop.
        certificates: for the sector and for the nominal loop; only one if the sector is a single slope.
        margins: their gain margins.
        disk: disk margin of the nominal loop.
        step: largest proved step of the explicit Euler rule for a continuous loop (the nominal one, if only that is
            certified); ``None`` in discrete time or without a proof.
        sectors: ends of smaller sectors with a proof, if the loop's own has none; see ``certified_sectors``.
    """

    system: LureSystem
    certificates: list[Certificate]
    margins: list[GainMargin]
    disk: DiskMargin
    step: float | None
    sectors: list[tuple[Any, Any]]

    def __repr__(self) -> str:
        """Return the verdict and the certified gains of the sector."""
        low, high = self.margins[0].certified_low, self.margins[0].certified
        return f"<LoopAnalysis: {self.certificates[0].verdict}, gains {low:.4g} to {high:.4g}; to_dict() has all>"

    @property
    def dt(self) -> float:
        """Duration of a step; 1 in continuous time."""
        return self.system.dt or 1.0

    @property
    def obstacle(self) -> str:
        """Constant slopes that keep the loop from a proof, as a sentence; empty if none are known."""
        found = next((f for f in self.certificates[0].findings if f.criterion == "destabilising_slopes"), None)
        words = "" if found is None else found.detail.partition(";")[0]
        return f"{words[0].upper()}{words[1:]}." if words else ""

    def to_dict(self) -> dict[str, Any]:
        """Return all results as JSON values; times and rates are in the unit of time of ``dt`` or of the matrices."""
        parts = [self.part(k) for k in range(len(self.certificates))]
        disk = {"alpha": self.disk.alpha, "gain_margin": list(self.disk.gain_margin)}
        disk["phase_margin_degrees"] = self.disk.phase_margin
        disk["frequency"] = None if self.disk.frequency is None else self.disk.frequency / self.dt
        return {
            "states": self.system.states,
            "channels": self.system.channels,
            "dt": self.system.dt,
            **parts[0],
            "nominal": {**parts[-1], "disk_margin": disk},
            "largest_euler_step": self.step,
            "certified_sectors": [slope_range(sector) for sector in self.sectors],
        }

    def part(self, k: int) -> dict[str, Any]:
        """Return verdict, rates, times and gain margin for the sector (``k = 0``) or the nominal loop (``k = -1``)."""
        certificate, settled = self.certificates[k], None
        decay = certificate.rate
        if decay is not None and self.system.is_discrete:
            decay = -math.log(decay) / self.dt if decay > 0.0 else math.inf
        if decay:
            settled = certificate.recovery_time(1.0, SETTLED)
        return {
            "verdict": str(certificate.verdict),
            "statement": certificate.statement,
            "criterion": certificate.criterion,
            "slope": slope_range(loop_system(certificate.subject).slope),
            "rate": certificate.rate,
            "decay_per_unit_of_time": decay,
            "overshoot": certificate.overshoot,
            "half_life": math.log(2.0) / decay if decay else None,
            "settling_time": None if settled is None else settled.time * self.dt,
            "gain_margin": self.margins[k].to_dict(),
        }


def slope_range(slope: tuple[Any, Any]) -> list[float]:
    """Return the least and the largest slope of all channels."""
    return [float(np.min(slope[0])), float(np.max(slope[1]))]


def analyze_loop(
    subject: Any, *, seed: int = 0, time_limit: TimeLimit = None, progress: Callable[[str], None] | None = None
) -> LoopAnalysis:
    """Certify a loop and its nominal loop, in which every slope is the bound of larger modulus, with all margins.

    Args:
        subject: a ``LureSystem``, or a network with one.
        seed: seed of the searches.
        time_limit: time limit of all searches together, in seconds.
        progress: called with the name of each step.

    Returns:
        The results; ``to_dict`` has them as JSON values, half-lives and settling times included.

    Raises:
        UnsupportedError: a subject without slopes.

    Example:
        >>> loop = LureSystem.from_state_space(([[-1.0]], [[1.0]], [[1.0]], [[0.0]]))  # 1 / (s + 1)
        >>> document = analyze_loop(loop).to_dict()
        >>> document["verdict"], round(document["nominal"]["decay_per_unit_of_time"], 2)
        ('certified', 2.0)
    """
    system, deadline, say = loop_system(subject), Deadline.from_limit(time_limit), progress or str
    nominal, certificates, margins = nominal_loop(system), [], []
    for part in (subject,) if (system.alpha == system.beta).all() else (subject, nominal):
        say("certifying the loop ...")
        certificates.append(certify(part, seed=seed, time_limit=deadline))
        say("computing the gain margin ...")
        margins.append(gain_margin(part, seed=seed, time_limit=deadline))
    say("computing the disk margin ...")
    disk = disk_margin(nominal, time_limit=deadline)
    proved = [loop_system(c.subject) for c in certificates if c.verdict is Verdict.CERTIFIED]
    step = largest_step(proved[0], time_limit=deadline).dt if proved and not system.is_discrete else 0.0
    open_sector = len(certificates) > 1 and certificates[0].verdict is not Verdict.CERTIFIED
    sectors = [found[:2] for found in certified_sectors(system, time_limit=deadline)] if open_sector else []
    return LoopAnalysis(system, certificates, margins, disk, step or None, sectors)
