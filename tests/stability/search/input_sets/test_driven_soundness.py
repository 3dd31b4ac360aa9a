"""Five hundred claims about inputs in a box, in parts: pairs of runs that try to stay apart keep the proved bound.

python -m pytest -m slow tests/stability/search/input_sets/test_driven_soundness.py -k "part-00 or part-01"
"""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.theorems.driven_lmi import DrivenLmi
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem
from tests.stability.driven_runs import ROUNDING, holds_on_trajectories, reservoir

PARTS, EACH = 50, 10
BEFORE, AFTER = 6, 30
"""Steps before the claim's first, in which the two runs have inputs of their own, and behind it."""
Array = np.ndarray


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS), ids=lambda k: f"part-{k:02d}")
def test_no_pair_of_runs_is_above_its_bound(part: int) -> None:
    held = 0
    for seed in range(part * EACH, (part + 1) * EACH):
        driven, e = drawn(seed)
        claim, _ = driven_contraction(driven, (-e, e), tol=1e-2)
        if claim.verdict is Verdict.CERTIFIED:
            held += 1
            assert holds_on_trajectories(driven, claim, seed) <= 1.0, seed
            assert greedy(driven, claim, seed) <= 1.0, seed
            assert ascended(driven, claim, seed) <= 1.0, seed
    assert held >= 2


def drawn(seed: int) -> tuple[DrivenSystem, float]:
    """A reservoir of 2 to 32 units, and how far its inputs go."""
    rng = np.random.default_rng(seed)
    n, leak = int(rng.integers(2, 33)), float(rng.choice([1.0, 0.6, 0.3]))
    return reservoir(n, float(rng.uniform(0.6, 1.1)), leak, seed), float(rng.uniform(0.1, 1.0))


@pytest.mark.parametrize("seed", [3, 4])
def test_what_tries_to_stay_apart_finds_a_bound_that_is_false(seed: int) -> None:
    """Half of the proved logarithm of the overshoot, and twice the proved decay: each search breaks one of the two."""
    driven, e = drawn(seed)
    claim, _ = driven_contraction(driven, (-e, e), tol=1e-2)
    assert claim.verdict is Verdict.CERTIFIED
    assert ascended(driven, claim, seed) <= 1.0
    data = dict(claim.proof.data)
    false = Claim(claim.name, "", claim.verdict, type(claim.proof)("driven_lmi", {**data, "rate": data["rate"] ** 4}))
    assert ascended(driven, false, seed) > 1.0
    assert greedy(driven, false, seed) > 1.0


def greedy(driven: DrivenSystem, claim: Claim, seed: int) -> float:
    """As ``holds_on_trajectories``, each input of the claim's steps the one after which the pair is farther apart."""
    data, x, y, _ = entered(driven, claim, seed, 60, 0)
    first = np.linalg.norm(x - y, axis=1)
    worst = 0.0
    for k in range(1, 40):
        tried = [(driven.advance(x, end[None]), driven.advance(y, end[None])) for end in (data["low"], data["high"])]
        gaps = [np.linalg.norm(a - b, axis=1) for a, b in tried]
        better = (gaps[1] > gaps[0])[:, None]
        x, y = (np.where(better, tried[1][i], tried[0][i]) for i in (0, 1))
        worst = max(worst, share_of_bound(data, np.linalg.norm(x - y, axis=1), k, first))
    return worst


def ascended(driven: DrivenSystem, claim: Claim, seed: int, rounds: int = 40) -> float:
    """The same under inputs that ascend on ``log |d(K + k)| / |d(K)|`` by its gradient, those of both runs before the
    claim's first step included.
    """
    data, x, y, rng = entered(driven, claim, seed, 30, BEFORE)
    low, high = data["low"], data["high"]
    shape = (2, BEFORE + AFTER, 30, driven.inputs)
    u = low + (high - low) * rng.random(shape)
    u[1, BEFORE:] = u[0, BEFORE:]
    worst = 0.0
    for k in range(rounds):
        runs = np.stack([run(driven, start, inputs) for start, inputs in zip((x, y), u)])
        gaps = np.linalg.norm(runs[0] - runs[1], axis=-1)
        for j in range(AFTER + 1):
            worst = max(worst, share_of_bound(data, gaps[BEFORE + j], j, gaps[BEFORE]))
        at = int(rng.integers(2, AFTER + 1)) if k % 2 else AFTER
        rise = [gradient(driven, runs[i], u[i], (-1.0) ** i * (runs[0] - runs[1]), gaps, at) for i in (0, 1)]
        rise[0][BEFORE:] += rise[1][BEFORE:]
        rise[1][BEFORE:] = rise[0][BEFORE:]
        u = np.clip(u + 0.3 * (high - low) * np.sign(np.stack(rise)), low, high)
    return worst


def run(driven: DrivenSystem, x: Array, u: Array) -> Array:
    """States of many runs at once, ``(steps + 1, runs, n)``."""
    out = [x]
    for row in u:
        out.append(driven.advance(out[-1], row))
    return np.stack(out)


def gradient(driven: DrivenSystem, x: Array, u: Array, d: Array, gaps: Array, at: int) -> Array:
    """Of ``log |d(BEFORE + at)| - log |d(BEFORE)|`` by the inputs of one run; ``d`` points from the other to it."""
    system, out = driven.system, np.zeros_like(u)
    scale = np.maximum(gaps**2, 1e-200)[..., None]
    back = d[BEFORE + at] / scale[BEFORE + at]
    for t in range(BEFORE + at - 1, -1, -1):
        slope = 1.0 - np.tanh(driven.channel(x[t], u[t])) ** 2
        through = (back @ system.B) * slope
        out[t] = through @ driven.E + back @ driven.F
        back = back @ system.A + through @ system.C
        if t == BEFORE:
            back = back - d[BEFORE] / scale[BEFORE]
    return out


def entered(driven: DrivenSystem, claim: Claim, seed: int, runs: int, left: int) -> tuple[dict, Array, Array, object]:
    """Pairs of runs from the box of states, ``left`` steps before the claim's first."""
    assert claim.proof is not None
    data, rng = dict(claim.proof.data), np.random.default_rng(seed)
    x, y = data["r"] * rng.uniform(-1, 1, size=(2, runs, driven.states))
    for _ in range(max(DrivenLmi.of(data).settled + 1 - left, 0)):
        own, others = (np.where(rng.random((runs, driven.inputs)) < 0.5, data["low"], data["high"]) for _ in range(2))
        x, y = driven.advance(x, own), driven.advance(y, others)
    return data, x, y, rng


def share_of_bound(data: dict, gaps: Array, k: int, first: Array) -> float:
    """The largest share of the proved bound ``k`` steps after the first; below rounding nothing is compared."""
    return float(((gaps - ROUNDING) / (data["overshoot"] * data["rate"] ** k * np.maximum(first, 1e-300))).max())
