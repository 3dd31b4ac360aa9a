r"""Small networks in the coordinates that count: of a network of few units, which perturbations lead to which runs.

.. math:: h_{t+1} = A h_t + B \phi(z_t) + f_t + F_t y, \quad z_t = C h_t + D \phi(z_t) + e_t + E_t y

with ``D`` strictly lower triangular (not zero in midpoint maps) and ``y`` the perturbation: one number for each entry
of the input that may change. Where a step's perturbation ``d`` matters through one number alone, the product ``E d``
with the row that all channels have, that is its coordinate: in l2 :math:`d \cdot E / |E|`, which is no longer than
``d``; in l_inf, or clipped, the product itself, in its range. So a sequence of ``T`` steps of a network of one unit has
``T`` coordinates, however many features it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stability.gated.cell import GatedCell
from stability.local.classifier import Classifier
from stability.local.clipped import Clipped
from stability.local.leaves import input_box
from stability.local.unit import GatedUnit
from stability.rigor.balls import Ball, system_balls
from stability.rigor.constants import EPS
from stability.rigor.intervals import Interval, affine
from stability.systems import DrivenSystem
from stability.systems.activations import activation

Array = np.ndarray
STATES, MOST = 3, 30
"""States and channels of a network that counts as small, and coordinates of a ball."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step: which coordinates enter, and how.

    Attributes:
        of: the coordinates.
        E: ``(m, q)`` to the channels.
        F: ``(n, q)`` to the state.
        e: ``(m,)`` what the channels have without a perturbation, but for the state.
        f: ``(n,)`` what the state has.
    """

    of: slice
    E: Interval
    F: Interval
    e: Interval
    f: Interval


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A ball of perturbations of one input of a small network.

    Attributes:
        classifier: the network.
        A: ``(n, n)``.
        B: ``(n, m)``.
        C: ``(m, n)``.
        D: ``(m, m)``, strictly lower triangular.
        steps: of the sequence.
        low: ``(k,)`` of the coordinates.
        high: ``(k,)``.
        balls: the coordinates whose costs add up to ``radius ** 2`` at most; none of a box.
        radius: of these.
        clips: of coordinates that cost more than their square, see ``stability.local.clipped``.
        units: of a cell of gates its steps; else none.
    """

    classifier: Classifier
    A: Interval
    B: Interval
    C: Interval
    D: Interval
    steps: tuple[Step, ...]
    low: Array
    high: Array
    balls: tuple[slice, ...]
    radius: float
    clips: Mapping[int, Clipped]
    units: tuple[GatedUnit, ...] = ()

    @property
    def kinks(self) -> int:
        """Kinks of the activation."""
        return 0 if self.units else len(activation(self.classifier.recurrent.activation).kinks)

    @property
    def least(self) -> Array:
        """What the square of each coordinate costs at least."""
        out = np.ones(len(self.low))
        for k, clip in self.clips.items():
            size = float(clip.E @ clip.E)
            out[k] = min(1.0 / (size * (1.0 + (len(clip.E) + 8) * EPS) + 1e-300), 1e30) * (1.0 - 4 * EPS)
        return out

    @property
    def bent(self) -> int:
        """Channels of all steps, where the activation has kinks; else none."""
        return len(self.steps) * len(self.C.low) if self.kinks else 0

    def arguments(self, free: Array) -> Array:
        """The channels' arguments ``(..., m)``, of what they have but for each other, in floating point."""
        D, out = 0.5 * (self.D.low + self.D.high), free
        if D.any():
            phi, out = activation(self.classifier.recurrent.activation).function, free.copy()
            for j in range(1, len(D)):
                out[..., j] += phi(out[..., :j]) @ D[j, :j]
        return out

    def gained(self, out: Array, slopes: Array) -> Array:
        """What is gained by the channels' outputs ``(m,)``, of what is gained but for each other, see ``arguments``."""
        D = 0.5 * (self.D.low + self.D.high)
        if D.any():
            out = out.copy()
            for j in range(len(D) - 2, -1, -1):
                out[j] += (out[j + 1 :] * slopes[j + 1 :]) @ D[j + 1 :, j]
        return out

    def energy(self, point: Array) -> tuple[Array, Array, Array]:
        """``(a, b, c)``, each ``(k,)``: what ``y`` costs is at least ``a y^2 + b y + c``, nearly so much at a point."""
        a, b, c = np.ones(len(self.low)), np.zeros(len(self.low)), np.zeros(len(self.low))
        for k, clip in self.clips.items():
            a[k], b[k], c[k] = clip.tangent(float(point[k]))
        return a, b, c

    def cost(self, y: Array) -> tuple[Array, Array]:
        """What each coordinate of ``(..., k)`` costs, and its slope, in floating point."""
        out, slope = y * y, 2.0 * y
        for k, clip in self.clips.items():
            out[..., k], slope[..., k] = clip.cost(y[..., k])
        return out, slope

    def spread(self, prices: Array) -> Array:
        """One price for each coordinate ``(..., k)``, of one for each ball ``(..., g)``."""
        out = np.zeros((*prices.shape[:-1], len(self.low)))
        for k, of in enumerate(self.balls):
            out[..., of] = prices[..., k, None]
        return out


def uncovered(subject: Classifier) -> str | None:
    """Why a network is none of the small ones, or ``None``."""
    if isinstance(subject.recurrent, GatedCell):
        many = subject.recurrent.hidden > 1
        return "a proof by Hessians of whole boxes is about cells of gates of one unit" if many else None
    return too_large(subject, "a proof by Hessians of whole boxes", STATES, f"{STATES} states and channels at most")


def too_large(subject: Classifier, proof: str, most: int, size: str) -> str | None:
    """Why a network is no single layer of so few states whose channels read none but earlier ones, or ``None``.

    Args:
        subject: the network.
        proof: what needs that, in words.
        most: states, and channels.
        size: the same in words.
    """
    net = subject.recurrent
    if not isinstance(net, DrivenSystem):
        return f"{proof} is about a single layer that is no cell of gates"
    if max(net.states, net.system.channels) > most:
        return f"{proof} is about networks of {size}"
    D = system_balls(net.system)[3]
    if np.triu(D.mid).any() or np.triu(D.rad).any():
        return f"{proof} is about channels that read the state and earlier channels alone"
    if min(activation(net.activation).pieces or (0.0,)) < 0.0:
        return f"{proof} needs an activation that does not fall: {net.activation}"
    return None


def coordinates(
    classifier: Classifier,
    x: Array,
    radius: float,
    norm: str,
    mask: Array | None = None,
    bounds: Sequence[float] | None = None,
    each: bool = False,
) -> Coordinates:
    """The ball around one input.

    Args:
        classifier: a small network, see ``uncovered``.
        x: ``(T, p)``.
        radius: > 0.
        norm: ``l2`` or ``linf``.
        mask: ``(T, p)``, zero where an entry may not change.
        bounds: two numbers between which perturbed inputs stay.
        each: whether, in l2, the radius is that of every step.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[3.0, 4.0]])
        >>> ball = coordinates(Classifier(cell, [[1.0], [-1.0]]), np.ones((2, 2)), 0.5, "l2")
        >>> len(ball.low), ball.balls, ball.steps[0].E.contains(Interval.point([[5.0]]))
        (2, (slice(0, 2, None),), True)
    """
    net = classifier.recurrent
    gated = isinstance(net, GatedCell)
    if gated:
        (A, B), C = (Interval.point(np.zeros((net.states, k))) for k in (net.states, 0)), Interval.point(net.w_hh)
        D = Interval.point(np.zeros((0, 0)))
        into, past, offset = net.w_ih, np.zeros((net.states, net.inputs)), net.b_ih
    else:
        A, B, C, D = (_ends(ball) for ball in system_balls(net.system))
        into, past, offset = net.E, net.F, net.b
    low, high = input_box(x, radius, mask, bounds)
    steps, ends, balls, clips, at = list[Step](), list[Interval](), list[slice](), dict[int, Clipped](), 0
    for t, u in enumerate(x):
        free = np.flatnonzero(high[t] > low[t])
        moved = Interval(low[t, free], high[t, free]) - Interval.point(u[free])
        E, F = Interval.point(into[:, free]), Interval.point(past[:, free])
        clipped = bounds is not None and not (
            bool((u[free] - radius > bounds[0]).all()) and bool((u[free] + radius < bounds[1]).all())
        )
        if len(free) > 1 and len(into) and (into == into[0]).all() and not past[:, free].any():
            F = Interval.point(np.zeros((net.states, 1)))
            if norm == "linf":
                moved, E = affine(into[:1, free], moved), Interval.point(np.ones((len(into), 1)))
            elif clipped:
                clips[at] = Clipped(into[0, free], moved.low, moved.high)
                moved = Interval(*(np.array([end]) for end in clips[at].reach(radius)))
                E = Interval.point(np.ones((len(into), 1)))
            else:
                moved, E = (
                    Interval(*(np.array([np.nextafter(s * radius, s * np.inf)]) for s in (-1.0, 1.0))),
                    _length(into[:, free]),
                )
        of = slice(at, at + len(moved.low))
        e = affine(into, Interval.point(u), Interval.point(offset))
        steps.append(Step(of, E, F, e, affine(past, Interval.point(u))))
        ends.append(moved)
        if norm == "l2" and each and of.stop - of.start > 1:
            balls.append(of)
        at = of.stop
    if norm == "l2" and not each and at > 1:
        balls.append(slice(0, at))
    low, high = (np.concatenate(parts) for parts in ([m.low for m in ends], [m.high for m in ends]))
    units = tuple(GatedUnit(net, step.E, step.e) for step in steps) if gated else ()
    return Coordinates(classifier, A, B, C, D, tuple(steps), low, high, tuple(balls), radius, clips, units)


def _ends(ball: Ball) -> Interval:
    """The matrices of a ball, those entries as they are that are known exactly."""
    low, high = ball.ends()
    return Interval(*(np.where(ball.rad > 0.0, end, ball.mid) for end in (low, high)))


def _length(rows: Array) -> Interval:
    """Euclidean norms of rows, ``(m, 1)``."""
    size = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    slack = (rows.shape[1] + 8) * EPS * size + 1e-150
    return Interval(np.maximum(size - slack, 0.0), size + slack)
