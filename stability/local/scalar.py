r"""Networks of one state, step by step, in as few numbers as each step's perturbation counts by.

.. math:: h^+ = A h + B \phi(C h + e + S v) + f + g v

with numbers ``A``, ``B``, ``C``, ``e``, ``f`` and the coordinates ``v`` of the step's perturbation ``d``, each in a
range of its own. In l2, where ``E d`` and ``F d`` both count, ``v = E d / |E|`` and a second step
:math:`h^+ = h + g v` with what ``F`` adds at right angles follow each other: :math:`|d|^2 \ge v_1^2 + v_2^2`. What a
disc adds that has to be one set (a budget for each step), clipped or not, lies in a ``Pair``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stability.local.classifier import Classifier
from stability.local.clipped import Clipped
from stability.local.coordinates import too_large
from stability.local.leaves import input_box
from stability.local.pairs import Pair
from stability.rigor.balls import system_balls
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval, affine, length
from stability.systems.activations import Activation, activation

Array = np.ndarray
WIDEST, LARGEST = 128, 1024
"""Entries of a step whose clipping is made use of, and of an input where several of a step go to the state itself."""


@dataclass(frozen=True, eq=False)
class ScalarStep:
    """One step; every number an interval, arrays of no axis but ``S`` and ``g``.

    Attributes:
        A: of the state.
        B: of the activation's value.
        C: of the state, in the activation.
        e: of the activation's argument.
        f: of the state.
        S: ``(q,)`` what each coordinate adds to the argument.
        g: ``(q,)`` to the state.
        low: ``(q,)`` of the coordinates.
        high: ``(q,)``.
        clip: what a coordinate costs where that is not its square.
        pair: a smaller set than that of all coordinates in their ranges, in which lies what they add.
        ends: whether the network's own step ends here.
    """

    A: Interval
    B: Interval
    C: Interval
    e: Interval
    f: Interval
    S: Interval
    g: Interval
    low: Array
    high: Array
    clip: Clipped | None = None
    pair: Pair | None = None
    ends: bool = True


def unfit(subject: Classifier) -> str | None:
    """Why a network is none of these, or ``None``."""
    return too_large(subject, "a proof by least costs", 1, "one state and one channel")


def scalar_steps(
    classifier: Classifier,
    x: Array,
    radius: float,
    norm: str,
    mask: Array | None = None,
    bounds: Sequence[float] | None = None,
    each: bool = False,
) -> list[ScalarStep]:
    """The steps of a ball around one input.

    Args:
        classifier: a network of one state, see ``unfit``.
        x: ``(T, p)``.
        radius: > 0.
        norm: ``l2`` or ``linf``.
        mask: ``(T, p)``, zero where an entry may not change.
        bounds: two numbers between which perturbed inputs stay.
        each: whether, in l2, the radius is that of every step.

    Example:
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[3.0, 4.0]])
        >>> (step,) = scalar_steps(Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 2)), 0.5, "l2")
        >>> step.S.contains(Interval.point([5.0])), step.high.round(6).tolist()
        (True, [0.5])
    """
    net, zero = classifier.recurrent, Interval.point(0.0)
    A, B, C = (_number(Interval(*ball.ends())) for ball in system_balls(net.system)[:3])
    low, high = input_box(x, radius, mask, bounds)
    E, F = (net.E if len(net.E) else np.zeros((1, x.shape[1])))[0], net.F[0]
    offset = Interval.point(net.b if len(net.b) else np.zeros(1))
    phi = activation(net.activation)
    steps, discs = list[ScalarStep](), dict[bytes, Pair]()
    for t, u in enumerate(x):
        free = np.flatnonzero(high[t] > low[t])
        moved = Interval(low[t, free], high[t, free]) - Interval.point(u[free])
        e = _number(affine(E[None], Interval.point(u), offset))
        f = _number(affine(F[None], Interval.point(u)))
        own, to = E[free], F[free]
        plain = ScalarStep(A, B, C, e, f, Interval.point(own), Interval.point(to), moved.low, moved.high)
        clipped = bounds is not None and not (
            bool((u[free] - radius > bounds[0]).all()) and bool((u[free] + radius < bounds[1]).all())
        )
        clipped &= len(free) <= WIDEST
        if len(free) <= 1 or (norm == "linf" and to.any()):
            steps.append(plain)
        elif each and to.any():
            clipped &= x.size <= LARGEST
            pair = Pair(own, to, moved.low, moved.high, radius, clipped, slopes_of(plain, phi))
            steps.append(replace(plain, pair=pair if clipped else discs.setdefault(free.tobytes(), pair)))
        elif norm == "linf":
            range_ = affine(own[None], moved)
            steps.append(_one(plain, Interval.point([1.0]), range_.low, range_.high))
        elif not to.any() and clipped:
            clip = Clipped(own, moved.low, moved.high)
            ends = (np.array([end]) for end in clip.reach(radius))
            steps.append(replace(_one(plain, Interval.point([1.0]), *ends), clip=None if each else clip))
        else:
            steps.extend(_ball(plain, own, to, radius, zero))
    return steps


def slopes_of(step: ScalarStep, phi: Activation) -> tuple[float, ...]:
    """Of tangents that suit a step: what the state adds past the argument for what it adds to it; the activation's."""
    steep = abs(float(step.B.high)) * phi.slope[1]
    with np.errstate(all="ignore"):
        return float(np.nan_to_num(step.A.low / step.C.low, posinf=0.0, neginf=0.0)), steep, -steep


def _one(step: ScalarStep, S: Interval, low: Array, high: Array) -> ScalarStep:
    return replace(step, S=S, g=Interval.point([0.0]), low=low, high=high)


def _ball(step: ScalarStep, E: Array, F: Array, radius: float, zero: Interval) -> list[ScalarStep]:
    """A step of which several entries move, not clipped, in l2."""
    size, wide = _length(E), np.array([np.nextafter(radius, np.inf)])
    if not F.any():
        return [_one(step, size, -wide, wide)]
    if not float(size.low[0]) > 1e-140:  # its square underflows: what E adds is a rounding
        far = size.high * wide * (1.0 + 4 * EPS) + TINY
        moved = step.e + Interval(-far[0], far[0])
        return [replace(step, e=moved, S=Interval.point([0.0]), g=_length(F), low=-wide, high=wide)]
    share = float(F @ E) / float(E @ E)
    rest = F - share * E  # F = share E + rest, nearly at right angles, up to `error`
    error = 4 * EPS * (np.abs(F) + abs(share) * np.abs(E)) + TINY
    along = abs(float(rest @ E)) + float(error @ np.abs(E)) + (len(E) + 8) * EPS * float(np.abs(rest) @ np.abs(E))
    along = along * (1.0 + 8 * EPS) / float(size.low[0])
    across = _length(np.abs(rest) + error)
    g = Interval.point(share) * size + Interval(np.array([-along]), np.array([along]))
    first = replace(step, S=size, g=g, low=-wide, high=wide, ends=False)
    one = Interval.point(1.0)
    none = Interval.point([0.0])
    then = ScalarStep(one, zero, zero, zero, zero, none, Interval.point(across.high), -wide, wide)
    return [first, then]


def _number(x: Interval) -> Interval:
    """The only entry of an array; zero of one that has none."""
    if not x.low.size:
        return Interval.point(0.0)
    return Interval(x.low.reshape(()), x.high.reshape(()))


def _length(row: Array) -> Interval:
    """Euclidean norm of a row, ``(1,)``."""
    size = length(row)[None]
    slack = (len(row) + 8) * EPS * size + 1e-149
    return Interval(np.maximum(size - slack, 0.0), size + slack)
