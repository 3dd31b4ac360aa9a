"""Training: it learns, it is reproducible, it survives whatever stops it, and goes on to the last bit."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import SpectrumTracker, evaluate, make_task, read_run, resume_run, train
from stability.analysis.training.settings import Settings
from stability.errors import ConfigurationError, DimensionError, FileFormatError, NonFiniteError, StabilityError
from stability.models import ElmanRNN, SequenceModel
from stability.storage.folder import claim_folder

from .conftest import equal_weights, new_model, stop_in


class TestLearning:
    def test_regression_and_targets_at_every_step(self):
        pendulum = make_task("pendulum", steps=20, train=100, test=20, target="trajectory")
        result = train(new_model(pendulum), pendulum, epochs=25, lr=1e-2, batch_size=20)
        assert result.test_metric < 0.5 * pendulum.chance
        copying = make_task("copying", delay=1, length=1, symbols=4, train=200, test=50)
        result = train(new_model(copying, ElmanRNN), copying, epochs=30, lr=1e-2, batch_size=20)
        assert result.test_metric > 0.8

    def test_a_cosine_schedule_rises_linearly_then_falls_to_zero(self):
        epochs, batches, warm = 5, 100, 0.04
        settings = Settings(epochs=epochs, lr=2.0, schedule="cosine", warm_up=warm)
        rates = [settings.rate(e, b, batches) / 2 for e in range(1, epochs + 1) for b in range(1, batches + 1)]
        top = rates.index(max(rates))
        assert top == warm * epochs * batches - 1
        assert 0.99 < rates[top] <= 1.0
        assert rates[0] == pytest.approx(1 / (warm * epochs * batches))
        assert rates[: top + 1] == sorted(rates[: top + 1])
        assert rates[top:] == sorted(rates[top:], reverse=True)
        assert rates[250] == pytest.approx(0.5)
        assert 0 < rates[-1] < 1e-4
        assert Settings(schedule="cosine").rate(1, 1, 7) == Settings().lr

    def test_training_follows_the_schedule_batch_by_batch(self):
        """Adam's first step is as long as the learning rate: weights move by its warm-up share."""
        task, moved = make_task("adding", steps=8, train=1, test=4), []
        for share in (0.0, 1.0):  # no warm-up, and one over all ten batches
            model, seen = new_model(task, ElmanRNN), []
            before = model.head.bias.item()
            options = {"fresh": 10, "batch_size": 5, "lr": 0.01, "schedule": "cosine", "warm_up": share}
            train(model, task, epochs=1, progress=lambda _, m=model, s=seen: s.append(m.head.bias.item()), **options)
            moved.append(abs(seen[0] - before))
        assert moved == pytest.approx([0.01, 0.001], rel=1e-2)

    def test_fresh_sequences_are_numbered_through_all_epochs(self):
        task, drawn = make_task("adding", steps=6, train=3, test=4), []

        def sample(n, seed):
            drawn.append((n, seed))
            return task.sample(n, seed)

        result = train(new_model(task), replace(task, sample=sample), epochs=2, fresh=3, batch_size=7, seed=4)
        assert drawn == [(7, 4 * 10**7 + k) for k in range(1, 7)]
        assert result.epochs == 2
        digits = make_task("digits", limit=20, test_limit=10, size=7)
        with pytest.raises(ConfigurationError):
            train(new_model(digits), digits, fresh=2)

    def test_a_plain_torch_module_trains(self, task, tmp_path):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = nn.GRU(14, 8, batch_first=True), nn.Linear(8, 10)

            def forward(self, x):
                return self.head(self.rnn(x)[0][:, -1])

        model = Net()
        result = train(model, task, epochs=1, tracker=SpectrumTracker(model, 5), out=tmp_path / "run")
        assert result.epochs == 1
        document = json.loads((tmp_path / "run" / "run.json").read_text())
        assert document["model"]["layer"] is None
        assert document["model"]["class"].endswith("Net")

    def test_the_learning_rate_falls_at_milestones(self):
        settings = Settings(lr=0.1, milestones=(2, 4), decay=0.5)
        assert [settings.rate(e) for e in range(1, 7)] == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]


class TestDivergence:
    def test_it_stops_with_the_last_finite_epoch(self, task):
        calm = new_model(task, ElmanRNN, activation="relu")
        train(calm, task, epochs=1, lr=1e-3, clip=None)

        wild = new_model(task, ElmanRNN, activation="relu")

        def poison(news):
            if (news.epoch, news.batch, news.finished) == (2, 1, None):
                with torch.no_grad():
                    wild.layer.weight_hh.fill_(1e30)

        result = train(wild, task, epochs=4, lr=1e-3, clip=None, progress=poison)
        assert result.stopped == "diverged"
        assert "epoch 2" in result.detail
        assert result.epochs == 1
        assert equal_weights(calm, wild)


class TestPatience:
    def test_it_keeps_the_best_epoch(self, task, tmp_path):
        model = new_model(task)
        result = train(model, task, epochs=200, lr=3e-2, patience=3, batch_size=20, out=tmp_path)
        assert result.stopped == "patience"
        losses = [e.validation_loss for e in result.history]
        assert result.kept_epoch == int(np.argmin(losses)) + 1
        assert result.epochs == result.kept_epoch + 3
        kept = result.history[result.kept_epoch - 1]
        assert evaluate(model, *task.test, task) == (kept.test_loss, kept.test_metric)
        assert equal_weights(read_run(tmp_path).model(), model)
        assert read_run(tmp_path).metrics().validation_loss.tolist() == losses
        again, more = resume_run(tmp_path)
        assert more.epochs == result.epochs
        assert equal_weights(again, model)

    @pytest.mark.parametrize("interrupted", [False, True])
    def test_a_curve_that_recovers_halfway_is_compared_with_its_best(self, task, tmp_path, monkeypatch, interrupted):
        curve = [3.0, 1.0, 2.5, 2.0, 1.5, 1.0, 0.5]  # 1.0 again is no better; 0.5 would be, but comes too late

        def scripted(model, x, y, task):
            weights.append({name: value.clone() for name, value in model.state_dict().items()})
            held = len(x) != len(task.test[0])
            return (curve[epochs.pop(0)] if held else 9.0), 0.0

        epochs, weights = list(range(len(curve))), []
        monkeypatch.setattr("stability.analysis.training.trainer.evaluate", scripted)
        model = new_model(task)
        options = {"epochs": 7, "patience": 4, "batch_size": 50}
        if interrupted:
            train(model, task, out=tmp_path, progress=stop_in(5, 1), **options)
            model, result = resume_run(tmp_path)
        else:
            result = train(model, task, **options)
        assert (result.stopped, result.epochs, result.kept_epoch) == ("patience", 6, 2)
        kept = weights[2]  # two looks an epoch: on the test set, on the held-out sequences
        assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
        assert not all(torch.equal(weights[4][name], value) for name, value in model.state_dict().items())

    def test_validation_sequences_are_not_trained_on(self, task):
        seen = []

        class Spy(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(196, 10)

            def forward(self, x):
                if self.training and torch.is_grad_enabled():
                    seen.extend(row.numpy().tobytes() for row in x.detach())
                return self.head(x.flatten(1))

        train(Spy(), task, epochs=1, patience=1)
        assert len(seen) == len(set(seen)) == 180


class TestBadInput:
    @pytest.mark.parametrize("options", [
        {"epochs": 0}, {"epochs": 2.5}, {"epochs": True}, {"lr": 0}, {"lr": float("nan")}, {"lr": "fast"},
        {"batch_size": 0}, {"optimizer": "adamw2"}, {"seed": -1}, {"clip": -1.0}, {"momentum": 1.0}, {"patience": 0},
        {"milestones": "12"}, {"milestones": (0,)}, {"time_limit": 0}, {"margin_penalty": -1},
    ])  # fmt: skip
    def test_options(self, task, options):
        with pytest.raises(StabilityError):
            train(new_model(task), task, **{"epochs": 1, **options})

    def test_models(self, task):
        model = new_model(task)
        with torch.no_grad():
            model.layer.bias[0] = math.nan
        with pytest.raises(NonFiniteError):
            train(model, task, epochs=1)
        with pytest.raises(ConfigurationError):
            train("model", task, epochs=1)
        with pytest.raises(DimensionError):
            train(SequenceModel(ElmanRNN(3, 4), 10), task, epochs=1)
        with pytest.raises(DimensionError):
            train(SequenceModel(ElmanRNN(14, 4), 10, "all"), task, epochs=1)
        frozen = new_model(task).requires_grad_(False)
        with pytest.raises(ConfigurationError):
            train(frozen, task, epochs=1)

    def test_folders(self, task, tmp_path):
        train(new_model(task), task, epochs=1, out=tmp_path / "run")
        with claim_folder(tmp_path / "run", "analysis") as folder:
            folder.reserve(["certificate.json"], "analysis")
        for name in ("certificate.json", "noise.csv"):
            (tmp_path / "run" / name).write_text("{}")
        with pytest.raises(ConfigurationError):
            train(new_model(task), task, epochs=1, out=tmp_path / "run")
        train(new_model(task), task, epochs=1, out=tmp_path / "run", overwrite=True)
        assert not (tmp_path / "run" / "certificate.json").exists()  # it was about another model
        assert (tmp_path / "run" / "noise.csv").exists()  # nobody here made it
        (tmp_path / "file").write_text("")
        with pytest.raises(FileFormatError):
            train(new_model(task), task, epochs=1, out=tmp_path / "file" / "run")
        with pytest.raises(ConfigurationError):
            train(new_model(task), task, epochs=1, out=tmp_path / "other", resume=tmp_path / "run")

    def test_resuming_something_else(self, task, tmp_path):
        train(new_model(task), task, epochs=1, out=tmp_path)
        with pytest.raises(ConfigurationError):
            train(new_model(task), task, epochs=2, lr=0.1, resume=tmp_path)
        with pytest.raises(ConfigurationError):
            train(new_model(task, ElmanRNN), task, epochs=2, resume=tmp_path)
        other = make_task("digits", size=14, limit=100, test_limit=60)
        with pytest.raises(ConfigurationError):
            train(new_model(task), other, epochs=2, resume=tmp_path)


class TestEvaluating:
    def test_the_numbers_do_not_depend_on_the_batch(self, task):
        model, (x, y) = new_model(task), task.test
        whole = evaluate(model, x, y, task)
        assert whole == pytest.approx((task.loss(model(x), y).item(), task.score(model(x), y)))
        assert evaluate(model, x, y, task, batch_size=7) == pytest.approx(whole)

    @pytest.mark.parametrize(("change", "error"), [
        ({"x": "numpy"}, ConfigurationError), ({"x": "sparse"}, ConfigurationError),
        ({"x": "meta"}, ConfigurationError), ({"x": "empty"}, DimensionError), ({"y": "empty"}, DimensionError),
        ({"y": "sparse"}, ConfigurationError), ({"y": "float"}, ConfigurationError),
        ({"y": "beyond"}, ConfigurationError), ({"y": "ignored"}, ConfigurationError),
        ({"model": nn.RNN(14, 4, batch_first=True)}, ConfigurationError), ({"task": "digits"}, ConfigurationError),
        ({"model": None}, ConfigurationError), ({"batch_size": 0}, ConfigurationError),
    ])  # fmt: skip
    def test_bad_input(self, task, change, error):
        as_told = {
            "numpy": lambda t: t.numpy(),
            "sparse": lambda t: t.to_sparse(),
            "meta": lambda t: t.to("meta"),
            "empty": lambda t: t[:0],
            "float": lambda t: t.float(),
            "beyond": lambda t: t + 100,
            "ignored": lambda t: torch.full_like(t, -100),
        }
        told = {"model": new_model(task), "x": task.test[0], "y": task.test[1], "task": task}
        for name, value in change.items():
            told[name] = as_told[value](told[name]) if isinstance(value, str) and value in as_told else value
        with pytest.raises(error):
            evaluate(**told)
