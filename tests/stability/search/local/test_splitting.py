"""Cuts of values inside a network: leaves hold for their runs, they prove what was open, bent trees prove nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.affine_forms import AffineArithmetic, Form
from stability.kernel.reachability.classifier_run import margins
from stability.kernel.reachability.input_box import evaluate_at, input_box
from stability.kernel.reachability.quadratic_relaxation import quadratic
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.proposals import accepted_claim, propose
from stability.search.local.linf_search import Question, decide
from stability.search.local.quadratic_multipliers import best_multipliers
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
RADIUS = 0.07
"""At which the parabolas of a whole box prove nothing for the LSTM below, and a search for worse inputs finds none."""


def network(kind: str, seed: int) -> Classifier:
    rng, gates = np.random.default_rng(seed), 12 if kind == "lstm" else 9
    weights = 1.2 * rng.normal(size=(gates, 8)), rng.normal(size=(gates, 3))
    cell = GatedCell(kind, *weights, 0.3 * rng.normal(size=gates), 0.3 * rng.normal(size=gates))
    return Classifier(cell, 2.0 * rng.normal(size=(3, 3)))


def sample(subject: Classifier, seed: int) -> tuple[Array, int]:
    x = 0.5 * np.random.default_rng(100 + seed).normal(size=(2, 8))
    return x, int(subject.logits(x).argmax())


def question(subject: Classifier, seed: int, splits: int) -> Question:
    return Question(subject, *sample(subject, seed), None, None, Deadline.from_limit(None), splits)


@pytest.fixture(scope="module")
def proved() -> tuple[Classifier, Any]:
    subject = network("lstm", 2)
    asked = question(subject, 2, 200)
    tree = decide(asked, RADIUS)
    assert tree is not None
    claim = asked.claim(RADIUS, tree)
    assert claim is not None
    return subject, claim


def values_of(subject: Classifier, x: Array, label: int) -> Array:
    """All values of the run of one input, as a tube without width numbers them."""
    made: list[Array] = []

    class Noted(AffineArithmetic):
        def form(self, *parts: Any) -> Form:
            out = super().form(*parts)
            made.append(0.5 * out.low + 0.5 * out.high)
            return out

    margins(subject, Noted(), x, x, label)
    return np.concatenate(made)


def leaves(tree: Mapping[str, Any], cuts: dict[int, tuple[float, float]]) -> Iterator[tuple[dict, Mapping[str, Any]]]:
    if "value" not in tree:
        yield cuts, tree
        return
    low, high = cuts.get(tree["value"], (-np.inf, np.inf))
    for ends, part in zip(((low, tree["at"]), (tree["at"], high)), tree["parts"]):
        yield from leaves(part, {**cuts, tree["value"]: ends})


def test_cuts_prove_what_the_parabolas_of_a_box_leave_open(proved):
    subject, claim = proved
    assert decide(question(subject, 2, 0), RADIUS) is None
    (named,) = [part for part in claim.proof.data["tree"]["classes"] if "cuts" in part]
    assert len(list(leaves(named["cuts"], {}))) > 1
    valid, words = RULES["local_planes"](subject, claim)
    assert valid
    assert "positive" in words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_what_a_leaf_says_holds_for_every_run_that_keeps_its_cuts(kind):
    subject, rng = network(kind, 2), np.random.default_rng(5)
    x, label = sample(subject, 2)
    low, high = input_box(x, 0.3)
    inputs = x + 0.3 * np.where(
        rng.random((200, 1, 1)) < 0.5, rng.uniform(-1, 1, (200, 2, 8)), rng.choice([-1.0, 1.0], (200, 2, 8))
    )
    runs = np.array([values_of(subject, one, label) for one in inputs])
    whole = AffineArithmetic()
    margin = margins(subject, whole, low, high, label)
    met, _ = evaluate_at(subject, whole, np.zeros(16), label)
    plain = best_multipliers(quadratic(whole, margin, 0, met), decide=False).bound
    better = 0
    for k in range(12):
        numbers = rng.choice(runs.shape[1] - 2, size=2, replace=False)
        numbers = numbers[np.ptp(runs[:, numbers], axis=0) > 1e-9]
        ends = {int(n): tuple(np.sort(rng.choice(runs[:, n], size=2)).tolist()) for n in numbers}
        keeps = np.all([(a <= runs[:, n]) & (runs[:, n] <= b) for n, (a, b) in ends.items()], axis=0)
        tube = AffineArithmetic(cuts=ends)
        margin = margins(subject, tube, low, high, label)
        assert set(tube.met) == set(ends)
        assert not (tube.empty and keeps.any())
        assert (margin.low[0] <= runs[keeps][:, -2]).all()
        F = quadratic(tube, margin, 0, evaluate_at(subject, tube, np.zeros(16), label)[0])
        bound = F.least(best_multipliers(F, decide=False).D)
        assert (bound <= runs[keeps][:, -2]).all(), k
        better += bound > plain + 0.01
        met, _ = evaluate_at(subject, tube, rng.uniform(-1, 1, 16), label)
        F = quadratic(tube, margin, 0, met)
        for _ in range(3):  # whatever the multipliers
            assert (F.least(rng.exponential(size=len(F.linear) + len(F.cut_half)) * 3.0) <= runs[keeps][:, -2]).all()
    assert better >= 6


def test_cuts_that_no_run_keeps_leave_nothing_to_prove(proved):
    subject, claim = proved
    data = claim.proof.data
    x, label = sample(subject, 2)
    tube = AffineArithmetic(cuts={0: (1e6, np.inf)})
    margins(subject, tube, *input_box(x, RADIUS), label)
    assert tube.empty
    (named,) = [part for part in data["tree"]["classes"] if "cuts" in part]
    for at in (1e6, -1e6):  # one half is empty, the other one is everything
        leaf = {"class": named["class"], "cuts": {"value": 0, "at": at, "parts": [{}, {}]}}
        assert (
            accepted_claim(subject, "local_planes", {**data, "radius": 1e-3, "tree": {"classes": [leaf]}}) is not None
        )
        rest = [part for part in data["tree"]["classes"] if part is not named]
        assert accepted_claim(subject, "local_planes", {**data, "tree": {"classes": [*rest, leaf]}}) is None


def worst(subject: Classifier, x: Array, label: int) -> float:
    """A radius at which some input has another class, by flipping signs."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], size=(4000, *x.shape))
    for radius in np.linspace(RADIUS, 3 * RADIUS, 60):
        if (subject.logits(x + radius * signs).argmax(axis=1) != label).any():
            return float(radius)
    raise AssertionError


def bent(tree: Any, rng: np.random.Generator, values: int) -> Any:
    """A tree with one kind of damage or another at about one node in three."""
    if "classes" in tree:
        return {"classes": [bent(part, rng, values) for part in tree["classes"] if rng.random() < 0.95]}
    if "cuts" in tree:
        return {**tree, "cuts": bent(tree["cuts"], rng, values)}
    out, kind = dict(tree), int(rng.integers(12))
    if "value" in out:
        out["parts"] = [bent(part, rng, values) for part in out["parts"]]
        first, second = out["parts"]
        changes: dict[int, dict[str, Any]] = {
            0: {"value": int(rng.integers(-2, values + 3))},
            1: {"at": float(rng.choice([np.inf, -np.inf, np.nan, 1e6, -1e6, out["at"] + rng.normal()]))},
            2: {"parts": [second, first]},
            3: {"parts": [first, first]},
            4: {"parts": [first]},
            5: {"parts": [{}, second]},
            6: {"value": True},
        }
        return {**out, **changes.get(kind, {})}
    if "multipliers" in out:
        damage = {0: 0.0, 1: -1.0, 2: 1e3, 3: np.nan}.get(kind, 1.0)
        out["multipliers"] = out["multipliers"] * damage
        if kind == 4:
            out["multipliers"] = out["multipliers"][:-1]
        if kind == 5:
            out["multipliers"] = out["multipliers"] * np.where(rng.random(len(out["multipliers"])) < 0.5, 0.5, 50.0)
        if kind == 6:
            out["point"] = rng.uniform(-1.0, 1.0, len(out["point"]))
        if kind == 7:
            return {k: v for k, v in out.items() if k == "class"}
        if kind == 8 and "class" in out:
            out["class"] = int(rng.integers(-1, 4))
    return out


def none_of_these_trees_proves_too_much(subject: Classifier, claim: Any, count: int, seed: int) -> int:
    """Claims that are false, above trees damaged in every way; returns how many were refused."""
    rng, data, refused = np.random.default_rng(seed), claim.proof.data, 0
    x, label = data["x"], data["label"]
    too_far = worst(subject, x, label)
    values = len(values_of(subject, x, label))
    for k in range(count):
        tree = bent(data["tree"], rng, values) if k % 5 else data["tree"]
        false = (
            {"radius": too_far * (1.0 + rng.exponential() * 0.1)} if k % 2 else {"label": (label + 1 + k % 4 // 2) % 3}
        )
        wrong = propose(subject, "local_planes", {**data, **false, "tree": tree})
        assert not RULES["local_planes"](subject, wrong)[0], (false, tree)
        refused += 1
    return refused


def test_bent_trees_prove_nothing_that_is_false(proved):
    assert none_of_these_trees_proves_too_much(*proved, 60, 0) == 60


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_bent_trees_prove_nothing_that_is_false(proved):
    assert none_of_these_trees_proves_too_much(*proved, 10_000, 1) == 10_000


def test_what_is_no_tree_is_refused_in_words(proved):
    subject, claim = proved
    data = claim.proof.data
    (named,) = [part for part in data["tree"]["classes"] if "cuts" in part]

    def reason(**changes: Any) -> str:
        tree = {"classes": [{**named, "cuts": {**named["cuts"], **changes}}]}
        return RULES["local_planes"](subject, propose(subject, "local_planes", {**data, "tree": tree}))[1]

    assert "two halves" in reason(parts=[{}])
    assert "number of a value" in reason(value=-1)
    assert "number of a value" in reason(value=10_000)
    assert "number of a value" in reason(value=True)
    assert "at must be a number" in reason(at=np.nan)
    assert "is a leaf" in reason(more=1)
    assert "not proved" in reason(parts=[{}, {}])
    one = {"point": np.zeros(16), "multipliers": np.ones(3)}
    assert "numbers from zero" in reason(parts=[one, one])
