r"""Upper bounds of the loss of logit differences within a reachable ellipsoid.

From the last ellipsoid, :math:`\epsilon \sqrt{w^T Y w}` with ``w`` the difference of two rows of the head. From the
last stage's rows alone, each by itself: :math:`\epsilon \sqrt{w^T A Y A^T w} + \sum_i \max_{|v_i| \le r_i} (B^T w)_i
(\phi(z_i + v_i) - \phi(z_i))`, which knows that an activation bends. The smaller of the two.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.ellipsoid_operations import ellipsoid_extent, half_widths
from stability.kernel.reachability.ellipsoid_tube import ROOM, Local
from stability.kernel.reachability.stages import Stage

Array = np.ndarray


def differences(head: Array, y: Array) -> Array:
    """Return rows ``(..., k, n)`` of the head minus that of the class ``(...,)``."""
    return head - head[y][..., None, :]


def margin_loss(
    head: Array, y: Array, radius: Array | float, Y: Array, last: tuple[Stage, Array, Array, Local]
) -> Array:
    """Bound the decrease of each logit difference within the ellipsoid above.

    Args:
        head: ``(k, n)`` the head on the vector after the last stage.
        y: ``(...,)`` the class.
        radius: ``(...,)`` epsilon.
        Y: ``(..., n, n)`` after the last stage.
        last: the last stage, its rows ``(..., m)`` on the nominal run, the ellipsoid before it and its local slopes.

    Returns:
        ``(..., k)``, but for the rounding errors of the nominal run; zero for the class itself.
    """
    stage, rows, before, local = last
    w, size = differences(head, y), np.asarray(radius)[..., None] * (1.0 + ROOM)
    whole = size * ellipsoid_extent(w, Y)
    change = stage.endpoints(rows, local.reach)
    if change is None:
        return whole
    down, up = (end[..., None, :] for end in change)
    through = w @ stage.B
    each = np.maximum(through * down, through * up).sum(axis=-1)
    each = each + gamma(len(stage.C) + w.shape[-1] + 8) * (np.abs(w) @ np.abs(stage.B) * np.maximum(up, -down)).sum(
        axis=-1
    )
    straight = w @ stage.A
    straight_error = gamma(w.shape[-1] + 4) * (np.abs(w) @ np.abs(stage.A))
    sides = half_widths(before)
    linear = ellipsoid_extent(straight, before) + (straight_error @ sides[..., None])[..., 0]
    return np.minimum(whole, (size * linear + each) * (1 + 8 * EPS))
