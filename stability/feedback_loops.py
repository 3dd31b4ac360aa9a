"""Feedback loops: Nyquist curve with the circle criterion's disk, comparison of loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.certificate import Certificate
from stability.certification import certify
from stability.conversion.subjects import as_subject
from stability.display import Shown, draw_envelope, number
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.lure import LureSystem
from stability.loop_margin import GainMargin, gain_margin
from stability.recovery import proved_pairs
from stability.search.criteria.kyp import kyp_criterion
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Nyquist:
    r"""The Nyquist curve of a loop ``u = -phi(y)``, and the disc that the circle criterion keeps it from.

    For slopes ``[alpha, beta]`` the disc has the diameter from :math:`-1/\alpha` to :math:`-1/\beta`. For
    ``alpha = 0`` it is the half-plane :math:`\Re s \le -1/\beta`; for ``alpha < 0 < beta`` the curve has to stay
    inside.

    Attributes:
        frequencies: ``(K,)``, radians per unit of time, or per step.
        values: ``(K,)`` complex, :math:`L(i\omega)` or :math:`L(e^{i\omega})`.
        slope: ``(alpha, beta)``.
        clearance: the least distance of the sampled curve from the disc, negative where it enters (leaves, where it has
            to stay inside). A picture's number: between samples nothing is known.
        holds: whether the circle criterion holds, decided by strict positive realness, not by the picture.
        is_discrete: whether time advances in steps.
    """

    frequencies: Array = field(repr=False)
    values: Array = field(repr=False)
    slope: tuple[float, float]
    clearance: float
    holds: bool
    is_discrete: bool

    def plot(self, ax: Axes | None = None) -> Axes:
        """The curve, its mirror image, and the disc.

        Args:
            ax: where to draw; a new figure without it.

        Returns:
            The axes.
        """
        from matplotlib import pyplot
        from matplotlib.patches import Circle, Rectangle

        axes: Any = pyplot.subplots()[1] if ax is None else ax
        low, high = self.slope
        seen: Any = self.values[np.abs(self.values) < 20 * (1.0 + 1.0 / high)]
        axes.plot(seen.real, seen.imag, label="L")
        axes.plot(seen.real, -seen.imag, linestyle="--", color=axes.lines[-1].get_color(), linewidth=1)
        reach = float(np.abs(seen).max(initial=1.0)) + 1.0 / high
        style = {"facecolor": "0.85", "edgecolor": "0.4", "zorder": 0}
        if low == 0:
            axes.add_patch(Rectangle((-3 * reach - 1 / high, -3 * reach), 3 * reach, 6 * reach, **style))
        else:
            ends = (-1.0 / low, -1.0 / high)
            style |= {"facecolor": "none"} if low < 0 else {}
            axes.add_patch(Circle((sum(ends) / 2, 0.0), abs(ends[0] - ends[1]) / 2, **style))
        axes.set_xlim(-1.3 * reach, 1.3 * reach)
        axes.set_ylim(-1.3 * reach, 1.3 * reach)
        axes.set_aspect("equal")
        axes.set_xlabel("real part")
        axes.set_ylabel("imaginary part")
        word = "holds" if self.holds else "does not hold"
        axes.set_title(f"circle criterion for slopes [{low:g}, {high:g}]: {word}")
        return axes


def nyquist(subject: Any, frequencies: Any = None) -> Nyquist:
    r"""The Nyquist curve of a loop with one nonlinearity.

    Args:
        subject: a ``LureSystem`` of one channel, such as ``LureSystem.from_state_space`` gives.
        frequencies: ``(K,)``; by default 2,000, around the poles (in discrete time up to :math:`\pi`).

    Returns:
        The curve, the disc, and whether the circle criterion holds.

    Raises:
        UnsupportedError: several channels, or none: there is no one curve.
        ConfigurationError: frequencies that are no finite numbers, or a slope that is zero or below on both ends.

    Source:
        H. K. Khalil, *Nonlinear Systems*, 3rd ed., theorem 7.2.

    Example:
        >>> loop = LureSystem.from_state_space(([[-1.0]], [[2.0]], [[1.0]], [[0.0]]), slope=(0, 1))  # L = 2 / (s + 1)
        >>> curve = nyquist(loop)
        >>> curve.holds, round(curve.clearance, 3)
        (True, 1.0)
    """
    system: Any = getattr(as_subject(subject), "system", None)
    if not isinstance(system, LureSystem) or system.channels != 1:
        raise UnsupportedError("a Nyquist curve is of a loop with one nonlinearity: give a LureSystem of one channel")
    low, high = float(system.alpha[0]), float(system.beta[0])
    if high <= 0:
        raise ConfigurationError(f"the larger slope must be positive for a disc to exist, got [{low:g}, {high:g}]")
    response = Response(StateSpace(system.A, -system.B, system.C, -system.D, system.is_discrete))
    omega = _frequencies(response) if frequencies is None else np.asarray(frequencies, dtype=np.float64).ravel()
    if not len(omega) or not np.isfinite(omega).all():
        raise ConfigurationError("frequencies must be finite numbers")
    values = response.values(np.asarray(response.point(omega)))[:, 0, 0]
    finite: Any = values[np.isfinite(values)]
    if low == 0:
        clearance = float((finite.real + 1.0 / high).min(initial=np.inf))
    else:
        centre, radius = -0.5 * (1.0 / low + 1.0 / high), 0.5 * abs(1.0 / low - 1.0 / high)
        outside = np.abs(finite - centre) - radius
        clearance = float((-outside if low < 0 else outside).min(initial=np.inf))
    return Nyquist(omega, values, (low, high), clearance, bool(kyp_criterion(system)), system.is_discrete)


def _frequencies(response: Response, count: int = 2000) -> Array:
    if response.discrete:
        return np.linspace(0.0, np.pi, count)
    speeds = np.abs(response.poles[np.abs(response.poles) > 0])
    low, high = (float(speeds.min()), float(speeds.max())) if len(speeds) else (1.0, 1.0)
    return np.concatenate([[0.0], np.geomspace(1e-3 * low, 1e3 * high, count - 1)])


@dataclass(frozen=True, eq=False, repr=False)
class LoopComparison(Shown):
    """Loops side by side: each with its certificate and its gain margin.

    Attributes:
        certificates: by name.
        margins: by name; ``None`` where a gain margin has no meaning.
    """

    certificates: Mapping[str, Certificate]
    margins: Mapping[str, GainMargin | None]

    def facts(self) -> list[tuple[str, str]]:
        """Verdict and rate of each."""
        return [(name, f"{found.verdict}, rate {number(found.rate)}") for name, found in self.certificates.items()]

    def rows(self) -> list[Mapping[str, Any]]:
        """A row a loop: verdict, rate, overshoot, half-life, certified and destabilising factor of its slopes."""
        rows = []
        for name, found in self.certificates.items():
            margin = self.margins[name]
            rows.append(
                {
                    "loop": name,
                    "verdict": str(found.verdict),
                    "rate": found.rate,
                    "overshoot": found.overshoot,
                    "half_life": _half_life(found),
                    "certified_factor": None if margin is None else margin.certified,
                    "destabilising_factor": None if margin is None else margin.destabilising,
                }
            )
        return rows

    def plot(self, ax: Axes | None = None) -> Axes:
        """The proved decay of each loop that is certified, over one axis of time."""
        from matplotlib import pyplot

        axes: Any = pyplot.subplots()[1] if ax is None else ax
        for name, found in self.certificates.items():
            pairs = proved_pairs(found)
            if pairs:
                before = len(axes.lines)
                draw_envelope(pairs, found.subject.is_discrete, axes, "proved decay")
                next(line for line in axes.lines[before:] if line.get_label() == "proved bound").set_label(name)
        if axes.lines:
            axes.legend()
        return axes


def _half_life(found: Certificate) -> float | None:
    """After what time the proved bound has halved, overshoot included, by the pair that is fastest there."""
    times = [
        math.log(2.0 * over) / (-math.log(rate) if found.subject.is_discrete else rate)
        for rate, over in proved_pairs(found)
        if rate > 0 and (not found.subject.is_discrete or rate < 1)
    ]
    return min(times, default=None)


def compare_loops(
    loops: Mapping[str, Any] | Sequence[Any], *, tol: float = 1e-3, seed: int = 0, time_limit: TimeLimit = None
) -> LoopComparison:
    """Loops side by side, by what is proved of each.

    Args:
        loops: systems by name, or a sequence of them.
        tol: of the gain margins, relative.
        seed: of the searches.
        time_limit: seconds for all of them.

    Returns:
        Certificates and gain margins; ``.frame()`` is the table, ``.plot()`` the decays.

    Raises:
        ConfigurationError: no loops.

    Example:
        >>> slow, fast = ((([[-a]], [[1.0]], [[1.0]], [[0.0]])) for a in (1.0, 4.0))
        >>> both = compare_loops({k: LureSystem.from_state_space(p) for k, p in (("slow", slow), ("fast", fast))})
        >>> both.frame().rate.round(3).tolist()
        [1.0, 4.0]
    """
    if isinstance(loops, str) or not isinstance(loops, (Mapping, Iterable)):
        raise ConfigurationError(f"loops must be systems by name, or a sequence of them, got {type(loops).__name__}")
    named = dict(loops) if isinstance(loops, Mapping) else {f"loop {k + 1}": loop for k, loop in enumerate(loops)}
    if not named:
        raise ConfigurationError("there are no loops to compare")
    deadline, certificates, margins = Deadline.after(time_limit), {}, {}
    for k, (name, loop) in enumerate(named.items()):
        share = deadline.share(1.0 / (len(named) - k))
        certificates[name] = certify(loop, seed=seed, time_limit=share)
        try:
            margins[name] = gain_margin(loop, tol=tol, seed=seed, time_limit=share)
        except (ConfigurationError, UnsupportedError):  # slopes away from zero, or none
            margins[name] = None
    return LoopComparison(certificates, margins)
