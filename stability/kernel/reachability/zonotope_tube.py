r"""Reachable zonotopes around a nominal trajectory, with an ellipsoid for the oldest terms.

With ``d`` the difference of a run from the nominal one (that of the middle of the box), before every stage

.. math:: d = c + U u + M \sigma + \tau, \qquad |u| \le r, \quad |\sigma| \le a, \quad \tau \tau^T \le Y ,

``u`` the perturbations of the inputs, ``sigma`` what the channels of late steps leave of their tangents. A stage takes
``d`` to :math:`G d + B e`, :math:`G = A + B \operatorname{diag}(s) C` with the tangents' slopes ``s``, and
``e = psi(z + v) - psi(z) - s v`` lies in intervals that follow from the reach of the rows ``v = C d``. What is linear
in the inputs stays exact; ``e``, of second order, stays exact for a window of steps. Then it goes to the tail,
a box of ``L sigma`` by :math:`L \operatorname{diag}(a_i^2 / \theta_i) L^T`, :math:`\sum \theta_i = 1`, and sums by

.. math:: (x + y)(x + y)^T \le (1 + \omega)\, x x^T + (1 + 1 / \omega)\, y y^T .

Where the network contracts along the run, the tail does, too: its size is that of a few steps, whatever their number.
Rounding errors, entry by entry, join the tail at once, so that they grow no faster than perturbations do; those of the
tail's own products are added to its diagonal, see ``ellipsoid_operations``.

A margin is closed from its end: with its gradient along the nominal run it loses what the inputs' entries can take and,
unit by unit, the worse end of ``e``; that is exact but for ``e``.

Time and memory grow linearly with the number of steps, but for the part of ``U``, which is a small one.
Sources: W. Kuehn, Rigorously computed orbits of dynamical systems without the wrapping effect, Computing 61 (1998), for
zonotopes of many terms; A. Kurzhanski, I. Valyi, Ellipsoidal calculus for estimation and control (1997), for the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.reachability.ellipsoid_operations import (
    around_box,
    around_symbols,
    half_widths,
    outer_sum,
    transformed_ellipsoid,
)
from stability.kernel.reachability.ellipsoid_tube import gain, nominal_run, row_spread
from stability.kernel.reachability.linear_remainder import relaxed
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Nominal, Stage

Array = np.ndarray
_FAR = 1e60
"""Size of a row above which the tube counts as diverged."""


@dataclass(frozen=True, eq=False)
class StageRelaxation:
    """Relaxation of a stage over all runs of the box.

    Attributes:
        stage: the stage.
        slopes: ``(m,)`` the tangents'.
        low: ``(m,)`` least ``e``.
        high: ``(m,)`` and largest.
        loose: ``(k2,)`` what rounding, and matrices that are only enclosed, may add to the vector after the stage.
        radius: ``(p,)`` of the input's entries, where it enters here; ``None`` elsewhere.
    """

    stage: Stage
    slopes: Array
    low: Array
    high: Array
    loose: Array
    radius: Array | None


@dataclass(frozen=True, eq=False)
class ZonotopeTube:
    """Tube up to the final vector.

    Attributes:
        y: the vector at the end of the nominal run.
        ways: every stage.
        sides: half-widths of the entries of that vector.
    """

    y: Array
    ways: list[StageRelaxation]
    sides: Array

    def least(self, W: Array) -> tuple[Array, Array]:
        """Bound ``W d`` below, ``d`` the final perturbation, for rows ``(k, n)``, up to the rounding of that product.

        Returns:
            They, and about how much of them is of the inputs themselves, each ``(k,)``.
        """
        P, out, lost, direct = W, np.zeros(len(W)), np.zeros(len(W)), np.zeros(len(W))
        for way in reversed(self.ways):
            stage, size = way.stage, np.abs(P)
            worth = P @ stage.B
            out += np.minimum(worth * way.low, worth * way.high).sum(axis=1)
            lost += size @ way.loose
            P = P @ stage.A + (worth * way.slopes) @ stage.C
            if way.radius is not None:
                n = P.shape[1] - len(way.radius)
                entry = np.abs(P[:, n:]) @ way.radius
                out, direct, P = out - entry, direct - entry, P[:, :n]
        terms = 4 * len(self.ways) + max(len(way.low) + way.stage.C.shape[1] for way in self.ways) + 64
        return out - (lost * (1.0 + 1e-6) + 2.0 * gamma(terms) * np.abs(out) + TINY), direct


@dataclass
class _Set:
    """Zonotope ``c + U u + M sigma + tau`` before a stage."""

    c: Array
    U: Array
    r: Array
    M: Array
    a: Array
    Y: Array
    entered: list[int] = field(default_factory=list)
    """Number of columns of ``U`` of each step."""
    left: list[int] = field(default_factory=list)
    """Number of columns of ``M`` of each step."""

    @property
    def columns(self) -> int:
        """Return the number of all symbols."""
        return len(self.r) + len(self.a)

    def sides(self) -> Array:
        """Return the half-widths of the entries."""
        tail = half_widths(self.Y)
        extent = np.abs(self.c) + np.abs(self.U) @ self.r + np.abs(self.M) @ self.a + tail
        return extent * (1.0 + 2.0 * gamma(self.columns + 8))

    def enter(self, radius: Array) -> None:
        """Add a new step's input, ``(p,)``."""
        n, p, moves = len(self.c), len(radius), np.flatnonzero(radius > 0)
        U = np.zeros((n + p, len(self.r) + len(moves)))
        U[:n, : len(self.r)] = self.U
        U[n + moves, len(self.r) + np.arange(len(moves))] = 1.0
        self.U, self.r = U, np.concatenate([self.r, radius[moves]])
        self.M = np.concatenate([self.M, np.zeros((p, len(self.a)))])
        self.c = np.concatenate([self.c, np.zeros(p)])
        Y = np.zeros((n + p, n + p))
        Y[:n, :n] = self.Y
        self.Y = Y
        self.entered.append(len(moves))
        self.left.append(0)

    def oldest(self, window: int, kept: int) -> tuple[Array, Array]:
        """Remove the columns older than the windows; return them with their radii."""
        parts, sizes = [np.zeros((len(self.c), 0))], [np.zeros(0)]
        if len(self.left) > window:
            count = sum(self.left[: len(self.left) - window])
            self.left = self.left[len(self.left) - window :] if window else [0]
            parts, sizes = [*parts, self.M[:, :count]], [*sizes, self.a[:count]]
            self.M, self.a = self.M[:, count:], self.a[count:]
        if len(self.entered) > kept:
            count = sum(self.entered[: len(self.entered) - kept])
            self.entered = self.entered[len(self.entered) - kept :] if kept else []
            parts, sizes = [*parts, self.U[:, :count]], [*sizes, self.r[:count]]
            self.U, self.r = self.U[:, count:], self.r[count:]
        return np.concatenate(parts, axis=1), np.concatenate(sizes)


def zonotope_tube(
    net: Stages, box: tuple[Array, Array], window: int, kept: int, over: Callable[[], bool] | None = None
) -> ZonotopeTube | None:
    """Return the tube around the runs from a box of inputs.

    Args:
        net: the stages.
        box: ends ``(T, p)`` of the inputs.
        window: number of steps that keep the remainders of their channels.
        kept: number of steps that keep their inputs.
        over: whether to give up; asked at every step.

    Returns:
        The tube; ``None`` where it leaves all bounds, or was given up.

    Example:
        >>> from stability.kernel.reachability.network_stages import stages_of
        >>> from stability.kernel.systems.classifier import Classifier
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> line = DrivenSystem(LureSystem.linear([[0.5]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> net, x = stages_of(Classifier(line, [[1.0], [-1.0]])), np.ones((3, 1))
        >>> zonotope_tube(net, (x - 0.1, x + 0.1), 0, 3).least(np.ones((1, 1)))[0].round(9)
        array([-0.175])
    """
    low, high = box
    middle = 0.5 * low + 0.5 * high
    radius = np.nextafter(np.maximum(high - middle, middle - low), np.inf) * (high > low)
    n, count = net.states, len(net.stages)
    now = _Set(np.zeros(n), np.zeros((n, 0)), np.zeros(0), np.zeros((n, 0)), np.zeros(0), np.zeros((n, n)))
    run, ways = nominal_run(net, middle), list[StageRelaxation]()
    with np.errstate(all="ignore"):  # what overflows proves nothing
        for k, at in enumerate(run):
            stage, entry = net.stages[k % count], None
            if stage.fresh:
                if over is not None and over():
                    return None
                entry = radius[k // count]
                now.enter(entry)
            way = _passed(now, stage, at, entry)
            if way is None:
                return None
            ways.append(way)
            now.Y = outer_sum([now.Y, around_box(way.loose), around_symbols(*now.oldest(window, kept))])
        sides = now.sides()
    return ZonotopeTube(run[-1].out, ways, sides) if bool((sides < _FAR).all()) else None


def _passed(now: _Set, stage: Stage, at: Nominal, entry: Array | None) -> StageRelaxation | None:
    """Return the relaxation of a stage; update the set, except for the terms that join the tail."""
    A, B, C = np.abs(stage.A), np.abs(stage.B), np.abs(stage.C)
    sides, terms = now.sides(), now.columns + sum(stage.B.shape) + stage.C.shape[1] + 32
    extent = C @ sides
    _, squares = row_spread(stage, now.Y)
    shift, reach = stage.C @ now.c, np.abs(stage.C @ now.U) @ now.r + np.abs(stage.C @ now.M) @ now.a
    apart = np.zeros_like(extent) if stage.slack is None else stage.slack[2] @ sides
    offset = at.offset + 2.0 * gamma(terms) * extent + apart
    reach = (reach + np.sqrt(squares) + offset) * (1.0 + 64 * EPS)
    if not bool((reach < _FAR).all()):
        return None
    slopes, low, high = relaxed(stage, at, np.maximum(reach - shift, 0.0), np.maximum(reach + shift, 0.0))
    # of the nominal rows themselves: the exact ones lie within the offset of those of floats
    least, most = stage.slopes(at.rows, at.offset)
    slope_error = np.maximum(np.abs(most - slopes), np.abs(slopes - least)) * at.offset
    middle = 0.5 * low + 0.5 * high
    size = np.abs(slopes) * (extent + apart)
    biggest = np.maximum(-low, high)
    missed = at.error + B @ slope_error + 2.0 * gamma(terms) * (A @ sides + B @ (size + biggest))
    if stage.slack is not None:
        dA, dB, _ = stage.slack
        missed = missed + dA @ sides + dB @ (size + biggest + slope_error) + B @ (np.abs(slopes) * apart)
    missed = missed * (1.0 + gamma(terms))
    G = gain(stage, slopes)
    missed = missed + 2.0 * gamma(terms) * (np.abs(G) @ sides) * (1.0 + gamma(terms))
    new = np.flatnonzero(high > low)
    now.c = G @ now.c + stage.B @ middle
    now.U = G @ now.U
    now.M = np.concatenate([G @ now.M, stage.B[:, new]], axis=1)
    now.a = np.concatenate([now.a, np.maximum(high - middle, middle - low)[new] * (1.0 + 4 * EPS)])
    now.left[-1] += len(new)
    now.Y = transformed_ellipsoid(G, now.Y)
    return StageRelaxation(stage, slopes, low, high, missed, entry)
