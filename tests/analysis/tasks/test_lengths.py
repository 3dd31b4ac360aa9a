"""Sequences of one's own of unequal length: what is behind their own steps has no say in anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis import attack_scores, evaluate, make_task, noise_scores, task_from_arrays
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.performance import performance
from stability.analysis.campaign.work import Work
from stability.models import ElmanRNN, SequenceModel

LENGTHS = np.array([4, 1, 3, 4, 2, 4])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4, 2))
TARGETS = {
    "a class": np.arange(6) % 3,
    "a class a step": RNG.integers(0, 3, (6, 4)),
    "a value": RNG.normal(size=6),
    "values": RNG.normal(size=(6, 3)),
    "values a step": RNG.normal(size=(6, 4, 3)),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_padding_has_no_say(kind: str) -> None:
    """Loss and metric, one sequence after the other cut to its own length; whatever stands in the padding."""
    y = TARGETS[kind]
    inside = np.arange(4) < LENGTHS[:, None]
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(2, 5), 1 if kind == "a value" else 3, reduction="all")
    found = []
    for padding in (0.0, 7.0):
        task = task_from_arrays(np.where(inside[:, :, None], X, padding), y, lengths=LENGTHS, seed=1)
        assert task.steps == 4
        assert task.reduction == "all"
        more = {"task": task, "bounds": None, "draws": 2}
        attacked = attack_scores(model, *task.test, task=task, epsilons=[0.3], bounds=None).score
        found.append((*evaluate(model, *task.test, task), attacked, noise_scores(model, *task.test, **more).score))
    assert found[0] == found[1]
    losses, scores = [], []
    for k, length in enumerate(LENGTHS):
        answers = model(torch.from_numpy(X[k : k + 1, :length]).float())[0]
        whole = "a step" not in kind
        wanted = torch.from_numpy(y[k : k + 1] if whole else y[k, :length])
        answers = answers[-1:] if whole else answers
        if wanted.is_floating_point():
            squares = (answers - wanted.float().reshape(answers.shape)).square()
            losses += squares.flatten().tolist()
            scores += squares.flatten().tolist()
        else:
            losses += torch.nn.functional.cross_entropy(answers, wanted, reduction="none").tolist()
            scores += (answers.argmax(-1) == wanted).double().tolist()
    assert found[0][0] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found[0][1] == pytest.approx(np.mean(scores), rel=1e-5)


def test_norms_are_taken_along_whole_sequences(tmp_path: Path) -> None:
    task = task_from_arrays(X, TARGETS["a class"], lengths=LENGTHS)
    model = SequenceModel(ElmanRNN(2, 5), 3, reduction="all")
    work = Work(tmp_path, model, model, task, AnalysisSettings())
    for size, steps in ((3, 4), (4, 3), (6, 1)):  # three sequences of 4 steps, one of 3, one of 2, one of 1
        _, x = work.whole_sequences(size)
        assert x.shape == (size, steps, 2)
        for row in x:
            assert any(np.allclose(row, own[:steps]) and n >= steps for own, n in zip(X, LENGTHS))


def test_accuracy_by_class_is_that_of_the_last_own_steps() -> None:
    task = task_from_arrays(X, TARGETS["a class"], lengths=LENGTHS)
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(2, 5), 3, reduction="all")
    torch.nn.init.zeros_(model.head.bias)
    answers = [int(model(torch.from_numpy(X[k : k + 1, :n]).float())[0, -1].argmax()) for k, n in enumerate(LENGTHS)]
    assert len(set(answers)) > 1
    by_class = performance(model, task)["by_class"]
    assert [(c["name"], c["sequences"], c["accuracy"]) for c in by_class] == [
        (str(c), 2, sum(answers[k] == c for k in (c, c + 3)) / 2) for c in range(3)
    ]


def test_lengths_of_a_file(tmp_path: Path) -> None:
    y = TARGETS["a class"]
    np.savez(tmp_path / "d.npz", x=X, y=y, x_test=X, y_test=y, lengths=LENGTHS, lengths_test=np.full(6, 4))
    task = make_task("data", file=str(tmp_path / "d.npz"))
    for (_, targets), lengths in ((task.train, LENGTHS), (task.test, np.full(6, 4))):
        own = task.own_steps(targets)
        steps = torch.full((6,), 4) if own is None else own.sum(1)
        assert sorted(steps.tolist()) == sorted(lengths.tolist())
