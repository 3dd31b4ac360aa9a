"""Boxes of all moves that planes of cells rule out: sound, proved again by the rule, and the true radius."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.single import gated
from stability.local import balls, joint
from stability.local.balls import largest_balls
from stability.local.coordinates import coordinates
from stability.local.gates import Gates
from stability.local.guided import Guide
from stability.local.refining import Refining
from stability.local.request import request
from stability.local.worst import Margin
from stability.rules import local_cells
from stability.rules.registry import RULES, propose
from stability.solve.deadline import Deadline

Array = np.ndarray


def asked(kind: str, seed: int, steps: int = 6):
    net, x = gated(kind, seed, "last")
    x = x[:steps]
    label = int(net.logits(x).argmax())
    told = {"upper": None, "epsilon": None, "mask": None, "bounds": None, "budget": "total", "time_limit": None}
    return net, x, label, request(net, x[None], [label], **told)


@pytest.mark.parametrize(("kind", "seed"), [("lstm", 5), pytest.param("lstm", 7, marks=pytest.mark.slow)])
def test_boxes_with_a_run_of_another_class_are_not_done(kind, seed):
    net, x, label, question = asked(kind, seed, 2)
    own = Gates(question, 0, "l2", Deadline.after(None))
    near = own.nearest(100.0)
    assert near.moves is not None
    reach = 1.01 * near.length
    found = own.ended(reach)
    assert found is not None
    runs, end, ends = found
    made, gap = Refining(runs, end, *ends, cap=1.2 * reach**2), np.inf
    for _ in range(5):
        with np.errstate(all="ignore"):
            value = made.back(gap)
        assert value is not None
        gap = near.length**2 - value
        made.forward(value, gap)
    assert gap < 0.3 * near.length**2
    rng, done_ = np.random.default_rng(0), []
    for part in (1.0005, 0.97):
        of = coordinates(net, x, part * near.length, "l2")
        c = near.moves * rng.uniform(min(1.0, part), max(1.0, part), (40_000, 1))
        c = c + 0.003 * near.length * rng.normal(size=c.shape) * rng.random((len(c), 1))
        least = np.min([Margin(of, label, k).value(c) for k in range(3) if k != label], axis=0)
        wrong = (least <= 0.0) & ((c * c).sum(axis=1) < of.radius**2)
        assert (wrong.sum() > 200) if part > 1.0 else not wrong.any()
        c = c[wrong][:3000] if part > 1.0 else c[:3000]
        more = rng.random((2, *c.shape)) * (0.2 * near.length * rng.random((len(c), 1)) ** 3)
        done, worth = Guide(of, made.cells, of.radius**2)(c - more[0], c + more[1])
        assert done.shape == (len(c),)
        assert worth.shape == c.shape
        done_.append(int(done.sum()))
    assert done_[0] == 0
    far = rng.uniform(of.low, of.high, (3000, len(of.low)))
    wide = 0.02 * near.length
    assert Guide(of, made.cells, of.radius**2)(far - wide, far + wide)[0].sum() > 300


@pytest.fixture(scope="module")
def proved():
    """A network whose proof has boxes of all moves, since these are tried at once, and the other search is not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balls, "pays", lambda *_: False)
        patch.setattr(joint, "_HARD", 20_000)
        net, x = gated("lstm", 5, "last")
        x = x[:2]
        label = int(net.logits(x).argmax())
        (claim,) = largest_balls(net, x[None], [label])
    return net, x, label, claim


def test_the_radius_is_the_true_one(proved):
    net, _, _, claim = proved
    assert claim.proof.kind == "local_cells"
    assert claim.proof.data["points"].shape == (2, 4)
    question = Gates(asked("lstm", 5, 2)[3], 0, "l2", Deadline.after(None))
    near = question.nearest(100.0)
    assert claim.value <= near.length
    assert claim.value == pytest.approx(near.length, rel=1e-6)
    assert RULES["local_cells"](net, claim)[0]


def changed(claim, **parts):
    data = claim.proof.data | parts
    return replace(claim, proof=replace(claim.proof, data={k: v for k, v in data.items() if v is not None}))


def test_changed_proofs_are_refused(monkeypatch, proved):
    monkeypatch.setattr(local_cells, "ROOM", 300_000)
    net, _, _, claim = proved
    data, rule = claim.proof.data, RULES["local_cells"]
    bad = {
        "higher planes": changed(claim, values=data["values"] + 0.5),
        "no touches": changed(claim, touches=None),
        "no points": changed(claim, points=None),
        "points beyond": changed(claim, points=data["points"] + 100.0),
        "fewer points": changed(claim, points=data["points"][:1]),
        "negative touches": changed(claim, touches=-1.0 - data["touches"]),
        "endless bends": changed(claim, bends=data["bends"] + 1e30),
        "numbers for points": changed(claim, points=data["points"][0]),
    }
    for name, other in bad.items():
        accepted, said = rule(net, other)
        assert not accepted, name
        assert said
    larger = propose(net, "local_cells", data | {"radius": 1.0001 * data["radius"], "reach": 1.01 * data["reach"]})
    assert not rule(net, larger)[0]
    monkeypatch.setattr(local_cells, "WORK", 1e4)
    assert not rule(net, claim)[0]


def test_heads_on_the_mean_and_balls_of_steps_have_none(proved):
    net, _, _, claim = proved
    data = claim.proof.data
    for other, more in ((replace(net, reduction="mean"), {}), (net, {"budget": "step"}), (net, {"norm": "linf"})):
        accepted, said = RULES["local_cells"](other, propose(other, "local_cells", data | more))
        assert not accepted
        assert "points" in said
