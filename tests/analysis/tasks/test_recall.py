"""Selective copying and associative recall: targets against a reader that goes through the tokens one by one."""

from __future__ import annotations

import pytest
import torch

from stability.analysis.tasks import make_task
from stability.errors import ConfigurationError


def test_selective_copying():
    task = make_task("selective_copying", context=30, length=4, symbols=6, train=400, test=3000)
    x, y = task.train
    assert tuple(x.shape) == (400, 34, 8)
    assert (x.sum(-1) == 1).all()
    places = torch.zeros(30)
    for tokens, targets in zip(x.argmax(-1).tolist(), y.tolist()):
        letters = [token for token in tokens[:30] if token < 6]
        assert len(letters) == 4
        assert tokens[:30].count(6) == 26
        assert tokens[30:] == [7] * 4
        assert targets == [6] * 30 + letters
        places += torch.tensor([token < 6 for token in tokens[:30]])
    expected = 400 * 4 / 30
    assert (places - expected).abs().max() < 5 * expected**0.5  # letters come at every place alike
    guess = torch.zeros(3000, 34, 7)
    guess[..., 2] = 1
    assert task.metric(guess, task.test[1]) == pytest.approx(task.chance, rel=0.1)
    full = make_task("selective_copying", context=5, length=5, train=3, test=1).train
    assert torch.equal(full[0][:, :5].argmax(-1), full[1][:, 5:])


@pytest.mark.parametrize("delay", [0, 9])
def test_associative_recall(delay):
    task = make_task("associative_recall", pairs=5, keys=7, values=3, delay=delay, train=300, test=3000)
    x, y = task.train
    assert tuple(x.shape) == (300, 11 + delay, 11)
    assert (x.sum(-1) == 1).all()
    asked = []
    for tokens, answer in zip(x.argmax(-1).tolist(), y.tolist()):
        known = dict(zip(tokens[0:10:2], tokens[1:10:2]))
        assert len(known) == 5
        assert all(key < 7 <= value < 10 for key, value in known.items())
        assert tokens[10:-1] == [10] * delay
        assert known[tokens[-1]] == 7 + answer
        asked.append(tokens[0:10:2].index(tokens[-1]))
    assert min(asked.count(k) for k in range(5)) > 30
    guess = torch.zeros(3000, 3)
    guess[:, 1] = 1
    assert task.metric(guess, task.test[1]) == pytest.approx(task.chance, rel=0.1)


@pytest.mark.parametrize("name", ["selective_copying", "associative_recall"])
def test_streams_are_seeded_and_apart(name):
    a, b, c = (make_task(name, train=6, test=6, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.train[0], b.train[0])
    assert not torch.equal(a.train[0], c.train[0])
    assert not torch.equal(a.train[0], a.test[0])
    assert torch.equal(a.sample(4, 9)[0], c.sample(4, 9)[0])
    assert torch.equal(make_task(name, seed=1, **a.options).test[0], a.test[0])


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("selective_copying", {"context": 0}, "context"),
        ("selective_copying", {"context": 5, "length": 6}, "length"),
        ("selective_copying", {"length": True}, "length"),
        ("selective_copying", {"symbols": 1}, "symbols"),
        ("selective_copying", {"context": 10**7}, "4 GiB"),
        ("selective_copying", {"train": 0}, "train"),
        ("associative_recall", {"pairs": 0}, "pairs"),
        ("associative_recall", {"pairs": 17}, "at most keys"),
        ("associative_recall", {"keys": 0}, "keys"),
        ("associative_recall", {"values": 1}, "values"),
        ("associative_recall", {"delay": -1}, "delay"),
        ("associative_recall", {"delay": 10**6}, "4 GiB"),
        ("associative_recall", {"test": 1.0}, "test"),
        ("adding", {"steps": 10**7}, "4 GiB"),
        ("copying", {"delay": 10**7}, "4 GiB"),
        ("pendulum", {"steps": 10**7}, "4 GiB"),
    ],
)
def test_bad_options(name, options, says):
    with pytest.raises(ConfigurationError, match=says):
        make_task(name, **options)


def test_sampling_is_limited_too():
    with pytest.raises(ConfigurationError, match="4 GiB"):
        make_task("copying", train=1, test=1).sample(10**7, 0)
