"""Feedback loops: Nyquist curve with the circle criterion's disk, comparison of loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.circle import kyp_criterion
from stability.search.criteria.linear import linear_criterion
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Nyquist:
    r"""Nyquist curve of a loop ``u = -phi(y)``, and the disk of the circle criterion that it must avoid.

    For slopes ``[alpha, beta]`` the disc has the diameter from :math:`-1/\alpha` to :math:`-1/\beta`. For
    ``alpha = 0`` it is the half-plane :math:`\Re s \le -1/\beta`; for ``alpha < 0 < beta`` the curve has to stay
    inside.

    Attributes:
        frequencies: ``(K,)``, radians per unit of time, or per step.
        values: ``(K,)`` complex, :math:`L(i\omega)` or :math:`L(e^{i\omega})`.
        slope: ``(alpha, beta)``.
        clearance: the least distance of the sampled curve from the disc, negative where it enters (leaves, where it has
            to stay inside). A picture's number: between samples nothing is known.
        holds: whether the circle criterion holds, decided by strict positive realness, not by the picture; for a single
            slope, where the disk is the critical point, whether the linear loop is stable.
        is_discrete: whether time advances in steps.
    """

    frequencies: Array = field(repr=False)
    values: Array = field(repr=False)
    slope: tuple[float, float]
    clearance: float
    holds: bool
    is_discrete: bool

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curve, its mirror image, and the disk.

        Args:
            ax: axes to draw on; ``None``: a new figure.

        Returns:
            The axes.
        """
        from matplotlib import pyplot
        from matplotlib.patches import Circle, Rectangle

        axes: Any = pyplot.subplots()[1] if ax is None else ax
        low, high = self.slope
        visible: Any = self.values[np.abs(self.values) < 20 * (1.0 + 1.0 / high)]
        axes.plot(visible.real, visible.imag, label="L")
        axes.plot(visible.real, -visible.imag, linestyle="--", color=axes.lines[-1].get_color(), linewidth=1)
        farthest = 1.0 / (low if low > 0 else high)
        reach = min(float(np.abs(visible).max(initial=1.0)), 3.0 * farthest) + farthest
        style = {"facecolor": "0.85", "edgecolor": "0.4", "zorder": 0}
        crossings = [-1.0 / low, -1.0 / high] if low else [-1.0 / high]
        if low == 0:
            axes.add_patch(Rectangle((-3 * reach - 1 / high, -3 * reach), 3 * reach, 6 * reach, **style))
        else:
            style |= {"facecolor": "none"} if low < 0 else {}
            axes.add_patch(Circle((sum(crossings) / 2, 0.0), abs(crossings[0] - crossings[1]) / 2, **style))
        axes.plot(crossings, np.zeros(len(crossings)), marker="+", linestyle="none", color="0.4")
        axes.set_xlim(-1.3 * reach, 1.3 * reach)
        axes.set_ylim(-1.3 * reach, 1.3 * reach)
        axes.set_aspect("equal")
        axes.set_xlabel("real part")
        axes.set_ylabel("imaginary part")
        word = "holds" if self.holds else "does not hold"
        axes.set_title(f"circle criterion for slopes [{low:g}, {high:g}]: {word}")
        return axes


def nyquist(subject: Any, frequencies: Any = None) -> Nyquist:
    r"""Compute the Nyquist curve of a loop with one nonlinearity.

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
        raise UnsupportedError("a Nyquist curve needs a loop with one nonlinearity: pass a LureSystem with one channel")
    low, high = float(system.alpha[0]), float(system.beta[0])
    if high <= 0:
        raise ConfigurationError(f"the upper slope bound must be positive, got slopes from {low:g} to {high:g}")
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
    holds = linear_criterion(system) if low == high else kyp_criterion(system)
    return Nyquist(omega, values, (low, high), clearance, bool(holds), system.is_discrete)


def _frequencies(response: Response, count: int = 2000) -> Array:
    if response.discrete:
        return np.linspace(0.0, np.pi, count)
    speeds = np.abs(response.poles[np.abs(response.poles) > 0])
    low, high = (float(speeds.min()), float(speeds.max())) if len(speeds) else (1.0, 1.0)
    return np.concatenate([[0.0], np.geomspace(1e-3 * low, 1e3 * high, count - 1)])
