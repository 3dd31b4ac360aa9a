"""Models with the data that they are examined on, as the commands name them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError, DimensionError

from .console import assignments
from .sources import open_model

__all__ = ["Subject", "TaskName", "TaskOptions", "check_device", "classification", "open_with_task"]

TaskName = Annotated[
    str | None,
    typer.Option("--task", help="Task by name; by default the one that the run was trained on.", show_default=False),
]
TaskOptions = Annotated[
    list[str] | None,
    typer.Option("--task-set", help="Option of the task, name=value; may be repeated.", show_default=False),
]


@dataclass(frozen=True)
class Subject:
    """A model and its task (``None`` where no data are known)."""

    name: str
    model: Any
    task: Any


def check_device(name: str) -> Any:
    """The torch device of this name.

    Raises:
        ConfigurationError: when there is none on this machine, or it holds no numbers (``meta``).
    """
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        raise ConfigurationError(f"there is no device {name!r} here ({text}); cpu is always there") from error
    return device


def open_with_task(
    name: str,
    *,
    task: str | None = None,
    options: list[str] | None = None,
    data_dir: Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    required: bool = True,
) -> Subject:
    """Load a model and the data to examine it on.

    Args:
        name: a run directory or a model file.
        task: name of the task; by default that of the run.
        options: the task's options, ``name=value``.
        data_dir: folder with the full data.
        seed: of the task.
        device: where the model goes.
        required: whether a model without known data is an error.

    Returns:
        Model and task.

    Raises:
        ConfigurationError: no data are known, or they do not fit the model.
        FileFormatError: something cannot be read.
    """
    from ..analysis.runs import RUN_FILE, read_run
    from ..analysis.tasks import make_task

    model = open_model(name).to(check_device(device))
    made = None
    if task is not None:
        made = make_task(task, data_dir=data_dir, seed=seed, **assignments("--task-set", options or []))
    elif (Path(name) / RUN_FILE).is_file():
        made = read_run(name).task(data_dir)
    elif required:
        raise ConfigurationError(f"no data are known for {name}: name a task, for example --task digits")
    size = getattr(model, "input_size", None)
    if made is not None and size is not None and size != made.input_size:
        raise DimensionError(f"the input of {name}", f"(..., {made.input_size}) for task {made.name}", f"(..., {size})")
    return Subject(name, model, made)


def classification(subject: Subject, samples: int) -> tuple[Any, Any, tuple[float, float]]:
    """Test sequences, labels and input bounds of a classification task.

    Raises:
        ConfigurationError: when the task has no class label per sequence.
    """
    task = subject.task
    if task.kind != "classes" or task.reduction != "last":
        raise ConfigurationError(
            f"task {task.name} has no class label per sequence; accuracy needs one (task digits has)"
        )
    device = next(subject.model.parameters()).device
    x, y = (part[:samples].to(device) for part in task.test)
    return x, y, task.bounds or (float(x.min()), float(x.max()))
