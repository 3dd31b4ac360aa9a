"""Settings that were found to work: what the main report trains when it is given no models.

Chosen on the embedded digits read by rows (28 steps of 28 pixels, 4,000 images to train on), 64 hidden units.
Each trains in seconds on one core; ``training`` is for the full report, ``QUICK`` replaces part of it for a
look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ...models import LAYERS, BoundedGainRNN, SequenceModel, build
from ..tasks import Task
from .front import train
from .outcome import TrainResult
from .spectra import SpectrumTracker

COMMON: dict[str, Any] = {"epochs": 12, "lr": 8e-3, "batch_size": 128, "milestones": (9,), "clip": 1.0}
QUICK: dict[str, Any] = {"epochs": 6, "milestones": (5,)}


@dataclass(frozen=True)
class Preset:
    """A layer with settings for it.

    Attributes:
        layer: its name.
        config: keyword arguments besides ``input_size``.
        training: keyword arguments of ``train``.
        title: how reports call it.
        why: what it is there to show.
    """

    layer: str
    config: Mapping[str, Any]
    training: Mapping[str, Any]
    title: str
    why: str


def _units(layer: str, title: str, why: str, training: Mapping[str, Any] = COMMON, **config: Any) -> Preset:
    return Preset(layer, {"hidden_size": 64, **config}, training, title, why)


DAMPED: dict[str, Any] = {"beta": 0.75, "gamma": [1.0, 0.001], "dt": 0.2}
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
    "unitary": _units(
        "unitary",
        "Unitary RNN",
        "a unitary W and modReLU, which acts on pairs of units: far from zero it keeps every distance",
        reflections=16,
    ),
}


DEFAULT_MODELS = (
    "contracting",
    "bounded_gain",
    "lipschitz",
    "lipschitz_margin",
    "antisymmetric",
    "neural_ode",
    "householder",
    "unitary",
    "rotrnn",
    "lru",
    "lstm",
    "gru",
)
"""The models of a report that is given none: those of the four papers, two that carry a proof by construction, and the
gated ones they are compared with."""


def known_presets() -> dict[str, Preset]:
    """All presets; a registered layer that has none of its own, such as a user's, gets common settings.

    Example:
        >>> known_presets()["elman"] is PRESETS["elman"]
        True
    """
    others = (name for name in LAYERS if name not in PRESETS)
    own = {name: _units(name, LAYERS[name].__name__, "a registered layer, with common settings") for name in others}
    return {**PRESETS, **own}


def preset_names(asked: str | None) -> tuple[str, ...]:
    """The presets that a word stands for.

    Args:
        asked: ``"default"`` or ``None``; ``"all"``; or names with commas between them.

    Returns:
        The names; whether there are such presets is not looked at.

    Raises:
        ConfigurationError: no name, or one twice.

    Example:
        >>> preset_names("rotrnn, lru"), len(preset_names("default")) < len(preset_names("all"))
        (('rotrnn', 'lru'), True)
    """
    if asked in (None, "default"):
        return DEFAULT_MODELS
    if asked == "all":
        return tuple(known_presets())
    names = tuple(name.strip() for name in str(asked).split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"--models takes all, default, or different names with commas, got {asked!r}")
    return names


def _preset(name: str) -> Preset:
    known = known_presets()
    return known[as_choice("preset", name, known)]


def preset_model(name: str, task: Task, *, seed: int = 0) -> SequenceModel:
    """A freshly initialised model of a preset, fitting a task.

    Args:
        name: a key of ``known_presets()``.
        task: gives input and output sizes.
        seed: of the initial weights; the global random state stays as it is.

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
        model = build(
            {
                "layer": preset.layer,
                "config": {"input_size": task.input_size, **preset.config},
                "output_size": task.output_size,
                "reduction": task.reduction,
            }
        )
    if not isinstance(model, SequenceModel):
        raise ConfigurationError(f"preset {name!r} does not make a SequenceModel")
    return model


def preset_training(name: str, *, quick: bool = False) -> dict[str, Any]:
    """Keyword arguments of ``train`` for a preset.

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
) -> tuple[SequenceModel, TrainResult]:
    """Make a preset's model and train it, spectra tracked.

    Args:
        name: a key of ``known_presets()``.
        task: what to train on.
        quick: fewer epochs.
        seed: of weights and training.
        every: steps between two records of the spectra.
        device: where to train.
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
