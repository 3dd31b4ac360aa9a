"""What the optimizers' options change, each against torch's own optimizer stepped by hand; groups, and their errors."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch.nn import functional

from stability.analysis import make_task, resume_run, train
from stability.analysis.training.settings import Settings
from stability.errors import ConfigurationError
from stability.models import DeepNetwork, ElmanRNN, SequenceModel


@pytest.fixture(scope="module")
def task():
    return make_task("adding", steps=4, train=6, test=4, seed=1)


def network(task):
    torch.manual_seed(1)
    return SequenceModel(ElmanRNN(task.input_size, 5), task.output_size)


def by_hand(model, task, optimizer, steps):
    """Whole batches, no clipping."""
    for _ in range(steps):
        optimizer.zero_grad()
        functional.mse_loss(model(task.train[0]), task.train[1]).backward()
        optimizer.step()


CASES = {
    "sgd": ({"momentum": 0.5}, lambda p: torch.optim.SGD(p, 0.05, momentum=0.5)),
    "sgd without momentum": ({"momentum": 0.0}, lambda p: torch.optim.SGD(p, 0.05)),
    "rmsprop": ({"alpha": 0.9}, lambda p: torch.optim.RMSprop(p, 0.05, alpha=0.9)),
    "adam": ({"betas": (0.0, 0.9)}, lambda p: torch.optim.Adam(p, 0.05, betas=(0.0, 0.9))),
    "adamw": (
        {"betas": (0.5, 0.99), "weight_decay": 0.3},
        lambda p: torch.optim.AdamW(p, 0.05, betas=(0.5, 0.99), weight_decay=0.3),
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_an_option_is_that_of_torchs_optimizer(task, case):
    options, make = CASES[case]
    ours, theirs = network(task), network(task)
    train(ours, task, epochs=3, lr=0.05, seed=1, clip=None, batch_size=6, optimizer=case.split()[0], **options)
    by_hand(theirs, task, make(theirs.parameters()), 3)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_a_group_has_its_own_rate_and_the_schedule_multiplies_it(task):
    ours, theirs = network(task), network(task)
    options = {"optimizer": "sgd", "momentum": 0.0, "clip": None, "batch_size": 6, "milestones": (1,), "decay": 0.5}
    train(ours, task, epochs=2, lr=0.1, seed=1, group_lr={"recurrent": 0.02}, **options)
    for factor in (1.0, 0.5):
        groups = [(theirs.head.parameters(), 0.1), (theirs.layer.parameters(), 0.02)]
        by_hand(theirs, task, torch.optim.SGD([{"params": p, "lr": rate * factor} for p, rate in groups]), 1)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_resuming_keeps_groups_and_betas_and_asks_for_the_same(task, tmp_path):
    options = {"lr": 0.02, "seed": 1, "betas": (0.5, 0.9), "group_lr": {"head": 0.3}, "batch_size": 2}
    whole, halved = network(task), network(task)
    train(whole, task, epochs=4, **options)
    train(halved, task, epochs=2, out=tmp_path, **options)
    written = json.loads((tmp_path / "run.json").read_text())["training"]
    assert (written["betas"], written["group_lr"]) == ([0.5, 0.9], {"head": 0.3})
    other = copy.deepcopy(halved)
    for name in ("betas", "group_lr"):  # left out, they are the defaults
        fewer = {key: value for key, value in options.items() if key != name}
        with pytest.raises(ConfigurationError, match=f"another settings: {name} was"):
            train(other, task, epochs=4, resume=tmp_path, **fewer)
    resumed, _ = resume_run(tmp_path, epochs=4)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_groups_of_a_deep_network():
    deep = DeepNetwork(2, 3, layer="rotrnn", hidden_size=4, width=4, depth=2, options={"heads": 2})
    groups = Settings(lr=0.1, group_lr={"recurrent": 0.01, "encoder": 0.2}).make_optimizer(deep).param_groups
    assert [group["lr"] for group in groups] == [0.1, 0.01, 0.2]
    inner = {id(p) for layer in deep.layers for p in layer.parameters()}
    assert {id(p) for p in groups[1]["params"]} == inner
    assert sum(len(group["params"]) for group in groups) == len(list(deep.parameters()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": 1.0}, "alpha must be below 1, got 1.0"),
        ({"momentum": 1}, "momentum must be below 1, got 1"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"betas": "0.9"}, "betas must be two numbers"),
        ({"betas": (0.9, 1.0)}, "betas must be below 1"),
        ({"group_lr": 3}, "mapping of names to learning rates"),
        ({"group_lr": {"head": 0.0}}, "the learning rate of head"),
        ({"group_lr": {"head": 1e31}}, "at most 1e"),
        (
            {"group_lr": {"tail": 0.1}},
            "no trained parameter belongs to 'tail'; names begin with layer, head, or recurrent",
        ),
        ({"group_lr": {"recurrent": 0.1, "layer": 0.2}}, "belongs to 'recurrent' and to 'layer'"),
    ],
)
def test_what_is_no_setting_is_refused(task, options, words):
    with pytest.raises(ConfigurationError, match=words):
        Settings(**options).make_optimizer(network(task))
