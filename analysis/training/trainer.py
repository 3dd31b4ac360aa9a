"""Training loop behind ``train``, with the state of the last finished epoch for interruptions."""

from __future__ import annotations

import copy
import math
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, FileFormatError, NonFiniteError, RankError, UnsupportedError

from ...models.counting import free_parameters
from ..environment import environment
from ..results import plain_value
from ..tables import csv_text
from ..tasks import Task, identity
from ..threads import threads_fitting
from .measured import evaluate
from .objectives import Objective
from .outcome import Epoch, Progress, TrainResult
from .penalties import penalties
from .runs import ALL_COLUMNS, METRIC_COLUMNS, read_checkpoint, with_code, write_checkpoint, write_run
from .settings import Aim, Settings
from .spectra import SpectrumTracker
from .stops import Stop, seeded, stopping

UNHELD = "the gain that is asked for cannot be held"
VALIDATION = 0.1  # share of the training sequences held out with ``patience``


@dataclass(frozen=True)
class _Finished:
    """State after the last finished epoch; replaced as a whole, so that no interruption leaves half of it."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    steps: int
    history: tuple[Epoch, ...] = ()
    bad: int = 0
    best: dict[str, Tensor] | None = None

    @property
    def kept(self) -> Epoch | None:
        """Epoch with the best validation loss, or the last."""
        return self.history[-1 - self.bad] if self.history else None

    @property
    def kept_weights(self) -> dict[str, Tensor]:
        return self.weights if self.best is None else self.best


class Trainer:
    """Training run with checked arguments."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: Settings,
        tracker: SpectrumTracker | None,
        progress: Callable[[Progress], Any] | None,
        time_limit: float | None,
    ) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.tracker, self.progress, self.time_limit = tracker, progress, time_limit
        self.out: Path | None = None
        self.optimizer = settings.make_optimizer(model)
        self.device = next(model.parameters()).device
        self.earlier = 0.0
        self.clock = time.perf_counter()
        self.before = 0
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self._split()
        self.objective = Objective(model, task, settings.aim)
        with torch.no_grad():  # a model that does not fit the task is refused before anything is written
            task.loss(model(self.x[:1]), self.y[:1])
        penalties(model, self.x[:1, :2], settings)  # refused here as well
        self.done = self._snapshot((), 0, None)

    def _split(self) -> None:
        x, y = self.task.train
        if not (torch.isfinite(x).all() and torch.isfinite(self.task.test[0]).all()):
            raise NonFiniteError(f"the data of task {self.task.name!r}", "clean them first")
        if self.settings.fresh is not None and self.task.sample is None:
            raise ConfigurationError(f"task {self.task.name!r} is not generated: leave fresh out")
        held = 0
        if self.settings.patience is not None:
            held = max(1, round(VALIDATION * len(x)))
            if held >= len(x):
                raise ConfigurationError(f"{len(x)} training sequences are too few to hold some out for validation")
        rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.settings.seed))
        keep, out = rows[held:].sort().values, rows[:held].sort().values
        self.x, self.y = x[keep].to(self.device), y[keep].to(self.device)
        self.held = (x[out].to(self.device), y[out].to(self.device)) if held else None
        self.test = (self.task.test[0].to(self.device), self.task.test[1].to(self.device))

    def _snapshot(self, history: tuple[Epoch, ...], bad: int, best: dict[str, Tensor] | None) -> _Finished:
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        if self.settings.patience is not None and bad == 0:
            best = weights
        return _Finished(weights, optimizer, 0 if self.tracker is None else self.tracker.step, history, bad, best)

    @property
    def seconds(self) -> float:
        """Time of training so far in seconds, earlier sessions included."""
        return self.earlier + time.perf_counter() - self.clock

    def run(self) -> TrainResult:
        """Train until the last epoch or an early end; the model is then that of the kept epoch."""
        with threads_fitting(self.model):
            return self._run()

    def _run(self) -> TrainResult:
        missed = ", and it is not certified" if self.settings.aim.until_certified else ""
        stopped, detail = "epochs", f"all {self.settings.epochs} epochs are done{missed}"
        try:
            self._open()
            while len(self.done.history) < self.settings.epochs:
                if self.settings.patience is not None and self.done.bad >= self.settings.patience:
                    raise Stop("patience", f"no better validation loss for {self.done.bad} epochs")
                self._check_time(self._pace())
                self._epoch(len(self.done.history) + 1)
                if self.objective.is_reached():
                    raise Stop("certified", f"certified after {len(self.done.history)} epochs")
        except KeyboardInterrupt:
            stopped, detail = "interrupted", f"interrupted during epoch {len(self.done.history) + 1}"
        except Stop as stop:
            stopped, detail = stop.stopped, stop.detail
        finally:
            if self.tracker is not None:
                self.tracker.detach()
        if self.tracker is not None:
            self.tracker.rewind(self.done.steps)
        self._save(stopped, detail)
        if self.tracker is not None:  # after the checkpoint: a resumed run goes on from the tables without this record
            self.model.load_state_dict(self.done.weights)
            self.tracker.record(epoch=len(self.done.history))
        self.model.load_state_dict(self.done.kept_weights)
        return self._result(stopped, detail)

    def _open(self) -> None:
        self._save("interrupted", "training is going on, or its process has died")
        if self.tracker is not None:
            self.tracker.epoch = len(self.done.history)
            self.tracker.attach(self.optimizer)

    def _pace(self) -> float:
        """Return the expected time of the next epoch in seconds, from the epochs of this session."""
        epochs = len(self.done.history) - self.before
        return (time.perf_counter() - self.clock) / epochs if epochs else 0.0

    def _check_time(self, expected: float = 0.0) -> None:
        if self.time_limit is not None and time.perf_counter() - self.clock + expected > self.time_limit:
            raise Stop("time_limit", f"the time limit of {self.time_limit:g} s is reached")

    def _epoch(self, epoch: int) -> None:
        settings, model = self.settings, self.model
        if self.tracker is not None:
            self.tracker.epoch = epoch
        seed = settings.seed * 1_000_003 + epoch
        batches = settings.fresh or -(-len(self.x) // settings.batch_size)
        loss_sum = score_sum = count = 0.0
        model.train()
        with stopping(UNHELD, NonFiniteError, UnsupportedError):
            self.objective.before_epoch()
        with seeded(seed, self.device):
            for index, (x, y) in enumerate(self._batches(epoch, seed), start=1):
                self._check_time()
                factor = settings.factor(epoch, index, batches)
                for group in self.optimizer.param_groups:
                    group["lr"] = settings.lr * factor
                number = f"epoch {epoch}, batch {index}"
                if settings.fresh is not None:  # no pass over data: batches are numbered through
                    number = f"iteration {(epoch - 1) * batches + index}"
                loss, outputs = self._step(x, y, f"in {number}")
                weight = self.task.weight(y)
                loss_sum += loss * weight
                score_sum += self.task.score(outputs, y) * weight
                count += weight
                self._tell(Progress(epoch, settings.epochs, index, batches, loss))
        with stopping(UNHELD, NonFiniteError, UnsupportedError):
            self.objective.after_epoch()
        test = evaluate(model, *self.test, self.task)
        held = (None, None) if self.held is None else evaluate(model, *self.held, self.task)
        if not all(math.isfinite(v) for v in (*test, *held) if v is not None):
            raise Stop("diverged", f"the loss on unseen sequences is not finite after epoch {epoch}")
        metric = self.task.reported(score_sum / count)
        record = Epoch(epoch, loss_sum / count, metric, *test, self.seconds, *held)
        self._finish(record)
        self._tell(Progress(epoch, settings.epochs, batches, batches, record.train_loss, record))

    def _batches(self, epoch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training sequences in the epoch's order, or fresh ones, numbered through all epochs."""
        size, fresh = self.settings.batch_size, self.settings.fresh
        if fresh is None:
            order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(seed))
            for rows in order.to(self.device).split(size):
                yield self.x[rows], self.y[rows]
            return
        assert self.task.sample is not None
        for number in range((epoch - 1) * fresh + 1, epoch * fresh + 1):
            x, y = self.task.sample(size, self.settings.seed * 10**7 + number)
            yield x.to(self.device), y.to(self.device)

    def _step(self, x: Tensor, y: Tensor, where: str) -> tuple[float, Tensor]:
        settings = self.settings
        self.optimizer.zero_grad(set_to_none=True)
        x = self.objective.inputs(x, y)
        outputs = self.model(x)
        loss = self.objective.loss(outputs, y)
        value = float(loss.detach())
        advice = f"{where}; try a smaller learning rate, or clip the gradient"
        if not math.isfinite(value):
            raise Stop("diverged", f"the loss became {value} {advice}")
        with stopping(f"what is added to the loss has no gradient {where}", NonFiniteError, RankError):
            loss = loss + penalties(self.model, x, settings)
        loss.backward()
        limit = math.inf if settings.clip is None else settings.clip
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if not math.isfinite(norm):
            raise Stop("diverged", f"the norm of the gradient became {norm} {advice}")
        self.optimizer.step()
        self.objective.after_step()
        return value, outputs.detach()

    def _finish(self, record: Epoch) -> None:
        done = self.done
        earlier = [e.validation_loss for e in done.history if e.validation_loss is not None]
        worse = bool(earlier) and record.validation_loss is not None and record.validation_loss >= min(earlier)
        self.done = self._snapshot((*done.history, record), done.bad + 1 if worse else 0, done.best)
        if len(self.done.history) < self.settings.epochs:
            self._save("interrupted", "training is going on, or its process has died")

    def _tell(self, news: Progress) -> None:
        if self.progress is not None:
            self.progress(news)

    def _result(self, stopped: str, detail: str) -> TrainResult:
        best_epoch = self.done.kept
        figures = {
            name: getattr(best_epoch, name, None) for name in ("train_loss", "train_metric", "test_loss", "test_metric")
        }
        return TrainResult(
            epochs=len(self.done.history),
            kept_epoch=0 if best_epoch is None else best_epoch.epoch,
            **figures,
            metric=self.task.metric_name,
            chance=self.task.chance,
            seconds=self.seconds,
            stopped=stopped,
            detail=detail,
            history=self.done.history,
            tracking_seconds=0.0 if self.tracker is None else self.tracker.seconds,
            out=None if self.out is None else str(self.out),
            parameters=free_parameters(self.model),
        )

    def _save(self, stopped: str, detail: str) -> None:
        """Write all files, the checkpoint first, since it determines the others."""
        if self.out is None:
            return
        done = self.done
        state = {
            "model": done.weights,
            "best": done.best,
            "optimizer": done.optimizer,
            "settings": plain_value(self.settings.to_dict()),
            "task": self._identity(),
            "history": [vars(e) for e in done.history],
            "bad": done.bad,
            "started": self.started,
            "tracker": None if self.tracker is None else self.tracker.state(),
        }
        write_checkpoint(self.out, state)
        if self.tracker is not None:
            self.tracker.write_to(self.out)
        columns = METRIC_COLUMNS if self.held is None else ALL_COLUMNS
        metrics = csv_text(columns, [[getattr(e, name) for name in columns] for e in done.history])
        write_run(self.out, plain_value(self._document(stopped, detail)), self.model, done.kept_weights, metrics)

    def _document(self, stopped: str, detail: str) -> dict[str, Any]:
        """Return the content of ``run.json``."""
        result = self._result(stopped, detail).to_dict()
        del result["history"]
        training: dict[str, Any] = self.settings.to_dict()
        if self.tracker is not None:
            training["tracker"] = self.tracker.options()
        document: dict[str, Any] = {
            "kind": "train",
            "model": with_code(self.model),
            "task": self.task.describe(),
            "training": training,
            "result": result,
            "environment": environment(self.settings.seed, self.device, self.started),
        }
        if stopped in ("interrupted", "time_limit"):
            document["continue"] = {
                "finished_epochs": len(self.done.history),
                "of": self.settings.epochs,
                "command": f"stability train --resume {shlex.quote(str(self.out))}",
                "python": f"stability.analysis.resume_run({str(self.out)!r})",
            }
        return document

    def _identity(self) -> dict[str, Any]:
        described = self.task.describe()
        seed = described.pop("data").get("seed")
        options = identity((self.task.name, described["options"]))[1]
        return plain_value({**described, "options": options, "seed": seed})

    def resume(self, path: Path) -> None:
        """Resume from the checkpoint of a run.

        Raises:
            FileFormatError: a missing or damaged checkpoint.
            ConfigurationError: one of other settings, another task or another model.
        """
        state = read_checkpoint(path)
        for name, now, then in (
            ("settings", {**asdict(Aim()), **self.settings.to_dict()}, {**asdict(Aim()), **state["settings"]}),
            ("task", self._identity(), state["task"]),
        ):
            free = () if self.settings.schedule == "cosine" else ("epochs",)  # that one looks to the end
            changed = [key for key in now if key not in free and plain_value(now[key]) != then.get(key)]
            if changed:
                values = ", ".join(f"{key} was {then.get(key)!r} and is {now[key]!r}" for key in changed)
                raise ConfigurationError(f"{path} cannot be resumed with another {name}: {values}")
        shapes = {name: value.shape for name, value in self.model.state_dict().items()}
        best = state["best"] and {name: value.to(self.device) for name, value in state["best"].items()}
        if any({n: v.shape for n, v in held.items()} != shapes for held in (state["model"], best or state["model"])):
            raise ConfigurationError(f"{path} holds another model: names or shapes of its weights differ")
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            history = tuple(Epoch(**record) for record in state["history"])
            if self.tracker is not None:
                self.tracker.load_state(state["tracker"])
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise FileFormatError(f"cannot resume {path}: its checkpoint is damaged ({error})") from error
        self.started, self.out, self.before = state["started"], path, len(history)
        self.earlier = history[-1].seconds if history else 0.0
        self.done = self._snapshot(history, state["bad"], best)
