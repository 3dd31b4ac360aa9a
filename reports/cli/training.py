"""Options of ``stability train``: model, task and settings, named as in the literature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from stability.errors import ConfigurationError
from stability.user_code import names_code

from .console import assignments
from .data import HELD_OUT, check_device, task_named
from .options import Compute, DataFile, DataOptions, no_default, with_default
from .sources import open_model

NAMES = {"source": "--from", "layer_settings": "--set", "task_settings": "--task-set"}
"""Options that are not called as their field is."""


@dataclass(frozen=True)
class TrainingOptions:
    """Common settings of a training; ``None`` where the command line says nothing. Others are given with ``--set``."""

    epochs: Annotated[int | None, with_default("Number of passes over the data.", 10)] = None
    lr: Annotated[float | None, with_default("Learning rate.", 0.003)] = None
    batch_size: Annotated[int | None, with_default("Number of sequences in a batch.", 64)] = None
    margin_penalty: Annotated[float | None, no_default("Weight of a loss term for contraction.")] = None
    objective: Annotated[str | None, with_default("Loss: task; margin, certified: larger radii.", "task")] = None
    gain_target: Annotated[float | None, no_default("Bound on the l2 gain from inputs to states.")] = None

    def explicit(self) -> dict[str, Any]:
        """Return what the command line says, as options of ``train``."""
        return {name: value for name, value in vars(self).items() if value is not None}


def split_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], int | None]:
    """Split ``--set`` into options of the layer, settings of the training, and the number of layers.

    Raises:
        ConfigurationError: epochs that are no integers.
    """
    from ...analysis.training.settings import Aim, Settings

    known = {field.name for kind in (Settings, Aim) for field in fields(kind)} - {"aim", "seed"}
    layer = {name: value for name, value in values.items() if name not in known}
    settings = {name: value for name, value in values.items() if name in known}
    if "milestones" in settings:
        settings["milestones"] = _epochs(settings["milestones"])
    return layer, settings, layer.pop("layers", None)


def _epochs(value: Any) -> tuple[int, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    try:
        return tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        raise ConfigurationError(f"milestones must be epochs separated by commas, got {value!r}") from None


@dataclass(frozen=True)
class ModelOptions:
    """Model to train, and its task."""

    preset: Annotated[str | None, no_default("Experiment of a paper; `--preset list` shows all.")] = None
    model: Annotated[
        str | None,
        with_default("Name of a layer, deep (residual blocks), or FILE.py:Class.", "lipschitz", "--model"),
    ] = None
    task: Annotated[str | None, with_default("Name of the task.", "digits", "--task")] = None
    data: DataFile = None
    hidden: Annotated[int | None, with_default("Number of hidden units; width of a residual block.", 64)] = None
    source: Annotated[str | None, no_default("Trained network to start from.", "--from", metavar="MODEL")] = None
    layer_settings: Annotated[
        list[str] | None,
        no_default("Option of the layer or the training (docs/robust-training.md).", "--set"),
    ] = None
    task_settings: Annotated[list[str] | None, no_default("Option of the task; may be repeated.", "--task-set")] = None


@dataclass(frozen=True)
class Plan:
    """One training as it was asked for: ``name`` of its folder, the model, the task and the settings.

    ``soft``: names among them that are the layer's defaults, not asked for, and mean nothing on a task without classes.
    """

    name: str
    model: str
    hidden: int
    config: Mapping[str, Any]
    task: tuple[str, dict[str, Any]]
    training: Mapping[str, Any]
    soft: tuple[str, ...] = ()
    source: str | None = None
    layers: int = 1

    def settings_for(self, task: Any) -> dict[str, Any]:
        """Return the training settings for a task."""
        gone = () if task.labels_sequences else self.soft
        return {name: value for name, value in self.training.items() if name not in gone}


def plan_of(args: ModelOptions, settings: TrainingOptions, compute: Compute) -> Plan:
    """Combine the settings of the command line with those of its preset.

    Raises:
        ConfigurationError: an unknown preset, or options that contradict each other or have no effect.
        FileFormatError: a data file that cannot be read.
    """
    from ...analysis.training.planned import ABOUT_CLASSES, DEEP, chosen_settings, layer_defaults
    from ...analysis.training.presets import paper_preset

    config, more, layers = split_settings(assignments("--set", args.layer_settings or []))
    explicit = settings.explicit()
    if twice := sorted(explicit.keys() & more):
        raise ConfigurationError(f"--set {twice[0]} and --{twice[0].replace('_', '-')} are the same: give one of them")
    explicit |= more
    if args.source is not None:
        _refuse_beside_a_source(args, {**config, **({} if layers is None else {"layers": layers})})
    preset = None if args.preset is None else paper_preset(args.preset)
    task = args.task or (None if args.data is not None else preset.task if preset else "digits")
    named = task_named(DataOptions(task, args.task_settings, args.data), compute.data_dir, HELD_OUT)
    assert named is not None  # a task is named, or a file
    model = _layer(args.model) or (preset.layer if preset else "lipschitz")
    if preset is not None and model == preset.layer:
        config = {**preset.config, **config}
    if preset is not None and named[0] == preset.task:
        named = named[0], {**preset.options, **named[1]}
    name = args.preset or f"{named[0] if args.data is None else args.data.stem}-{model}"
    if args.source is not None:
        name = f"{name.removesuffix(model)}repaired"
    hidden = args.hidden if args.hidden is not None else preset.hidden if preset else 64
    training = dict(preset.training) if preset else {} if args.source else layer_defaults(model)
    if preset and named[0] != preset.task:
        training.pop("fresh", None)  # another task need not be a generated one
    training = chosen_settings(explicit, training)
    soft = () if preset else tuple(name for name in ABOUT_CLASSES if name in training and name not in explicit)
    if layers is not None and (model == DEEP or type(layers) is not int or layers < 1):
        raise ConfigurationError(f"--set layers must be at least 1 (deep: use --set depth=N), got {layers}")
    layers = layers or 1
    name = f"{name}-{layers}-layers" if layers > 1 else name
    return Plan(name, model, hidden, config, named, training, soft, args.source, layers)


def _layer(model: str | None) -> str | None:
    """Return the layer's name; import a user's class of layers or cells.

    Raises:
        ConfigurationError: code that is no such class.
    """
    if model is None or not names_code(model):
        return model
    from ...models.factories import registered_layer

    name = registered_layer(model)
    if name is None:
        raise ConfigurationError(
            f"{model} is no registered cell or layer: put @register_cell of stability.models above the class, or train "
            f"the network that a factory gives: --from {model}"
        )
    return name


def _refuse_beside_a_source(args: ModelOptions, config: Mapping[str, Any]) -> None:
    """Refuse options that describe a network beside ``--from``."""
    options = [f"--{name}" for name in ("preset", "model", "hidden") if getattr(args, name) is not None]
    options += [f"--set {name}" for name in config]
    if options:
        raise ConfigurationError(f"--from sets the layer and its sizes: leave out {options[0]}")


def prepare(plan: Plan, track_every: int, compute: Compute) -> tuple[Any, Any, Any]:
    """Return the network, its data and the recorder of its spectra.

    Raises:
        ConfigurationError: an unknown model or task, their options, or a model too large to be trained here.
        FileFormatError: data that cannot be read.
    """
    from ...analysis import SpectrumTracker
    from ...analysis.tasks import make_task
    from ...analysis.training.planned import check_layer, make_network

    check_layer(plan.model)
    where = check_device(compute.device)
    task = make_task(plan.task[0], data_dir=compute.data_dir, seed=compute.seed, **plan.task[1])
    if plan.source is not None:
        from ...analysis.campaign.fitting import check_features

        given = open_model(plan.source).to(where)
        check_features(given, task, plan.source)
        return given, task, None
    network: Any = make_network(plan.model, plan.hidden, plan.layers, plan.config, task, compute.seed).to(where)
    tracker = None
    if track_every and any(m.ndim == 2 and m.shape[0] == m.shape[1] for m in network.matrices().values()):
        tracker = SpectrumTracker(network, every=track_every)
    return network, task, tracker
