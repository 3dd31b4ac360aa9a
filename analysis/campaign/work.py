"""Inputs and outputs of the steps of an analysis, with the errors about missing data or models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import UnsupportedError
from stability.storage.artifacts import artifact
from stability.storage.writing import write_text

from ..attacks.padding import own_steps_of
from ..attacks.units import deviations
from ..results import plain_value
from ..tasks import Range, Task
from ..tasks.ranges import width
from ..tasks.scores import IGNORED
from ..unroll import flat_state, layer_inputs, only_layer
from .budgets import AnalysisSettings, Budget
from .fitting import answers_of

MOST_STATES = 1024
"""Most entries of a state whose Jacobians are computed for a report: some minutes on one core for each step."""
NO_DATA = (
    "no data are known for this model: name a task with --task, or data of your own with --data FILE.npz, "
    "x (n, time, features) and y (n,)"
)
NO_NETWORK = "no network to run was given: name a run directory, a file of this toolkit or package.module:factory"


class NoDataError(UnsupportedError):
    """Error of a step that needs data when no data are known."""


@dataclass
class Work:
    """Model, data and settings of an analysis, and the files of the current step.

    Attributes:
        folder: folder of the files.
        subject: argument of ``certify``: module or system, for LSTM and GRU with an input box.
        model: the module, or ``None``.
        task: data of the analysis, or ``None``.
        settings: budget, seed and further settings.
        input_box: box of the inputs that the claims cover: the stated one, or the range of the data.
        input_range: range of the certified part's inputs on the data; ``None`` if unknown.
        certificate: the outcome of the first step.
        step: name of the current step.
        written: names of the files that the current step has written.
        notes: sentences to show with the results of the current step.
        digest: SHA-256 of the file of the model's weights, or of the model if there is no such file.
    """

    folder: Path
    subject: Any
    model: nn.Module | None
    task: Task | None
    settings: AnalysisSettings
    input_box: Range | None = None
    input_range: Range | None = None
    certificate: Certificate | None = None
    step: str = ""
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    digest: str = ""

    @property
    def budget(self) -> Budget:
        """Amount of work."""
        return self.settings.budget

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return self.settings.seed

    def answers(self, size: int) -> tuple[nn.Module, Tensor, Tensor, Range]:
        """Return model, test sequences, classes and input bounds of a classification task.

        Returns:
            The classes are ``(n,)``, or ``(n, time)`` with ``IGNORED`` at steps that are not scored.

        Raises:
            UnsupportedError: no model, no data, or a regression task.
        """
        _, task = self.with_data()
        if task.kind == "values":
            raise UnsupportedError(f"needs classes, and task {task.name} has real targets")
        model, _, x, y, bounds = self.disturbed(size)
        return model, x, (y if task.scored is None else y.masked_fill(~task.scored.to(y.device), IGNORED)), bounds

    def disturbed(self, size: int) -> tuple[nn.Module, Task, Tensor, Tensor, Range]:
        """Return model, task, test sequences, targets and the bounds of the inputs.

        Raises:
            UnsupportedError: no model or no data.
        """
        model, task = self.with_answers()
        x, y = task.test
        bounds = task.bounds or (float(x.min()), float(x.max()))
        return model, task, x[:size], y[:size], bounds

    @property
    def own_data(self) -> bool:
        """Return True if the data are a user's own."""
        return self.task is not None and self.task.data.get("source") == "arrays"

    def span(self, bounds: Range) -> float:
        """Return the unit of the budget's sizes, in ``deviations``: the width of the bounds, or 1."""
        return 1.0 if self.own_data else width(bounds)

    @property
    def deviations(self) -> Tensor:
        """Return the unit of perturbations of each feature: its standard deviation in user data, 1 in other data."""
        model, task = self.with_data()
        x, y = task.train
        return deviations(model, x, task.own_steps(y)) if self.own_data else torch.ones(x.shape[2]).to(x)

    def whole_sequences(self, size: int) -> tuple[nn.Module, Tensor]:
        """Return the model and test sequences without padding: the longest, cut to the shortest of these.

        Raises:
            UnsupportedError: no model or no data.
        """
        model, task = self.with_data()
        x, real_steps = task.test[0], task.own_steps(task.test[1])
        real_steps = own_steps_of(model, x) if real_steps is None else real_steps
        if real_steps is None:
            return model, x[:size]
        lengths = real_steps.sum(1)
        rows = lengths.argsort(descending=True, stable=True)[:size]
        return model, x[rows, : int(lengths[rows].min())]

    def sequences_for_jacobians(self, size: int) -> tuple[nn.Module, Tensor]:
        """Return ``whole_sequences`` of a model whose state has at most ``MOST_STATES`` entries.

        Raises:
            UnsupportedError: no model or no data, or a larger state.
        """
        model, x = self.whole_sequences(size)
        states = flat_state(only_layer(model).begin(layer_inputs(model, x[:1]))[1]).shape[1]
        if states > MOST_STATES:
            raise UnsupportedError(f"needs Jacobians of {states} entries of the state: a report takes {MOST_STATES}")
        return model, x

    def with_answers(self) -> tuple[nn.Module, Task]:
        """Return model and task, after a check that the outputs can be compared with the targets.

        Raises:
            UnsupportedError: no model or no data, or outputs that are no tensor.
            DimensionError: outputs whose shape does not fit the targets.
        """
        model, task = self.with_data()
        answers_of(model, task)
        return model, task

    def with_data(self) -> tuple[nn.Module, Task]:
        """Return model and task.

        Raises:
            NoDataError: no data are known; it is an ``UnsupportedError``.
            UnsupportedError: no model.
        """
        if self.model is None:
            raise UnsupportedError(NO_NETWORK)
        if self.task is None:
            raise NoDataError(NO_DATA)
        return self.model, self.task

    def begin(self, step: str) -> None:
        """Begin a step: files written from now on are its results."""
        self.step, self.written, self.notes = step, [], []

    def file(self, name: str) -> Path:
        """Return the path of a file of this step and record it as written."""
        assert artifact(name).step == self.step, f"{name} is no file of the step {self.step}"
        self.written.append(name)
        return self.folder / name

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table with the columns of its description, atomically."""
        described = list(artifact(name).columns)
        assert list(frame.columns) == described, f"{name} has the columns {list(frame.columns)}, not {described}"
        write_text(self.file(name), frame.to_csv(index=False))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a document with the fields of its description, atomically."""
        unknown = sorted(set(value) - set(artifact(name).fields))
        assert not unknown, f"{name} has fields that nothing describes: {unknown}"
        write_text(self.file(name), json.dumps(plain_value(dict(value)), indent=1, allow_nan=False) + "\n")

    def write_result(self, name: str, result: Any, **more: Any) -> None:
        """Write the document of a result: the fields of its description, from ``more`` or else from the result."""
        document = dict.fromkeys(artifact(name).fields) | more
        self.write_json(name, {f: value if f in more else getattr(result, f) for f, value in document.items()})
