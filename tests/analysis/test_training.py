"""Training: it learns, it is reproducible, it survives whatever stops it, and goes on to the last bit."""

from __future__ import annotations

import itertools
import json
import math
import types
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import (
    SpectrumTracker,
    evaluate,
    make_task,
    read_run,
    resume_run,
    train,
)
from stability.analysis.settings import Settings
from stability.errors import (
    ConfigurationError,
    DimensionError,
    FileFormatError,
    NonFiniteError,
    StabilityError,
)
from stability.models import ElmanRNN, LipschitzRNN, SequenceModel


@pytest.fixture(scope="module")
def task():
    return make_task("digits", size=14, limit=200, test_limit=60)


def new_model(task, layer=LipschitzRNN, seed=0, **options):
    torch.manual_seed(seed)
    options = {"dt": 0.2, **options} if layer is LipschitzRNN else options
    return SequenceModel(layer(task.input_size, 12, **options), task.output_size, task.reduction)


def equal_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def stop_in(epoch, batch):
    def progress(news):
        if news.finished is None and (news.epoch, news.batch) == (epoch, batch):
            raise KeyboardInterrupt

    return progress


class TestLearning:
    def test_above_chance_on_images(self, task):
        model = new_model(task)
        result = train(model, task, epochs=12, lr=1e-2, batch_size=25)
        assert result.test_metric > task.chance + 0.3
        assert result.history[-1].train_loss < result.history[0].train_loss
        assert evaluate(model, *task.test, task) == (result.test_loss, result.test_metric)

    def test_regression_and_targets_at_every_step(self):
        pendulum = make_task("pendulum", steps=20, train=100, test=20, target="trajectory")
        result = train(new_model(pendulum), pendulum, epochs=25, lr=1e-2, batch_size=20)
        assert result.test_metric < 0.5 * pendulum.chance
        copying = make_task("copying", delay=1, length=1, symbols=4, train=200, test=50)
        result = train(new_model(copying, ElmanRNN), copying, epochs=30, lr=1e-2, batch_size=20)
        assert result.test_metric > 0.8

    @pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
    def test_each_optimizer_lowers_the_loss(self, task, optimizer):
        lr = {"adam": 1e-2, "sgd": 0.1, "rmsprop": 3e-3}[optimizer]
        result = train(new_model(task), task, epochs=4, lr=lr, batch_size=20, optimizer=optimizer)
        assert result.history[-1].train_loss < 0.97 * result.history[0].train_loss

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


class TestReproducibility:
    def test_same_seed_same_weights_and_the_global_state_is_left_alone(self, task):
        torch.manual_seed(5)
        before = torch.random.get_rng_state()
        a = new_model(task)
        torch.random.set_rng_state(before)
        train(a, task, epochs=2)
        assert torch.equal(torch.random.get_rng_state(), before)
        b, c = new_model(task), new_model(task)
        torch.manual_seed(99)  # whatever the global state, only the seed counts
        train(b, task, epochs=2)
        train(c, task, epochs=2, seed=1)
        assert equal_weights(a, b)
        assert not equal_weights(a, c)

    def test_tracking_and_files_change_nothing(self, task, tmp_path):
        a, b = new_model(task), new_model(task)
        train(a, task, epochs=2)
        train(b, task, epochs=2, tracker=SpectrumTracker(b, 1, probe=task.test[0][:2]), out=tmp_path)
        assert equal_weights(a, b)

    @pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
    @pytest.mark.parametrize("patience", [None, 10])
    def test_interrupted_and_resumed_equals_uninterrupted(self, task, tmp_path, optimizer, patience):
        common = {"epochs": 4, "batch_size": 50, "lr": 5e-3, "optimizer": optimizer, "milestones": (2,)}
        common["patience"] = patience
        whole = new_model(task)
        tracker = SpectrumTracker(whole, 3)
        uninterrupted = train(whole, task, tracker=tracker, out=tmp_path / "whole", **common)

        broken = new_model(task)
        tracker = SpectrumTracker(broken, 3)
        result = train(broken, task, tracker=tracker, out=tmp_path / "broken", progress=stop_in(3, 2), **common)
        assert (result.epochs, result.interrupted, result.stopped) == (2, True, "interrupted")
        model, resumed = resume_run(tmp_path / "broken")
        assert resumed.stopped == uninterrupted.stopped == "epochs"
        assert equal_weights(model, whole)
        for name in ("spectra.csv", "eigenvalues.csv"):
            assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()
        a, b = (read_run(tmp_path / n).metrics().drop(columns="seconds") for n in ("whole", "broken"))
        assert a.equals(b)
        assert (b.epoch == [1, 2, 3, 4]).all()

    def test_a_resumed_run_is_tracked_as_it_was_before(self, task, tmp_path):
        common = {"epochs": 4, "batch_size": 50, "lr": 5e-3}
        options = {"probe": task.test[0][:3], "margins": ("gap", "circle"), "eigenvalues": False}
        whole, broken = new_model(task, ElmanRNN), new_model(task, ElmanRNN)
        train(whole, task, tracker=SpectrumTracker(whole, 3, **options), out=tmp_path / "whole", **common)
        tracker = SpectrumTracker(broken, 3, **options)
        train(broken, task, tracker=tracker, out=tmp_path / "broken", progress=stop_in(2, 2), **common)
        resume_run(tmp_path / "broken", epochs=3)
        resume_run(tmp_path / "broken", epochs=4)
        assert (tmp_path / "whole/spectra.csv").read_bytes() == (tmp_path / "broken/spectra.csv").read_bytes()
        quantities = set(read_run(tmp_path / "broken").spectra()[["matrix", "quantity"]].itertuples(index=False))
        assert {("J@13", "sigma_max"), ("h", "last_norm"), ("margins", "contraction_gap")} <= quantities
        assert not (tmp_path / "broken/eigenvalues.csv").exists()
        said = [json.loads((tmp_path / n / "run.json").read_text())["training"]["tracker"] for n in ("whole", "broken")]
        assert said[0] == said[1]
        assert said[0] == {"every": 3, "margins": ["gap", "circle"], "eigenvalues": False, "probe": [3, 14, 14]}

    def test_a_run_of_an_earlier_release_names_margins_that_were_never_recorded(self, task, tmp_path):
        model = new_model(task, ElmanRNN)
        train(model, task, epochs=1, tracker=SpectrumTracker(model, 3), out=tmp_path)
        run = json.loads((tmp_path / "run.json").read_text())
        run["training"]["tracker"] = {"every": 3, "margins": ["theorem1", "gap"]}
        (tmp_path / "run.json").write_text(json.dumps(run))
        resume_run(tmp_path, epochs=2)
        assert "contraction_gap" in set(read_run(tmp_path).spectra().quantity)

    def test_dropout_resumes_exactly_too(self, task, tmp_path):
        def net():
            torch.manual_seed(0)
            return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(196, 10))

        whole, broken = net(), net()
        train(whole, task, epochs=3)
        train(broken, task, epochs=3, out=tmp_path, progress=stop_in(2, 1))
        fresh = net()
        train(fresh, task, epochs=3, resume=tmp_path)
        assert equal_weights(whole, fresh)
        assert not equal_weights(whole, broken)

    def test_a_finished_run_can_be_made_longer(self, task, tmp_path):
        whole = new_model(task)
        train(whole, task, epochs=3)
        train(new_model(task), task, epochs=1, out=tmp_path)
        model, result = resume_run(tmp_path, epochs=3)
        assert result.epochs == 3
        assert equal_weights(model, whole)


class TestInterruption:
    def test_the_model_is_that_of_the_last_finished_epoch(self, task, tmp_path):
        two = new_model(task)
        train(two, task, epochs=2)
        model = new_model(task)
        result = train(model, task, epochs=5, out=tmp_path, progress=stop_in(3, 2))
        assert equal_weights(model, two)
        assert equal_weights(read_run(tmp_path).model(), two)
        document = json.loads((tmp_path / "run.json").read_text())
        assert document["result"]["interrupted"] is True
        assert document["continue"]["finished_epochs"] == 2
        assert str(tmp_path) in document["continue"]["command"]
        assert result.test_metric == evaluate(two, *task.test, task)[1]

    def test_before_the_first_epoch_is_done(self, task, tmp_path):
        fresh, model = new_model(task), new_model(task)
        result = train(model, task, epochs=5, out=tmp_path, progress=stop_in(1, 2))
        assert (result.epochs, result.test_loss, result.kept_epoch) == (0, None, 0)
        assert equal_weights(model, fresh)
        assert equal_weights(read_run(tmp_path).model(), fresh)
        resumed, result = resume_run(tmp_path, epochs=1)
        train(fresh, task, epochs=1)
        assert equal_weights(resumed, fresh)

    def test_a_process_that_dies_leaves_whole_files(self, task, tmp_path):
        def die(news):
            if news.finished is not None and news.epoch == 2:
                raise OSError("the disk is gone")

        model = new_model(task)
        tracker = SpectrumTracker(model, 2)
        with pytest.raises(OSError, match="gone"):
            train(model, task, epochs=5, batch_size=50, out=tmp_path, tracker=tracker, progress=die)
        with open(tmp_path / "spectra.csv", "a") as file:
            file.write("8,2,A,max_re")  # a line cut off in the middle
        run = read_run(tmp_path)
        assert run.result["interrupted"] is True
        assert len(run.metrics()) == 2
        assert run.spectra().step.max() == 8
        whole = new_model(task)
        train(whole, task, epochs=3, batch_size=50)
        model, _ = resume_run(tmp_path, epochs=3)
        assert equal_weights(model, whole)
        assert not list(tmp_path.glob(".*"))

    def test_time_limit(self, task, tmp_path):
        model, fresh = new_model(task), new_model(task)
        result = train(model, task, epochs=1000, time_limit=1e-6, out=tmp_path)
        assert (result.stopped, result.epochs) == ("time_limit", 0)
        assert equal_weights(model, fresh)

    def test_time_limit_by_the_clock(self, task, monkeypatch):
        """Every look at the clock takes a second here: an epoch that would end too late is not begun."""
        clock = types.SimpleNamespace(perf_counter=partial(next, map(float, itertools.count())))
        monkeypatch.setattr("stability.analysis.trainer.time", clock)
        result = train(new_model(task), task, epochs=10**6, batch_size=100, time_limit=60.0)
        assert result.stopped == "time_limit"
        assert 3 < result.epochs < 60
        assert 40 < result.seconds <= 62
        assert not result.interrupted


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

    def test_a_hopeless_learning_rate_never_returns_nan(self, task):
        model = new_model(task, ElmanRNN, activation="relu")
        result = train(model, task, epochs=50, lr=1e6, clip=None, optimizer="sgd", batch_size=20)
        assert result.stopped == "diverged"
        assert all(torch.isfinite(p).all() for p in model.parameters())


class TestPatience:
    def test_it_keeps_the_best_epoch(self, task, tmp_path):
        model = new_model(task)
        result = train(model, task, epochs=200, lr=3e-2, patience=3, validation=0.3, batch_size=20, out=tmp_path)
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
        monkeypatch.setattr("stability.analysis.trainer.evaluate", scripted)
        model = new_model(task)
        options = {"epochs": 7, "patience": 4, "validation": 0.25, "batch_size": 50}
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

        train(Spy(), task, epochs=1, patience=1, validation=0.25)
        assert len(seen) == len(set(seen)) == 150


class TestEvaluate:
    def test_a_model_that_fails_is_left_in_its_mode(self, task):
        class Failing(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Dropout()
                self.frozen = nn.BatchNorm1d(3).eval()

            def forward(self, x):
                assert not self.training
                assert not self.inner.training
                raise RuntimeError("no memory")

        model = Failing().train()
        model.frozen.eval()
        with pytest.raises(RuntimeError, match="no memory"):
            evaluate(model, *task.test, task)
        assert model.training
        assert model.inner.training
        assert not model.frozen.training


class TestBadInput:
    @pytest.mark.parametrize(
        "options",
        [
            {"epochs": 0},
            {"epochs": 2.5},
            {"epochs": True},
            {"lr": 0},
            {"lr": float("nan")},
            {"lr": "fast"},
            {"batch_size": 0},
            {"optimizer": "adamw2"},
            {"seed": -1},
            {"clip": -1.0},
            {"momentum": 1.0},
            {"validation": 1.0, "patience": 1},
            {"patience": 0},
            {"milestones": "12"},
            {"milestones": (0,)},
            {"time_limit": 0},
            {"margin_penalty": -1},
        ],
    )
    def test_options(self, task, options):
        with pytest.raises(StabilityError):
            train(new_model(task), task, **{"epochs": 1, **options})

    def test_models(self, task):
        model = new_model(task)
        with torch.no_grad():
            model.layer.bias[0] = math.nan
        with pytest.raises(NonFiniteError, match="bias"):
            train(model, task, epochs=1)
        with pytest.raises(ConfigurationError):
            train("model", task, epochs=1)
        with pytest.raises(DimensionError):
            train(SequenceModel(ElmanRNN(3, 4), 10), task, epochs=1)
        with pytest.raises(DimensionError, match="reduction"):
            train(SequenceModel(ElmanRNN(14, 4), 10, "all"), task, epochs=1)
        frozen = new_model(task).requires_grad_(False)
        with pytest.raises(ConfigurationError, match="requires a gradient"):
            train(frozen, task, epochs=1)

    def test_folders(self, task, tmp_path):
        train(new_model(task), task, epochs=1, out=tmp_path / "run")
        (tmp_path / "run" / "certificate.json").write_text("{}")
        with pytest.raises(ConfigurationError, match="a run already"):
            train(new_model(task), task, epochs=1, out=tmp_path / "run")
        train(new_model(task), task, epochs=1, out=tmp_path / "run", overwrite=True)
        assert not (tmp_path / "run" / "certificate.json").exists()  # it was about another model
        (tmp_path / "file").write_text("")
        with pytest.raises(FileFormatError, match="cannot write"):
            train(new_model(task), task, epochs=1, out=tmp_path / "file" / "run")
        with pytest.raises(ConfigurationError, match="own folder"):
            train(new_model(task), task, epochs=1, out=tmp_path / "other", resume=tmp_path / "run")

    def test_resuming_something_else(self, task, tmp_path):
        train(new_model(task), task, epochs=1, out=tmp_path)
        with pytest.raises(ConfigurationError, match=r"lr was 0\.003 and is 0\.1"):
            train(new_model(task), task, epochs=2, lr=0.1, resume=tmp_path)
        with pytest.raises(ConfigurationError, match="another model"):
            train(new_model(task, ElmanRNN), task, epochs=2, resume=tmp_path)
        other = make_task("digits", size=14, limit=100, test_limit=60)
        with pytest.raises(ConfigurationError, match="another task"):
            train(new_model(task), other, epochs=2, resume=tmp_path)
        data = (tmp_path / "checkpoint.safetensors").read_bytes()
        (tmp_path / "checkpoint.safetensors").write_bytes(data[: len(data) // 2])
        with pytest.raises(FileFormatError, match="damaged"):
            resume_run(tmp_path)
        (tmp_path / "checkpoint.safetensors").unlink()
        with pytest.raises(FileFormatError, match="cannot go on"):
            resume_run(tmp_path)
