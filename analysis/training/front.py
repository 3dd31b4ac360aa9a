"""Training entry points: seeded, tracked, interruptible, and resumable to the last bit.

The order of an epoch's batches depends on ``(seed, epoch)`` alone. After each epoch all files are written atomically.
An interruption restores the model of the last finished epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError, FileFormatError

from ..guard import check_model, check_number
from ..tasks import Task
from ..unroll import recurrent_layers
from .margins import why_no_margin
from .outcome import Progress, TrainResult
from .runs import new_run, old_run, read_checkpoint, read_run
from .settings import Settings
from .spectra import SpectrumTracker
from .trainer import Trainer


def train(
    model: nn.Module,
    task: Task,
    settings: Settings | None = None,
    *,
    tracker: SpectrumTracker | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: str | Path | None = None,
    progress: Callable[[Progress], Any] | None = None,
    time_limit: float | None = None,
    **options: Any,
) -> TrainResult:
    """Train a model on a task, on the device where the model is.

    Args:
        model: called as ``model(x)`` on ``(batch, time, features)``; changed in place.
        task: training data.
        settings: all choices that decide the result, see ``stability.analysis.training.settings``; by default
            ``Settings()``. The weights' initial values are the model's own affair.
        tracker: records spectra along the way; it is attached for the time of training.
        out: a folder for the run's files, see ``stability.analysis.training.runs``.
        overwrite: whether ``out`` may hold an earlier run, or other files of the names that a run has, which are then
            replaced; no other file is touched.
        resume: a run directory to go on from (all else as it was, except ``epochs``): the result is, to the
            last bit, that of training which was never interrupted. Its files are continued, ``out`` stays
            ``None``.
        progress: called after every batch and every epoch; raising ``KeyboardInterrupt`` in it stops the
            training.
        time_limit: seconds after which to stop: before an epoch that would take longer, or within one.
        **options: fields of ``Settings`` and of ``Aim`` by name, such as ``epochs=20`` or ``margin_penalty=1.0``.

    Returns:
        The figures. ``stopped`` says why it ended: a training that diverged or was interrupted returns too,
        with the model as it was after the last finished epoch.

    Raises:
        ConfigurationError: bad options, or a run to resume that was made with others.
        FileFormatError: a folder that cannot be written to or read.
        FolderInUseError: another process writes in the folder.
        NonFiniteError: weights or data that are not finite before training starts.
        DimensionError: a model that does not fit the task.
        UnsupportedError: a margin penalty on a model without a contraction gap.

    Example:
        >>> from stability.analysis import make_task
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> task = make_task("digits", limit=100, test_limit=50)
        >>> model = SequenceModel(ElmanRNN(task.input_size, 8), task.output_size)
        >>> result = train(model, task, epochs=2)
        >>> result.epochs, result.history[1].train_loss < result.history[0].train_loss
        (2, True)
    """
    check_model(model)
    settings = (settings or Settings()).changed(**options)
    if time_limit is not None:
        check_number("time_limit", time_limit, strict=True)
    if resume is not None and out is not None and Path(out) != Path(resume):
        raise ConfigurationError("a resumed run continues in its own folder: leave out= out")
    if not isinstance(task, Task):
        hint = ": make_task(name) makes one" if isinstance(task, str) else ""
        raise ConfigurationError(f"task must be a Task, got {type(task).__name__}{hint}")
    if task.data.get("tokens"):
        raise ConfigurationError(
            "the data are tokens, and train needs (batch, time, features): train with an embedding in a loop "
            "of your own, then examine the network with `stability report`"
        )
    trainer = Trainer(model, task, settings, tracker, progress, time_limit)
    if resume is not None:
        with old_run(resume) as folder:
            trainer.resume(folder)
            return trainer.run()
    if out is not None:
        with new_run(out, overwrite) as folder:
            trainer.out = folder
            return trainer.run()
    return trainer.run()


def resume_run(
    path: str | Path,
    *,
    epochs: int | None = None,
    data_dir: str | Path | None = None,
    file: str | Path | None = None,
    progress: Callable[[Progress], Any] | None = None,
    time_limit: float | None = None,
    device: str | torch.device = "cpu",
) -> tuple[nn.Module, TrainResult]:
    """Resume an interrupted (or finished) run from its folder alone.

    Args:
        path: the run directory.
        epochs: total number of epochs; by default that of the first call.
        data_dir: present folder of the data, if they were moved.
        file: present path of the ``.npz`` file that the run began with.
        progress: see ``train``.
        time_limit: see ``train``.
        device: device of the training.

    Returns:
        The model and the result.

    Raises:
        FileFormatError: a folder that holds no run, or a damaged one, or data that are gone.
        ConfigurationError: see ``train``.

    Example:
        >>> import tempfile
        >>> from stability.analysis import make_task
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> task = make_task("digits", limit=50, test_limit=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = train(SequenceModel(ElmanRNN(task.input_size, 8), 10), task, epochs=1, out=folder)
        ...     model, result = resume_run(folder, epochs=2)
        >>> result.epochs
        2
    """
    with old_run(path) as folder:
        run = read_run(folder)
        options = dict(run.document["training"])
        tracked = options.pop("tracker", None)
        model = run.model().to(device)
        tracker = None if tracked is None else _same_tracker(model, tracked, run.path, device)
        if epochs is not None:
            options["epochs"] = epochs
        settings = Settings().changed(**options)
        task = run.task(data_dir, file)
        more: dict[str, Any] = {"tracker": tracker, "progress": progress, "time_limit": time_limit}
        return model, train(model, task, settings, resume=run.path, **more)


def _same_tracker(model: nn.Module, options: Mapping[str, Any], path: Path, device: Any) -> SpectrumTracker:
    """Return a tracker with the options of the run's first tracker."""
    try:
        probe = None if options["probe"] is None else read_checkpoint(path)["tracker"]["probe"].to(device)
        eigenvalues, margins = options["eigenvalues"], list(options["margins"])
        layers = [layer for _, layer in recurrent_layers(model)]
        known = [name for name in margins if any(why_no_margin(name, layer) is None for layer in layers)]
        return SpectrumTracker(model, options["every"], probe=probe, margins=known, eigenvalues=eigenvalues)
    except (AttributeError, KeyError, TypeError) as error:
        raise FileFormatError(f"cannot resume {path}: its tracker is invalid ({error})") from error
