"""A small task, networks for it and an interruption, for the tests of training."""

from __future__ import annotations

import pytest
import torch

from stability.analysis import make_task
from stability.models import LipschitzRNN, SequenceModel


@pytest.fixture(scope="session")
def task():
    return make_task("digits", size=14, limit=200, test_limit=60)


def new_model(task, layer=LipschitzRNN, seed=0, **options):
    torch.manual_seed(seed)
    options = {"dt": 0.2, **options} if layer is LipschitzRNN else options
    return SequenceModel(layer(task.input_size, 12, **options), task.output_size, task.reduction)


def equal_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def stop_in(epoch, batch):
    def progress(news):
        if news.finished is None and (news.epoch, news.batch) == (epoch, batch):
            raise KeyboardInterrupt

    return progress
