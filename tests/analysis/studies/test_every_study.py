"""What holds for every study: its settings of both sizes fit each other, so that no command crashes on them."""

from __future__ import annotations

import inspect

import pytest
import torch

from stability.analysis.studies import STUDIES
from stability.analysis.studies.base import no_trainings
from stability.analysis.tasks import TASKS, make_task
from stability.analysis.training.settings import Settings

COUNTS = {"train": 12, "test": 6, "limit": 20, "test_limit": 10}
UNTRAINED = {"errata", "qr-gradients"}
"""Studies that train nothing."""


def few(task: str, options: dict) -> dict:
    """The options of a study with few sequences; every other one as it ships."""
    known = inspect.signature(TASKS[task]).parameters
    return {**options, **{name: count for name, count in COUNTS.items() if name in known}}


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
@pytest.mark.parametrize("name", STUDIES)
def test_the_settings_that_ship_fit_each_other(name, quick):
    trainings = STUDIES[name].plan(quick)
    assert bool(trainings) == (name not in UNTRAINED)
    made: dict = {}
    for training in trainings:
        key = (training.task, repr(training.options))
        if key not in made:
            made[key] = make_task(training.task, **few(training.task, dict(training.options)))
        task = made[key]
        Settings(**training.settings)
        model = training.model(task)
        x = task.train[0][:2, : min(task.steps, 12)]
        with torch.no_grad():
            assert model(x).shape[-1] == task.output_size
        assert any(p.requires_grad for p in model.parameters())


def test_a_study_that_trains_has_a_plan():
    assert {name for name, study in STUDIES.items() if study.plan is no_trainings} == UNTRAINED
