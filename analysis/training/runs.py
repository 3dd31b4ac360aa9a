"""Run directories: files of a training, written atomically and read by all other commands.

Files: ``run.json`` (settings, data and result), ``model.safetensors``, ``metrics.csv`` (one row per epoch),
``spectra.csv`` and ``eigenvalues.csv`` (from the tracker), ``checkpoint.pt`` (state for resuming). Each file is written
to a temporary name and renamed, so that it is always complete.
"""

from __future__ import annotations

import inspect
import io
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
from stability.storage.documents import read_json
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.writing import write_bytes, write_text
from stability.user_code import ALLOW, error_text, may_run, names_code, remember_code

from ...models.factories import factory_of, layer_code
from ...models.files import describe, save, write_tensors
from ...models.sources import load_module, without_network
from ..results import named_path
from ..tables import read_csv
from ..tasks import TASKS, Task, make_task
from ..tasks.base import reads_data
from .planned import DEFAULTS

FORMAT = "stability-run"
VERSION = 1
RUN_FILE = "run.json"
CHECKPOINT = "checkpoint.pt"
ALL_COLUMNS = tuple(artifact("metrics.csv").columns)
METRIC_COLUMNS = tuple(name for name in ALL_COLUMNS if not name.startswith("validation"))
RUN_FILES = files_of_steps("training")
"""Files that training writes."""
TRAINING, ANALYSIS = "train", "analysis"  # who makes a file, in the folder's list
FIELDS = ("model", "task", "training", "result", "environment")
STATE = {"model", "best", "optimizer", "settings", "task", "history", "bad", "started", "tracker"}
"""Keys of a checkpoint."""


@dataclass(frozen=True, eq=False)
class Run:
    """Run directory that was read.

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
        """Load the trained model on the CPU.

        Raises:
            FileFormatError: missing or damaged weights.
            NonFiniteError: weights that are not finite.
        """
        model = load_module(self.path)
        if model is None:
            raise FileFormatError(f"{self.path} holds no network: {without_network(self.path)}")
        return model

    @property
    def reads_data(self) -> bool:
        """Return True if its task reads a data folder, see ``stability.analysis.tasks.base``."""
        return reads_data(str(self.document["task"].get("name")))

    def task(self, data_dir: str | Path | None = None, file: str | Path | None = None) -> Task:
        """Make the task of its training again.

        Args:
            data_dir: present folder of the data; by default the recorded one.
            file: present path of the user's ``.npz`` file; it must be the same file.

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
            source = str(options.get("file", ""))
            if file is None and names_code(source) and not Path(source).exists() and not may_run(source):
                raise FileFormatError(
                    f"{self.path} has its data from {source!a}, code that is not below this folder, or not "
                    f"as you ran it: name the data with --data, or read the code first and set {ALLOW}=1"
                )
            if file is not None:
                if spec["name"] != "data":
                    raise ConfigurationError(f"it was trained on the task {spec['name']}, not on a file")
                options["file"] = str(file)
            return make_task(spec["name"], data_dir=folder, seed=data.get("seed") or 0, **options)
        except (ConfigurationError, TypeError, KeyError, AttributeError) as error:
            raise FileFormatError(f"{self.path / RUN_FILE} describes a task that cannot be loaded: {error}") from error

    def data_options(self) -> list[tuple[str, str]]:
        """Return the options of a command, each with its value, that name the data; without a task's defaults."""
        spec = self.document["task"]
        name, data, options = spec.get("name"), spec.get("data", {}), spec.get("options", {})
        if name == "data":
            return [("--data", str(options.get("file") or data.get("what") or "FILE.npz"))]
        usual = inspect.signature(TASKS[name]).parameters if name in TASKS else {}
        changed = {key: v for key, v in options.items() if key not in usual or usual[key].default != v}
        named = [("--task-set", f"{key}={v if isinstance(v, str) else json.dumps(v)}") for key, v in changed.items()]
        folder = [("--data-dir", str(data["folder"]))] if data.get("folder") else []
        return [("--task", str(name)), *named, *folder]

    def training_options(self) -> list[tuple[str, str]]:
        """Return the options of ``stability train``, each with its value, that were no defaults in this training.

        A network that came trained had epochs before the run, so that the number of these says nothing.
        """
        usual, document = {**DEFAULTS, "seed": 0}, self.document["training"]
        names = ("epochs", "lr", "batch_size", "seed")[self.document["model"].get("layer") is None :]
        return [(f"--{n.replace('_', '-')}", str(document[n])) for n in names if document.get(n, usual[n]) != usual[n]]

    def metrics(self) -> pd.DataFrame:
        """Return one row per epoch.

        Raises:
            FileFormatError: missing or damaged.
        """
        held_out = self.document["training"].get("patience") is not None
        return read_csv(self.path / "metrics.csv", ALL_COLUMNS if held_out else METRIC_COLUMNS)

    def spectra(self) -> pd.DataFrame:
        """Return the long table ``step, epoch, matrix, quantity, value``; empty for an untracked training.

        Raises:
            FileFormatError: damaged.
        """
        return self._tracked("spectra.csv")

    def eigenvalues(self) -> pd.DataFrame:
        """Return the table ``step, epoch, matrix, real, imag``; empty for an untracked training."""
        return self._tracked("eigenvalues.csv")

    def _tracked(self, name: str) -> pd.DataFrame:
        columns = list(artifact(name).columns)
        return read_csv(self.path / name, columns) if (self.path / name).exists() else pd.DataFrame(columns=columns)


def read_run(path: str | Path) -> Run:
    """Read a run directory's ``run.json``.

    Args:
        path: the directory (or the ``run.json`` in it).

    Returns:
        The run; its model and tables are read on demand.

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
    """Lock the folder of a new run for the time of a block.

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
        raise ConfigurationError(f"{path} already holds a run: resume it, choose another folder, or allow overwriting")
    if path.is_dir():
        if not os.access(path, os.W_OK):
            raise FileFormatError(f"cannot write to {path}: permission denied")
        refuse_existing_files(path, RUN_FILES, TRAINING, overwrite)


@contextmanager
def old_run(path: str | Path) -> Iterator[Path]:
    """Lock the folder of a resumed run for the time of a block.

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


def model_description(model: nn.Module) -> dict[str, Any]:
    """Return the description of a model in ``run.json``: enough to build it again, or only its class.

    For a user's network it includes the activation of its ``torch.nn`` RNN, which the weights do not determine.
    """
    try:
        return describe(model)
    except ConfigurationError:
        kinds = {f"rnn_{part.nonlinearity}" for part in model.modules() if isinstance(part, (nn.RNN, nn.RNNCell))}
        cell = {"cell": kinds.pop()} if len(kinds) == 1 else {}
        return {"layer": None, "class": f"{type(model).__module__}.{type(model).__qualname__}", **cell}


def with_code(model: nn.Module) -> dict[str, Any]:
    """Return ``model_description``, with the factory or class that builds the model under ``code``."""
    description = model_description(model)
    code = factory_of(model) if description["layer"] is None else layer_code(model)
    if not code:
        return description
    remember_code(code)
    return {**description, "code": code}


def write_run(
    path: Path, document: Mapping[str, Any], model: nn.Module, weights: Mapping[str, Tensor], metrics: str
) -> None:
    """Write the files of a run that others read; write ``checkpoint.pt`` first, see ``write_checkpoint``.

    Args:
        path: the folder.
        document: all of ``run.json`` but format and version.
        model: the trained model.
        weights: weights of the epoch that is kept, for ``model.safetensors``.
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


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state for resuming in one file: tensors and plain values.

    Raises:
        FileFormatError: when the folder cannot be written to.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_bytes(path / CHECKPOINT, buffer.getvalue())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running code from the file.

    Raises:
        FileFormatError: missing or damaged.
    """
    file, reason = path / CHECKPOINT, "it is no plain file"
    if file.is_file():
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            if isinstance(state, dict) and state.keys() == STATE:
                return state
            reason = "it holds no state of a training"
        except Exception as error:  # noqa: BLE001 # damaged archives raise errors of many types
            reason = error_text(error)
    raise FileFormatError(f"cannot resume {path}: {CHECKPOINT} is missing or damaged ({reason})")
