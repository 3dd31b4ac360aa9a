"""What the steps of an analysis work on, and what they say where something is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import UnsupportedError
from stability.storage.writing import write_text

from ..results import plain_value
from ..tasks import Range, Task
from .budgets import Budget
from .fitting import answers_of

__all__ = ["NO_DATA", "NoDataError", "Work"]

NO_DATA = (
    "no data are known for this model: name a task with --task, or data of your own with --data FILE.npz, "
    "x (n, time, features) and y (n,)"
)
NO_NETWORK = (
    "no network to run was given, matrices or recurrent weights alone (as state dicts and ONNX files hold them): run "
    "directories, files of this toolkit and package.module:factory give one"
)


class NoDataError(UnsupportedError):
    """A question about data, where none are known."""


@dataclass
class Work:
    """What the steps work on; the certificate is added when it is there.

    Attributes:
        folder: where the files go.
        subject: what ``certify`` gets: the module, or a system; of LSTM and GRU with a box of inputs.
        model: the module, or ``None``.
        task: its data, or ``None``.
        budget: how much.
        seed: of everything random.
        input_box: where the claims are about inputs within it only: as stated, or the range of the data.
        input_range: the range of inputs on the data, of what claims are about; ``None`` where it is not known.
        certificate: the outcome of the first step.
    """

    folder: Path
    subject: Any
    model: nn.Module | None
    task: Task | None
    budget: Budget
    seed: int
    input_box: Range | None = None
    input_range: Range | None = None
    certificate: Certificate | None = None

    def classifier(self, size: int) -> tuple[nn.Module, Tensor, Tensor, Range]:
        """Model, test sequences, labels and bounds of a classification task with one label a sequence.

        Raises:
            UnsupportedError: when the model is none, or comes without data.
        """
        model, task = self.with_data()
        if task.kind != "classes" or task.reduction != "last":
            what = "values, no classes" if task.kind == "values" else "a class at every step"
            raise UnsupportedError(f"needs one class label per sequence; task {task.name} has {what}")
        answers_of(model, task)
        x, y = task.test
        bounds = task.bounds or (float(x.min()), float(x.max()))
        return model, x[:size], y[:size], bounds

    def with_data(self) -> tuple[nn.Module, Task]:
        """Model and task.

        Raises:
            UnsupportedError: when there is no model or no data.
        """
        if self.model is None:
            raise UnsupportedError(NO_NETWORK)
        if self.task is None:
            raise NoDataError(NO_DATA)
        return self.model, self.task

    def layer(self) -> nn.Module:
        """The recurrent layer.

        Raises:
            UnsupportedError: for a bare system.
        """
        if self.model is None:
            raise UnsupportedError(NO_NETWORK)
        return getattr(self.model, "layer", self.model)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write one JSON document, whole or not at all."""
        write_text(self.folder / name, json.dumps(plain_value(dict(value)), indent=1, allow_nan=False) + "\n")

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        """Write one table, whole or not at all."""
        write_text(self.folder / name, frame.to_csv(index=False))
