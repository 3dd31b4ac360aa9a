"""Runs told apart by their states: parts hold all of them, bounds are true of each, and what a price loses is won."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.single import drawn
from stability.certificate import Claim
from stability.local import mean
from stability.local.bellman import Stage, policy
from stability.local.below import Lines
from stability.local.classifier import Classifier
from stability.local.parting import Parting, _next
from stability.local.parts import Part, parts
from stability.local.priced import Runs
from stability.local.ranges import reached
from stability.local.request import request
from stability.local.scalar import scalar_steps
from stability.local.single import single
from stability.local.sums import Sum, least_sum
from stability.rules.registry import RULES, accepted, propose
from stability.solve.deadline import Deadline
from stability.systems.activations import activation


def network(seed: int, steps: int = 4, name: str = "tanh") -> tuple[Classifier, np.ndarray]:
    return drawn(steps, seed, name=name)


def cuts_of(rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    which = [rng.integers(0, 2 + k) for k in range(count)]
    return np.column_stack([which, rng.integers(1, steps + 1, count), rng.uniform(-0.8, 0.8, count)]).astype(float)


def test_every_run_is_in_a_part_of_either_side():
    rng = np.random.default_rng(0)
    for count in (0, 1, 5, 20):
        cuts = cuts_of(rng, count, 3)
        found = parts(cuts, 3)
        assert found is not None
        assert len(found) == 2 + count
        states = rng.uniform(-1.0, 1.0, size=(2000, 4))
        states[:count, 1:] = cuts[:, 2:]  # at the values themselves, too
        for side in (0, 1):
            own = [(states >= p.low) & (states <= p.high) for p in found if p.side == side]
            assert np.any([inside.all(axis=1) for inside in own], axis=0).all()


@pytest.mark.parametrize(
    "cut",
    [(2, 1, 0.0), (-1, 1, 0.0), (0.5, 1, 0.0), (0, 0, 0.0), (0, 4, 0.0), (0, 1.5, 0.0), (0, 1, np.nan), (0, 1, np.inf)],
)
def test_what_is_no_cut_is_refused(cut):
    assert parts(np.array([cut]), 3) is None


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("seed", range(4))
def test_no_run_of_a_part_is_below_its_bound(name, seed):
    """Random and descending runs, sorted by the part that they are in; the bound of a part is often met."""
    net, x = network(seed, 3, name)
    steps, phi, rng = scalar_steps(net, x, 1.5, "l2"), activation(name), np.random.default_rng(seed)
    runs, near = Runs(steps, phi, 0.0), []
    v = rng.uniform(-1.5, 1.5, size=(60_000, 3)) * rng.choice([0.02, 0.3, 1.0], size=(60_000, 1))
    m = vars(runs)
    states, total = runs.states(m["S"] * v, m["g"] * v), runs.total(m["S"] * v, m["g"] * v)
    low, high = reached(steps, phi, 0.0)
    for price in (-2.0, 0.7, 3.0):
        value = runs.cost(v) + price * total
        for _ in range(3):
            at, t = rng.uniform(0.2, 0.8), int(rng.integers(1, 4))
            for part in Part.whole(0, 3).cut(t, float(low[t] + at * (high[t] - low[t]))):
                own = least_sum(
                    steps, phi, 0.0, price, 2.0, np.zeros((1, 4)), 3, 10**7, paid=True, part=part, enough=50.0
                )
                inside = ((states >= part.low) & (states <= part.high)).all(axis=1)
                least = value[inside].min(initial=np.inf)
                assert own.value <= least
                near.append(least - own.value if np.isfinite(least) else 0.0)
    assert name == "relu" or np.median(near) < 0.05


def test_a_part_without_runs_has_no_least_sum():
    net, x = network(1)
    steps = scalar_steps(net, x, 0.1, "l2")
    nobody = Part.whole(0, 4).cut(2, 5.0)[1]
    found = least_sum(
        steps, activation("tanh"), 0.0, 1.0, 1.0, np.zeros((1, 5)), 3, 10**6, paid=True, part=nobody, enough=9.0
    )
    assert found.value == np.inf


@pytest.fixture(scope="module")
def parted() -> tuple[Classifier, np.ndarray, Claim]:
    """A network and an input whose best price has a gap, with its claim."""
    net, x = network(3)
    return net, x, found(net, x)


def nearest(net: Classifier, x: np.ndarray) -> float:
    """How near 400 descents find another class."""
    rng, out = np.random.default_rng(0), np.inf
    steps = scalar_steps(net, x, 10.0, "l2")
    runs = Runs(steps, activation("tanh"), 0.0)
    for sign, most in mean.limits(net, int(net.logits(x).argmax()), steps, *reached(steps, activation("tanh"), 0.0)):
        end = mean.Side(sign, most)
        end.descend(runs, end.starts(runs, rng, 400))
        out = min(out, end.nearest)
    return out**0.5


def found(net: Classifier, x: np.ndarray) -> Claim:
    y = int(net.logits(x).argmax())
    claim, _ = single(request(net, x[None], [y]), 0, "l2", Deadline())
    assert claim is not None
    return claim


def test_cuts_win_what_prices_lose(parted, monkeypatch):
    net, x, claim = parted
    data = claim.proof.data
    assert len(data["prices"]) == len(data["paths"]) == 2 + len(data["cuts"]) > 2
    monkeypatch.setattr(mean.Averaged, "_parted", lambda self, end, near: None)
    alone = found(net, x)
    assert "cuts" not in alone.proof.data
    assert alone.value < 0.97 * claim.value
    # no attack is nearer, and one is a hair beyond
    true = nearest(net, x)
    assert true * (1.0 - 1e-6) <= claim.value <= true


@pytest.mark.slow
def test_parts_that_are_a_window_of_a_billionth_are_bounded_as_well_as_others():
    """Of this one the last parts are so narrow that no grid of moves meets them."""
    net, x = network(5)
    true = nearest(net, x)
    assert true * (1.0 - 1e-6) <= found(net, x).value <= true


def test_the_move_into_a_narrow_window_is_found():
    net, x = network(3)
    step = scalar_steps(net, x, 1.5, "l2")[0]
    stage, h = Stage(step, activation("tanh"), -0.5, 0.5), np.array([-0.4, 0.0, 0.4])
    for move in (-0.9, 0.123, 1.1):
        for k in range(3):
            there = float(stage.after(h[k], np.array(move))[2])
            window = np.array([there - 1e-9, there + 1e-9])
            best, where = policy(stage, Lines(window, np.zeros(1), np.zeros(1), beyond=99.0), h)
            assert window[0] <= stage.after(h[k], where[k])[2] <= window[1]
            assert best[k] == where[k] ** 2 <= move**2


def test_the_next_price_is_where_two_runs_cost_the_same_unless_that_is_too_little():
    """A run that keeps 2 of the sum and costs 1 at price 1, one that lacks 1 and costs 1 at price 3."""
    low, high, nobody = (1.0, 2.0, 1.0), (3.0, -1.0, 1.0), (np.inf, np.nan, 0.0)
    assert _next(low, high, 1, 2.3) == pytest.approx(5.0 / 3.0)  # where both cost 7 / 3
    assert _next(low, high, 1, 2.4) is None
    assert _next(low, high, 0, 2.3) == pytest.approx(7.0 / 3.0)  # in proportion to what they leave
    assert _next(low, high, 2, 2.3) == pytest.approx(2.0)
    ahead = [_next(low, nobody, turn, 2.3) for turn in range(6)]
    assert 1.0 < ahead[0] < 1.1
    assert ahead == sorted(ahead)
    assert _next((0.0, np.nan, 0.0), high, 0, 2.3) < 3.0
    assert _next((1.0, 2.0, 1.0), (1.0 + 1e-9, -1.0, 1.0), 1, 0.0) is None


def test_a_nearer_run_that_is_met_on_the_way_is_the_radius(parted, monkeypatch):
    """Parts are made for a radius that is 2 % too large; a checker knows the true one alone."""
    net, x, claim = parted
    own = mean.Averaged._priced

    def missed(self, end, near):
        own(self, end, near)
        end.nearest *= 1.04

    monkeypatch.setattr(mean.Averaged, "_priced", missed)
    assert found(net, x).value == pytest.approx(claim.value, rel=1e-6)


def test_parts_for_a_larger_radius_are_looked_at_again():
    net, x = network(3)
    steps, end, seen = scalar_steps(net, x, 1.5, "l2"), mean.Side(1.0, 0.5, 1.02, paths=[np.zeros(5)]), list[float]()

    def bounded(price: float, path: np.ndarray, part: Part, square: float) -> Sum:
        seen.append(square)
        end.nearest = 1.0  # a run that is met in the first pass
        return Sum(price * end.most + (1.05 if square > 1.0 else 0.9999999), 7, path, np.zeros((4, 3)))

    made = Parting(end, Runs(steps, activation("tanh"), 0.0), steps, 1.02, bounded, lambda: False)
    assert made.raised(1e-6) == pytest.approx(0.9999999, abs=1e-12)
    assert seen == [1.02, 1.0]
    assert [(leaf.near, leaf.boxes) for leaf in made.leaves] == [(1.0, 7)]


def test_what_a_checker_does_not_follow_is_claimed_without_cuts(parted, monkeypatch):
    net, x, claim = parted
    monkeypatch.setattr("stability.rules.local_frontier.PARTED", 1000)
    alone = found(net, x)
    assert "cuts" not in alone.proof.data
    assert 0.9 * claim.value < alone.value < claim.value


def test_a_check_gives_up_at_its_own_number_of_boxes_with_cuts_and_without(parted, monkeypatch):
    net, _, claim = parted
    rule, monkey = RULES["local_frontier"], monkeypatch.setattr
    with monkeypatch.context() as patch:
        patch.setattr(mean.Averaged, "_parted", lambda self, end, near: None)
        alone = found(net, parted[1])
    monkey("stability.rules.local_frontier.ROOM", 1000)
    assert rule(net, claim)[0]
    assert "more than 1000 boxes" in rule(net, alone)[1]
    monkey("stability.rules.local_frontier.PARTED", 2000)
    assert "more than 2000 boxes" in rule(net, claim)[1]


def test_what_is_too_much_to_do_is_no_bound():
    net, x = network(3)
    steps, none = scalar_steps(net, x, 1.0, "l2"), np.zeros((1, 5))
    found = least_sum(steps, activation("tanh"), 0.0, 1.0, 1.0, none, 3, 500, paid=True)
    assert found.value == -np.inf
    assert found.boxes > 500


BENT: dict[str, dict[str, Any]] = {
    "no cuts": {"cuts": lambda v: np.zeros((0, 3)), "prices": lambda v: v[:2], "paths": lambda v: v[:2]},
    "a part that is not there": {"cuts": lambda v: np.column_stack([v[:, 0] + 100, v[:, 1:]])},
    "a cut before the first step": {"cuts": lambda v: v * [1, 0, 1]},
    "two columns": {"cuts": lambda v: v[:, :2]},
    "one price less": {"prices": lambda v: v[:-1]},
    "one path less": {"paths": lambda v: v[:-1]},
    "a negative price": {"prices": lambda v: np.append(v[:-1], -1.0)},
    "no prices": {"prices": None},
    "too many": {"cuts": lambda v: np.repeat(v[:1], 400, axis=0)},
    "another budget": {"budget": "step"},
    "a larger radius": {"radius": lambda v: 1.0001 * v},
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_bent_proofs_are_refused(parted, bend):
    net, _, claim = parted
    data = dict(claim.proof.data)
    assert RULES["local_frontier"](net, claim)[0]
    for name, change in bend.items():
        data[name] = change(data[name]) if callable(change) else change
    assert accepted(net, "local_frontier", {k: v for k, v in data.items() if v is not None}) is None


def test_a_random_cut_or_price_proves_nothing_false(parted):
    """Any cuts and prices are sound: what is accepted beyond the radius would be false."""
    net, _, claim = parted
    rng, data = np.random.default_rng(1), claim.proof.data
    for _ in range(30):
        cuts = cuts_of(rng, 6, 4)
        forged = {**data, "cuts": cuts, "prices": 3.0 * rng.random(8), "paths": rng.normal(size=(8, 5))}
        forged["radius"] = float(claim.value) * rng.uniform(1.0005, 1.5)
        valid, _ = RULES["local_frontier"](net, propose(net, "local_frontier", forged))
        assert not valid
