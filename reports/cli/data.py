"""Models with the data that they are examined on, as the commands name them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError

from .console import assignments
from .options import Compute, DataOptions
from .sources import open_model, open_subject

HELD_OUT = 0.2
"""Share of one's own data that training never sees, where the file has no test part of its own."""
OWN = "data of your own with --data FILE.npz, x (n, time, features) and y (n,)"


@dataclass(frozen=True)
class Subject:
    """A model and its task (``None`` where no data are known)."""

    name: str
    model: Any
    task: Any


def check_device(name: str) -> Any:
    """Return the torch device of this name.

    Raises:
        ConfigurationError: when there is none on this machine, or it holds no numbers (``meta``).
    """
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        raise ConfigurationError(f"device {name} is not available ({text}): use --device cpu") from error
    return device


def chosen(
    data: DataOptions, data_dir: Path | None, held_out: float | None = None
) -> tuple[str, dict[str, Any]] | None:
    """Name and options of the task that the command line names; ``None`` where it names none.

    Args:
        data: the task, or the file with data of one's own.
        data_dir: folder with the full data of a task.
        held_out: share of one's own data to be held out for tests where the file has no test part of its own.

    Raises:
        ConfigurationError: options that contradict each other, or would have no effect.
        FileFormatError: a data file that cannot be read.
    """
    if data.file is not None:
        for option, value in (("--task", data.task), ("--task-set", data.settings), ("--data-dir", data_dir)):
            if value:
                raise ConfigurationError(f"--data and {option} exclude each other: leave one of them out")
        from ...analysis.tasks import data_options

        return "data", data_options(data.file, held_out)
    if data.settings and data.task is None:
        raise ConfigurationError("--task-set needs a task: name it with --task")
    from ...analysis.tasks.base import text_options

    named = assignments("--task-set", data.settings or [], texts=text_options(data.task))
    for key in ("seed", "data_dir"):
        if key in named:
            raise ConfigurationError(f"--task-set cannot set {key}: use --{key.replace('_', '-')}")
    return None if data.task is None else (data.task, named)


def check_data_dir(models: Sequence[str], data_dir: Path | None) -> None:
    """Refuse a folder of data from which no run among some models reads its task.

    Raises:
        ConfigurationError: when there is a folder, and no such run.
        FileFormatError: a run that cannot be read.
    """
    from ...analysis.training.runs import RUN_FILE, read_run

    runs = [name for name in models if (Path(name) / RUN_FILE).is_file()]
    if data_dir is not None and not any(read_run(name).reads_data for name in runs):
        raise ConfigurationError("--data-dir has no effect: name the task that reads it with --task")


def open_with_task(
    name: str, data: DataOptions, compute: Compute, *, required: bool = True, answers: bool = True
) -> Subject:
    """Load a model and the data to examine it on.

    Args:
        name: a run directory or a model file.
        data: the data; by default those of the run.
        compute: where full data lie, the task's seed, where the model goes.
        required: whether a model without known data is an error.
        answers: whether what the model puts out matters.

    Returns:
        Model and task. ``--data-dir`` is for the task that reads it: a run on a generated one leaves it to others, see
        ``check_data_dir``, and is refused where it ``required`` its data.

    Raises:
        ConfigurationError: no data are known, or they do not fit the model.
        FileFormatError: something cannot be read.
    """
    data_dir = compute.data_dir
    wanted = chosen(data, data_dir)
    from ...analysis.campaign.fitting import examined_on, joined
    from ...analysis.training.runs import RUN_FILE, read_run

    model = open_model(name).to(check_device(compute.device))
    task = None
    if wanted is not None:
        task = examined_on(wanted, Path(name), None if data_dir is None else str(data_dir), compute.seed)
    elif (Path(name) / RUN_FILE).is_file():
        run = read_run(name)
        if data_dir is not None and required and not run.reads_data:
            raise ConfigurationError(f"--data-dir has no effect: the task of {name} reads no folder")
        task = run.task(data_dir if run.reads_data else None)
    elif data_dir is not None and required:
        raise ConfigurationError(f"--data-dir has no effect on {name}: name the task that reads it with --task")
    elif required:
        raise ConfigurationError(f"no data are known for {name}: name a task, for example --task digits, or {OWN}")
    if task is not None:
        model, task = joined(task, model, name, answers=answers)
    return Subject(name, model, task)


def test_part(subject: Subject, samples: int) -> tuple[Any, Any, Any]:
    """Test sequences, targets and input bounds of a task."""
    task = subject.task
    device = next(subject.model.parameters()).device
    x, y = (part[:samples].to(device) for part in task.test)
    return x, y, task.bounds or (float(x.min()), float(x.max()))


def seen_range(name: str, data: DataOptions) -> Any:
    """Return the range of the inputs that a model's certified part reads, over the data named or those of its run.

    Matrices and recurrent weights without a network around them read the data themselves.

    Args:
        name: the model.
        data: ``DataOptions``.

    Raises:
        ConfigurationError: no data are known, or the part reads none.
        StabilityError: missing or unreadable.
    """
    from ...analysis.campaign.inputs import part_range

    if os.path.isfile(name) and not hasattr(system := open_subject(name), "state_dict"):
        return _range_of_data(system, name, data)
    subject = open_with_task(name, data, Compute())
    span, _ = part_range(subject.model, subject.model, subject.task)
    if span is None:
        raise ConfigurationError(f"the inputs of the certified part of {name} are unknown: use --input-box LOW HIGH")
    return span


def _range_of_data(system: Any, name: str, data: DataOptions) -> Any:
    """Return the range of the data that a system of matrices reads.

    Raises:
        ConfigurationError: no data are named, or tokens.
        DimensionError: data of another number of features.
    """
    from ...analysis.campaign.fitting import check_features, examined_on
    from ...analysis.campaign.inputs import feature_range

    wanted = chosen(data, None)
    if wanted is None:
        raise ConfigurationError(f"no data are known for {name}: name them with --data FILE.npz, or a task with --task")
    if not hasattr(system, "inputs"):
        raise ConfigurationError(f"{name} has no inputs: add the input matrix U to the file")
    task = examined_on(wanted, Path(name), None, 0)
    if task.data.get("tokens"):
        raise ConfigurationError(f"{name} reads real inputs and --data holds tokens: use --input-box LOW HIGH")
    check_features(system, task, name)
    return feature_range(task)
