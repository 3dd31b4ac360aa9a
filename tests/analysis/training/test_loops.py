"""Trackers in other people's loops and logs; those of real libraries run where they are installed."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stability.analysis import SpectrumTracker, lightning_callback, transformers_callback
from stability.analysis.training.logs import as_log
from stability.errors import ConfigurationError

RADIUS = "stability/weight_hh_l0/spectral_radius"


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 5, 2, generator=generator)
    return TensorDataset(x, (x.sum((1, 2)) > 0).long())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.RNN(2, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def radius(net: Net) -> float:
    return float(torch.linalg.eigvals(net.rnn.weight_hh_l0.detach().double()).abs().max())


def trained(net: Net, tracker: SpectrumTracker, steps: int = 5) -> dict[int, float]:
    """A plain loop; the spectral radius after every step, by torch."""
    optimizer, seen = torch.optim.SGD(net.parameters(), lr=0.5), {0: radius(net)}
    x, y = data().tensors
    with tracker.attach(optimizer):
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            seen[step] = radius(net)
    return seen


def test_a_plain_loop_in_a_context_logs_every_record_and_the_last_state() -> None:
    net, kept = Net(), {}
    tracker = SpectrumTracker(net, every=2, log=lambda numbers, step: kept.update({step: dict(numbers)}))
    seen = trained(net, tracker)
    assert sorted(kept) == [0, 2, 4, 5]
    assert {step: numbers[RADIUS] for step, numbers in kept.items()} == pytest.approx({k: seen[k] for k in kept})
    frame = tracker.frame()
    row = frame[(frame.step == 4) & (frame.quantity == "sigma_max")]
    assert kept[4]["stability/weight_hh_l0/sigma_max"] == float(row.value.iloc[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.step()
    assert tracker.step == 5  # it rides on none any more


def test_verdicts_are_logged_beside_the_spectra_and_the_mode_is_put_back() -> None:
    net, kept = Net().train(), {}
    tracker = SpectrumTracker(
        net, every=1, verdict_every=2, log=lambda numbers, step: kept.update({step: dict(numbers)})
    )
    with torch.no_grad():
        net.rnn.weight_hh_l0.copy_(0.5 * torch.eye(4))
    tracker.record(0)
    with torch.no_grad():
        net.rnn.weight_hh_l0.copy_(3 * torch.eye(4))
    tracker.record(1)
    tracker.record(2)
    assert net.training
    assert tracker.verdicts == {0: "certified", 2: "refuted"}
    assert [kept[step].get("stability/verdict") for step in (0, 1, 2)] == [1.0, None, -1.0]
    assert kept[0]["stability/rate"] == pytest.approx(0.5, abs=1e-4)


def test_logs_are_told_apart_by_what_they_can_do() -> None:
    calls: list[Any] = []

    class Board:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append((name, value, step))

    class Metrics:
        def log_metrics(self, numbers: dict[str, float], step: int | None = None) -> None:
            calls.append((numbers, step))

    class Weights:
        def log(self, numbers: dict[str, float], step: int | None = None) -> None:
            calls.append((numbers, step))

    as_log([Board(), Metrics(), Weights()])({"a": 1.0}, 3)
    assert calls == [("a", 1.0, 3), ({"a": 1.0}, 3), ({"a": 1.0}, 3)]
    for wrong in (logging.getLogger("x"), 3, object()):
        with pytest.raises(ConfigurationError, match="log"):
            as_log(wrong)
    with pytest.raises(ConfigurationError, match="verdict_every"):
        SpectrumTracker(Net(), verdict_every=0)


def test_what_diverged_is_not_logged_as_a_number() -> None:
    net, kept = Net(), {}
    with torch.no_grad():
        net.rnn.weight_hh_l0.fill_(math.nan)
    SpectrumTracker(net, log=lambda numbers, step: kept.update(numbers)).record()
    assert not kept


@pytest.mark.filterwarnings("default")  # what Lightning itself warns of is no failure here
def test_lightning_records_by_its_steps_and_writes_to_its_loggers(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.seen = Net(), {}

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            self.seen.setdefault(self.global_step, radius(self.net))
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    from lightning.pytorch.loggers import CSVLogger

    module = Module()
    tracker = SpectrumTracker(module, every=2)
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", logger=CSVLogger(str(tmp_path)), callbacks=[lightning_callback(tracker)],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, accumulate_grad_batches=2,
        log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data(), batch_size=6))
    frame = tracker.frame()
    rows = frame[frame.quantity == "spectral_radius"]
    assert dict(zip(rows.step, rows.epoch)) == {0: 0, 2: 0, 4: 1, 6: 2}
    for step, value in zip(rows.step, rows.value):
        if step in module.seen:
            assert value == pytest.approx(module.seen[step])
    written = next(tmp_path.rglob("metrics.csv")).read_text(encoding="utf-8")
    assert RADIUS in written
    assert str(float(rows.value.iloc[-1]))[:8] in written


def test_hugging_faces_trainer_records_by_its_steps(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.net(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    model = Wrapped()
    x, y = data().tensors
    rows = [{"x": a, "labels": b} for a, b in zip(x, y)]
    kept: dict[int, float] = {}
    tracker = SpectrumTracker(model, every=3, log=lambda numbers, step: kept.update({step: numbers[RADIUS]}))
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=7, per_device_train_batch_size=8, use_cpu=True, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no", learning_rate=0.1,
    )  # fmt: skip
    before = radius(model.net)
    transformers.Trainer(model, options, train_dataset=rows, callbacks=[transformers_callback(tracker)]).train()
    assert sorted(kept) == [0, 3, 6]
    assert kept[0] == pytest.approx(before)
    assert kept[6] != pytest.approx(before)


def test_tensorboard_holds_the_curve(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    net = Net()
    with SummaryWriter(str(tmp_path)) as writer:
        seen = trained(net, SpectrumTracker(net, every=2, log=writer))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    curve = {e.step: e.value for e in events.Scalars(RADIUS)}
    assert curve == pytest.approx({k: seen[k] for k in (0, 2, 4, 5)}, rel=1e-6)


def test_mlflow_holds_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}")
    mlflow.set_experiment("curves")
    net = Net()
    with mlflow.start_run() as run:
        seen = trained(net, SpectrumTracker(net, every=2, log=mlflow))
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, RADIUS)
    assert {m.step: m.value for m in history} == pytest.approx({k: seen[k] for k in (0, 2, 4, 5)})


def test_weights_and_biases_take_the_curve_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="p", dir=str(tmp_path), mode="offline")
    net = Net()
    trained(net, SpectrumTracker(net, every=2, log=run))
    run.log({"end": 1}, step=99)  # a step is written when the next one comes
    last = float(run.summary[RADIUS])
    run.finish()
    assert last == pytest.approx(radius(net))
    assert np.isfinite(last)
    assert list(tmp_path.rglob("*.wandb"))
