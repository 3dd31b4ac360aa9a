r"""Reachable zonotopes around a nominal trajectory, with an ellipsoid for the oldest terms.

The nominal run has the inputs at the middle of the box. Let ``d`` be the difference of another run from it. Before
every stage

.. math:: d = c + U u + M \sigma + \tau, \qquad |u| \le r, \quad |\sigma| \le a, \quad \tau \tau^T \le Y ,

where ``u`` holds the perturbations of the inputs, ``sigma`` the linearization errors of recent steps, and the *tail*
``tau`` everything older. A stage maps ``d`` to :math:`G d + B e` with :math:`G = A + B \operatorname{diag}(s) C`, where
``s`` are the slopes of the linearization. The linearization errors ``e = psi(z + v) - psi(z) - s v`` lie in intervals
that follow from the range of ``v = C d``. Terms linear in the inputs keep their symbols for ``kept`` steps and
linearization errors for ``window`` steps. Afterwards the tail takes them up: it bounds ``L sigma`` by
:math:`L \operatorname{diag}(a_i^2 / \theta_i) L^T` with :math:`\sum \theta_i = 1`, and sums by

.. math:: (x + y)(x + y)^T \le (1 + \omega)\, x x^T + (1 + 1 / \omega)\, y y^T .

If the network contracts along the run, so does the tail, and its size does not grow with the sequence. The tail takes
up rounding errors of every entry at once, so that they grow no faster than perturbations do. Rounding errors of the
tail's own products are added to its diagonal, see ``ellipsoid_operations``.

A backward pass bounds a margin: its gradient along the nominal run gives the exact loss by the inputs, and for every
channel the worse end of ``e`` is subtracted.

Time and memory grow linearly with the number of steps, except for the small part of ``U``.
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
_DIVERGED = 1e60
"""Change of a pre-activation above which the tube counts as diverged: its square must not overflow."""


@dataclass(frozen=True, eq=False)
class StageRelaxation:
    """Linear relaxation of a stage that holds for all runs of the box.

    Attributes:
        stage: the stage.
        slopes: ``(m,)`` slopes ``s`` of the linearization.
        low: ``(m,)`` lower bounds of the linearization errors ``e``.
        high: ``(m,)`` upper bounds.
        error: ``(k2,)`` bounds of rounding errors and of inexact matrices, in the vector after the stage.
        radius: ``(p,)`` half-widths of the input, if it enters at this stage; else ``None``.
    """

    stage: Stage
    slopes: Array
    low: Array
    high: Array
    error: Array
    radius: Array | None


@dataclass(frozen=True, eq=False)
class ZonotopeTube:
    """Tube around all runs of the box.

    Attributes:
        y: ``(n,)`` vector at the end of the nominal run.
        relaxations: relaxations of all stages, in order.
        half_widths: ``(n,)`` bounds of the difference ``d`` from the nominal run at the end.
    """

    y: Array
    relaxations: list[StageRelaxation]
    half_widths: Array

    def lower_bounds(self, W: Array) -> tuple[Array, Array]:
        """Return lower bounds ``(k,)`` of ``W d`` at the end, for ``W (k, n)``.

        Also return the part ``(k,)`` of them that the inputs cause directly, without linearization errors. The rounding
        error of the product ``W d`` itself is not included.
        """
        P, out, error, direct = W, np.zeros(len(W)), np.zeros(len(W)), np.zeros(len(W))
        for relaxation in reversed(self.relaxations):
            stage, size = relaxation.stage, np.abs(P)
            gradient = P @ stage.B
            out += np.minimum(gradient * relaxation.low, gradient * relaxation.high).sum(axis=1)
            error += size @ relaxation.error
            P = P @ stage.A + (gradient * relaxation.slopes) @ stage.C
            if relaxation.radius is not None:
                n = P.shape[1] - len(relaxation.radius)
                loss = np.abs(P[:, n:]) @ relaxation.radius
                out, direct, P = out - loss, direct - loss, P[:, :n]
        terms = 4 * len(self.relaxations) + max(len(r.low) + r.stage.C.shape[1] for r in self.relaxations) + 64
        return out - (error * (1.0 + 1e-6) + 2.0 * gamma(terms) * np.abs(out) + TINY), direct


@dataclass
class _Zonotope:
    """Zonotope with a tail, ``c + U u + M sigma + tau``, before a stage."""

    c: Array
    U: Array
    r: Array
    M: Array
    a: Array
    Y: Array
    input_columns: list[int] = field(default_factory=list)
    """Number of columns of ``U`` of each kept step, the oldest first."""
    error_columns: list[int] = field(default_factory=list)
    """Number of columns of ``M`` of each kept step, the oldest first."""

    @property
    def columns(self) -> int:
        """Return the number of all symbols."""
        return len(self.r) + len(self.a)

    def bounds(self) -> Array:
        """Return upper bounds of ``|d|``, entry by entry."""
        tail = half_widths(self.Y)
        extent = np.abs(self.c) + np.abs(self.U) @ self.r + np.abs(self.M) @ self.a + tail
        return extent * (1.0 + 2.0 * gamma(self.columns + 8))

    def append_input(self, radius: Array) -> None:
        """Append the input of a new step, with half-widths ``radius (p,)``."""
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
        self.input_columns.append(len(moves))
        self.error_columns.append(0)

    def remove_oldest(self, window: int, kept: int) -> tuple[Array, Array]:
        """Remove the columns of older steps; return them with the bounds of their symbols."""
        parts, sizes = [np.zeros((len(self.c), 0))], [np.zeros(0)]
        if len(self.error_columns) > window:
            count = sum(self.error_columns[: len(self.error_columns) - window])
            self.error_columns = self.error_columns[len(self.error_columns) - window :] if window else [0]
            parts, sizes = [*parts, self.M[:, :count]], [*sizes, self.a[:count]]
            self.M, self.a = self.M[:, count:], self.a[count:]
        if len(self.input_columns) > kept:
            count = sum(self.input_columns[: len(self.input_columns) - kept])
            self.input_columns = self.input_columns[len(self.input_columns) - kept :] if kept else []
            parts, sizes = [*parts, self.U[:, :count]], [*sizes, self.r[:count]]
            self.U, self.r = self.U[:, count:], self.r[count:]
        return np.concatenate(parts, axis=1), np.concatenate(sizes)


def zonotope_tube(
    net: Stages, box: tuple[Array, Array], window: int, kept: int, over: Callable[[], bool] | None = None
) -> ZonotopeTube | None:
    """Return a tube that contains all runs with inputs in a box.

    Args:
        net: the stages.
        box: lower and upper ends ``(T, p)`` of the inputs.
        window: number of steps whose linearization errors keep their symbols.
        kept: number of steps whose inputs keep their symbols.
        over: called at every step; True ends the computation.

    Returns:
        The tube; ``None`` if it diverges or was ended by ``over``.

    Example:
        >>> from stability.kernel.reachability.network_stages import stages_of
        >>> from stability.kernel.systems.classifier import Classifier
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> line = DrivenSystem(LureSystem.linear([[0.5]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> net, x = stages_of(Classifier(line, [[1.0], [-1.0]])), np.ones((3, 1))
        >>> zonotope_tube(net, (x - 0.1, x + 0.1), 0, 3).lower_bounds(np.ones((1, 1)))[0].round(9)
        array([-0.175])
    """
    low, high = box
    middle = 0.5 * low + 0.5 * high
    radius = np.nextafter(np.maximum(high - middle, middle - low), np.inf) * (high > low)
    n, count = net.states, len(net.stages)
    zonotope = _Zonotope(np.zeros(n), np.zeros((n, 0)), np.zeros(0), np.zeros((n, 0)), np.zeros(0), np.zeros((n, n)))
    run, relaxations = nominal_run(net, middle), list[StageRelaxation]()
    with np.errstate(all="ignore"):  # infinite or NaN bounds prove nothing
        for k, nominal in enumerate(run):
            stage, input_radius = net.stages[k % count], None
            if stage.fresh:
                if over is not None and over():
                    return None
                input_radius = radius[k // count]
                zonotope.append_input(input_radius)
            relaxation = _apply_stage(zonotope, stage, nominal, input_radius)
            if relaxation is None:
                return None
            relaxations.append(relaxation)
            removed = around_symbols(*zonotope.remove_oldest(window, kept))
            zonotope.Y = outer_sum([zonotope.Y, around_box(relaxation.error), removed])
        bounds = zonotope.bounds()
    return ZonotopeTube(run[-1].out, relaxations, bounds) if bool((bounds < _DIVERGED).all()) else None


def _apply_stage(z: _Zonotope, stage: Stage, nominal: Nominal, radius: Array | None) -> StageRelaxation | None:
    """Return the relaxation of a stage and map the zonotope by it; the caller adds ``error`` to the tail."""
    A, B, C = np.abs(stage.A), np.abs(stage.B), np.abs(stage.C)
    bounds, terms = z.bounds(), z.columns + sum(stage.B.shape) + stage.C.shape[1] + 32
    extent = C @ bounds
    _, squares = row_spread(stage, z.Y)
    shift, reach = stage.C @ z.c, np.abs(stage.C @ z.U) @ z.r + np.abs(stage.C @ z.M) @ z.a
    inexact = np.zeros_like(extent) if stage.slack is None else stage.slack[2] @ bounds
    offset = nominal.offset + 2.0 * gamma(terms) * extent + inexact
    reach = (reach + np.sqrt(squares) + offset) * (1.0 + 64 * EPS)
    if not bool((reach < _DIVERGED).all()):
        return None
    slopes, low, high = relaxed(stage, nominal, np.maximum(reach - shift, 0.0), np.maximum(reach + shift, 0.0))
    # the exact nominal pre-activations differ from the computed ones by at most the offset
    least, most = stage.slopes(nominal.rows, nominal.offset)
    slope_error = np.maximum(np.abs(most - slopes), np.abs(slopes - least)) * nominal.offset
    middle = 0.5 * low + 0.5 * high
    size = np.abs(slopes) * (extent + inexact)
    remainder = np.maximum(-low, high)
    error = nominal.error + B @ slope_error + 2.0 * gamma(terms) * (A @ bounds + B @ (size + remainder))
    if stage.slack is not None:
        dA, dB, _ = stage.slack
        error = error + dA @ bounds + dB @ (size + remainder + slope_error) + B @ (np.abs(slopes) * inexact)
    error = error * (1.0 + gamma(terms))
    G = gain(stage, slopes)
    error = error + 2.0 * gamma(terms) * (np.abs(G) @ bounds) * (1.0 + gamma(terms))
    new = np.flatnonzero(high > low)
    z.c = G @ z.c + stage.B @ middle
    z.U = G @ z.U
    z.M = np.concatenate([G @ z.M, stage.B[:, new]], axis=1)
    z.a = np.concatenate([z.a, np.maximum(high - middle, middle - low)[new] * (1.0 + 4 * EPS)])
    z.error_columns[-1] += len(new)
    z.Y = transformed_ellipsoid(G, z.Y)
    return StageRelaxation(stage, slopes, low, high, error, radius)
