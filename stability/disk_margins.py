"""Disk margins of a loop, and sectors of slopes with a proof inside one that has none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError
from stability.kernel.systems.lure import LureSystem
from stability.scaled_loops import (
    certify_contraction_at,
    check_tolerance,
    largest_factor,
    loop_system,
    nominal_loop,
    scale_slopes,
    with_slopes,
)
from stability.search.solvers.deadline import Deadline, TimeLimit, TimeOverError
from stability.search.solvers.hinf import hinf_peak
from stability.search.solvers.loop_transformation import centered_loop

ROUNDING = 1e-12
"""Share by which a disk is smaller than the proved one, above the rounding errors of its radius."""


@dataclass(frozen=True, eq=False)
class DiskMargin:
    r"""Certified disk of complex gains that a loop tolerates, in all channels at once.

    Attributes:
        alpha: radius of the disk of :math:`\delta`; 0 if no disk has a proof. For ``skew=0`` at most 2.
        gain_margin: ``(low, high)``, the real gains in the disk; ``(1, 1)`` without a proof.
        phase_margin: the largest phase lag or lead in the disk, in degrees, in [0, 180].
        frequency: frequency at which the proved disk is nearest to instability, in radians per unit of time, or per
            step; ``None`` if it is not known.
        certificate: certificate of the loop with slopes from ``low`` to ``high`` times the nominal ones, or ``None``.
        skew: :math:`\sigma`.
    """

    alpha: float
    gain_margin: tuple[float, float]
    phase_margin: float
    frequency: float | None
    certificate: Certificate | None = field(repr=False)
    skew: float = 0.0


def disk_margin(subject: Any, *, skew: float = 0.0, tol: float = 1e-3, time_limit: TimeLimit = None) -> DiskMargin:
    r"""Find the largest certified disk margin of the nominal linear loop, at the inputs of its channels.

    The nominal loop has the slope of larger modulus in each channel (1 for a saturation). Each channel is multiplied by
    a complex gain

    .. math:: f = \frac{1 + \frac{1 - \sigma}{2} \delta}{1 - \frac{1 + \sigma}{2} \delta}, \qquad |\delta| < \alpha ,

    at every frequency another one. These gains fill the disk with the real diameter :math:`[f(-\alpha), f(\alpha)]`, so
    the loop tolerates them exactly if the circle criterion holds for this sector. The quadratic function of its proof
    is the same for complex states. With one channel, alpha is :math:`1 / \|S + (\sigma - 1) / 2\|_\infty` within the
    tolerance, S the sensitivity. Several channels vary independently, and alpha is a lower bound there.

    Args:
        subject: a ``LureSystem``, or a network with one.
        skew: :math:`\sigma`, in [-1, 1]: 0 for symmetric disks, 1 for those of S, -1 for those of T.
        tol: relative tolerance.
        time_limit: time limit in seconds, after which the best result is returned.

    Returns:
        The margin, which is never beyond the true one.

    Raises:
        ConfigurationError: a skew or a tolerance outside its range.
        UnsupportedError: a subject without slopes.

    Source:
        P. Seiler, A. Packard, P. Gahinet, An introduction to disk margins, IEEE Control Systems 40 (2020).

    Example:
        >>> plant = ([[0.0, 1.0], [0.0, -1.0]], [[0.0], [1.0]], [[1.0, 0.0]], [[0.0]])  # 1 / (s (s + 1))
        >>> margin = disk_margin(LureSystem.from_state_space(plant))
        >>> round(margin.alpha, 2), round(margin.phase_margin, 1)
        (0.89, 48.2)
    """
    check_tolerance(tol)
    if isinstance(skew, bool) or not isinstance(skew, (int, float)) or not -1.0 <= skew <= 1.0:
        raise ConfigurationError(f"skew must be a number in [-1, 1], got {skew!r}")
    loop = nominal_loop(loop_system(as_subject(subject)))
    deadline = Deadline.from_limit(time_limit).named("disk margin")

    def disk(factor: float) -> tuple[float, float, float]:
        """Return alpha and the gains; alpha tends to the radius of the largest bounded disk as the factor grows."""
        alpha = factor / (1.0 + 0.5 * (1.0 + skew) * factor)
        return alpha, _gain(-alpha, skew), _gain(alpha, skew)

    factor, certificate, _ = largest_factor(
        lambda factor: certify_contraction_at(scale_slopes(loop, *disk(factor)[1:]), "any", deadline), tol, deadline
    )
    if certificate is None or certificate.proof is None:
        return DiskMargin(0.0, (1.0, 1.0), 0.0, None, None, skew)
    alpha = disk(factor)[0] * (1.0 - ROUNDING)
    low, high = _gain(-alpha, skew), _gain(alpha, skew)
    cosine = (1.0 + low * high) / (low + high)
    phase = float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))
    try:
        centered = centered_loop(certificate.subject)
        frequency = hinf_peak(centered.scaled(np.sqrt(certificate.proof.data["L"])), deadline=deadline).omega
    except (ArithmeticError, ValueError, np.linalg.LinAlgError, TimeOverError):
        frequency = np.nan
    return DiskMargin(alpha, (low, high), phase, frequency if np.isfinite(frequency) else None, certificate, skew)


def _gain(delta: float, skew: float) -> float:
    """Return the real gain f of a real delta."""
    return (1.0 + 0.5 * (1.0 - skew) * delta) / (1.0 - 0.5 * (1.0 + skew) * delta)


def certified_sectors(
    subject: Any, *, tol: float = 1e-3, time_limit: TimeLimit = None
) -> list[tuple[Any, Any, Certificate]]:
    """Find the widest certified sectors of slopes that keep one end of a loop's own sector.

    Args:
        subject: a ``LureSystem``, or a network with one.
        tol: relative tolerance of the widths.
        time_limit: time limit in seconds, after which the best results are returned.

    Returns:
        Lower and upper slopes with their certificate: first the sector with the loop's upper slopes, then the one with
        its lower slopes. A sector without any proof is left out.

    Raises:
        ConfigurationError: a bad ``tol``.
        UnsupportedError: a subject without slopes.

    Example:
        >>> plant = ([[0.0, 1.0], [0.0, -1.0]], [[0.0], [1.0]], [[1.0, 0.0]], [[0.0]])  # 1 / (s (s + 1))
        >>> [(round(low, 3), high) for low, high, _ in certified_sectors(LureSystem.from_state_space(plant))]
        [(0.001, 1.0)]
    """
    check_tolerance(tol)
    system = loop_system(as_subject(subject))
    deadline = Deadline.from_limit(time_limit).named("sector")
    found = []
    for keeps_upper in (True, False):

        def sector(share: float, keeps_upper: bool = keeps_upper) -> LureSystem | None:
            base = system if system.origin is None else system.origin.base
            width = min(share, 1.0) * (base.beta - base.alpha)
            low, high = (base.beta - width, base.beta) if keeps_upper else (base.alpha, base.alpha + width)
            return with_slopes(system, low, high)

        certificate = largest_factor(lambda s: certify_contraction_at(sector(s), "any", deadline), tol, deadline)[1]
        if certificate is not None:
            found.append((*certificate.subject.slope, certificate))
    return found
