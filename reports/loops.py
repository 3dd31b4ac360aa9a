"""Results about a control loop in words, for the command line and the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stability.control_loop import LoopAnalysis, slope_range
from stability.kernel.systems.driven import ControlLoop, DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.scaled_loops import LARGEST

from .formatting import MISSING, bound, number, verdict_word

Row = tuple[str, ...]
PAGE, JSON, CERTIFICATE = FILES = ("loop.html", "loop.json", "certificate.json")
"""Files that the command writes."""


def size_words(analysis: LoopAnalysis) -> str:
    """Return size and kind of a loop."""
    time = f"steps of {number(analysis.dt)} s" if analysis.system.is_discrete else "continuous time"
    counts = (analysis.system.states, "state"), (analysis.system.channels, "channel")
    return ", ".join((*(f"{count} {word}{'s' * (count != 1)}" for count, word in counts), time))


def loop_table(analysis: LoopAnalysis) -> tuple[Row, list[Row]]:
    """Return headings and rows: labels, then values for the sector and for the nominal loop."""
    parts = [analysis.part(k) for k in range(len(analysis.certificates))]
    low, high = map(number, parts[-1]["slope"])
    constant = f"constant slope {low}" if low == high else f"constant slopes {low} to {high}"
    header = "", *("slopes {} to {}".format(*map(number, part["slope"])) for part in parts[:-1]), constant
    unit = "s" if analysis.system.is_discrete else "time"
    low, high = analysis.disk.gain_margin
    gains = f"{_from(low, 3)} to {bound(high, 3, up=False)}, {bound(analysis.disk.phase_margin, 3, up=False)}°"
    disk = ("", gains if analysis.disk.certificate else MISSING)[-len(parts) :]
    show: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "verdict": lambda part: verdict_word(part["verdict"]),
        f"decay rate (1/{unit})": lambda part: bound(part["decay_per_unit_of_time"], 4, up=False),
        "overshoot": lambda part: bound(part["overshoot"], 3, up=True),
        f"half-life ({unit})": lambda part: bound(part["half_life"], 4, up=True),
        f"settles to 2 % in ({unit})": lambda part: bound(part["settling_time"], 4, up=True),
        "proven stable with gains ×": lambda part: gain_words(part["gain_margin"])[0],
        "proven not stable with gains ×": lambda part: gain_words(part["gain_margin"])[1],
    }
    rows: list[Row] = [(label, *map(cell, parts)) for label, cell in show.items()]
    return header, [*rows, ("disk margin: gains, phase", *disk)]


def loop_notes(analysis: LoopAnalysis) -> list[str]:
    """Return the sentences below the table: obstacle and smaller sectors, largest step, disk margin."""
    certified, disk, notes = str(analysis.certificates[0].verdict) == "certified", analysis.disk, []
    if not certified:
        ends = [slope_range(sector) for sector in analysis.sectors]
        subject: Any = analysis.certificates[0].subject
        words = "--slope {} {}" if isinstance(subject, LureSystem) else "slopes {} to {}"
        options = " or ".join(words.format(_inward(low, high), _inward(high, low)) for low, high in ends)
        smaller = f" A smaller sector has a proof: {options}." * bool(options)
        notes.append(f"{analysis.obstacle}{smaller}".strip() or "Neither a proof nor a counterexample was found.")
        if isinstance(subject, (ControlLoop, DrivenSystem)):
            notes.append(
                "stability.regional(loop), in Python, proves from which states the loop returns to its equilibrium."
            )
    if analysis.step is not None:
        loop = "" if certified else " of the nominal loop"
        limit = bound(analysis.step, 3, up=False)
        notes.append(f"The explicit Euler rule{loop} is proven stable with steps up to {limit}.")
    if disk.certificate is not None:
        unit = "s" if analysis.system.is_discrete else "unit of time"
        place = "" if disk.frequency is None else f", least at {number(disk.frequency / analysis.dt)} rad per {unit}"
        alpha = bound(disk.alpha, 3, up=False)
        together = "Gain and phase may change together within the disk, in all channels at once."
        notes.append(f"The disk margin is alpha = {alpha}{place}. {together}")
    return [*notes, "Each gain multiplies all slopes and is constant in time."]


def _inward(end: float, other: float) -> str:
    """Return an end of a sector with four digits, moved towards the other end where rounding changes it."""
    text = f"{end:.4g}"
    return text if float(text) == end else f"{end + math.copysign(1e-3 * abs(end), other - end):.4g}"


def _from(gain: float | None, digits: int) -> str:
    """Return the lower end of an interval of gains, rounded up; the smallest gain that is tried as a power of ten."""
    return bound(gain, digits if gain is None or gain > 2.0 / LARGEST else 1, up=True)


def gain_words(margin: Mapping[str, Any]) -> tuple[str, str]:
    """Return the certified interval and the destabilizing factors of ``GainMargin.to_dict`` in words.

    Example:
        >>> margin = {"certified_low": 0.10004, "certified": 2.0**30}
        >>> margin |= {"destabilizing_low": 0.0999, "destabilizing": None}
        >>> gain_words(margin)
        ('all above 0.1001', '0.0999')
    """
    low, high = margin["certified_low"], margin["certified"]
    stable = MISSING
    if low is not None:
        start, end = _from(low, 4), bound(high, 4, up=False)
        stable = f"{start} to {end}" if high < LARGEST else f"all above {start}" if low else "all"
    ends = bound(margin["destabilizing_low"], 4, up=False), _from(margin["destabilizing"], 4)
    if low is None and ends[0] == MISSING != ends[1]:  # of slopes that contain 0
        return stable, f"all above {ends[1]}"
    return stable, ", ".join(dict.fromkeys(end for end in ends if end != MISSING)) or MISSING
