"""Presets: tested networks and training settings, for the report without models and for papers' experiments.

They were tuned on the embedded digits read by rows (28 steps of 28 pixels, 4,000 training images) with 64 hidden units.
Each trains in seconds on one core. ``QUICK`` shortens ``training`` for a quick report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ...models import LAYERS, BoundedGainRNN, build
from ..tasks import Task
from .front import train
from .outcome import TrainResult
from .planned import DEEP, describe_network
from .spectra import SpectrumTracker

COMMON: dict[str, Any] = {"epochs": 12, "lr": 8e-3, "batch_size": 128, "milestones": (9,), "clip": 1.0}
QUICK: dict[str, Any] = {"epochs": 6, "milestones": (5,)}


@dataclass(frozen=True)
class Preset:
    """Network with settings for its training; a paper's experiment also has its task.

    Attributes:
        layer: name of the layer; ``deep`` for a network of blocks.
        config: options of the layer except its sizes.
        training: options of ``train``.
        title: name in reports; of an experiment its paper and place.
        why: purpose of the model in the report.
        hidden: size of the hidden state.
        task: name of the task; empty for presets of the report, which fit any task.
        options: options of the task.
        open: settings that the source of an experiment leaves open, with the values chosen here.
    """

    layer: str
    config: Mapping[str, Any]
    training: Mapping[str, Any]
    title: str
    why: str = ""
    hidden: int = 64
    task: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    open: tuple[str, ...] = ()


def _units(layer: str, title: str, why: str, training: Mapping[str, Any] = COMMON, **config: Any) -> Preset:
    return Preset(layer, config, training, title, why)


DAMPED: dict[str, Any] = {"beta": 0.75, "gamma": [1.0, 0.001], "dt": 0.2}
MINIMAL = {**COMMON, "lr": 1.5e-2}
MARGIN = {**COMMON, "margin_penalty": 1.0, "margin_target": 0.05}
PRESETS: dict[str, Preset] = {
    "lipschitz": _units(
        "lipschitz",
        "Lipschitz RNN",
        "the paper's layer with the authors' beta and gamma: training leaves its region of stability",
        **{**DAMPED, "gamma": 0.001},
    ),
    "lipschitz_damped": _units(
        "lipschitz",
        "Lipschitz RNN, damped",
        "with a damping of 1 on A its linear part stays stable: bounded, which is not yet contracting",
        **DAMPED,
    ),
    "lipschitz_margin": _units(
        "lipschitz",
        "Lipschitz RNN, margin penalty",
        "the damped layer, trained with a penalty on a negative contraction gap",
        MARGIN,
        **DAMPED,
    ),
    "contracting": _units(
        "contracting", "Contracting RNN", "contracting for every value of its parameters, with its proof", rate=0.98
    ),
    "bounded_gain": _units(
        "bounded_gain",
        "Bounded-gain RNN",
        "inputs move its states by no more than their own norm, for every value of its parameters",
        {"epochs": 12, "clip": 1.0, **BoundedGainRNN.training_defaults, "lr": 1e-2, "batch_size": 128},
    ),
    "neural_ode": _units(
        "neural_ode", "Neural ODE RNN", "no linear term: nothing contracts where tanh saturates", dt=0.2
    ),
    "antisymmetric": _units(
        "antisymmetric",
        "Antisymmetric RNN",
        "stable to first order by its antisymmetric weights, without a rate",
        gamma=0.01,
        dt=0.1,
    ),
    "lstm": _units("lstm", "LSTM", "the gated reference: accurate, and hard to certify"),
    "gru": _units("gru", "GRU", "the other gated reference"),
    "mingru": Preset("mingru", {"expand": 2.0}, MINIMAL, "minGRU", "gates that read the input alone", hidden=32),
    "minlstm": Preset("minlstm", {"expand": 2.0}, MINIMAL, "minLSTM", "two gates, with inputs alone", hidden=32),
    "rglru": Preset("rglru", {"heads": 2}, COMMON, "RG-LRU", "the gated linear recurrence of Griffin", hidden=32),
    "mamba2": Preset(
        "mamba2",
        {"state_size": 4, "expand": 1},
        {**COMMON, "lr": 2e-2},
        "Mamba-2",
        "a matrix for each head, with decays chosen by the input",
        hidden=16,
    ),
    "gated_deltanet": Preset(
        "gated_deltanet", {"key_size": 8}, COMMON, "Gated DeltaNet", "a matrix that replaces what a key held", hidden=16
    ),
    "elman": _units("elman", "Elman RNN", "the simplest recurrent network"),
    "householder": _units(
        "householder",
        "Orthogonal RNN",
        "an orthogonal W for every value of its parameters: distances never grow, and need not shrink",
        reflections=16,
    ),
    "rotrnn": _units(
        "rotrnn",
        "RotRNN",
        "a linear recurrence of rotations and decays: its rate is exact, its expected norm the same at every step",
        heads=8,
    ),
    "lru": _units("lru", "LRU", "the other linear recurrence: complex diagonal, its rate is the largest modulus"),
    "mamba": Preset("mamba", {"state_size": 8}, COMMON, "Mamba", "decays and inputs chosen by the input", hidden=16),
    "s5": Preset("s5", {"state_size": 16}, COMMON, "S5", "a constant state space model of all features", hidden=16),
    "s4d": Preset("s4d", {"state_size": 16}, COMMON, "S4D", "a constant state space model of each feature", hidden=16),
    "unitary": _units(
        "unitary",
        "Unitary RNN",
        "a unitary W and modReLU, which acts on pairs of units: far from zero it keeps every distance",
        reflections=16,
    ),
    DEEP: _units(DEEP, "Deep network", "blocks of a recurrent layer, a norm and mixing, for long sequences"),
}
"""Networks of the report, chosen on the embedded digits read by rows."""

LIPSCHITZ = "Erichson et al., Lipschitz recurrent neural networks (2021)"
HOUSEHOLDER = "Mhammedi et al., Efficient orthogonal parametrisation of recurrent neural networks (2017)"
ROTRNN = "Biegun et al., RotRNN: modelling long sequences with rotations (2024)"
AUTHORS = {"beta": 0.75, "gamma": 0.001, "dt": 0.03}
BY_PIXELS = f"{LIPSCHITZ}, appendix C (Adam, 100 epochs, decay after 90) and the authors' command for table 8"
LONG: dict[str, Any] = {"epochs": 100, "batch_size": 128, "milestones": (90,), "decay": 0.1, "clip": None}
PAPERS: dict[str, Preset] = {
    "lipschitz-pixels": Preset(
        "lipschitz", AUTHORS, {**LONG, "lr": 3e-3}, BY_PIXELS, hidden=128, task="digits", options={"layout": "pixels"}
    ),
    "lipschitz-pixels-permuted": Preset(
        "lipschitz", AUTHORS, {**LONG, "lr": 3.5e-3}, BY_PIXELS, hidden=128, task="digits",
        options={"layout": "pixels", "permuted": True},
    ),
    "lipschitz-robustness": Preset(
        "lipschitz", AUTHORS, {**LONG, "lr": 0.1, "optimizer": "sgd", "momentum": 0.9},
        f"{LIPSCHITZ}, section 7, table 3 (98 steps of 8 pixels, SGD with momentum) and appendix C (rate 0.1 for SGD)",
        hidden=128, task="digits", options={"layout": 8},
        open=("momentum (0.9)", "clipping (none)", "units, beta, gamma, dt, batch, epochs, milestones (as by pixels)"),
    ),
    "orthogonal-adding": Preset(
        "householder", {"reflections": 16}, {"epochs": 50, "fresh": 100, "lr": 0.01, "batch_size": 50, "clip": None},
        f"{HOUSEHOLDER}, section 5.2, T = 400", hidden=128, task="adding", options={"steps": 400},
        open=(
            "iterations: it needs less than 5,000 in figure 4 (5,000)",
            "at this constant rate our runs stay at the baseline, see the study adding",
        ),
    ),
    "orthogonal-pixels": Preset(
        "householder", {"reflections": 32}, {"epochs": 20, "lr": 1e-4, "batch_size": 1, "clip": None},
        f"{HOUSEHOLDER}, section 5.3, table 3", hidden=256, task="digits", options={"layout": "pixels"},
        open=("the number of epochs (20)", "the 5,000 validation images are not held out (see patience)"),
    ),
    "rotrnn-listops": Preset(
        "deep",
        {
            "layer": "rotrnn", "width": 128, "depth": 6, "norm": "batch", "mixing": "glu", "dropout": 0.0,
            "options": {"heads": 32, "gamma_min": 0.5, "gamma_max": 0.999, "theta_max": math.pi / 100},
        },
        {
            "epochs": 80, "fresh": 1000, "batch_size": 32, "optimizer": "adamw", "weight_decay": 0.05, "lr": 1e-3,
            "clip": None,
        },
        f"{ROTRNN}, table 3, ListOps (6 layers, 32 heads, batch norm: appendix B.2)", hidden=256, task="listops",
        open=(
            "the optimizer (AdamW: a weight decay is given)", "the schedule of the learning rate (constant)",
            "clipping (none)", "the mixing of a block (glu)",
            "fresh expressions in every batch, in place of 96,000 that are kept",
        ),
    ),
}  # fmt: skip
"""Experiments of the papers with the values of their sources; ``open`` lists the values chosen here."""


DEFAULT_MODELS = (
    "contracting",
    "bounded_gain",
    "lipschitz",
    "lipschitz_margin",
    "neural_ode",
    "householder",
    "rotrnn",
    "lru",
    "mingru",
    "mamba2",
    "lstm",
    "gru",
)
"""Models of a report without models: those of the four papers, two with a proof by construction, two gated linear
ones with a proof of bounded states, and gated ones for comparison.
"""
QUICK_MODELS = ("contracting", "lipschitz", "gru")
"""Models of a quick report without models: with seed 0 one of each verdict, in half a minute on two cores."""


def known_presets() -> dict[str, Preset]:
    """Return all presets; a registered layer without its own preset gets common settings.

    Example:
        >>> known_presets()["elman"] is PRESETS["elman"]
        True
    """
    others = (name for name in LAYERS if name not in PRESETS)
    registered = {
        name: _units(name, LAYERS[name].__name__, "a registered layer, with common settings") for name in others
    }
    return {**PRESETS, **registered}


def preset_names(words: str | None, quick: bool = False) -> tuple[str, ...]:
    """Return the names of the presets that a word stands for.

    Args:
        words: ``"default"`` or ``None``; ``"all"``; or names with commas between them.
        quick: take ``QUICK_MODELS`` for ``None``.

    Returns:
        The names; whether there are such presets is not looked at.

    Raises:
        ConfigurationError: no name, or one twice.

    Example:
        >>> preset_names("rotrnn, lru"), len(preset_names("default")) < len(preset_names("all"))
        (('rotrnn', 'lru'), True)
    """
    if words in (None, "default"):
        return QUICK_MODELS if quick and words is None else DEFAULT_MODELS
    if words == "all":
        return tuple(known_presets())
    names = tuple(name.strip() for name in str(words).split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"--models takes all, default, or different names with commas, got {words!r}")
    return names


def _preset(name: str) -> Preset:
    known = known_presets()
    return known[as_choice("preset", name, known)]


def paper_preset(name: str) -> Preset:
    """Return the experiment of this name.

    Raises:
        ConfigurationError: an unknown name.

    Example:
        >>> preset = paper_preset("lipschitz-pixels")
        >>> preset.training["lr"], preset.config["dt"]
        (0.003, 0.03)
    """
    return PAPERS[as_choice("preset", name, PAPERS)]


def preset_model(name: str, task: Task, *, seed: int = 0) -> nn.Module:
    """Make a freshly initialized model of a preset for a task.

    Args:
        name: a key of ``known_presets()``.
        task: gives input and output sizes.
        seed: seed of the initial weights; the global random state is unchanged.

    Returns:
        The model.

    Raises:
        ConfigurationError: an unknown preset.

    Example:
        >>> from stability.analysis import make_task
        >>> preset_model("elman", make_task("adding", steps=5, train=2, test=2)).output_size
        1
    """
    preset = _preset(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(describe_network(preset.layer, preset.hidden, 1, preset.config, task))


def preset_training(name: str, *, quick: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of ``train`` for a preset.

    Args:
        name: a key of ``known_presets()``.
        quick: fewer epochs.

    Returns:
        The arguments.

    Raises:
        ConfigurationError: an unknown preset.

    Example:
        >>> preset_training("lstm", quick=True)["epochs"]
        6
    """
    return {**_preset(name).training, **(QUICK if quick else {})}


def train_preset(
    name: str,
    task: Task,
    *,
    quick: bool = False,
    seed: int = 0,
    every: int = 50,
    device: str | torch.device = "cpu",
    **options: Any,
) -> tuple[nn.Module, TrainResult]:
    """Make a preset's model and train it, spectra tracked.

    Args:
        name: a key of ``known_presets()``.
        task: training data.
        quick: fewer epochs.
        seed: seed of weights and training.
        every: steps between two records of the spectra.
        device: device of the training.
        **options: further (or other) keyword arguments of ``train``, such as ``out`` and ``progress``.

    Returns:
        The trained model and the result.

    Raises:
        ConfigurationError: an unknown preset, or options that ``train`` refuses.

    Example:
        >>> from stability.analysis import make_task
        >>> task = make_task("digits", limit=100, test_limit=50)
        >>> model, result = train_preset("elman", task, epochs=1)
        >>> type(model.layer).__name__, result.epochs
        ('ElmanRNN', 1)
    """
    model = preset_model(name, task, seed=seed).to(device)
    tracker = SpectrumTracker(model, every=every)
    return model, train(model, task, seed=seed, tracker=tracker, **{**preset_training(name, quick=quick), **options})
