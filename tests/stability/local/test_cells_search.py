"""LSTM and GRU of one unit: the radius that is found by cells of states is that of the nearest run, to 1e-6."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gated_specimens import drawn, label_of, nearest, searched

from stability.errors import ConfigurationError
from stability.local import passes
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.local.gates import covers
from stability.local.refining import Refining
from stability.local.request import request
from stability.rules import local_cells
from stability.rules.registry import RULES, accepted
from tests.stability.local.work import Work

Array = np.ndarray
CASES = [
    *(("gru", 1, 3, 1), ("lstm", 1, 4, 1), ("gru", 2, 3, 2)),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gru", 3, 3, 1), ("lstm", 2, 4, 1), ("gru", 1, 0, 3))),
]


@pytest.mark.parametrize(("kind", "steps", "seed", "features"), CASES)
def test_the_radius_is_that_of_the_nearest_run(kind, steps, seed, features):
    net, x = drawn(kind, steps, seed, features)
    claim, settled = searched(net, x)
    assert claim is not None
    assert settled
    assert claim.proof.kind == "local_cells"
    assert RULES["local_cells"](net, claim)[0]
    true = nearest(net, x)
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    assert claim.proof.data["reach"] >= claim.value
    assert accepted(net, "local_cells", {**claim.proof.data, "radius": true * (1.0 + 1e-6)}) is None


def test_all_searches_together_take_that_radius_of_longer_sequences_too():
    net, x = drawn("gru", 8, 3)
    (claim,), true = largest_balls(net, x[None], [label_of(net, x)]), nearest(net, x)
    assert claim.proof.kind == "local_cells"
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)


def test_what_no_check_would_come_to_an_end_of_leaves_the_proof_of_the_pass_before(monkeypatch):
    net, x = drawn("lstm", 2, 4)
    looked, old = list[tuple[int, float]](), Refining.back

    def back(self: Refining, *told, **more) -> float | None:
        value = old(self, *told, **more)
        assert value is not None
        looked.append((self.size, value))
        return value

    monkeypatch.setattr(Refining, "back", back)
    whole, _ = searched(net, x)
    assert whole is not None
    sizes, values = zip(*looked)
    assert len(sizes) > 4
    assert list(sizes) == sorted(sizes)  # each pass stands on more
    looked.clear()
    monkeypatch.setattr(passes, "ROOM", sizes[3] / passes._CHECKED)
    claim, settled = searched(net, x)
    assert len(looked) == 5  # the last of which stands on too much
    assert claim is not None
    assert not settled
    assert RULES["local_cells"](net, claim)[0]
    assert claim.value == pytest.approx(max(values[:4]) ** 0.5, rel=1e-6)
    assert claim.value < whole.value


@pytest.mark.parametrize(("kind", "steps", "seed"), [("gru", 3, 3), ("lstm", 1, 4)])
def test_a_radius_that_is_asked_for_is_decided(kind, steps, seed):
    net, x = drawn(kind, steps, seed)
    true = nearest(net, x)
    for part in (0.5, 1.0 - 1e-6):
        claim, settled = searched(net, x, epsilon=part * true)
        assert claim is not None
        assert settled
        assert claim.value == part * true
    for part in (1.0 + 1e-6, 2.0):
        assert searched(net, x, epsilon=part * true) == (None, True)


def test_no_radius_is_looked_for_beyond_an_attack():
    net, x = drawn("gru", 3, 3)
    upper = 0.5 * nearest(net, x)
    claim, settled = searched(net, x, upper=[upper])
    assert claim is not None
    assert settled
    assert upper * (1.0 - 1e-6) <= claim.value <= upper


@pytest.mark.parametrize(("kind", "steps", "seed", "features"), [("gru", 3, 3, 1), ("gru", 2, 3, 2)])
def test_masked_entries_stay(kind, steps, seed, features):
    net, x = drawn(kind, steps, seed, features)
    mask = np.ones(x.shape, dtype=bool)
    mask[len(x) // 3] = False
    claim, _ = searched(net, x, mask=mask)
    true = nearest(net, x, mask)
    assert true > 1.001 * nearest(net, x)
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    assert (claim.proof.data["mask"] == mask).all()
    whole = {name: value for name, value in claim.proof.data.items() if name != "mask"}
    assert accepted(net, "local_cells", whole) is None


@pytest.mark.parametrize(("kind", "steps", "seed"), [("gru", 3, 3), ("lstm", 2, 4)])
def test_clipped_inputs_stay_within_bounds(kind, steps, seed):
    net, x = drawn(kind, steps, seed)
    free = nearest(net, x)
    bounds = (float(x.min()) - 0.3 * free, float(x.max()) + 0.3 * free)
    claim, _ = searched(net, x, bounds=bounds)
    true = nearest(net, x, bounds=bounds)
    assert true > 1.001 * free
    if np.isfinite(true):
        assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    else:
        assert claim.value > free
    whole = {name: value for name, value in claim.proof.data.items() if name != "bounds"}
    assert accepted(net, "local_cells", whole) is None


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_class_that_never_changes_is_proved_at_any_radius(kind, monkeypatch):
    monkeypatch.setattr(local_cells, "ROOM", 2000)
    net, x = drawn(kind, 2, 0)
    sure = Classifier(net.recurrent, np.zeros((3, 1)), [0.0, 1.0, 0.0])
    data = {"x": x, "label": 1, "norm": "l2", "radius": 100.0, "reach": 100.0, "cut": np.zeros(1)}
    data |= {"values": np.full(1, 2e4), "slopes": np.zeros((1, len(net.start)))}
    data |= {"low": np.full((1, len(net.start)), -3.0), "high": np.full((1, len(net.start)), 3.0)}
    assert accepted(sure, "local_cells", data) is not None
    assert accepted(sure, "local_cells", {**data, "label": 0}) is None
    assert accepted(sure, "local_cells", {**data, "values": np.zeros(1)}) is None


@pytest.mark.parametrize("scale", [1e8, 1e50])
@pytest.mark.parametrize(("kind", "seed"), [("gru", 3), ("lstm", 4)])
def test_huge_weights_prove_nothing_that_is_false(kind, seed, scale):
    net, x = drawn(kind, 1, seed, scale=scale)
    claim, _ = searched(net, x, 1.0)
    away = np.linspace(-10.0, 10.0, 200_001)[:, None, None]
    near = np.abs(away[net.logits(x + away).argmax(axis=1) != label_of(net, x)]).min()
    assert near < 5.0
    assert claim is None or claim.value <= near
    if scale <= 1e8:
        assert claim.value >= 0.9 * near


def test_weights_that_overflow_are_refused_in_words():
    for kind in ("gru", "lstm"):
        for scale in (1e200, 1e300):
            net, x = drawn(kind, 2, 0, scale=scale)
            with pytest.raises(ConfigurationError, match="beyond 1e\\+60"), np.errstate(all="ignore"):
                searched(net, 1e10 * x, 1.0)


def test_what_is_misclassified_has_no_claim():
    net, x = drawn("gru", 3, 3)
    label = (label_of(net, x) + 1) % 3
    assert largest_balls(net, x[None], [label]) == [None]


def test_time_is_kept(monkeypatch):
    """By a clock that counts boxes, of which a step that has begun may look at some more."""
    net, x = drawn("lstm", 3, 3)
    work = Work.at_most(45_000, monkeypatch)
    monkeypatch.setattr("stability.solve.deadline.monotonic", lambda: work.done / 40_000)
    claim, settled = searched(net, x, 0.5)
    assert work.done > 20_000
    assert not settled
    work.most = np.inf
    assert claim is None or RULES["local_cells"](net, claim)[0]


def test_a_pass_ends_where_time_is_over(monkeypatch):
    (net, x), old, seen = drawn("gru", 4, 3), Refining.back, list[tuple[float | None, float]]()
    work = Work.at_most(1e9, monkeypatch)

    def back(self: Refining, gap: float, stalled: bool, over: Callable[[], bool]) -> float | None:
        assert not over()
        begun, value = work.done, old(self, gap, stalled, lambda: True)
        seen.append((value, work.done - begun))
        return value

    monkeypatch.setattr(Refining, "back", back)
    assert searched(net, x) == (None, False)
    assert set(seen) == {(None, 0.0)}


def test_other_questions_are_not_taken():
    net, x = drawn("gru", 3, 3)
    label = label_of(net, x)

    def taken(norm: str = "l2", subject: Classifier = net, **told: object) -> bool:
        return covers(request(subject, x[None], [label], **told), norm)

    assert taken()
    assert taken("linf")
    assert taken(budget="step")
    assert not taken(mask=np.zeros(x.shape, dtype=bool))
    assert taken(subject=Classifier(net.recurrent, net.weight, net.bias, "mean"))
    many, u = drawn("gru", 2, 0, features=5)
    told = request(many, u[None], [label_of(many, u)])
    assert covers(told, "l2")
    assert not covers(told, "linf")
    some = np.zeros((1, 61, 1))
    assert covers(request(net, some[:, 1:], [label_of(net, some[0, 1:])]), "l2")
    assert not covers(request(net, some, [label_of(net, some[0])]), "l2")
    long = np.zeros((1, 501, 1))
    assert not covers(request(net, long, [label_of(net, long[0])]), "l2")


def test_clipped_steps_of_many_features_are_left_to_other_searches_too():
    net, x = drawn("gru", 1, 3, features=5)
    bounds = float(x.min()) - 0.01, float(x.max()) + 0.01
    free, settled = searched(net, x)
    assert settled
    assert free is not None
    claim, settled = searched(net, x, bounds=bounds)
    assert not settled  # a run that leaves the bounds is none
    assert claim is not None
    assert searched(net, x, bounds=bounds, epsilon=2.0 * free.value) == (None, False)
    assert searched(net, x, epsilon=2.0 * free.value) == (None, True)
