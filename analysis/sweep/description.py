"""Description of a sweep over models, options, tasks, seeds and analyses, in a TOML file or in Python."""

from __future__ import annotations

import inspect
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice
from stability.storage.documents import file_digest

from ..guard import check_int
from ..results import plain_value
from ..tasks import TASKS
from ..tasks.archive import data_options
from ..tasks.base import reads_data
from ..training.planned import DEFAULTS as TRAINING
from ..training.planned import check_layer
from ..training.settings import NAMES, Settings
from .analyses import DEFAULTS, parts_of
from .job import Job, Row, identity

CERTIFICATE = ("criterion", "solver", "rate", "tol", "time_limit", "refute", "criteria", "input_box")
"""Options of ``certify`` that a description may set."""
MODEL_FILES = (".npz", ".safetensors", ".pt", ".onnx")
SETTINGS = tuple(name for name in NAMES if name != "seed")
"""Settings of training that a description may set."""
SIZES = {"hidden": 64, "layers": 1}
"""Default hidden size and number of layers."""
MOST_BYTES = 64 * 2**20
"""Maximum size of a description in bytes."""


@dataclass(frozen=True)
class Sweep:
    """Models, tasks, options and seeds whose combinations are trained, certified and analyzed.

    Attributes:
        models: names of layers, files of models, or mappings with ``model`` and optionally ``name``, ``hidden``,
            ``layers``, ``set`` and settings of training.
        tasks: names of tasks, ``.npz`` files of data, or mappings with ``task``, ``name`` and options.
        seeds: seeds of the trainings; an integer ``n`` means ``0, ..., n - 1``.
        train: ``hidden``, ``layers``, ``set`` (options of the layer) and fields of ``Settings``; a table under the name
            of a model applies to that model.
        task: options of the tasks; a table under the name of a task applies to that task.
        grid: lists of values by name (names of ``train``, ``set.NAME``, ``task.NAME``); all combinations are trained.
        analyses: options of the analyses of every trained network, see ``stability.analysis.sweep.analyses``;
            ``certificate`` has options of ``certify``, or is ``False`` for no certificate.
        data_dir: folder with the full data sets.
        device: ``cpu`` or ``cuda``.
        folder: folder that relative paths start from.

    Example:
        >>> sweep = Sweep(["elman", "gru"], ["adding"], [0, 1], task={"steps": 5})
        >>> [(row.head["model"], row.head["seed"]) for row in sweep.rows()]
        [('elman', 0), ('elman', 1), ('gru', 0), ('gru', 1)]
    """

    models: Sequence[str | Mapping[str, Any]]
    tasks: Sequence[str | Mapping[str, Any]] = ()
    seeds: Sequence[int] | int = (0,)
    train: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    analyses: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    device: str = "cpu"
    folder: str = field(default=".", compare=False)

    def __post_init__(self) -> None:
        seeds = range(check_int("seeds", self.seeds)) if isinstance(self.seeds, int) else self.seeds
        for name, value in (("models", self.models), ("tasks", self.tasks), ("seeds", seeds)):
            if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence) or not (value or name == "tasks"):
                raise ConfigurationError(f"{name} must be a non-empty list, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        for seed in seeds:
            check_int("a seed", seed, 0)
        object.__setattr__(self, "train", _underscored(self.train))
        _known("analyses", self.analyses, ("certificate", *DEFAULTS))
        for name, options in self.analyses.items():
            if name != "certificate":
                _known(f"analyses.{name}", options, DEFAULTS[name])
        if isinstance(self.analyses.get("certificate"), Mapping):
            _known("analyses.certificate", self.analyses["certificate"], CERTIFICATE)

    @classmethod
    def read(cls, path: str | Path) -> Sweep:
        """Read a description from a TOML file.

        Args:
            path: the file; relative paths in it start from its folder.

        Raises:
            FileFormatError: the file is missing or not TOML.
            ConfigurationError: an unknown name or an invalid value.
        """
        document = _toml(Path(path))
        _known(str(path), document, [f.name for f in fields(cls) if f.name != "folder"])
        if "models" not in document:
            raise ConfigurationError(f"{path} names no models: models = ['elman', ...]")
        return cls(**document, folder=str(Path(path).parent))

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the table: models in the outermost loop, then tasks, the grid, and seeds.

        Raises:
            ConfigurationError: an unknown name or an invalid value.
        """
        for model in self.models:
            name, description = self._model(model)
            if "file" in description:
                yield self._file_row(name, description)
                continue
            if not self.tasks:
                raise ConfigurationError("models to train need tasks: add tasks = ['digits', ...]")
            for task in self.tasks:
                task_name, task_description = self._task(task)
                for point in _points(self.grid):
                    prototype = self._training(description, task_description, point)
                    for seed in self._seeds:
                        yield self._row({"model": name, "task": task_name, "seed": seed, **point}, prototype, seed)

    def jobs(self) -> Iterator[Job]:
        """Yield every job, row by row."""
        for row in self.rows():
            yield from (row.job, *row.children)

    @property
    def _seeds(self) -> tuple[int, ...]:
        assert isinstance(self.seeds, tuple)  # converted by __post_init__
        return self.seeds

    def paths(self) -> dict[str, str]:
        """Return the paths of all files by their SHA-256, and of the folder of data by the name ``data_dir``."""
        out = {} if self.data_dir is None else {"data_dir": str(self._path(self.data_dir))}
        for model in self.models:
            description = self._model(model)[1]
            if "file" in description:
                out[description["file"]] = description["path"]
        for task in self.tasks:
            options = self._task(task)[1]
            if "file" in options["options"]:
                out[options["options"]["digest"]] = options["options"]["file"]
        return out

    def _path(self, name: str) -> Path:
        return (Path(self.folder) / name).resolve()

    def _model(self, model: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the name and the options of a model, or the digest and path of a file."""
        description: dict[str, Any] = {"model": model} if isinstance(model, str) else dict(model)
        kind = description.pop("model", None)
        if isinstance(kind, str) and kind.endswith(MODEL_FILES):
            path = self._path(kind)
            _known(f"model {kind}", description, ("name",))
            digest = file_digest(path)
            return description.get("name", path.stem), {"file": digest, "path": str(path)}
        kind = check_layer(kind)
        name = description.pop("name", kind)
        model_options = self.train.get(kind, {}) if isinstance(self.train.get(kind), Mapping) and kind != "set" else {}
        common = {k: v for k, v in self.train.items() if not (isinstance(v, Mapping) and k != "set")}
        whole = {
            **common,
            **model_options,
            **description,
            "set": {**common.get("set", {}), **model_options.get("set", {}), **description.get("set", {})},
        }
        _known(f"train of {name}", whole, (*SETTINGS, *SIZES, "set"))
        return name, {"model": kind, **SIZES, **whole}

    def _task(self, task: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the name and the options of a task."""
        description: dict[str, Any] = {"task": task} if isinstance(task, str) else dict(task)
        kind, name = description.pop("task", None), description.get("name")
        description.pop("name", None)
        if isinstance(kind, str) and kind.endswith(".npz"):
            options = {**data_options(self._path(kind), 0.2), **description}
            return name or Path(kind).stem, {"task": "data", "options": options}
        kind = as_choice("task", kind, TASKS)
        task_options = self.task.get(kind, {}) if isinstance(self.task.get(kind), Mapping) else {}
        common = {k: v for k, v in self.task.items() if not (isinstance(v, Mapping) and k in TASKS)}
        options = {**common, **task_options, **description}
        known = [p for p in inspect.signature(TASKS[kind]).parameters if p not in ("data_dir", "seed")]
        _known(f"task {kind}", options, known)
        return name or kind, {"task": kind, "options": options}

    def _training(self, model: Mapping[str, Any], task: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a training at a point of the grid, without its seed."""
        whole, options = {**model, "set": dict(model["set"])}, dict(task["options"])
        for key, value in point.items():
            prefix, _, inner = key.rpartition(".")
            if key in (*SETTINGS, *SIZES):
                whole[key] = value
            elif prefix in ("set", "task"):
                (whole["set"] if prefix == "set" else options)[inner] = value
            else:
                raise ConfigurationError(f"grid {key}: expected a setting of the training, set.NAME or task.NAME")
        settings = {k: v for k, v in whole.items() if k in SETTINGS}
        Settings().changed(**{**TRAINING, **settings, "clip": settings.get("clip", 1.0) or None})
        certificate = self.analyses.get("certificate", {})
        reads = self.data_dir is not None and reads_data(task["task"])
        training = {
            "model": whole["model"],
            **{key: check_int(key, whole[key]) for key in SIZES},
            "set": whole["set"],
            "task": [task["task"], {k: v for k, v in options.items() if k != "file" or task["task"] != "data"}],
            "train": settings,
            "certificate": None if certificate is False else dict(certificate),
            "device": self.device,
            "data": _folder_digest(self._path(self.data_dir)) if reads and self.data_dir else None,
        }
        return plain_value(training)

    def _row(self, head: Mapping[str, Any], prototype: Mapping[str, Any], seed: int) -> Row:
        training = {**prototype, "seed": seed}
        job = Job("training", training)
        analyses = {}
        for name, chosen in self.analyses.items():
            if name == "certificate":
                continue
            options = plain_value({**DEFAULTS[name], **chosen})
            parts = [
                Job(name, {**options, "training": training, "start": start, "stop": stop}, job.id)
                for start, stop in parts_of(name, options)
            ]
            analyses[name] = options, tuple(parts)
        return Row(head, job, analyses)

    def _file_row(self, name: str, model: Mapping[str, Any]) -> Row:
        certificate = self.analyses.get("certificate", {})
        options = {"file": model["file"], "seed": self._seeds[0], "certificate": dict(certificate or {})}
        job = Job("certificate", options)
        return Row({"model": name, "task": None, "seed": self._seeds[0]}, job)


def _toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileFormatError: the file is missing, too large, or not TOML.
    """
    try:
        with path.open("rb") as handle:
            raw = handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    if len(raw) > MOST_BYTES:
        raise FileFormatError(f"{path} has more than {MOST_BYTES} bytes")
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not valid TOML: {str(error)[:200]}") from error


def _known(what: str, table: Any, allowed: Sequence[str] | Mapping[str, Any]) -> None:
    """Check the names of a table.

    Raises:
        ConfigurationError: an unknown name; the text lists the known ones.
    """
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{what} must be a table of names and values, got {table!r}")
    unknown = next((name for name in table if name not in allowed), None)
    if unknown is not None:
        raise ConfigurationError(f"{what}: unknown name {unknown!r}; the known names are {', '.join(allowed)}")


def _underscored(train: Any) -> Any:
    """Return options of training with names as in Python: hyphens become underscores, except in ``set``."""
    if not isinstance(train, Mapping):
        raise ConfigurationError(f"train must be a table of names and values, got {train!r}")
    return {
        (name if isinstance(value, Mapping) else str(name).replace("-", "_")): (
            _underscored(value) if isinstance(value, Mapping) and name != "set" else value
        )
        for name, value in train.items()
    }


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values of the grid; one empty combination for an empty grid."""
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigurationError(f"grid {name} must be a list of values, got {values!r}")
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values))


def _folder_digest(folder: Path) -> str:
    """Return a digest of the names and sizes of the files in a folder of data; their content is not read."""
    if not folder.is_dir():
        raise FileFormatError(f"there is no folder of data {folder}")
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return identity({str(p.relative_to(folder)): p.stat().st_size for p in files})
