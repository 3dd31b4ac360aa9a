"""The run directory: what training leaves behind, and everything else reads.

``run.json`` (what was done, with what, and what came of it), ``model.safetensors``, ``metrics.csv`` (one line
an epoch), ``spectra.csv`` and ``eigenvalues.csv`` (from the tracker), ``checkpoint.safetensors`` (all that is
needed to go on). Each file is written aside and renamed: whatever happens, it is whole. No pickles.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.artifacts import artifact, files_of_steps
from stability.storage.documents import parse_json, read_json
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.writing import write_text

from ...models.files import describe, load, save, write_tensors
from ...models.readers.safetensors import read_metadata, read_tensors
from ..results import named_path
from ..tables import Mark, check_even, check_single, read_csv, read_prefix
from ..tasks import Task, make_task
from ..tasks.base import reads_data
from .spectra import SPECTRA_COLUMNS

FORMAT = "stability-run"
VERSION = 1
RUN_FILE = "run.json"
CHECKPOINT = "checkpoint.safetensors"
PROBE = "tracker.probe"  # the tensor of a checkpoint that holds the sequences along which Jacobians are taken
ALL_COLUMNS = tuple(artifact("metrics.csv").columns)
METRIC_COLUMNS = tuple(name for name in ALL_COLUMNS if not name.startswith("validation"))
RUN_FILES = files_of_steps("training")
"""Files that training writes."""
TRAINING, ANALYSIS = "train", "analysis"  # who makes a file, in the folder's list
FIELDS = ("model", "task", "training", "result", "environment")


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory that was read.

    Attributes:
        path: the directory.
        document: the content of ``run.json``.
    """

    path: Path
    document: Mapping[str, Any]

    @property
    def result(self) -> Mapping[str, Any]:
        """Losses, metrics, epochs, seconds."""
        return self.document["result"]

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.document["model"].get("layer") or self.document["model"].get("class") or "model")

    def model(self) -> nn.Module:
        """The trained model, on the CPU.

        Raises:
            FileFormatError: missing or damaged weights.
            NonFiniteError: weights that are not finite.
        """
        return load(self.path)

    @property
    def reads_data(self) -> bool:
        """Whether its task reads a folder of data, see ``stability.analysis.tasks.base``."""
        return reads_data(str(self.document["task"].get("name")))

    def task(self, data_dir: str | Path | None = None, file: str | Path | None = None) -> Task:
        """The task that it was trained on, made again.

        Args:
            data_dir: where the data lie now; by default where they lay then.
            file: where the ``.npz`` file of data of one's own lies now; it must be the same file.

        Raises:
            ConfigurationError: a file for a run that was trained on a task by name.
            FileFormatError: data that are gone, or a description that makes no task.
        """
        spec = self.document["task"]
        data = spec.get("data", {})
        try:
            folder = named_path(data.get("folder")) if data_dir is None else data_dir
            options = dict(spec.get("options", {}))
            options |= {"file": named_path(options["file"])} if "file" in options else {}
            if file is not None:
                if spec["name"] != "data":
                    raise ConfigurationError(f"it was trained on the task {spec['name']}, not on a file")
                options["file"] = str(file)
            return make_task(spec["name"], data_dir=folder, seed=data.get("seed") or 0, **options)
        except (ConfigurationError, TypeError, KeyError, AttributeError) as error:
            raise FileFormatError(
                f"{self.path / RUN_FILE} describes no task that can be made again: {error}"
            ) from error

    def metrics(self) -> pd.DataFrame:
        """One row an epoch.

        Raises:
            FileFormatError: missing or damaged.
        """
        held_out = self.document["training"].get("patience") is not None
        return read_csv(self.path / "metrics.csv", ALL_COLUMNS if held_out else METRIC_COLUMNS)

    def spectra(self) -> pd.DataFrame:
        """Long table ``step, epoch, matrix, quantity, value``; empty when training was not tracked.

        Raises:
            FileFormatError: damaged, or with rows that stand twice.
        """
        table = self._tracked("spectra.csv")
        check_single(table, SPECTRA_COLUMNS[:4], self.path / "spectra.csv")
        return table

    def eigenvalues(self) -> pd.DataFrame:
        """Table ``step, epoch, matrix, real, imag``; empty when training was not tracked; refused like spectra."""
        table = self._tracked("eigenvalues.csv")
        check_even(table, self.path / "eigenvalues.csv")
        return table

    def _tracked(self, name: str) -> pd.DataFrame:
        columns = list(artifact(name).columns)
        return read_csv(self.path / name, columns) if (self.path / name).exists() else pd.DataFrame(columns=columns)


def read_run(path: str | Path) -> Run:
    """Read a run directory's ``run.json``.

    Args:
        path: the directory (or the ``run.json`` in it).

    Returns:
        The run; its model and tables are read when asked for.

    Raises:
        FileFormatError: missing, damaged, another format or version.

    Example:
        >>> import tempfile
        >>> from stability.analysis import make_task, train
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> task = make_task("digits", limit=50, test_limit=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = train(SequenceModel(ElmanRNN(task.input_size, 8), 10), task, epochs=1, out=folder)
        ...     run = read_run(folder)
        ...     run.document["task"]["name"], type(run.model().layer).__name__
        ('digits', 'ElmanRNN')
    """
    path = Path(path)
    path = path.parent if path.name == RUN_FILE else path
    document = read_json(path / RUN_FILE)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"{path / RUN_FILE} does not describe a training run of this toolkit")
    if document.get("version") != VERSION:
        raise FileFormatError(
            f"{path / RUN_FILE} has version {document.get('version')!r}; this release reads {VERSION}"
        )
    missing = [name for name in FIELDS if not isinstance(document.get(name), dict)]
    if missing:
        raise FileFormatError(f"{path / RUN_FILE} lacks {', '.join(missing)}")
    return Run(path, document)


@contextmanager
def new_run(path: str | Path, overwrite: bool) -> Iterator[Path]:
    """Own the folder of a new run for the time of a block.

    Args:
        path: the folder.
        overwrite: whether an earlier run in it, and other files of the names that a run has, may be replaced. What
            analyzers found about that run is removed; all other files stay.

    Yields:
        The folder.

    Raises:
        ConfigurationError: when there is an earlier run, or other files, and they may not be replaced.
        FolderInUseError: another process writes there.
        FileFormatError: when the folder cannot be made or written to.
    """
    path = Path(path)
    _check_new(path, overwrite)
    with claim_folder(path, "train") as folder:
        _check_new(path, overwrite)
        folder.reserve(RUN_FILES, TRAINING, overwrite=overwrite)
        folder.remove([*folder.files_made_by(ANALYSIS), *RUN_FILES])
        folder.reserve(RUN_FILES, TRAINING, overwrite=overwrite)
        yield path


def _check_new(path: Path, overwrite: bool) -> None:
    if (path / RUN_FILE).exists() and not overwrite:
        raise ConfigurationError(f"{path} holds a run already: resume it, choose another folder, or allow overwriting")
    if path.is_dir():
        if not os.access(path, os.W_OK):
            raise FileFormatError(f"cannot write to {path}: permission denied")
        refuse_existing_files(path, RUN_FILES, TRAINING, overwrite)


@contextmanager
def old_run(path: str | Path) -> Iterator[Path]:
    """Own the folder of a run that goes on for the time of a block.

    Yields:
        The folder.

    Raises:
        ConfigurationError: a file of another origin has a name that the run needs.
        FolderInUseError: another process writes there.
        FileFormatError: a folder that holds no run, or cannot be written to.
    """
    path = read_run(path).path
    with claim_folder(path, "train --resume") as folder:
        folder.reserve(RUN_FILES, TRAINING, adopt=True)
        yield path


def check_run(path: Path) -> None:
    """Whether training could go on from a folder: ``run.json``, checkpoint and tables are whole and belong together.

    Raises:
        FileFormatError: saying what is damaged.
    """
    read_run(path)
    _, state = read_checkpoint(path)
    for name, mark in read_marks(state, path).items():
        read_prefix(path / name, mark)


def read_marks(state: Mapping[str, Any], path: Path) -> dict[str, Mark]:
    """Return how far the tables were at a checkpoint.

    Raises:
        FileFormatError: a damaged checkpoint.
    """
    try:
        marks = {str(name): Mark(**value) for name, value in state["tables"].items()}
        if all(type(m.size) is int and m.size >= 0 and isinstance(m.digest, str) for m in marks.values()):
            return marks
    except (AttributeError, KeyError, TypeError):
        pass
    raise FileFormatError(f"cannot go on from {path}: the checkpoint does not say how far its tables were")


def model_description(model: nn.Module) -> dict[str, Any]:
    """What ``run.json`` says about a model: enough to build it again, or its class where that cannot be.

    Of a network of one's own the activation of its ``torch.nn`` RNN stands there too, which weights do not tell.
    """
    try:
        return describe(model)
    except ConfigurationError:
        kinds = {f"rnn_{part.nonlinearity}" for part in model.modules() if isinstance(part, (nn.RNN, nn.RNNCell))}
        cell = {"cell": kinds.pop()} if len(kinds) == 1 else {}
        return {"layer": None, "class": f"{type(model).__module__}.{type(model).__qualname__}", **cell}


def write_run(
    path: Path, document: Mapping[str, Any], model: nn.Module, weights: Mapping[str, Tensor], metrics: str
) -> None:
    """Write the files that others read; ``checkpoint.safetensors`` comes first, see ``write_checkpoint``.

    Args:
        path: the folder.
        document: all of ``run.json`` but format and version.
        model: what was trained.
        weights: of the epoch that is kept, for ``model.safetensors``.
        metrics: the text of ``metrics.csv``.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    write_text(path / "metrics.csv", metrics)
    if document["model"]["layer"] is not None:
        save(model, path / "model.safetensors", weights)
    else:
        write_tensors(path / "model.safetensors", weights, {})
    whole = {"format": FORMAT, "version": VERSION, **document}
    write_text(path / RUN_FILE, json.dumps(whole, indent=1, allow_nan=False) + "\n")


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write all that is needed to go on, in one file.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    write_tensors(path / CHECKPOINT, tensors, {"checkpoint": json.dumps(state, allow_nan=False)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``write_checkpoint`` wrote.

    Raises:
        FileFormatError: missing or damaged.
    """
    file = path / CHECKPOINT
    try:
        metadata = read_metadata(file)
        if set(metadata) != {"checkpoint"}:
            raise FileFormatError(f"{file.name} holds no state of a training")
        state = parse_json(metadata["checkpoint"].encode(), file)
        wrong = _misfit(state)
        if wrong:
            raise FileFormatError(f"its {wrong} is not as a training writes it")
        return read_tensors(file), state
    except FileFormatError as error:
        raise FileFormatError(f"cannot go on from {path}: {file.name} is damaged ({error})") from error


def _misfit(state: Any) -> str:
    """The field of a checkpoint's state that is of another type or range; empty where all are as they should be."""
    if not isinstance(state, dict):
        return "state"
    numbers = set(METRIC_COLUMNS)
    held = set(ALL_COLUMNS) - numbers
    history, bad = state.get("history"), state.get("bad")

    def real(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def fits(row: Any, place: int) -> bool:
        if not isinstance(row, dict) or not numbers <= set(row) <= numbers | held:
            return False
        known = all(real(row[k]) for k in numbers) and all(row.get(k) is None or real(row[k]) for k in held)
        return known and row["epoch"] == place and row["seconds"] >= 0

    good = isinstance(history, list) and all(fits(row, place) for place, row in enumerate(history, start=1))
    checks = {
        "history": good,
        "bad": type(bad) is int and good and 0 <= bad <= max(0, len(history) - 1),  # type: ignore[arg-type]
        "steps": type(state.get("steps")) is int and 0 <= state["steps"] < 2**53,
        **{
            name: isinstance(state.get(name), kind)
            for name, kind in (("settings", dict), ("task", dict), ("started", str))
        },
    }
    return next((name for name, is_good in checks.items() if not is_good), "")


def pack_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """A copy of the state of an optimizer as named tensors."""
    packed = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            if value is not None:
                packed[f"optimizer.{index}.{key}"] = torch.as_tensor(value).detach().clone()
    return packed


_STATE = {
    "Adam": {"step", "exp_avg", "exp_avg_sq"},
    "SGD": {"momentum_buffer"},
    "RMSprop": {"step", "square_avg"},
    "AdamW": {"step", "exp_avg", "exp_avg_sq"},
}
"""What each optimizer keeps of a parameter."""


def unpack_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer, freshly made with the same settings, the state that ``pack_optimizer`` took.

    Raises:
        FileFormatError: a tensor of no parameter, or of another shape than its parameter has.
    """
    known = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = (*name.split(".", 2), "", "")[:3]
            if not index.isdecimal() or len(index) > 9 or int(index) >= len(known) or not key:
                raise FileFormatError(f"{name[:60]!a} belongs to no parameter that is trained")
            shape = () if key == "step" else tuple(known[int(index)].shape)
            if tuple(value.shape) != shape or not value.is_floating_point() or not torch.isfinite(value).all():
                raise FileFormatError(f"{name} must hold finite numbers of shape {shape}, it has {tuple(value.shape)}")
            state.setdefault(int(index), {})[key] = value
    wanted = _STATE[type(optimizer).__name__]
    if any(set(entries) != wanted for entries in state.values()):
        raise FileFormatError(f"the state of the optimizer must be {', '.join(sorted(wanted))} for each parameter")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
