"""Results of training: numbers of an epoch, progress reports, and the final result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..drawn import Curve
from ..results import Record, plain_value


@dataclass(frozen=True)
class Epoch:
    """Numbers of one finished epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        train_loss: mean training loss during the epoch, without the margin penalty.
        train_metric: mean training metric during the epoch.
        test_loss: test loss after the epoch.
        test_metric: test metric after the epoch.
        seconds: training time so far, including the earlier runs that this one continues.
        validation_loss: loss on the held-out part after the epoch, if there is one.
        validation_metric: metric on the held-out part.
    """

    epoch: int
    train_loss: float
    train_metric: float
    test_loss: float
    test_metric: float
    seconds: float
    validation_loss: float | None = None
    validation_metric: float | None = None


@dataclass(frozen=True)
class Progress:
    """Argument of a progress callback, after every batch and after every epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        epochs: total number of epochs.
        batch: number of the batch in it, from 1.
        batches: number of batches in an epoch.
        loss: loss of the batch; after an epoch the mean over it.
        finished: numbers of the epoch that has just ended, ``None`` after a batch.
    """

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    finished: Epoch | None = None


@dataclass(frozen=True)
class TrainResult(Record):
    """Result of a training.

    Attributes:
        epochs: finished epochs.
        kept_epoch: the epoch whose weights the model has now: the last, or with patience the best.
        train_loss: training loss of the kept epoch; this and the next three are ``None`` if no epoch was finished.
        train_metric: training metric of the kept epoch.
        test_loss: test loss of the kept epoch.
        test_metric: test metric of the kept epoch.
        metric: name of the metric.
        chance: its chance level.
        seconds: total time of training in seconds.
        stopped: ``epochs`` (all done), ``certified``, ``patience``, ``time_limit``, ``interrupted`` or ``diverged``.
        detail: one sentence on why it stopped.
        history: numbers of every epoch.
        tracking_seconds: part of ``seconds`` that was spent on spectra.
        out: the run directory, if any.
        parameters: number of trainable scalars (``stability.models.free_parameters``).
    """

    curve = Curve("epoch", ("test_metric", "train_metric", "validation_metric"), words="metric")

    epochs: int
    kept_epoch: int
    train_loss: float | None
    train_metric: float | None
    test_loss: float | None
    test_metric: float | None
    metric: str
    chance: float
    seconds: float
    stopped: str
    detail: str
    history: tuple[Epoch, ...] = field(repr=False)
    tracking_seconds: float = 0.0
    out: str | None = None
    parameters: int = 0

    @property
    def interrupted(self) -> bool:
        """True if a user stopped the training."""
        return self.stopped == "interrupted"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**plain_value(self), "interrupted": self.interrupted}

    def frame(self) -> pd.DataFrame:
        """Return one row per epoch."""
        return pd.DataFrame([vars(e) for e in self.history], columns=list(Epoch.__dataclass_fields__))
