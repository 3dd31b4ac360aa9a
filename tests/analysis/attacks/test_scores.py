"""Values, targets at every step and sequences of unequal length under noise and attack, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from stability.analysis import attack_scores, evaluate, noise_scores
from stability.analysis.attacks import MaskedGradientWarning
from stability.analysis.tasks.base import Task, task_of
from stability.analysis.tasks.scores import IGNORED
from stability.errors import ConfigurationError, NonFiniteError

WEIGHTS = torch.tensor([2.0, -0.5, 1.0], dtype=torch.float64)


class Linear(nn.Module):
    """The sum of ``w . x_t`` over all steps, padding included, as the answer at every step, or once."""

    def __init__(self, every_step: bool = True) -> None:
        super().__init__()
        self.w = nn.Parameter(WEIGHTS.clone())
        self.every_step = every_step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = (x @ self.w).sum(1)[:, None]
        return total[:, None].expand(-1, x.shape[1], -1) if self.every_step else total


def drawn(n: int = 6, steps: int = 5, seed: int = 1) -> torch.Tensor:
    return torch.rand(n, steps, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def values(lengths: list[int]) -> Task:
    """A value at each sequence's own last step."""
    x = drawn(len(lengths), max(lengths))
    y = torch.full((len(lengths), max(lengths), 1), math.nan, dtype=torch.float64)
    for k, length in enumerate(lengths):
        x[k, length:] = x[k, length - 1]
        y[k, length - 1] = 0.5
    return task_of((x, y), (x, y))


LENGTHS = [5, 2, 3, 5, 1, 4]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_an_attack_finds_the_worst_case_of_a_linear_model(norm: str) -> None:
    """``(|e| + eps |g|_dual)^2`` with the gradient of a sequence's own steps: nothing is won in the padding."""
    task = values(LENGTHS)
    x, y = task.test
    found = attack_scores(Linear(), x, y, task=task, epsilons=[0.0, 0.1, 0.4], norm=norm, steps=40, bounds=None)
    own = torch.tensor(LENGTHS, dtype=torch.float64)
    dual = own * WEIGHTS.abs().sum() if norm == "linf" else own.sqrt() * WEIGHTS.norm()
    error = ((x @ WEIGHTS).sum(1) - 0.5).abs()
    for epsilon, score in zip(found.sizes, found.score):
        worst = (error + epsilon * dual).square().mean()
        assert score == pytest.approx(float(worst), rel=0.01 if epsilon else 1e-9)
        assert score <= worst * (1 + 1e-9)
    assert found.metric == "mse"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_step_is_the_worst_case_of_a_linear_model(norm: str) -> None:
    task = values(LENGTHS)
    x, y = task.test
    told = {"attack": "fgsm", "norm": norm, "bounds": None}
    found = attack_scores(Linear(), x, y, task=task, epsilons=[0.0, 0.4], **told)
    own = torch.tensor(LENGTHS, dtype=torch.float64)
    dual = own * WEIGHTS.abs().sum() if norm == "linf" else own.sqrt() * WEIGHTS.norm()
    worst = (((x @ WEIGHTS).sum(1) - 0.5).abs() + 0.4 * dual).square().mean()
    assert found.score[1] == pytest.approx(float(worst))
    assert found.perturbation == "fgsm"
    for more in ({"steps": 3}, {"step_size": 0.1}):
        with pytest.raises(ConfigurationError):
            attack_scores(Linear(), x, y, task=task, epsilons=[0.1], **told, **more)


@pytest.mark.parametrize("hide", [lambda x: x.detach(), lambda x: x + (x * 0).sqrt()], ids=["detached", "nan"])
def test_a_model_without_gradients_is_told(hide: Callable) -> None:
    class Hidden(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(hide(x))

    task = values(LENGTHS)
    x, y = task.test
    told = {"task": task, "epsilons": [0.0, 0.4], "bounds": None}
    assert attack_scores(Linear(), x, y, **told).blind == 0
    with pytest.warns(MaskedGradientWarning):
        assert attack_scores(Hidden(), x, y, **told).blind == len(LENGTHS)


def test_noise_on_the_weights_adds_its_variance() -> None:
    """``level^2 s^2 |sum_t x_t|^2`` in expectation, with ``s`` the root mean square of the weights."""
    task, model, draws = values(LENGTHS), Linear(), 600
    x, y = task.test
    sweep = noise_scores(model, x, y, task=task, kind="parameters", levels=[0.0, 0.3], draws=draws, seed=1)
    error = ((x @ WEIGHTS).sum(1) - 0.5).square()
    expected = error + 0.09 * WEIGHTS.square().mean() * x.sum(1).square().sum(-1)
    assert sweep.score[0] == pytest.approx(float(error.mean()))
    assert abs(sweep.score[1] - float(expected.mean())) < 5 * sweep.spread[1] / math.sqrt(draws)
    assert torch.equal(model.w, WEIGHTS)


def test_bounds_hold_in_an_attack() -> None:
    x = torch.ones(2, 3, 3, dtype=torch.float64)
    task = task_of((x, torch.full((2, 1), 7.5)), (x, torch.full((2, 1), 7.5)))  # 7.5 is what the model answers
    found = attack_scores(Linear(False).double(), x, task.test[1].double(), task=task, epsilons=[0.5], bounds=(0, 1))
    # entries may only fall: those of weight 2 and 1 pull the answer down, those of -0.5 up; the first reaches further
    assert found.score[0] == pytest.approx((3 * 0.5 * 3.0) ** 2, rel=1e-6)


def test_noise_leaves_the_padding_alone() -> None:
    """White noise adds ``level^2 |w|^2`` for each own step to the expected squared error."""
    task = values(LENGTHS)
    x, y = task.test
    draws = 600
    sweep = noise_scores(Linear(), x, y, task=task, levels=[0.0, 0.3], draws=draws, seed=1)
    error = ((x @ WEIGHTS).sum(1) - 0.5).square()
    variance = 0.09 * float(WEIGHTS.square().sum()) * torch.tensor(LENGTHS, dtype=torch.float64)
    assert sweep.score[0] == pytest.approx(float(error.mean()))
    expected = float((error + variance).mean())
    assert abs(sweep.score[1] - expected) < 5 * sweep.spread[1] / math.sqrt(draws)
    salt = noise_scores(Linear(), x, y, task=task, kind="salt_pepper", levels=[1.0], draws=draws, bounds=(0.0, 1.0))
    own = torch.tensor(LENGTHS, dtype=torch.float64)  # every entry is 0 or 1 with equal chances
    padding = torch.stack([(row[int(length) :] @ WEIGHTS).sum() for row, length in zip(x, own)])
    mean, spread = own * WEIGHTS.sum() / 2 + padding - 0.5, own * WEIGHTS.square().sum() / 4
    assert abs(salt.score[0] - float((mean.square() + spread).mean())) < 5 * salt.spread[0] / math.sqrt(draws)


def test_classes_at_every_step_lose_accuracy_and_gain_bits() -> None:
    torch.manual_seed(1)
    model = nn.Linear(3, 4).double()
    x = drawn(20, 6) - 0.5
    y = model(x).argmax(-1)
    for metric, sign in (("accuracy", -1), ("bits_per_character", 1), ("perplexity", 1)):
        task = task_of((x, y), (x, y), output_size=4, measured_by=metric)
        sweep = attack_scores(model, x, y, task=task, epsilons=[0.0, 0.2, 0.8], bounds=None)
        assert sweep.score[0] == pytest.approx(task.metric(model(x), y))
        assert all(sign * (b - a) > 0 for a, b in zip(sweep.score, sweep.score[1:]))
        assert all(low <= score <= high for low, score, high in zip(sweep.ci_low, sweep.score, sweep.ci_high))
        calm = noise_scores(model, x, y, task=task, levels=[0.1])
        assert sign * (sweep.score[1] - calm.score[0]) > 0  # an attack is worse than noise within its size


def test_a_class_a_sequence_has_the_interval_of_a_share() -> None:
    x, y = drawn(10, 2), torch.full((10, 2), IGNORED)
    y[:5, 0] = y[5:, 1] = 1
    task = task_of((x, y), (x, y), output_size=2)

    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.zeros_like(x[..., 0]), torch.ones_like(x[..., 0])], -1)

    sweep = noise_scores(One(), x, y, task=task, levels=[0.0])
    assert (sweep.score, sweep.ci_high) == ((1.0,), (1.0,))
    assert sweep.ci_low[0] == pytest.approx(10 / (10 + 1.959964**2))  # Wilson's, of 10 of 10


def test_loss_and_metric_are_means_over_targets_however_they_are_batched() -> None:
    x, y = drawn(7, 4), torch.full((7, 4), IGNORED)
    for k, length in enumerate((1, 4, 2, 4, 4, 1, 3)):
        y[k, :length] = k % 2
    task = task_of((x, y), (x, y), output_size=2, measured_by="perplexity")
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    keep = y != IGNORED
    nats = nn.functional.cross_entropy(model(x)[keep], y[keep])
    for size in (1, 3, 7):
        loss, metric = evaluate(model, x, y, task, batch_size=size)
        assert (loss, metric) == (pytest.approx(nats.item()), pytest.approx(math.exp(nats.item())))


def test_what_does_not_fit_is_refused() -> None:
    task = values(LENGTHS)
    x, y = task.test
    with pytest.raises(ConfigurationError):
        noise_scores(Linear(), x, y, task=task, kind="pink")
    with pytest.raises(ConfigurationError):
        attack_scores(Linear(), x, y, task=task, epsilons=[0.1], norm="l1")
    with pytest.raises(ConfigurationError):
        attack_scores(Linear(), x, y, task=task, epsilons=[0.1], bounds=(0, 0.1))

    class Diverging(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * torch.where(x.sum() > float(drawn().sum()), 1.0, math.inf)

    with pytest.raises(NonFiniteError):
        noise_scores(Diverging(), x, y, task=task, levels=[0.5])
