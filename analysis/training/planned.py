"""Construction of a network and its settings from names and options, for ``stability train`` and sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ...models.deep import DeepNetwork
from ...models.files import build
from ...models.options import constructor_arguments
from ...models.recurrent import LAYERS
from ...models.stack import stack_configs
from ..tasks import Task

PARAMETERS = 2**27
"""Most parameters of a trained model; with the optimizer's state 2 GiB in single precision."""
DEEP = "deep"
"""Name of a network of blocks around recurrent layers, see ``stability.models.DeepNetwork``."""
DEFAULTS: dict[str, Any] = {"epochs": 10, "lr": 3e-3, "batch_size": 64, "optimizer": "adam", "clip": 1.0}
"""Options without a value from the user or a preset; all others have the defaults of ``Settings``."""
ABOUT_CLASSES = ("temperature", "objective", "target_radius")
"""Training settings without meaning unless each sequence has one class."""
NEEDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "momentum": ("optimizer", ("sgd",)),
    "milestones": ("schedule", ("steps",)),
    "decay": ("schedule", ("steps",)),
    "warm_up": ("schedule", ("cosine",)),
}
"""Options that have an effect only with some values of another option."""


def check_layer(model: Any) -> str:
    """Check that ``model`` is a registered layer or ``deep``; return the name."""
    return as_choice("model", model, (*LAYERS, DEEP))


def layer_defaults(model: str) -> dict[str, Any]:
    """Return the training settings that a layer declares as its defaults."""
    return dict(LAYERS[model].training_defaults) if model in LAYERS else {}


def settings_for(model: str, options: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the fields of ``Settings``: the user's, else the layer's own, else ``DEFAULTS``.

    Args:
        model: the layer's name.
        options: fields chosen by the user; ``clip`` 0 means no clipping.
        task: training task; a layer's defaults about classes apply only to tasks with classes.

    Returns:
        Options of ``train``.

    Raises:
        ConfigurationError: an option that another one makes ineffective.

    Example:
        >>> from stability.analysis.tasks import make_task
        >>> settings_for("elman", {"epochs": 2}, make_task("adding", steps=5, train=4, test=4))["lr"]
        0.003
    """
    soft = layer_defaults(model)
    if not task.labels_sequences:
        soft = {name: value for name, value in soft.items() if name not in ABOUT_CLASSES}
    return chosen_settings(options, soft)


def chosen_settings(options: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a training: the given ones, else those of a preset, else ``DEFAULTS``.

    Args:
        options: options chosen by the user; ``clip`` 0 means no clipping.
        preset: options that apply if they have an effect.

    Raises:
        ConfigurationError: an option that another one makes ineffective.

    Example:
        >>> chosen_settings({"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1})["lr"]
        0.1
    """
    settings: dict[str, Any] = {"schedule": "steps", **DEFAULTS, **preset, **options}
    for name, (other, values) in NEEDS.items():
        if settings[other] not in values:
            if name in options:
                raise ConfigurationError(f"{name} needs {other}={values[0]}, got {other}={settings[other]}")
            settings.pop(name, None)  # from the preset, whose optimizer or schedule the user has replaced
    if "decay" in options and not settings.get("milestones"):
        raise ConfigurationError("decay needs milestones: add --set milestones=EPOCH,EPOCH")
    return {**settings, "clip": settings["clip"] or None}


def describe_network(model: str, hidden: int, layers: int, config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the model for a task as input of ``stability.models.build``: a layer under a head, or a deep network.

    For a deep network, ``layer``, ``blocks`` (or ``depth``), ``width``, ``norm``, ``mixing``, ``dropout`` and
    ``reduction`` are its own options; all others are passed to its layers.

    Args:
        model: a registered layer, or ``deep``.
        hidden: size of the hidden state.
        layers: number of layers, each reading the one below.
        config: options of the layer.
        task: task that gives the sizes of input and output.

    Returns:
        The description.

    Raises:
        ConfigurationError: options that contradict each other.
    """
    sizes = {"input_size": task.input_size, "hidden_size": hidden}
    if model != DEEP:
        layer_config = {name: value for name, value in config.items() if name != "reduction"}
        head = {"output_size": task.output_size, "reduction": config.get("reduction", task.reduction)}
        if layers == 1:
            return {"layer": model, "config": {**sizes, **layer_config}, **head}
        configs = stack_configs(LAYERS[model], layers=layers, **sizes, **layer_config)
        return {"layer": "stack", "config": {"layers": [{"layer": model, "config": c} for c in configs]}, **head}
    if {"blocks", "depth"} <= config.keys():
        raise ConfigurationError("--set blocks and --set depth are the same: give one of them")
    config = {"depth" if name == "blocks" else name: value for name, value in config.items()}
    names = constructor_arguments(DeepNetwork)
    layer_config = {name: value for name, value in config.items() if name in names}
    inner = {name: value for name, value in config.items() if name not in names}
    layer_options = layer_config.get("options", {})
    options = {"options": {**layer_options, **inner} if isinstance(layer_options, Mapping) else layer_options}
    every_step = {"reduction": "all"} if task.reduction == "all" else {}
    return {
        "layer": DEEP,
        "config": {**sizes, "output_size": task.output_size, **every_step, **layer_config, **options},
    }


def make_network(model: str, hidden: int, layers: int, config: Mapping[str, Any], task: Task, seed: int) -> nn.Module:
    """Make the network for a task, with weights drawn from a seed.

    Args:
        model: a registered layer, or ``deep``.
        hidden: size of the hidden state.
        layers: number of layers.
        config: options of the layer.
        task: task that gives the sizes.
        seed: seed of the weights; it also seeds torch.

    Returns:
        The network, on the CPU.

    Raises:
        ConfigurationError: an unknown layer or option, or a network too large to be trained here.
    """
    check_layer(model)
    description = describe_network(model, hidden, layers, config, task)
    size = _size(description)
    if size > PARAMETERS:
        raise ConfigurationError(
            f"a {model} with --hidden {hidden} has {size} parameters; at most {PARAMETERS} are trained here"
        )
    torch.manual_seed(seed)
    return build(description)


def _size(description: dict[str, Any]) -> int:
    """Count the parameters of a model on a device without memory; zero for an invalid description."""
    with contextlib.suppress(Exception), torch.device("meta"):
        return sum(p.numel() for p in build(description).parameters())
    return 0
