"""Pathfinder: pictures whose label a slow search finds from the pixels alone, balanced, without easy cues."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stability.analysis.tasks import make_task, solve_pathfinder
from stability.errors import ConfigurationError, DimensionError

SIZES = {
    "default": {},
    "no distractors": {"distractors": 0},
    "short": {"length": 6, "distractors": 5},
    "straight": {"length": 7, "turn": 0},
    "tight": {"length": 10, "dash": 1, "turn": 2 / 3},
    "wide gaps": {"side": 64, "length": 6, "gap": 3, "dash": 4},
    "single pixels": {"length": 10, "dash": 1, "distractor_length": 1, "distractors": 6},
}


def picture(row):
    side = math.isqrt(len(row))
    return row.reshape(side, side).numpy() > 0.5


def paths_of(image, gap):
    """Sets of lit pixels, each grown from one pixel by hops over at most ``gap`` dark ones."""
    waiting = {(int(r), int(c)) for r, c in np.argwhere(image)}
    found = []
    while waiting:
        path, border = set(), [waiting.pop()]
        while border:
            r, c = border.pop()
            path.add((r, c))
            near = {(p, q) for p, q in waiting if max(abs(p - r), abs(q - c)) <= gap + 1}
            waiting -= near
            border += near
        found.append(path)
    return found


def discs_of(image):
    squares = np.lib.stride_tricks.sliding_window_view(image, (3, 3)).all((2, 3))
    return [(int(r) + 1, int(c) + 1) for r, c in np.argwhere(squares)]


@pytest.mark.parametrize("name", SIZES)
def test_a_slow_search_finds_every_label(name):
    task = make_task("pathfinder", train=12, test=12, **SIZES[name])
    options = task.options
    for x, y in (task.train, task.test):
        for row, label in zip(x[..., 0], y.tolist()):
            image = picture(row)
            paths = paths_of(image, options["gap"])
            assert len(paths) == 2 + options["distractors"]
            discs = discs_of(image)
            assert len(discs) == 2
            marked = [k for disc in discs for k, path in enumerate(paths) if disc in path]
            assert (marked[0] == marked[1]) == bool(label)
            sizes = sorted((len(path) for path in paths), reverse=True)
            assert all(len(paths[k]) in sizes[:2] for k in marked)  # a disc is never on a distractor


@pytest.mark.parametrize("name", SIZES)
def test_the_fast_solver_finds_every_label(name):
    task = make_task("pathfinder", train=100, test=51, seed=5, **SIZES[name])
    for x, y in (task.train, task.test, task.sample(40, 3)):
        np.testing.assert_array_equal(solve_pathfinder(x, gap=task.options["gap"]), y.numpy())
        assert int(y.sum()) == len(y) // 2
        assert set(x.unique().tolist()) == {0.0, 1.0}


def test_the_solver_sees_what_is_drawn_and_not_how_it_was_made():
    """One more dark gap cuts a path; one more dash joins two."""
    image = np.zeros((9, 20), dtype=bool)
    image[3:6, 1:4] = image[3:6, 16:19] = True
    image[4, 5:16:2] = True
    side = np.zeros((20, 20), dtype=bool)
    side[:9] = image
    assert solve_pathfinder(side[None]) == [1]
    side[4, 9] = False
    assert solve_pathfinder(side[None]) == [0]
    assert solve_pathfinder(side[None], gap=3) == [1]
    side[3, 9] = True
    assert solve_pathfinder(side[None].astype(np.float32)) == [1]
    with pytest.raises(ConfigurationError, match="image 1 must have two discs"):
        solve_pathfinder(np.stack([side, np.zeros_like(side)]))
    with pytest.raises(ConfigurationError, match="gap"):
        solve_pathfinder(side[None], gap=-1)
    for shape in ((20, 20), (2, 9, 20), (2, 40, 1)):
        with pytest.raises(DimensionError):
            solve_pathfinder(np.zeros(shape))


def test_cheap_cues_tell_little():
    """Neither the distance of the discs nor the number of lit pixels comes near to the label."""
    task = make_task("pathfinder", train=600, test=2)
    x, y = task.train
    labels = y.numpy()
    discs = [discs_of(picture(row)) for row in x[..., 0]]
    distance = np.array([math.dist(*pair) for pair in discs])
    lit = x.sum((1, 2)).numpy()
    for cue in (distance, lit):
        ordered = labels[np.argsort(cue, kind="stable")]
        ones = np.concatenate([[0], np.cumsum(ordered)])
        right = ones + (300 - (np.arange(601) - ones))  # ones below a threshold, zeros above it
        assert max(right.max(), 600 - right.min()) / 600 < 0.6
    assert task.metric(torch.zeros(len(y), 2), y) == task.chance == 0.5


def test_seeds_and_streams():
    options = {"train": 6, "test": 4, "length": 6}
    one, same, other = (make_task("pathfinder", seed=s, **options) for s in (1, 1, 2))
    assert torch.equal(one.train[0], same.train[0])
    assert torch.equal(one.train[1], same.train[1])
    assert not torch.equal(one.train[0], other.train[0])
    assert not torch.equal(one.train[0][:4], one.test[0])
    assert torch.equal(one.sample(3, 9)[0], other.sample(3, 9)[0])
    again = make_task("pathfinder", seed=1, **one.options)
    assert torch.equal(again.test[0], one.test[0])
    assert (one.steps, one.chance, make_task("pathfinder", train=1, test=5).chance) == (1024, 0.5, 0.6)
    rows = {row.numpy().tobytes() for row in make_task("pathfinder", train=200, test=2).train[0]}
    assert len(rows) == 200


def test_the_size_of_path_x():
    task = make_task("pathfinder", side=128, train=6, test=2)
    assert (task.steps, task.options["dash"], task.options["gap"]) == (16384, 5, 2)
    np.testing.assert_array_equal(solve_pathfinder(task.train[0], gap=2), task.train[1].numpy())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"side": 8}, "side"),
        ({"side": 10**6}, "side"),
        ({"side": 32.0}, "side"),
        ({"length": 0}, "length"),
        ({"length": True}, "length"),
        ({"length": 2}, "discs would touch"),
        ({"length": 50}, "room for 128"),
        ({"length": 12, "distractors": 40}, "room for all"),
        ({"distractors": -1}, "distractors"),
        ({"distractor_length": 0}, "distractor_length"),
        ({"dash": 0}, "dash"),
        ({"gap": 0}, "gap"),
        ({"gap": "1"}, "gap"),
        ({"turn": math.nan}, "turn"),
        ({"turn": math.inf}, "turn"),
        ({"turn": -0.1}, "turn"),
        ({"turn": 1.1}, "turn"),
        ({"turn": "much"}, "turn"),
        ({"train": 0}, "train"),
        ({"test": None}, "test"),
        ({"side": 512, "train": 10**7}, "4 GiB"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ConfigurationError, match=says):
        make_task("pathfinder", **{"train": 4, "test": 2, **options})
