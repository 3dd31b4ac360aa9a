"""Control loops: certificate, margins and times of one loop, as plain values and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.certification import certify
from stability.disk_margin import DiskMargin, certified_sectors, disk_margin
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.lure import LureSystem
from stability.loop_margin import GainMargin, gain_margin, largest_step
from stability.recovery import proved_pairs
from stability.scaled_loops import LARGEST, loop_system, nominal_loop
from stability.search.counterexamples.eigenvalue_gradient import stability_excess
from stability.search.solvers.deadline import Deadline

from .formatting import MISSING, bound, half_life, number, time_to, verdict_word

SETTLED = 0.02
"""Share of a disturbance at which a loop counts as settled, as textbooks do."""
ON_BOUNDARY = 1e-9
"""Distance from the stability boundary below which an eigenvalue counts as lying on it."""
Row = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LoopResults:
    """Results about a loop with all slopes of its sector, and about its nominal loop with constant slopes.

    Attributes:
        name: name of the loop.
        system: the loop.
        certificates: certificate for the sector and for the nominal loop; only one if the sector is a single slope.
        margins: their gain margins.
        disk: disk margin of the nominal loop.
        step: largest step of the explicit Euler rule with a proof; ``None`` in discrete time or without one.
        sectors: ends of smaller sectors with a proof, if the loop's own has none.
    """

    name: str
    system: LureSystem
    certificates: list[Certificate]
    margins: list[GainMargin]
    disk: DiskMargin
    step: float | None
    sectors: list[tuple[Any, Any]] = field(default_factory=list)

    @property
    def dt(self) -> float:
        """Duration of a step; 1 in continuous time."""
        return self.system.dt or 1.0

    def document(self) -> dict[str, Any]:
        """Return all results as JSON values; times are in the unit of time of the matrices or of ``dt``."""
        parts = [self._part(k) for k in range(len(self.certificates))]
        disk = {
            "alpha": self.disk.alpha,
            "gain_margin": list(self.disk.gain_margin),
            "phase_margin_degrees": self.disk.phase_margin,
            "frequency": None if self.disk.frequency is None else self.disk.frequency / self.dt,
        }
        return {
            "loop": self.name,
            "states": self.system.states,
            "channels": self.system.channels,
            "dt": self.system.dt,
            **parts[0],
            "nominal": {**parts[-1], "disk_margin": disk},
            "largest_euler_step": self.step,
            "certified_sectors": [_ends(sector) for sector in self.sectors],
            "advice": self.advice(),
        }

    def _part(self, k: int) -> dict[str, Any]:
        certificate, discrete = self.certificates[k], self.system.is_discrete
        pairs, rate = proved_pairs(certificate), certificate.rate
        halved, settled = half_life(rate, discrete), time_to(SETTLED, pairs, discrete)
        return {
            "verdict": str(certificate.verdict),
            "statement": certificate.statement,
            "criterion": certificate.criterion,
            "slope": _ends(loop_system(certificate.subject).slope),
            "rate": rate,
            "decay_per_unit_of_time": None if not halved or math.isinf(halved) else math.log(2) / (halved * self.dt),
            "overshoot": certificate.overshoot,
            "half_life": None if halved is None else halved * self.dt,
            "settling_time": None if settled is None else settled * self.dt,
            "gain_margin": margin_document(self.margins[k]),
        }

    def about(self) -> str:
        """Return size and kind of the loop."""
        time = f"steps of {number(self.dt)} s" if self.system.is_discrete else "continuous time"
        return f"{_count(self.system.states, 'state')}, {_count(self.system.channels, 'channel')}, {time}"

    def header(self) -> Row:
        """Return the headings of ``rows``."""
        ends = [_ends(loop_system(c.subject).slope) for c in self.certificates]
        return "", *(f"constant slope {number(a)}" if a == b else f"slopes {number(a)} to {number(b)}" for a, b in ends)

    def notes(self) -> list[str]:
        """Return the sentences below the table."""
        disk, speed = self.disk, self.disk.frequency
        notes = [self.advice()]
        if self.step is not None:
            about = "" if self.certificates[0].verdict is Verdict.CERTIFIED else " of the nominal loop"
            limit = bound(self.step, 3, up=False)
            notes.append(f"The explicit Euler rule{about} is proven stable with steps up to {limit}.")
        if disk.certificate is not None:
            unit = "s" if self.system.is_discrete else "unit of time"
            place = "" if speed is None else f", least at {number(speed / self.dt)} rad per {unit}"
            notes.append(
                f"The disk margin is alpha = {bound(disk.alpha, 3, up=False)}{place}. Gain and phase may change "
                "together within the disk, in all channels at once."
            )
        notes.append("Each gain multiplies all slopes and is constant in time.")
        return [note for note in notes if note]

    def rows(self) -> list[Row]:
        """Return the table of the loop: labels, then values for the sector and for the nominal loop."""
        parts = [self._part(k) for k in range(len(self.certificates))]
        unit = "per s" if self.system.is_discrete else "per unit of time"
        times = "s" if self.system.is_discrete else "units of time"
        low, high = self.disk.gain_margin
        words = f"{bound(low, 3, up=True)} to {bound(high, 3, up=False)}, {bound(self.disk.phase_margin, 3, up=False)}°"
        disk = ("", words if self.disk.certificate else MISSING)[-len(parts) :]
        show: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "verdict": lambda part: verdict_word(part["verdict"]),
            f"decay rate ({unit})": lambda part: bound(part["decay_per_unit_of_time"], 4, up=False),
            "overshoot": lambda part: bound(part["overshoot"], 3, up=True),
            f"half-life ({times})": lambda part: bound(part["half_life"], 4, up=True),
            f"settles to 2 % in ({times})": lambda part: bound(part["settling_time"], 4, up=True),
            "proven stable with gains ×": lambda part: gain_words(part["gain_margin"])[0],
            "proven not stable with gains ×": lambda part: gain_words(part["gain_margin"])[1],
        }
        rows: list[Row] = [(label, *map(cell, parts)) for label, cell in show.items()]
        rows.append(("disk margin: gains, phase", *disk))
        return rows

    def advice(self) -> str:
        """Return what keeps the loop from a proof, and the smaller sectors that have one."""
        certificate, text = self.certificates[0], ""
        if certificate.verdict is Verdict.CERTIFIED:
            return text
        data = {} if certificate.proof is None else certificate.proof.data
        where = "the unit circle" if self.system.is_discrete else "the imaginary axis"
        base = self.system if self.system.origin is None else self.system.origin.base
        for slopes in filter(lambda k: k is not None, (data.get("K"), base.alpha, base.beta)):
            excess = stability_excess(np.linalg.eigvals(self.system.jacobian(slopes)), self.system.is_discrete).max()
            if excess >= -ON_BOUNDARY:
                place = f"{'on' if excess <= ON_BOUNDARY else 'beyond'} {where}"
                constant = ", ".join(map(number, np.unique(slopes)))
                text = f"With constant slope {constant} the loop has an eigenvalue {place}, so no decay rate holds. "
                break
        if len(self.certificates) == 1:
            return text.strip()
        options = " or ".join(f"--slope {_inward(*ends)} {_inward(*ends[::-1])}" for ends in map(_ends, self.sectors))
        return text + (f"A smaller sector has a proof: {options}." if options else "No smaller sector has a proof.")


def _inward(end: float, other: float) -> str:
    """Return an end of a sector with four digits, moved towards the other end where rounding changes it."""
    text = f"{end:.4g}"
    return text if float(text) == end else f"{end + math.copysign(1e-3 * abs(end), other - end):.4g}"


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _ends(slope: tuple[Any, Any]) -> list[float]:
    """Return the least and the largest slope of all channels."""
    return [float(np.min(slope[0])), float(np.max(slope[1]))]


def margin_document(margin: GainMargin) -> dict[str, Any]:
    """Return the factors of a gain margin as JSON values; ``None`` if there is none."""
    known = margin.certificate is not None
    return {
        "certified_low": margin.certified_low if known else None,
        "certified": margin.certified,
        "destabilizing_low": margin.destabilising_low or None,
        "destabilizing": margin.destabilising if math.isfinite(margin.destabilising) else None,
    }


def gain_words(margin: Mapping[str, Any]) -> tuple[str, str]:
    """Return the certified interval and the destabilizing factors of ``margin_document`` in words.

    Example:
        >>> found = {"certified_low": 0.10004, "certified": 2.0**30, "destabilizing_low": 0.0999, "destabilizing": None}
        >>> gain_words(found)
        ('all above 0.1001', '0.0999')
    """
    low, high = margin["certified_low"], margin["certified"]
    stable = MISSING
    if low is not None:
        start, end = bound(low, 4, up=True), bound(high, 4, up=False)
        stable = f"{start} to {end}" if high < LARGEST else f"all above {start}" if low else "all"
    ends = bound(margin["destabilizing_low"], 4, up=False), bound(margin["destabilizing"], 4, up=True)
    if low is None and ends[0] == MISSING != ends[1]:  # of slopes that contain 0
        return stable, f"all above {ends[1]}"
    return stable, ", ".join(dict.fromkeys(end for end in ends if end != MISSING)) or MISSING


def examine_loop(
    name: str, subject: Any, *, seed: int = 0, time_limit: float | None = None, say: Callable[[str], None] = str
) -> LoopResults:
    """Certify a loop and compute its margins.

    Args:
        name: name of the loop.
        subject: a ``LureSystem``, or a network with one.
        seed: seed of the searches.
        time_limit: time limit of all searches, in seconds.
        say: receives the progress.

    Returns:
        The results.

    Raises:
        UnsupportedError: a subject without slopes.

    Example:
        >>> loop = LureSystem.from_state_space(([[-1.0]], [[1.0]], [[1.0]], [[0.0]]))  # 1 / (s + 1)
        >>> document = examine_loop("lag", loop).document()
        >>> document["verdict"], round(document["nominal"]["decay_per_unit_of_time"], 2)
        ('certified', 2.0)
    """
    system, deadline = loop_system(subject), Deadline.from_limit(time_limit)
    nominal = nominal_loop(system)
    certificates, margins = [], []
    subjects = [subject] if (system.alpha == system.beta).all() else [subject, nominal]
    for part in subjects:
        say("certifying the loop ...")
        certificates.append(certify(part, seed=seed, time_limit=deadline))
        say("computing the gain margin ...")
        margins.append(gain_margin(part, seed=seed, time_limit=deadline))
    say("computing the disk margin ...")
    disk = disk_margin(nominal, time_limit=deadline)
    proved = [c.subject for c in certificates if c.verdict is Verdict.CERTIFIED]
    step = largest_step(loop_system(proved[0]), time_limit=deadline).dt if proved and not system.is_discrete else 0.0
    missing = certificates[0].verdict is not Verdict.CERTIFIED and len(certificates) > 1
    sectors = [found[:2] for found in certified_sectors(system, time_limit=deadline)] if missing else []
    return LoopResults(name, system, certificates, margins, disk, step or None, sectors)
