"""From a run that has settled to what can be proved of it: the orbit it runs, orbits it passes, boxes it stays in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stability.refute.manifold import slopes_at
from stability.refute.runs import polish_orbit
from stability.rigor.balls import Ball
from stability.rigor.boxes import box_image
from stability.rigor.eigenpairs import Matrix, closed_loop_orbit, enclose_eigenpair, inverse_iteration
from stability.rules.disjoint_boxes import MAX_STATES, box_distance, is_invariant
from stability.rules.periodic_orbits import MAX_UNKNOWNS, unknowns
from stability.solve.deadline import Deadline
from stability.systems import DrivenSystem
from stability.systems.simulate import trace

Array = np.ndarray


def close_returns(
    driven: DrivenSystem, state: Array, inputs: Array, tries: int = 6, *, deadline: Deadline | None = None
) -> Iterator[Array]:
    """Orbits that a run nearly closes, among them those that repel: cycles inside chaos.

    The run is watched for 400 steps; where it comes back nearest, for each short period, Newton's method starts.

    Yields:
        One closed orbit after another.
    """
    q, run = len(inputs), trace(driven, state, inputs, 401, deadline)
    if deadline is not None and deadline.over:
        return
    if not np.isfinite(run).all():
        return
    found = []
    for k in range(q, 13, q):
        if unknowns(driven, k) > MAX_UNKNOWNS:
            break
        far = np.abs(run[k:] - run[:-k]).max(axis=1)[::q]
        at = q * int(np.argmin(far))
        found.append((float(far.min()), k, at))
    for _, k, at in sorted(found)[:tries]:
        orbit = polish_orbit(driven, run[at : at + k], inputs, deadline=deadline)
        if orbit is not None:
            yield orbit


def leading_of_orbit(driven: DrivenSystem, orbit: Array, inputs: Array) -> complex:
    """The root of the leading multiplier, per step; of an equilibrium of a flow the leading eigenvalue."""
    product = np.eye(orbit.shape[1])
    for i, x in enumerate(orbit):
        product = driven.jacobian(x, inputs[i % len(inputs)]) @ product
    if not np.isfinite(product).all():
        return complex(0.0)
    values = np.linalg.eigvals(product)
    top = complex(values[int(np.argmax(np.abs(values) if driven.system.is_discrete else values.real))])
    return top if len(orbit) == 1 else complex(top) ** (1.0 / len(orbit))


def centre_of(pencil: Matrix, value: complex) -> list[float]:
    """An eigenvalue as precisely as floating point gives it: the centre of its enclosure where there is one."""
    vector = inverse_iteration(pencil, value)
    pair = None if vector is None else enclose_eigenpair(pencil, value, vector)
    best = value if pair is None or abs(pair.value - value) > 1e-3 * (1e-6 + abs(value)) else pair.value
    return [float(best.real), abs(float(best.imag))]


def named_value(driven: DrivenSystem, orbit: Array, inputs: Array, value: complex) -> list[float]:
    """The same for the linearisation along an orbit."""
    slopes = np.stack([slopes_at(driven, x, inputs[i % len(inputs)])[1] for i, x in enumerate(orbit)])
    return centre_of(closed_loop_orbit(driven.system, Ball.exact(slopes)), value)


def _hulls(driven: DrivenSystem, state: Array, inputs: Array, deadline: Deadline) -> tuple[Array, Array] | None:
    """The smallest boxes ``(q, n)``, one a phase, around a run; ``None`` for a run that the deadline cut."""
    q = len(inputs)
    run = trace(driven, state, inputs, q * (240 // q), deadline)
    if len(run) < q * (240 // q):
        return None
    phases = run.reshape(-1, q, len(state))
    return phases.min(axis=0), phases.max(axis=0)


def _grown(
    driven: DrivenSystem, low: Array, high: Array, inputs: Array, deadline: Deadline
) -> tuple[Array, Array] | None:
    """Invariant boxes around the given ones, by widening, or ``None``."""
    q = len(inputs)
    for _ in range(24):
        if deadline.over:
            return None
        margin = 1e-7 * (1.0 + np.abs(low) + np.abs(high)) + 0.02 * (high - low)
        low, high = low - margin, high + margin
        if not (np.isfinite(low).all() and np.abs(low).max() < 1e12 and np.abs(high).max() < 1e12):
            return None
        if is_invariant(driven, low, high, inputs):
            return low, high
        if driven.system.is_discrete:
            for t in range(q):
                image = box_image(driven, low[t], high[t], inputs[t])
                if image is None:
                    return None
                after = (t + 1) % q
                low[after], high[after] = np.minimum(low[after], image[0]), np.maximum(high[after], image[1])
    return None


def disjoint_box_data(
    driven: DrivenSystem, first: Array, second: Array, inputs: Array, *, deadline: Deadline | None = None
) -> dict[str, Any] | None:
    """Data of a ``disjoint_boxes`` proof from two settled runs, or ``None``, in time or not."""
    deadline = deadline or Deadline()
    if driven.system.states > MAX_STATES or (len(inputs) > 1 and not driven.system.is_discrete):
        return None
    first_hull, second_hull = (_hulls(driven, state, inputs, deadline) for state in (first, second))
    if first_hull is None or second_hull is None:
        return None
    if not box_distance(first_hull[0][0], first_hull[1][0], second_hull[0][0], second_hull[1][0]) > 0.0:
        return None
    one, two = (_grown(driven, *hull, inputs, deadline) for hull in (first_hull, second_hull))
    if one is None or two is None:
        return None
    (low1, high1), (low2, high2) = one, two
    gap = box_distance(low1[0], high1[0], low2[0], high2[0])
    if not gap > 0.0:
        return None
    return {"low1": low1, "high1": high1, "low2": low2, "high2": high2, "input": inputs, "gap": gap}
