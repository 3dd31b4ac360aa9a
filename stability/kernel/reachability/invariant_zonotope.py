r"""Zonotopes of the states reachable after the initial state is forgotten.

A set :math:`S = \{c + \sum_j g_j s_j : |s_j| \le 1\}` is pushed through

.. math:: x^+ = A x + B \phi(z) + F u, \qquad z = C x + D \phi(z) + E u + b, \qquad u_j \in [l_j, h_j],

with :math:`\phi(z_i) \in \lambda_i z_i + \mu_i \pm \epsilon_i` on the interval that contains :math:`z_i`. Units that
depend on the same symbol stay correlated: the pushed generators are :math:`(A + B \Lambda C) g`, not bounds of the two
terms apart. Inputs and the errors of the relaxation are new symbols at each step; the oldest are merged into a box.
Rounding errors are bounded by row sums, :math:`\gamma |C| \, |G| 1`, and become part of the newest box. The feedthrough
``D phi(z)`` is first bounded by an interval, from the known bounds of ``z``, in several rounds; then the equations are
solved for ``z`` (``implicit_channels``), and the narrower bounds are kept. A set much wider than the known bounds of
its states is replaced by their box.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activation_bounds import activation_values
from stability.kernel.arithmetic.activation_lines import relaxation
from stability.kernel.arithmetic.activations import Activation, activation
from stability.kernel.arithmetic.balls import Ball, diagonal_of, system_balls
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import midpoint_radius
from stability.kernel.reachability.implicit_channels import AffineChannels
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray
_FEEDTHROUGH_ROUNDS = 6
"""Rounds per step that bound the feedthrough between channels by an interval."""
_SOLUTION_ROUNDS = 2
"""Rounds per step that solve the equations of channels with feedthrough."""
_MAX_WIDTH_RATIO = 1.5
"""Width of a set, relative to known bounds of the states, above which it is replaced by their box."""


@dataclass(frozen=True, eq=False)
class _Network:
    """Matrices of a network and the magnitudes that bound its rounding errors."""

    driven: DrivenSystem
    phi: Activation
    A: Ball
    B: Ball
    C: Ball
    D: Ball | None  # where it is not zero
    middle: Array
    reach: Array
    diagonal: Array | None  # of B, where that is all of it

    @classmethod
    def of(cls, driven: DrivenSystem, low: Array, high: Array) -> _Network:
        A, B, C, D = system_balls(driven.system)
        diagonal = None if B.rad.any() else diagonal_of(B.mid)
        middle, reach = midpoint_radius(low, high)
        return cls(driven, activation(driven.activation), A, B, C, feedthrough(D), middle, reach, diagonal)

    def feedthrough_bounds(self, low: Array, high: Array) -> tuple[Ball, Array]:
        """Enclose ``D phi(z)`` for ``z`` in a box: midpoint and outward-rounded radius."""
        assert self.D is not None
        least, _ = activation_values(self.driven.activation, Ball.exact(low)).endpoints()
        _, most = activation_values(self.driven.activation, Ball.exact(high)).endpoints()
        middle, reach = midpoint_radius(least, most)
        return self.D @ middle, (Ball.exact(self.D.upper()) @ reach).upper()


def feedthrough(D: Ball) -> Ball | None:
    """Return the feedthrough ``D``, or ``None`` if it is exactly zero."""
    return D if D.mid.any() or D.rad.any() else None


def _sums(columns: list[Array]) -> Array:
    """Return row sums of absolute values, rounded up."""
    count = sum(c.shape[1] for c in columns)
    total = np.sum([np.abs(c).sum(axis=1) for c in columns], axis=0)
    return total * (1 + (count + len(columns) + 8) * EPS)


class InvariantZonotope:
    """Sequence of zonotopes, starting from an invariant box.

    Bounds of the pre-activations after ``k`` steps hold at all later times too, for a trajectory in the box ``k`` steps
    before any of these times is in the set: ``low`` never falls and ``high`` never rises.

    Args:
        driven: a discrete network, its activation bounded and smooth, or piecewise linear; with feedthrough bounded.
        low: ``(p,)`` lower ends of the inputs.
        high: ``(p,)`` upper ends of the inputs.
        box: ``(n,)`` half widths of the box around zero.
        window: number of last steps whose symbols are not merged.
        lower_reach: ``(n,)`` distance from zero to the lower end of the box; ``box`` by default.
        stays: whether no step leaves the box. If that is not known, ``low`` and ``high`` hold only for the present set,
            ``steps`` steps after a start in the box, and there must be no feedthrough.

    Raises:
        ConfigurationError: a ``D`` that is not exactly zero, rounding errors included, where ``stays`` is false.

    Attributes:
        low: ``(m,)`` lower bounds of the pre-activations.
        high: ``(m,)`` upper bounds of the pre-activations.
        steps: number of steps run.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0)
        >>> network = DrivenSystem(cell, "tanh", [[1.0]])
        >>> tube = InvariantZonotope(network, np.array([1.0]), np.array([1.2]), np.ones(1), 5)
        >>> for _ in range(20): tube.step()
        >>> bool(1.35 < tube.low[0] < tube.high[0] < 1.7)
        True
    """

    def __init__(
        self,
        driven: DrivenSystem,
        low: Array,
        high: Array,
        box: Array,
        window: int,
        lower_reach: Array | None = None,
        stays: bool = True,
    ) -> None:
        self._network, self._stays = _Network.of(driven, low, high), stays
        if not stays and self._network.D is not None:
            raise ConfigurationError("without an invariant box, channels must not feed one another (D = 0)")
        self._window = max(1, int(window))
        self._centre, half = np.zeros(driven.states), box
        if lower_reach is not None:
            self._centre, half = midpoint_radius(-lower_reach, box)
        self._columns = [np.diag(half)]
        m = driven.system.channels
        self.low, self.high, self.steps = np.full(m, -np.inf), np.full(m, np.inf), 0
        self._kept = self._endpoints()
        self._channels = self._bound_channels()

    def _bound_channels(self) -> tuple[AffineChannels, list[Array], Ball]:
        """Bound the pre-activations over the present set; return channels, their generators, and the center's image."""
        net, size, slack = self._network, _sums(self._columns), np.zeros(len(self.low))
        E, none = Ball.exact(net.driven.E), Ball.exact(np.zeros((len(slack), len(slack))))
        direct = AffineChannels(slack, slack, slack, net.C, E, none, Ball.exact(net.driven.b), slack)
        images, centre, radius = self._images_of(direct, size)
        if net.D is None:
            self._intersect(centre.mid, radius)
        else:
            bare, wide = centre, radius
            for _ in range(_FEEDTHROUGH_ROUNDS):
                feedthrough, slack = net.feedthrough_bounds(self.low, self.high)
                centre = bare + feedthrough
                wide = (radius + slack + centre.rad) * (1 + 8 * EPS)
                self._intersect(centre.mid, wide)
            solved = self._bound_solutions(size, float(wide.sum()))
            if solved is not None:
                return solved
        slope, offset, error = relaxation(net.phi, self.low, self.high)
        error = (error + np.abs(slope) * slack) * (1 + 4 * EPS)
        return replace(direct, slope=slope, offset=offset, error=error), images, centre

    def _images_of(self, z: AffineChannels, size: Array) -> tuple[list[Array], Ball, Array]:
        """Return the generators in the channels, the center's image, and the spread of pre-activations around it."""
        net, n = self._network, self._network.driven.states
        images = [z.C.mid @ g for g in self._columns]
        centre = z.C @ self._centre + z.E @ net.middle + z.rest
        rounding = z.C.rad @ size + gamma(n + 4) * (np.abs(z.C.mid) @ size)
        entry = (Ball.exact(z.E.upper()) @ net.reach).upper()
        bent = (Ball.exact(z.H.upper()) @ z.error).upper()
        radius = _sums(images) + rounding + entry + bent + z.rounding + centre.rad
        return images, centre, radius * (1 + (n + len(net.reach) + 16) * EPS)

    def _bound_solutions(self, size: Array, wide: float) -> tuple[AffineChannels, list[Array], Ball] | None:
        """Bound the solutions ``z`` of the equations with feedthrough; ``None`` if wider in sum than ``wide``."""
        net, bounds = self._network, None
        assert net.D is not None
        for _ in range(_SOLUTION_ROUNDS):
            line = relaxation(net.phi, self.low, self.high)
            reach = np.maximum(np.abs(self.low), np.abs(self.high))
            solved = AffineChannels.of(line, net.C, net.D, net.driven.E, net.driven.b, reach)
            if solved is None:
                break
            images, centre, radius = self._images_of(solved, size)
            if not np.isfinite(radius).all():
                break
            self._intersect(centre.mid, radius)
            if float(radius.sum()) <= wide:
                bounds = solved, images, centre
        return bounds

    def _intersect(self, middle: Array, radius: Array) -> None:
        """Intersect the known bounds of the pre-activations with these."""
        low, high = np.nextafter(middle - radius, -np.inf), np.nextafter(middle + radius, np.inf)
        self.low = np.maximum(self.low, low) if self._stays else low
        self.high = np.minimum(self.high, high) if self._stays else high

    def step(self) -> None:
        """Run one step of the network, for all inputs in the box.

        With ``z = C x + E u + rest + H e + r`` the errors ``e`` of the relaxation are symbols that all states share.
        """
        z, images, centre = self._channels
        net, driven, slope, error = self._network, self._network.driven, z.slope, z.error
        n, m = driven.states, driven.system.channels
        size, images_l1 = _sums(self._columns), _sums(images)
        moved = net.A @ self._centre + net.B @ (slope * centre + Ball.exact(z.offset))
        moved = moved + Ball.exact(driven.F) @ net.middle
        columns = [self._push(g, slope[:, None] * image) for g, image in zip(self._columns, images)]
        entry = self._weighted(slope[:, None] * z.E.mid) + driven.F
        absolute = np.abs(net.B.mid) + net.B.rad
        read, fed_error = z.E.upper() @ net.reach, slope * (z.H.upper() @ error) + error
        rounding = gamma(2 * n + 4 * m + 2 * driven.inputs + 16) * (
            np.abs(net.A.mid) @ size
            + absolute @ (slope * (np.abs(z.C.mid) @ size + images_l1 + read))
            + np.abs(driven.F) @ net.reach
            + absolute @ fed_error
        )
        rest = z.C.rad @ size + z.E.rad @ net.reach + z.H.rad @ error + z.rounding
        errors = net.A.rad @ size + absolute @ (slope * rest) + net.B.rad @ (slope * (images_l1 + read) + fed_error)
        box = moved.rad + rounding + errors
        if net.diagonal is None or net.D is not None:
            columns.append(self._weighted(slope[:, None] * z.H.mid + np.eye(m)) * error)
        else:
            box = box + np.abs(net.diagonal) * error
        box = box * (1 + (n + 2 * m + driven.inputs + 32) * EPS)
        self._arrive(moved.mid, [*columns, entry * net.reach, np.diag(box)])

    def _arrive(self, centre: Array, columns: list[Array]) -> None:
        """Set the zonotope of the next step."""
        self._centre, self._columns, self.steps = centre, self._merged(columns), self.steps + 1
        if self._network.D is not None:
            self._keep(*self._endpoints())
        self._channels = self._bound_channels()

    def _keep(self, low: Array, high: Array) -> None:
        """Update the bounds of the states at all later times; replace a much wider set by their box."""
        least, most = (side(known, end) for side, known, end in zip((np.maximum, np.minimum), self._kept, (low, high)))
        self._kept = least, most
        if float((high - low).sum()) > _MAX_WIDTH_RATIO * float((most - least).sum()):
            self._centre, half = midpoint_radius(least, most)
            self._columns = [np.diag(half)]

    def _push(self, g: Array, weighted: Array) -> Array:
        """Return ``A g + B weighted``."""
        A = self._network.A.mid
        through = self._weighted(weighted)
        return through + A @ g if A.any() else through

    def _weighted(self, columns: Array) -> Array:
        net = self._network
        return net.B.mid @ columns if net.diagonal is None else net.diagonal[:, None] * columns

    def _merged(self, columns: list[Array]) -> list[Array]:
        """Merge the generators of old steps in one box; each step adds the same number of groups."""
        each = 2 if self._network.diagonal is not None and self._network.D is None else 3
        old = len(columns) - each * self._window
        return columns if old <= 1 else [np.diag(_sums(columns[:old])), *columns[old:]]

    def states(self) -> tuple[Array, Array]:
        """Bound the states in the present set, ``(n,)`` each, rounded outwards."""
        return self._endpoints() if self._network.D is None else self._kept

    def _endpoints(self) -> tuple[Array, Array]:
        radius = _sums(self._columns)
        return np.nextafter(self._centre - radius, -np.inf), np.nextafter(self._centre + radius, np.inf)
