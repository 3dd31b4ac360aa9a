r"""Reachable set of a gated network: linearized response plus an ellipsoid for the Taylor remainder.

The difference of a perturbed run from the nominal one is ``d = d1 + e``: ``d1`` follows the derivatives of the nominal
run, :math:`d_1 d_1^T \le \sigma Y` with the budget spent :math:`\sigma`, and ``e`` is what the bends of the units add,
:math:`e e^T \le Q`. A stage with rows ``C`` and units whose half Hessians are ``H`` (``taylor_remainder``) goes
on with :math:`Y \leftarrow G Y G^T` and

.. math:: e^+ = G e + B \left( H(v_1, v_1) + 2 H(v_1, v_e) + H(v_e, v_e) + \theta v \right),
          \qquad v_1 = C d_1, \quad v_e = C e.

A bilinear form of vectors in two ellipsoids ``K`` and ``R`` is a linear one of their tensor product, which lies in
:math:`K \otimes R`: all units together in the ellipsoid with the entries :math:`\langle H_k, K H_l R \rangle`. So the
bends of different units count with their signs, and not as if each had the worst input for itself. Ellipsoids are added
by :math:`\sum_i \Omega_i / \tau_i`, :math:`\sum_i \tau_i \le 1`.

Everything is rounded outwards: what is said of ``Y`` and ``Q`` holds of the exact runs, see ``ellipsoid_operations``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma, prove_positive_definite
from stability.kernel.arithmetic.floating_point import EPS, LOST
from stability.kernel.reachability.ellipsoid_operations import (
    around_box,
    ellipsoid_extent,
    half_widths,
    outer_sum,
    raise_diagonal,
    scaled_ellipsoid,
    transformed_ellipsoid,
)
from stability.kernel.reachability.ellipsoid_tube import append_input, diagonal_above, gain
from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.quadratic_lower_bound import Passage
from stability.kernel.reachability.stages import Nominal, Stage
from stability.kernel.reachability.taylor_remainder import Hessians, hessians, remainder_slopes

Array = np.ndarray
_SURE = 1.0 + 1e-12
_HOPELESS = 1e24  # trace of ``Q`` above which the tube counts as diverged


def bilinear_ellipsoid(H: Hessians, K: Array, R: Array) -> Array:
    """Return an ellipsoid of ``H(v, w)``, all units together, for ``v`` in ``K`` and ``w`` in ``R``."""
    shape = (H.blocks, H.units, H.blocks, H.units)
    left, right, out = K.reshape(shape), R.reshape(shape), np.zeros((H.units, H.units))
    a, b = (half_widths(X).reshape(H.blocks, -1) for X in (K, R))
    size = np.zeros(H.units)
    for (i, j), one in H.entries.items():
        size += np.abs(one) * a[i] * b[j]
        for (p, q), other in H.entries.items():
            out += np.outer(one, other) * left[i, :, p] * right[j, :, q]
    return raise_diagonal(0.5 * (out + out.T), gamma(len(H.entries) ** 2 + 8), size)


@dataclass(frozen=True, eq=False)
class Linear:
    """Radius-independent data of a stage around the nominal run.

    Attributes:
        stage: the stage.
        y: ``(k,)`` the vector before it.
        at: name of its output.
        G: its derivative.
        unsure: ``(m,)`` error bound of its slopes.
        H: half the Hessians of its units.
        Y: ``(k, k)`` the ellipsoid of ``d1``.
        K: ``(m, m)`` that of its rows.
        bends: ``(units, units)`` that of ``H(v1, v1)``.
        worth: ``(k2,)`` sensitivities of the entries after it.
    """

    stage: Stage
    y: Array
    at: Nominal
    G: Array
    unsure: Array
    H: Hessians
    Y: Array
    K: Array
    bends: Array
    worth: Array


@dataclass(frozen=True, eq=False)
class GatedTube:
    """Tube for one radius.

    Attributes:
        ways: bounds of every stage.
        Y: ``(n, n)`` of ``d1`` at the end.
        Q: ``(n, n)`` of ``e`` there.
        radius: epsilon.
    """

    ways: list[Passage]
    Y: Array
    Q: Array
    radius: float

    def margin_loss(self, head: Array, label: int) -> Array:
        """Bound the decrease of each logit difference to the class above, ``(k,)``."""
        w = differences(head, np.asarray(label))
        return (self.radius * ellipsoid_extent(w, self.Y) + ellipsoid_extent(w, self.Q)) * (1 + 8 * EPS)

    def sides(self) -> Array:
        """Return the half-widths of the final vector."""
        return _entry_bounds(self.radius, self.Y, self.Q)


def linear_part(net: Stages, x: Array, run: Sequence[Nominal], free: Array, worth: Sequence[Array]) -> list[Linear]:
    """Return the radius-independent data of all stages.

    Args:
        net: the stages.
        x: ``(T, p)``.
        run: the nominal run.
        free: ``(T, p)``, one where an input may change, else zero.
        worth: ``(k2,)`` of each stage, ``>= 0``, what its entries are worth: any are sound.
    """
    y, Y, out, count = net.start, np.zeros((net.states, net.states)), list[Linear](), len(net.stages)
    for k, (at, w) in enumerate(zip(run, worth)):
        stage = net.stages[k % count]
        if stage.fresh:
            y, Y = np.concatenate([y, x[k // count]]), append_input(Y, free[k // count], None)
        slopes, unsure = stage.tangents(at.rows, at.offset)
        G, H, K = gain(stage, slopes), hessians(stage, at.rows, at.offset), transformed_ellipsoid(stage.C, Y)
        out.append(Linear(stage, y, at, G, unsure, H, Y, K, bilinear_ellipsoid(H, K, K), w))
        y, Y = at.out, transformed_ellipsoid(G, Y)
    return out


def _entry_bounds(radius: float, Y: Array, Q: Array) -> Array:
    a, b = half_widths(Y), half_widths(Q)
    return (radius * a + b) * (1 + 8 * EPS)


@np.errstate(all="ignore")  # what overflows proves nothing
def bent_tube(net: Stages, stages: Sequence[Linear], radius: float) -> GatedTube | None:
    """Return the tube of a radius, or ``None`` if it diverges."""
    Q, ways = np.zeros((net.states, net.states)), list[Passage]()
    for of in stages:
        if of.stage.fresh:
            Q = append_input(Q, np.zeros(net.inputs), None)
        R = transformed_ellipsoid(of.stage.C, Q)
        reach, moves = _entry_bounds(radius, of.K, R), _entry_bounds(radius, of.Y, Q)
        offset = of.at.offset
        if of.stage.slack is not None:
            offset = offset + of.stage.slack[2] @ moves * _SURE
        shape = of.Y + Q / (radius * radius)
        ways.append(Passage(of.stage, of.y, moves, of.at.rows, (reach + offset) * _SURE, shape))
        Q = _next_remainder(of, radius, Q, R, reach, moves)
        if not (np.isfinite(Q).all() and np.einsum("ii->", Q) < _HOPELESS):
            return None
    return GatedTube(ways, transformed_ellipsoid(stages[-1].G, stages[-1].Y), Q, radius)


def _next_remainder(of: Linear, radius: float, Q: Array, R: Array, reach: Array, moves: Array) -> Array:
    """Return ``Q`` after a stage."""
    stage, H, square = of.stage, of.H, radius * radius
    B = stage.B[:, : H.units]
    inner = [
        scaled_ellipsoid(scaled_ellipsoid(of.bends, square), square),
        scaled_ellipsoid(bilinear_ellipsoid(H, of.K, R), 4.0 * square),
        bilinear_ellipsoid(H, R, R),
    ]
    parts = [transformed_ellipsoid(of.G, Q), *(transformed_ellipsoid(B, part) for part in inner)]
    theta = remainder_slopes(stage, of.at.rows, of.at.offset, reach)
    whole = outer_sum([scaled_ellipsoid(of.K, square), R])
    price = of.worth @ (B * B)
    for block in range(H.blocks):
        rows = slice(block * H.units, (block + 1) * H.units)
        parts.append(
            transformed_ellipsoid(
                B, np.diag(theta[rows] ** 2 * _diagonal_bound(whole[rows, rows], theta[rows], price) * _SURE)
            )
        )
    missed = _rounding_error(of, reach, moves)
    parts.append(around_box(missed))
    return outer_sum(parts, of.worth)


def _diagonal_bound(R: Array, theta: Array, price: Array) -> Array:
    """Return a diagonal of at least ``R``: proved, or by its row sums."""
    root = np.sqrt(np.maximum(theta * theta * price, 0.0))
    root = np.maximum(root, 1e-9 * root.max(initial=0.0) + LOST)
    D = diagonal_above(R[None], root[None], np.ones((1, len(R))))[0] * (1.0 + 1e-9)
    difference = -R
    difference[range(len(R)), range(len(R))] += D
    size = half_widths(R)
    if prove_positive_definite(difference, lambda s: 4 * EPS * (D * s + size * (size @ s)), overwrite=True).holds:
        return D
    return (np.abs(R) @ root) / root * (1.0 + gamma(len(R) + 8))


def _rounding_error(of: Linear, reach: Array, moves: Array) -> Array:
    """Bound the error of a floating-point stage on a perturbed run, entry by entry."""
    stage, at, H = of.stage, of.at, of.H
    steep = stage.values(at.rows)[2] * (1.0 + (reach + at.offset).max(initial=0.0)) * _SURE  # anywhere within reach
    through = np.abs(stage.A) @ moves + np.abs(stage.B) @ (steep * (np.abs(stage.C) @ moves))
    reaches = reach.reshape(H.blocks, H.units)
    wrong = (H.error * reaches).sum(axis=0) * reaches.sum(axis=0)
    out = at.error + np.abs(stage.B) @ (of.unsure * reach) + np.abs(stage.B[:, : H.units]) @ wrong
    out = out + gamma(len(stage.C) + 8) * through
    if stage.slack is not None:
        dA, dB, dC = stage.slack
        out = out + dA @ moves + dB @ (steep * (reach + dC @ moves)) + np.abs(stage.B) @ (steep * (dC @ moves))
    return out * (1 + gamma(len(stage.C) + len(moves) + 16)) + 1e-290
