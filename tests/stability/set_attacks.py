"""Runs that try to leave a proved box of states, or to stay farther apart than is proved, under inputs in their box.

Inputs ascend on the objective by its gradient, from random ones and from those at the ends of the box; Jacobians are
differences, so that every subject that advances step by step can be attacked, a flow by Runge-Kutta steps that are
small enough for what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.search.trajectories.simulation import advance_batch, natural_step

Array = np.ndarray
Step = Callable[[Array, Array], Array]
RUNS, ROUNDS, BEFORE = 24, 10, 6
"""Runs, steps of the ascent, and how many of the inputs before a claim's first step ascend as well."""
SMALL = 1e-6


@dataclass(frozen=True)
class Attacked:
    """A subject as a map of states and inputs that stay in a box.

    Attributes:
        step: ``(..., n), (..., p)`` to ``(..., n)``.
        low: ``(p,)`` least inputs.
        high: ``(p,)`` largest.
        rng: of the attack.
    """

    step: Step
    low: Array
    high: Array
    rng: np.random.Generator

    def inputs(self, steps: int, runs: int = RUNS) -> Array:
        """``(steps, runs, p)``: a third at random ends held for a while, a third at other ends, the rest anywhere."""
        shape = (steps, runs, len(self.low))
        u = self.low + (self.high - self.low) * self.rng.random(shape)
        ends = np.where(self.rng.random(shape) < 0.5, self.low, self.high)
        held = np.repeat(ends[::4], 4, axis=0)[:steps]
        u[:, : runs // 3], u[:, runs // 3 : 2 * runs // 3] = held[:, : runs // 3], ends[:, : runs // 3]
        return u

    def run(self, x: Array, u: Array) -> Array:
        """``(steps + 1, runs, n)``."""
        out = [x]
        for row in u:
            out.append(self.step(out[-1], row))
        return np.stack(out)

    def begin(self, x: Array, wait: int) -> tuple[Array, int]:
        """States ``BEFORE`` steps before the claim's first, and how many are left."""
        for row in self.inputs(max(wait - BEFORE, 0), len(x)):
            x = self.step(x, row)
        return x, min(wait, BEFORE)

    def jacobian(self, x: Array, u: Array) -> Array:
        """``(runs, n, n + p)`` of one step, by differences."""
        both = np.concatenate([x, u], axis=-1)
        moves = SMALL * np.eye(both.shape[-1])[:, None, :]
        n = x.shape[-1]
        up, down = (self.step((both + s * moves)[..., :n], (both + s * moves)[..., n:]) for s in (1.0, -1.0))
        return np.moveaxis((up - down) / (2.0 * SMALL), 0, -1)

    def ascend(self, u: Array, gradient: Array) -> Array:
        """A step along the signs of the gradient, back into the box."""
        return np.clip(u + 0.3 * (self.high - self.low) * np.sign(gradient), self.low, self.high)

    def backward(self, path: Array, u: Array, pull: Callable[[int], Array]) -> Array:
        """The gradient by the inputs of ``sum_t <pull(t), x_t>``, ``(steps, runs, p)``."""
        out, back = np.zeros_like(u), pull(len(u))
        n = path.shape[-1]
        for t in range(len(u) - 1, -1, -1):
            through = np.einsum("ri,rij->rj", back, self.jacobian(path[t], u[t]))
            out[t], back = through[:, n:], through[:, :n] + pull(t)
        return out


def farthest_out(attacked: Attacked, x: Array, least: Array, most: Array, wait: int, after: int = 6) -> float:
    """Return how far runs leave ``[least, most]`` from step ``wait`` on; negative if none does.

    Each run is pulled towards one side of the box.
    """
    x, wait = attacked.begin(x, wait)
    runs, n = x.shape
    u, worst = attacked.inputs(wait + after, runs), -np.inf
    way = np.eye(n)[attacked.rng.integers(n, size=runs)] * attacked.rng.choice([-1.0, 1.0], size=(runs, 1))
    for _ in range(ROUNDS):
        path = attacked.run(x, u)
        worst = max(worst, float(np.maximum(path[wait:] - most, least - path[wait:]).max()))
        u = attacked.ascend(u, attacked.backward(path, u, lambda t: way * float(t == wait + after)))
    path = attacked.run(x, u)
    return max(worst, float(np.maximum(path[wait:] - most, least - path[wait:]).max()))


def share_of_bound(
    attacked: Attacked,
    x: Array,
    y: Array,
    factors: Array,
    wait: int,
    seen: Callable[[Array], Array] = lambda path: path,
) -> float:
    """The largest share of ``factors[k] |d(wait)|`` that a pair of runs under one input reaches ``k`` steps later.

    Args:
        attacked: the subject.
        x: ``(runs, n)`` starts of the first.
        y: of the second.
        factors: ``(after + 1,)`` proved bounds, the first the overshoot.
        wait: steps in which both have inputs of their own.
        seen: the differences that the claim is about, of the path of differences ``(steps + 1, runs, n)``.
    """
    (x, left), (y, _) = attacked.begin(x, wait), attacked.begin(y, wait)
    wait, after, worst = left, len(factors) - 1, 0.0
    u = attacked.inputs(2 * (wait + after), len(x)).reshape(wait + after, 2, len(x), -1).swapaxes(0, 1)
    u[1, wait:] = u[0, wait:]
    for k in range(ROUNDS):
        paths = [attacked.run(start, own) for start, own in zip((x, y), u)]
        d = paths[0] - paths[1]
        gaps = np.linalg.norm(seen(d)[wait:], axis=-1)
        share = (gaps - 1e-12) / np.maximum(factors[:, None] * gaps[0], 1e-300)
        worst = max(worst, float(share.max()))
        at = wait + (after if k % 2 else 1 + k % max(after, 1))
        size = np.maximum((d**2).sum(-1), 1e-200)[..., None]

        def pull(t: int, d: Array = d, size: Array = size, at: int = at) -> Array:
            return d[t] / size[t] * (float(t == at) - float(t == wait))

        rise = [attacked.backward(path, own, lambda t, s=s: s * pull(t)) for path, own, s in zip(paths, u, (1.0, -1.0))]
        rise[0][wait:] += rise[1][wait:]
        rise[1][wait:] = rise[0][wait:]
        u = np.stack([attacked.ascend(own, g) for own, g in zip(u, rise)])
    return worst


def spread_at_rest(attacked: Attacked, starts: Array, steps: int) -> float:
    """Return the largest distance of runs from all starts under one constant input, over a few inputs."""
    worst = 0.0
    for u in attacked.inputs(4, 6).reshape(24, -1)[:8]:
        x = starts
        for _ in range(steps):
            x = attacked.step(x, np.broadcast_to(u, (*x.shape[:-1], len(u))))
        worst = max(worst, float(np.ptp(x, axis=0).max()))
    return worst


def of_map(subject: Any, low: Array, high: Array, seed: int) -> Attacked:
    """A subject in discrete time."""
    return Attacked(subject.advance, low, high, np.random.default_rng(seed))


def of_flow(subject: Any, low: Array, high: Array, seed: int, every: float, fine: float = 0.3) -> Attacked:
    """A flow over times of ``every``, its input held constant in each; steps are ``fine`` of the natural one."""
    count = int(np.ceil(every / (fine * natural_step(subject))))

    def step(x: Array, u: Array) -> Array:
        for _ in range(count):
            x = advance_batch(subject, x, u, every / count)
        return x

    return Attacked(step, low, high, np.random.default_rng(seed))
