"""Options of ``train``, ``attack``, ``noise`` and ``hessian`` for the papers' experiments, each by what it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from stability.analysis.attacks.noise import parameter_noise_sweep
from stability.analysis.attacks.sweep import attack_sweep
from stability.analysis.tasks import TASKS
from stability.analysis.training import front
from stability.analysis.training.presets import PAPERS
from stability.analysis.training.runs import read_run
from stability.analysis.training.settings import Settings
from stability.errors import ConfigurationError, FileFormatError
from stability.models import build
from stability.reports import cli
from stability.reports.cli.options import Compute
from stability.reports.cli.training import ModelOptions, TrainingOptions, plan_of

TINY = [
    "--task", "adding", "--task-set", "steps=5", "--task-set", "train=12", "--task-set", "test=6",
    "--model", "elman", "--hidden", "3", "--track-every", "0",
]  # fmt: skip


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def settings_of(*settings: str) -> Mapping[str, Any]:
    return plan_of(ModelOptions(model="elman", layer_settings=list(settings)), TrainingOptions(), Compute()).training


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that has learned a little of the digits."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    options = "--task digits --task-set size=7 --task-set limit=100 --task-set test_limit=40 --model elman --hidden 12"
    assert (
        cli.run(["train", *options.split(), "--epochs", "8", "--lr", "0.02", "--seed", "1", "-o", str(folder), "-q"])
        == 0
    )
    return folder


def test_the_command_line_gives_the_settings(tmp_path: Path) -> None:
    rarer = "optimizer=rmsprop weight_decay=0.1 milestones=1,2 decay=.5 clip=0 input_noise=.1"
    options = [f"--set={setting}" for setting in rarer.split()] + ["--lr", "0.02", "--epochs", "2", "--seed", "1"]
    assert cli.run(["train", *TINY, *options, "-o", str(tmp_path / "run"), "-q"]) == 0
    training = read_run(tmp_path / "run").document["training"]
    expected = {
        "optimizer": "rmsprop", "weight_decay": 0.1, "milestones": [1, 2], "decay": 0.5, "lr": 0.02,
        "clip": None, "input_noise": 0.1, "epochs": 2, "seed": 1, "batch_size": 64,
    }  # fmt: skip
    assert {name: training[name] for name in expected} == expected


def test_what_is_left_out_has_its_default_and_what_is_said_comes_through() -> None:
    assert settings_of() == {
        "epochs": 10, "lr": 0.003, "batch_size": 64, "optimizer": "adam", "clip": 1.0, "schedule": "steps",
    }  # fmt: skip
    found = settings_of("optimizer=sgd", "momentum=0.5", "schedule=cosine", "warm_up=0.1", "fresh=3")
    assert (found["momentum"], found["warm_up"], found["fresh"]) == (0.5, 0.1, 3)


@pytest.mark.parametrize(
    "settings",
    ["momentum=0.5", "milestones=3 schedule=cosine", "warm_up=0.1", "decay=0.5", "milestones=3,x", "layers=0"],
)
def test_a_setting_without_effect_is_refused(settings: str) -> None:
    with pytest.raises(ConfigurationError):
        settings_of(*settings.split())


def test_a_setting_is_given_once() -> None:
    with pytest.raises(ConfigurationError):
        plan_of(ModelOptions(layer_settings=["lr=0.1"]), TrainingOptions(lr=0.1), Compute())


def test_train_has_few_options() -> None:
    shown = CliRunner().invoke(cli.app, ["train", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    assert len(set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, flags=re.MULTILINE)) - {"--help"}) <= 25
    assert shown.count("\n") <= 60


def test_a_run_goes_on_as_it_began(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--hidden", "3"], ["--seeds", "2"], ["--set", "a=1"]):
        assert cli.run(["train", "--resume", str(run), *option]) == 2
        assert f"leave out {option[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(PAPERS))
def test_a_preset_builds_with_valid_settings(name: str) -> None:
    plan = plan_of(ModelOptions(preset=name), TrainingOptions(), Compute())
    preset = PAPERS[name]
    assert plan.task == (preset.task, dict(preset.options))
    assert plan.task[0] in TASKS
    config = {"input_size": 3, "hidden_size": plan.hidden, **plan.config}
    with torch.device("meta"):
        deep = {"layer": "deep", "config": {**config, "output_size": 4}}
        model = build(deep if plan.model == "deep" else {"layer": plan.model, "config": config, "output_size": 4})
    settings = Settings().changed(**plan.training)
    assert settings.make_optimizer(model).param_groups[0]["lr"] == preset.training["lr"]
    if name.startswith("rotrnn"):
        assert len(model.layers) == 6
        assert {layer.heads for layer in model.layers} == {32}


def test_what_is_said_replaces_what_a_preset_says() -> None:
    said = ModelOptions(
        preset="lipschitz-robustness", task_settings=["limit=7"], layer_settings=["dt=0.5", "optimizer=adam"], hidden=9
    )
    plan = plan_of(said, TrainingOptions(lr=0.5), Compute())
    assert plan.task == ("digits", {"layout": 8, "limit": 7})
    assert (plan.config["dt"], plan.config["beta"], plan.hidden) == (0.5, 0.75, 9)
    assert (plan.training["lr"], plan.training["epochs"]) == (0.5, 100)
    assert "momentum" not in plan.training  # of the preset's SGD
    other = plan_of(
        ModelOptions(preset="lipschitz-robustness", model="elman", task="characters"), TrainingOptions(), Compute()
    )
    assert (other.config, other.task) == ({}, ("characters", {}))


def test_a_preset_trains_a_deep_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = "--set width=4 --set depth=2 --task-set max_length=9 --task-set min_length=3 --task-set train=4"
    less = "--task-set test=4 --hidden 64 --epochs 1 --set fresh=2 --batch-size 3 --seed 1 --track-every 0"
    out = tmp_path / "run"
    answer(capsys, "train", "--preset", "rotrnn-listops", *tiny.split(), *less.split(), "-o", str(out))
    document = read_run(out).document
    assert (document["model"]["layer"], document["model"]["config"]["depth"]) == ("deep", 2)
    assert document["training"]["weight_decay"] == 0.05
    listed = answer(capsys, "train", "--preset", "list")["presets"]
    assert [preset["name"] for preset in listed] == list(PAPERS)
    assert all(preset["source"] for preset in listed)


def test_several_seeds_are_the_single_ones_and_their_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["train", *TINY, "--epochs", "2", "--seed", "1"]
    real, calls = front.train, []

    def cut(*arguments: Any, **options: Any) -> Any:
        calls.append(options["seed"])

        def stop(news: Any) -> None:
            raise KeyboardInterrupt

        return real(*arguments, **options | ({"progress": stop} if options["seed"] == 2 else {}))

    several = [*command, "--seeds", "3", "-o", str(tmp_path / "all")]
    with monkeypatch.context() as patch:
        patch.setattr(front, "train", cut)
        assert cli.run(several) == 130
    assert "1 of 3 trainings are finished" in capsys.readouterr().err
    assert calls == [1, 2]
    found = answer(capsys, *several)
    figures = []
    for seed in (1, 2, 3):
        alone = answer(capsys, *command[:-1], str(seed), "-o", str(tmp_path / f"alone-{seed}"))
        figures.append(alone["test_metric"])
        one, other = (
            folder / "model.safetensors" for folder in (tmp_path / f"alone-{seed}", tmp_path / f"all/seed-{seed}")
        )
        assert one.read_bytes() == other.read_bytes()
    assert [r["test_metric"] for r in found["runs"]] == figures
    values = torch.tensor(figures, dtype=torch.float64)
    half = 4.302653 * float(values.std()) / 3**0.5  # Student's 97.5 % point with 2 degrees of freedom
    summary = found["summary"]["test_metric"]
    assert summary["mean"] == pytest.approx(float(values.mean()))
    assert (summary["least"], summary["largest"], summary["n"]) == (min(figures), max(figures), 3)
    assert summary["high"] == pytest.approx(summary["mean"] + half, rel=1e-5)
    assert summary["low"] == pytest.approx(max(summary["mean"] - half, 0.0), rel=1e-5)
    assert cli.run([*several, "--set", "activation=relu"]) == 2
    assert "holds the run of another model" in capsys.readouterr().err
    single = answer(capsys, *command, "--seeds", "1", "-o", str(tmp_path / "all"))
    assert single["summary"]["test_metric"]["low"] is None


def test_the_step_size_of_an_attack(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = read_run(run)
    x, y = loaded.task().test
    common = {"epsilons": [0.1], "steps": 2, "step_size": 0.001, "bounds": (0.0, 1.0), "seed": 1}
    expected = attack_sweep(loaded.model(), x, y, **common)
    asked = ["attack", str(run), "--epsilons", "0.1", "--steps", "2", "--seed", "1"]
    small, default = answer(capsys, *asked, "--step-size", "0.001"), answer(capsys, *asked)
    assert small["accuracy"] == list(expected.accuracy)
    assert small["accuracy"][0] > default["accuracy"][0] + 0.05
    assert cli.run([*asked, "--attack", "deepfool", "--step-size", "0.1"]) == 2
    assert "deepfool has no option step_size" in capsys.readouterr().err


def test_noise_on_the_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = read_run(run)
    x, y = loaded.task().test
    expected = parameter_noise_sweep(loaded.model(), x, y, levels=[0.0, 0.5], draws=2, seed=1)
    asked = ["noise", str(run), "--levels", "0,0.5", "--draws", "2", "--seed", "1"]
    found = answer(capsys, *asked, "--kind", "parameters")
    assert (found["perturbation"], found["accuracy"]) == ("parameters", list(expected.accuracy))
    assert found["accuracy"] != answer(capsys, *asked, "--kind", "white")["accuracy"]


def test_a_run_on_a_generated_task_beside_a_folder_of_data(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is for the runs that read one: it is an error where none does, and where one model is asked about it."""
    made = tmp_path / "made"
    assert cli.run(["train", *TINY, "--epochs", "1", "-o", str(made), "-q"]) == 0
    for command in (["report", str(made)], ["compare", str(made), str(made)], ["hessian", str(made)]):
        assert cli.run([*command, "--data-dir", str(tmp_path)]) == 2
        assert "--data-dir has no effect" in capsys.readouterr().err
    assert read_run(run).reads_data
    assert not read_run(made).reads_data
    with pytest.raises(FileFormatError):
        read_run(run).task(tmp_path)  # which is empty: the digits are read from there
