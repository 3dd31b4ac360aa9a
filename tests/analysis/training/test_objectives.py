"""Losses that aim at certified radii, and disturbed inputs: against their formulas, sample by sample."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from stability.analysis import certified_radius, make_task, train
from stability.analysis.training.objectives import Objective, reach
from stability.analysis.training.settings import Aim, Settings
from stability.errors import ConfigurationError, UnsupportedError
from stability.models import BoundedGainRNN, ElmanRNN, SequenceModel


@pytest.fixture(scope="module")
def digits():
    task = make_task("digits", limit=120, test_limit=60)
    torch.manual_seed(0)
    model = SequenceModel(BoundedGainRNN(task.input_size, 8, gain=0.7), task.output_size)
    train(model, task, epochs=4, lr=0.05, batch_size=20, temperature=5.0)
    return model, task


def slowly(model, z, y, name, eps, t):
    """Each loss by loops over samples and classes."""
    w, out = model.head.weight.detach(), []
    for row, own in zip(z.detach(), y.tolist()):
        moved = {j: eps * 0.7 * torch.linalg.vector_norm(w[own] - w[j]) for j in range(10)}
        radius = min(
            (row[own] - row[j]) / (0.7 * torch.linalg.vector_norm(w[own] - w[j])) for j in range(10) if j != own
        )
        if name == "certified":
            worst = torch.stack([t * (row[j] + moved[j]) for j in range(10)])
            out.append(torch.logsumexp(worst, 0) - worst[own])
        else:
            out.append(max(torch.zeros(()), eps - radius))
    return torch.stack(out).mean()


@pytest.mark.parametrize("name", ["margin", "certified"])
def test_a_loss_is_its_formula_and_falls_when_trained_on(name, digits):
    model, task = digits
    x, y = task.train
    aim = Aim(objective=name, target_radius=0.3, temperature=4.0)
    objective = Objective(model, task, aim)
    with torch.no_grad():
        before = objective.loss(model(x), y)
    torch.testing.assert_close(before, slowly(model, model(x), y, name, 0.3, 4.0), rtol=1e-4, atol=1e-5)
    again = copy.deepcopy(model)
    result = train(again, task, Settings(aim=aim), epochs=2, lr=0.01, batch_size=20)
    assert result.history[-1].train_loss < float(before)
    assert Objective(again, task, aim).loss(again(x), y) < before


def test_the_radii_that_losses_aim_at_are_the_certified_ones(digits):
    model, task = digits
    x, y = task.test
    certified = certified_radius(model, x, y)
    own = Objective(model, task, Aim()).radii(model(x).detach(), y).clamp(min=0.0)
    torch.testing.assert_close(own.double(), torch.from_numpy(certified.radius), rtol=1e-3, atol=1e-5)
    assert (certified.radius > 0).any()


def test_aiming_at_a_radius_certifies_more_at_it(digits):
    """Against the task's loss from the same start with as many steps."""
    model, task = digits
    shares = {}
    for name in ("task", "certified"):
        again = copy.deepcopy(model)
        more = {} if name == "task" else {"target_radius": 0.3}
        train(again, task, epochs=6, lr=0.02, batch_size=20, temperature=5.0, objective=name, **more)
        shares[name] = certified_radius(again, *task.train).accuracy_at(0.3)
    assert shares["certified"] > shares["task"] + 0.03


def test_disturbed_inputs(digits):
    model, task = digits
    x, y = task.train
    noisy = Objective(model, task, Aim(input_noise=0.5)).inputs(x, y)
    assert (noisy - x).std().item() == pytest.approx(0.5, rel=0.02)
    torch.manual_seed(3)
    attacked = Objective(model, task, Aim(adversarial=0.4)).inputs(x, y)
    torch.manual_seed(3)
    assert torch.equal(attacked, Objective(model, task, Aim(adversarial=0.4)).inputs(x, y))
    lengths = (attacked - x).flatten(1).norm(dim=1)
    assert lengths.max() <= 0.4 * (1 + 1e-5)
    assert attacked.min() >= 0.0
    assert task.loss(model(attacked), y) > task.loss(model(x), y) + 0.01
    runs = []
    for options in ({}, {"input_noise": 0.3}, {"input_noise": 0.3}, {"adversarial": 0.3}):
        again = copy.deepcopy(model)
        train(again, task, epochs=1, lr=0.01, batch_size=60, **options)
        runs.append(again.head.weight.detach())
    assert torch.equal(runs[1], runs[2])
    assert not torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[3])


def test_temperature_scales_the_logits(digits):
    model, task = digits
    x, y = task.train
    z = model(x)
    assert Objective(model, task, Aim(temperature=3.0)).loss(z, y) == functional.cross_entropy(3.0 * z, y)
    assert Objective(model, task, Aim()).loss(z, y) == task.loss(z, y)


def test_what_an_objective_is_not_about_is_refused(digits):
    _, task = digits
    plain = SequenceModel(ElmanRNN(task.input_size, 8), task.output_size)
    with pytest.raises(UnsupportedError):
        train(plain, task, epochs=1, objective="certified")
    with pytest.raises(UnsupportedError):
        reach(SequenceModel(BoundedGainRNN(2, 4), 3, "all"))
    adding = make_task("adding", steps=5, train=4, test=2)
    values = SequenceModel(BoundedGainRNN(adding.input_size, 4), adding.output_size)
    for options in ({"temperature": 2.0}, {"adversarial": 0.1}, {"objective": "margin"}):
        with pytest.raises(ConfigurationError):
            train(values, adding, epochs=1, **options)
    for options in ({"objective": "other"}, {"target_radius": 0.3}, {"temperature": 0.0}, {"input_noise": -1.0},
                    {"adversarial": float("nan")}, {"objective": "margin", "target_radius": 0.0}):  # fmt: skip
        with pytest.raises(ConfigurationError):
            Aim(**options)
