"""Run directories that somebody edited: to go on with one is refused in one line, whatever field is of another type."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from stability.analysis import SpectrumTracker, resume_run, train
from stability.analysis.tasks import make_task
from stability.analysis.training.runs import CHECKPOINT, RUN_FILE
from stability.errors import StabilityError
from stability.models import ElmanRNN, SequenceModel
from stability.models.files import write_tensors
from stability.models.readers.safetensors import read_metadata

ODD: tuple[Any, ...] = (None, "x", -5, 99, 1.5, [], [1], {}, {"a": 1}, True, 10**39)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    task = make_task("digits", size=7, limit=40, test_limit=20)
    torch.manual_seed(0)
    model = SequenceModel(ElmanRNN(task.input_size, 3), task.output_size)
    train(model, task, epochs=1, batch_size=20, out=folder, tracker=SpectrumTracker(model, every=1, margins=[]))
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def in_document(folder: Path, change: Callable[[Any], None]) -> None:
    document = json.loads((folder / RUN_FILE).read_text())
    change(document)
    (folder / RUN_FILE).write_text(json.dumps(document))


def in_checkpoint(folder: Path, change: Callable[[Any, dict[str, torch.Tensor]], Any]) -> None:
    path = folder / CHECKPOINT
    state = json.loads(read_metadata(path)["checkpoint"])
    tensors = safetensors.torch.load_file(path)
    changed = change(state, tensors)
    write_tensors(path, tensors, {"checkpoint": json.dumps(state if changed is None else changed)})


def refused(folder: Path) -> None:
    with pytest.raises(StabilityError) as caught:
        resume_run(folder, epochs=2)
    assert "\n" not in str(caught.value)


def test_the_run_as_it_is_goes_on(copy: Path) -> None:
    assert resume_run(copy, epochs=2)[1].epochs == 2


@pytest.mark.parametrize("field", ["history", "bad", "steps", "settings", "task"])
def test_fields_of_the_checkpoint(field: str, copy: Path, run: Path) -> None:
    for odd in ODD:
        if (field, odd) in (("steps", 99), ("history", [])):  # a number of steps, a training without a finished epoch
            continue
        shutil.copy(run / CHECKPOINT, copy / CHECKPOINT)
        in_checkpoint(copy, lambda state, _, odd=odd: state.update({field: odd}))
        refused(copy)


def test_records_of_the_history(copy: Path, run: Path) -> None:
    for field in ("epoch", "seconds", "train_loss", "more"):
        for odd in (None, "x", [], -5):
            if (field, odd) == ("train_loss", -5):
                continue
            shutil.copy(run / CHECKPOINT, copy / CHECKPOINT)
            in_checkpoint(copy, lambda state, _, field=field, odd=odd: state["history"][0].update({field: odd}))
            refused(copy)


@pytest.mark.parametrize("state", [5, [], "x", None, [[[]]] * 3])
def test_a_checkpoint_of_something_else(state: Any, copy: Path) -> None:
    in_checkpoint(copy, lambda *_: [state])
    refused(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"optimizer.0.exp_avg": torch.zeros(2)}),
        lambda t: t.update({"optimizer.0.exp_avg": torch.full_like(t["optimizer.0.exp_avg"], torch.nan)}),
        lambda t: t.update({"optimizer.0.step": torch.zeros(2)}),
        lambda t: t.update({"optimizer.77.exp_avg": torch.zeros(2)}),
        lambda t: t.update({"optimizer.x.exp_avg": torch.zeros(2)}),
        lambda t: t.update({"optimizer.0": torch.zeros(2)}),
        lambda t: t.update({"optimizer.0.velocity": t["optimizer.0.exp_avg"].clone()}),
        lambda t: t.pop("optimizer.0.exp_avg_sq"),
        lambda t: t.update({"best.layer.weight_hh": torch.zeros(2)}),
        lambda t: t.update({"model.layer.weight_hh": torch.zeros(2)}),
    ],
)
def test_tensors_of_the_checkpoint(change: Callable[[Any], Any], copy: Path) -> None:
    in_checkpoint(copy, lambda _, tensors: [change(tensors)][:0] or None)
    refused(copy)


@pytest.mark.parametrize("odd", [[], {}, "x", 5, {"every": 1}, {"margins": []}, {"every": "x", "margins": []}])
def test_trackers_of_the_document(odd: Any, copy: Path) -> None:
    in_document(copy, lambda d: d["training"].update(tracker=odd))
    refused(copy)


@pytest.mark.parametrize("odd", ["x", 1.5, [1], -1])
def test_seeds_of_the_data(odd: Any, copy: Path) -> None:
    in_document(copy, lambda d: d["task"]["data"].update(seed=odd))
    refused(copy)


def test_other_files_in_the_place_of_the_checkpoint(copy: Path) -> None:
    (copy / CHECKPOINT).unlink()
    os.mkfifo(copy / CHECKPOINT)
    refused(copy)
