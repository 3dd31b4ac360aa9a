"""Settings: optimizers against torch's own stepped by hand, their record, and values that are refused."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch.nn import functional

from stability.analysis import make_task, resume_run, train
from stability.analysis.training.settings import Settings
from stability.errors import ConfigurationError
from stability.models import ElmanRNN, SequenceModel


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
    "rmsprop": ({}, lambda p: torch.optim.RMSprop(p, 0.05)),
    "adam": ({}, lambda p: torch.optim.Adam(p, 0.05)),
    "adamw": ({"weight_decay": 0.3}, lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.3)),
}


@pytest.mark.parametrize("case", list(CASES))
def test_an_option_is_that_of_torchs_optimizer(task, case):
    options, make = CASES[case]
    ours, theirs = network(task), network(task)
    train(ours, task, epochs=3, lr=0.05, seed=1, clip=None, batch_size=6, optimizer=case.split()[0], **options)
    by_hand(theirs, task, make(theirs.parameters()), 3)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_a_schedule_multiplies_the_rate(task):
    ours, theirs = network(task), network(task)
    options = {"optimizer": "sgd", "momentum": 0.0, "clip": None, "batch_size": 6, "milestones": (1,), "decay": 0.5}
    train(ours, task, epochs=2, lr=0.1, seed=1, **options)
    for factor in (1.0, 0.5):
        by_hand(theirs, task, torch.optim.SGD(theirs.parameters(), lr=0.1 * factor), 1)
    for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7)


def test_resuming_keeps_settings_and_aims_and_asks_for_the_same(task, tmp_path):
    options = {"lr": 0.02, "seed": 1, "weight_decay": 0.1, "input_noise": 0.1, "batch_size": 2}
    whole, halved = network(task), network(task)
    train(whole, task, epochs=4, **options)
    train(halved, task, epochs=2, out=tmp_path, **options)
    written = json.loads((tmp_path / "run.json").read_text())["training"]
    assert {name: written[name] for name in options} == options
    assert "adversarial" not in written  # not asked for
    other = copy.deepcopy(halved)
    for name in ("weight_decay", "input_noise"):  # left out, they are the defaults
        fewer = {key: value for key, value in options.items() if key != name}
        with pytest.raises(ConfigurationError):
            train(other, task, epochs=4, resume=tmp_path, **fewer)
    resumed, _ = resume_run(tmp_path, epochs=4)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 1}, {"warm_up": 1.5}, {"lr": 1e31}, {"optimizer": "lion"}, {"colour": 1}, {"milestones": "3"},
        {"until_certified": 1}, {"until_certified": True, "patience": 2}, {"gain_target": 0.0}, {"temperature": 1e31},
        {"objective": "best"}, {"target_radius": 0.1}, {"lyapunov_weight": 2.0}, {"adversarial": -1.0},
    ],
)  # fmt: skip
def test_values_outside_their_range_are_refused(options):
    with pytest.raises(ConfigurationError):
        Settings().changed(**options)


def test_a_network_without_trained_parameters_is_refused(task):
    with pytest.raises(ConfigurationError):
        Settings().make_optimizer(network(task).requires_grad_(False))
