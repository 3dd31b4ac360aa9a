r"""Equations ``y = T(y)`` whose solutions are the equilibria of a network under a constant input.

The unknowns are as few as possible. A Lur'e network :math:`0 = A' x + B \phi(z) + f`, :math:`z = C x + D \phi(z) + e`,
with :math:`A' = A - I` for a map, has :math:`x = N \phi(z) + n_0`, :math:`N = -A'^{-1} B`, :math:`n_0 = -A'^{-1} f`, so

.. math:: z = (D + C N) \phi(z) + C n_0 + e \qquad \text{or} \qquad x = N \phi(C x + e) + n_0 .

If ``A'`` may be singular, the equation is :math:`x = (I + A') x + B \phi(C x + e) + f`. The equilibria of a GRU obey
:math:`h = \tanh p`, :math:`p = W u + b + r(h) (R h + r_0)`, since its update gate is below one. Those of an LSTM obey
:math:`h = o(h) \tanh q(h)`, :math:`c = q = i g / (1 - f)`, and :math:`1 / (1 - f)` is one plus an exponential.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, has_feedthrough, row_sum_norm, system_balls
from stability.kernel.arithmetic.eigenpairs import inverse_or_none
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import Interval, hull, tanh
from stability.kernel.arithmetic.krawczyk import enclose_equilibrium
from stability.kernel.reachability.gated_orbits import enclose_orbit, orbit_jacobian, step_and_jacobian
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import GATES
from stability.search.equilibria.affine_boxes import AffineBoxes, Form, enclose_product

Array = np.ndarray
Bounds = tuple[Array, Array]
MAX_LOG = 600.0  # largest argument of the exponential, which overflows at 710


def solve_ball(matrix: Ball, right: Ball) -> Ball | None:
    """Enclose ``matrix^-1 right`` for all matrices in balls, or return ``None`` if the matrix may be singular."""
    inverse = inverse_or_none(matrix.mid)
    if inverse is None:
        return None
    factor = Ball.exact(inverse)
    rest, guess = row_sum_norm(np.eye(len(inverse)) - factor @ matrix), factor @ right
    if not rest < 0.5:
        return None
    slack = guess.upper().max(axis=0, initial=0.0) * (rest / (1.0 - rest)) * (1 + 8 * EPS)
    return Ball(guess.mid, (guess.rad + slack) * (1 + 4 * EPS))


def is_regular(matrix: Ball) -> bool:
    """Return True if every matrix of the ball is proved to be invertible."""
    inverse = inverse_or_none(matrix.mid)
    return inverse is not None and row_sum_norm(np.eye(len(inverse)) - Ball.exact(inverse) @ matrix) < 1.0


def _split_between_images(name: str, low: Array, high: Array) -> Array:
    """Return points whose images by an activation lie in the middle, the kinks of a piecewise linear one."""
    phi, middle = activation(name), 0.5 * low + 0.5 * high
    if phi.width is None:
        for kink in phi.kinks:
            middle = np.where((low < kink) & (kink < high), kink, middle)
        return middle
    images = np.tanh(phi.width * low) + np.tanh(phi.width * high)
    points = np.arctanh(np.clip(0.5 * images, -1 + EPS, 1 - EPS)) / phi.width
    return np.where((low < points) & (points < high), points, middle)


class LureEquation:
    """Equation of a Lur'e network in its pre-activations, or in its states where these are fewer.

    Args:
        driven: the network.
        u: ``(p,)`` constant input, taken as exact.
        box: states ``(n,)``, ``(n,)`` to which the search is restricted, or ``None``.
    """

    def __init__(self, driven: DrivenSystem, u: Array, box: Bounds | None) -> None:
        self.driven, self.u, self.name, self.start = driven, u, driven.activation, None
        system = driven.system
        A, B, C, D = system_balls(system)
        n, m, self.direct = system.states, system.channels, has_feedthrough(system)
        e, f = Ball.exact(driven.E) @ u + driven.b, Ball.exact(driven.F) @ u
        drift = A - np.eye(n) if system.is_discrete else A
        solved = solve_ball(-drift, Ball.stack([[B, f[:, None]]]))
        self.in_states = solved is None or not (self.direct or 0 < m <= n)
        self.inner, self.outer, self.P = (C, e), (B, f), drift + np.eye(n)
        if solved is not None:
            self.outer, self.P = (solved[:, :m], solved[:, m]), None
        self.T = self.outer if self.in_states else (D + C @ self.outer[0], C @ self.outer[1] + e)
        images = activation(self.name).function(np.array([[-np.inf], [np.inf]])) * np.ones(m)
        if solved is not None and np.isfinite(images).all():
            self.start = enclose_product(self.T[0], images[:1], images[1:], self.T[1])
        if box is not None and not self.direct:
            inside = (box[0][None], box[1][None])
            if not self.in_states:
                inside = enclose_product(C, *inside, e)
            old = inside if self.start is None else self.start
            self.start = np.maximum(old[0], inside[0]), np.minimum(old[1], inside[1])

    def image(self, boxes: AffineBoxes) -> Form:
        """Return ``T(y)`` over the boxes."""
        matrix, offset = self.T
        if not self.in_states:
            return boxes.linear(matrix, boxes.activation(self.name, boxes.y), offset)
        w = boxes.activation(self.name, boxes.linear(self.inner[0], boxes.y, self.inner[1]))
        if self.P is None:
            return boxes.linear(matrix, w, offset)
        return boxes.linear(Ball.stack([[matrix, self.P]]), boxes.join(w, boxes.y), offset)

    def split(self, low: Array, high: Array) -> Array:
        """Return points ``(N,)`` inside intervals of single unknowns."""
        return 0.5 * low + 0.5 * high if self.in_states else _split_between_images(self.name, low, high)

    def states(self, low: Array, high: Array) -> Bounds:
        """Enclose the states ``(N, n)`` of the solutions in boxes ``(N, d)``."""
        if self.in_states:
            return low, high
        images = [activation_values(self.name, Ball.exact(end)).endpoints() for end in (low, high)]
        return enclose_product(self.outer[0], images[0][0], images[1][1], self.outer[1])

    def located(self, low: Array, high: Array) -> Bounds:
        """Return boxes in the coordinates of ``enclose`` and ``unique``: those of the equation."""
        return low, high

    def enclose(self, state: Array) -> tuple[Ball, Ball, Ball | None] | None:
        """Prove an equilibrium near a state: return balls of its state, its coordinates and the Jacobian there."""
        orbit = enclose_equilibrium(self.driven, state, self.u)
        if orbit is None:
            return None
        A, B, C, D = system_balls(self.driven.system)
        k = activation_slopes(self.name, orbit.channels[0])[None, :]
        closed = solve_ball(np.eye(k.shape[1]) - D * k, C) if self.direct else C
        jacobian = None if closed is None else A + (B * k) @ closed
        return orbit.states[0], (orbit.states if self.in_states else orbit.channels)[0], jacobian

    def unique(self, point: Array, radius: float) -> bool:
        """Return True if at most one equilibrium lies within the radius of a point in each coordinate."""
        if self.in_states and self.direct:  # the equation in states leaves out D
            return False
        ball = Ball(point, np.full(point.shape, radius))
        channels = self.inner[0] @ ball + self.inner[1] if self.in_states else ball
        slope = self.T[0] * activation_slopes(self.name, channels)[None, :]
        if self.in_states:
            slope = slope @ self.inner[0]
        return is_regular(np.eye(len(point)) - (slope if self.P is None or not self.in_states else slope + self.P))


class GatedEquation:
    """Equation of an LSTM in its hidden units, or of a GRU in the pre-activations of its candidate.

    Args:
        cell: the cell.
        u: ``(p,)`` constant input, taken as exact.
    """

    def __init__(self, cell: GatedCell, u: Array) -> None:
        self.cell, self.u, m = cell, u, cell.hidden
        drive, one = Ball.exact(cell.w_ih) @ u + cell.b_ih, np.ones((1, m))
        self.start: Bounds | None = (-one, one)
        self.gates: dict[str, tuple[Ball, Ball]] = {}
        for k, name in enumerate(GATES[cell.kind]):
            rows = slice(k * m, (k + 1) * m)
            self.gates[name] = (Ball.exact(cell.w_hh[rows]), drive[rows] + cell.b_hh[rows])
        if cell.kind == "gru":
            self.candidate_drive, (matrix, _) = drive[2 * m :], self.gates["n"]
            self.gates["n"] = (matrix, Ball.exact(cell.b_hh[2 * m :]) if cell.reset_after else self.gates["n"][1])
            low, high = enclose_product(matrix, -one, one, self.gates["n"][1])
            if cell.reset_after:
                least, most = self.candidate_drive.endpoints()
                whole = Interval(least[None], most[None]) + hull(Interval(low, high), Interval.point(0.0 * one))
                low, high = whole.low, whole.high
            self.start = low, high
        elif enclose_product(self.gates["f"][0], -one, one, self.gates["f"][1])[1].max() > MAX_LOG:
            self.start = None

    def image(self, boxes: AffineBoxes) -> Form:
        """Return ``T(y)`` over the boxes."""
        if self.cell.kind == "lstm":
            return self._lstm(boxes)[0]
        h = boxes.activation("tanh", boxes.y)
        r = boxes.activation("sigmoid", boxes.linear(self.gates["r"][0], h, self.gates["r"][1]))
        if not self.cell.reset_after:
            return boxes.linear(self.gates["n"][0], boxes.product(r, h), self.gates["n"][1])
        v = boxes.product(r, boxes.linear(self.gates["n"][0], h, self.gates["n"][1]))
        return boxes.linear(Ball.exact(np.eye(self.cell.hidden)), v, self.candidate_drive)

    def _lstm(self, boxes: AffineBoxes) -> tuple[Form, Form]:
        """Return the next hidden units and the settled cell states."""
        z = {name: boxes.linear(matrix, boxes.y, offset) for name, (matrix, offset) in self.gates.items()}
        gain = boxes.product(boxes.activation("sigmoid", z["i"]), boxes.activation("tanh", z["g"]))
        q = boxes.product(gain, boxes.one_plus_exponential(z["f"]))
        return boxes.product(boxes.activation("sigmoid", z["o"]), boxes.activation("tanh", q)), q

    def split(self, low: Array, high: Array) -> Array:
        """Return points ``(N,)`` inside intervals of single unknowns."""
        return 0.5 * low + 0.5 * high if self.cell.kind == "lstm" else _split_between_images("tanh", low, high)

    def states(self, low: Array, high: Array) -> Bounds:
        """Enclose the states ``(N, n)`` of the solutions in boxes ``(N, d)``."""
        if self.cell.kind == "gru":
            h = tanh(Interval(low, high))
            return h.low, h.high
        q = self._lstm(AffineBoxes(low, high))[1]
        return np.concatenate([low, q.low], axis=1), np.concatenate([high, q.high], axis=1)

    def located(self, low: Array, high: Array) -> Bounds:
        """Return boxes in the coordinates of ``enclose`` and ``unique``: the states."""
        return self.states(low, high)

    def enclose(self, state: Array) -> tuple[Ball, Ball, Ball | None] | None:
        """Prove an equilibrium near a state: return balls of its state, its coordinates and the Jacobian there."""
        ball = enclose_orbit(self.cell, state[None], self.u[None])
        return None if ball is None else (ball[0], ball[0], orbit_jacobian(self.cell, ball, self.u[None]))

    def unique(self, point: Array, radius: float) -> bool:
        """Return True if at most one equilibrium lies within the radius of a point in each coordinate."""
        ball = Ball(point, np.full(point.shape, radius))
        return is_regular(np.eye(len(point)) - step_and_jacobian(self.cell, ball, self.u)[1])


Equation = LureEquation | GatedEquation
