"""Training again: the same to the last bit with the same seed, and after whatever interrupted it."""

from __future__ import annotations

import itertools
import json
import os
import types
from functools import partial

import pytest
import torch
from torch import nn

from stability.analysis import SpectrumTracker, evaluate, make_task, read_run, resume_run, train
from stability.analysis.training.runs import CHECKPOINT
from stability.errors import ConfigurationError, StabilityError
from stability.models import ElmanRNN

from .conftest import equal_weights, new_model, stop_in


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

    @pytest.mark.parametrize(("optimizer", "patience"), [("adam", None), ("sgd", 10), ("rmsprop", None)])
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

    def test_a_schedule_over_fresh_sequences_goes_on_where_it_was(self, tmp_path):
        task = make_task("adding", steps=6, train=3, test=4)
        options = {"epochs": 3, "fresh": 4, "batch_size": 5, "optimizer": "adamw", "schedule": "cosine", "warm_up": 0.3}
        whole, broken = new_model(task), new_model(task)
        train(whole, task, out=tmp_path / "whole", **options)
        train(broken, task, out=tmp_path / "broken", progress=stop_in(2, 3), **options)
        with pytest.raises(ConfigurationError):  # another end is another schedule
            resume_run(tmp_path / "broken", epochs=5)
        assert equal_weights(resume_run(tmp_path / "broken")[0], whole)

    def test_a_resumed_run_is_tracked_as_it_was_before(self, task, tmp_path):
        common = {"epochs": 4, "batch_size": 50, "lr": 5e-3}
        options = {"probe": task.test[0][:3], "margins": ("gap", "small_gain"), "eigenvalues": False}
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
        assert said[0] == {"every": 3, "margins": ["gap", "small_gain"], "eigenvalues": False, "probe": [3, 14, 14]}

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
                raise TimeoutError

        model = new_model(task)
        tracker = SpectrumTracker(model, 2)
        with pytest.raises(TimeoutError):
            train(model, task, epochs=5, batch_size=50, out=tmp_path, tracker=tracker, progress=die)
        run = read_run(tmp_path)
        assert run.result["interrupted"] is True
        assert len(run.metrics()) == 2
        assert run.spectra().step.max() == 8
        whole = new_model(task)
        train(whole, task, epochs=3, batch_size=50)
        model, _ = resume_run(tmp_path, epochs=3)
        assert equal_weights(model, whole)
        assert [p.name for p in tmp_path.glob(".*")] == [".stability.json"]

    def test_time_limit(self, task, tmp_path):
        model, fresh = new_model(task), new_model(task)
        result = train(model, task, epochs=1000, time_limit=1e-6, out=tmp_path)
        assert (result.stopped, result.epochs) == ("time_limit", 0)
        assert equal_weights(model, fresh)

    def test_time_limit_by_the_clock(self, task, monkeypatch):
        """Every look at the clock takes a second here: an epoch that would end too late is not begun."""
        clock = types.SimpleNamespace(perf_counter=partial(next, map(float, itertools.count())))
        monkeypatch.setattr("stability.analysis.training.trainer.time", clock)
        result = train(new_model(task), task, epochs=10**6, batch_size=100, time_limit=60.0)
        assert result.stopped == "time_limit"
        assert 3 < result.epochs < 60
        assert 40 < result.seconds <= 62
        assert not result.interrupted


def in_document(folder, **fields):
    document = json.loads((folder / "run.json").read_text())
    for name, value in fields.items():
        document["training" if name == "tracker" else "task"][name] = value
    (folder / "run.json").write_text(json.dumps(document))


def in_checkpoint(folder, change):
    state = torch.load(folder / CHECKPOINT, weights_only=True)
    torch.save(change(state), folder / CHECKPOINT)


@pytest.mark.parametrize("edit", [
    *(lambda f, odd=odd: in_document(f, tracker=odd) for odd in ([], "x", {"every": 1}, {"margins": []})),
    lambda f: in_document(f, data={"seed": "x"}),
    *(lambda f, odd=odd: in_checkpoint(f, lambda _: odd) for odd in (5, [], {}, None)),
    lambda f: in_checkpoint(f, lambda s: {k: v for k, v in s.items() if k != "bad"}),
    *(lambda f, k=k: in_checkpoint(f, lambda s: {**s, k: "x"}) for k in ("history", "optimizer", "tracker")),
    lambda f: in_checkpoint(f, lambda s: {**s, "model": {"layer.weight_hh": torch.zeros(2)}}),
    lambda f: (f / CHECKPOINT).write_bytes((f / CHECKPOINT).read_bytes()[:900]),
    lambda f: ((f / CHECKPOINT).unlink(), os.mkfifo(f / CHECKPOINT)),
])  # fmt: skip
def test_edited_or_damaged_runs_are_refused(task, tmp_path, edit):
    model = new_model(task, ElmanRNN)
    train(model, task, epochs=1, batch_size=200, out=tmp_path, tracker=SpectrumTracker(model, every=1, margins=[]))
    edit(tmp_path)
    with pytest.raises(StabilityError):
        resume_run(tmp_path, epochs=2)
