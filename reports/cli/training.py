"""What ``stability train`` is asked for: the model, the task, and the settings, named as the literature names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from stability.errors import ConfigurationError

from .console import assignments
from .data import HELD_OUT, check_device, chosen
from .options import Compute, DataFile, DataOptions, no_default, with_default
from .sources import open_model

NAMES = {
    "source": "--from",
    "layer_settings": "--set",
    "task_settings": "--task-set",
}
"""Options that are not called as their field is."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained; ``None`` where the command line says nothing."""

    epochs: Annotated[int | None, with_default("Passes over the data.", 10)] = None
    lr: Annotated[float | None, with_default("Learning rate.", 0.003)] = None
    batch_size: Annotated[int | None, with_default("Sequences in a batch.", 64)] = None
    optimizer: Annotated[str | None, with_default("adam, sgd, rmsprop, adamw.", "adam")] = None
    momentum: Annotated[float | None, with_default("Of sgd.", 0.9)] = None
    weight_decay: Annotated[float | None, with_default("Of the optimizer.", 0)] = None
    milestones: Annotated[
        str | None, no_default("Epochs after which the learning rate falls, with commas between them.")
    ] = None
    decay: Annotated[float | None, with_default("Factor of the learning rate at a milestone.", 0.1)] = None
    schedule: Annotated[str | None, with_default("Of the learning rate: steps or cosine.", "steps")] = None
    warm_up: Annotated[float | None, no_default("Share of a cosine schedule in which it rises at first.")] = None
    fresh: Annotated[
        int | None,
        no_default("Generated tasks: so many batches of fresh sequences an epoch, in place of kept ones."),
    ] = None
    clip: Annotated[float | None, with_default("Largest norm of the gradient; 0 for none.", 1)] = None
    patience: Annotated[int | None, no_default("Stop after so many epochs without a better validation loss.")] = None
    margin_penalty: Annotated[
        float | None, no_default("Weight of the shortfall of the contraction gap in the loss.")
    ] = None
    margin_target: Annotated[float | None, with_default("The contraction gap that the penalty aims at.", 0)] = None
    lyapunov_target: Annotated[
        float | None, no_default("Largest Lyapunov exponent, per step, that training aims at beside its loss.")
    ] = None
    lyapunov_weight: Annotated[float | None, with_default("Weight of the squared distance to it in the loss.", 1)] = (
        None
    )
    temperature: Annotated[float | None, with_default("What logits are multiplied by in the cross entropy.", 1)] = None
    objective: Annotated[
        str | None,
        with_default("task, or one that aims at certified radii: margin, hinge_kr, certified, gloro.", "task"),
    ] = None
    target_radius: Annotated[float | None, with_default("The l2 radius that these aim at.", 0.5)] = None
    input_noise: Annotated[float | None, no_default("Standard deviation of noise on the training sequences.")] = None
    adversarial: Annotated[float | None, no_default("l2 radius of an attack on every batch that is trained on.")] = None
    gain_target: Annotated[
        float | None, no_default("Hold the network to this gain from inputs to states, proved, by projection.")
    ] = None
    until_certified: Annotated[
        bool | None, no_default("Stop after the first epoch that leaves a certified network.", "--until-certified")
    ] = None

    def given(self) -> dict[str, Any]:
        """Return what the command line says, as options of ``train``.

        Raises:
            ConfigurationError: text that says no numbers.
        """
        values = {name: value for name, value in vars(self).items() if value is not None}
        if "milestones" in values:
            values["milestones"] = _epochs(values["milestones"])
        return values

    def settings(self, preset: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of ``train``: what the command line says, else the preset, else the defaults.

        Raises:
            ConfigurationError: an option without effect, or text that says no numbers.
        """
        from ...analysis.training.planned import chosen_settings

        return chosen_settings(self.given(), preset)


def _epochs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigurationError(f"--milestones takes epochs with commas between them, got {text!r}") from None


@dataclass(frozen=True)
class ModelOptions:
    """What is trained, and on what."""

    preset: Annotated[
        str | None,
        no_default("An experiment of the papers by name: model, task and settings; other options replace its own."),
    ] = None
    model: Annotated[
        str | None,
        with_default("Layer by name: contracting, lstm ..., or deep (--set layer=NAME).", "lipschitz", "--model"),
    ] = None
    task: Annotated[
        str | None, with_default("Task by name: digits, adding, copying, listops ...", "digits", "--task")
    ] = None
    data: DataFile = None
    hidden: Annotated[int | None, with_default("Size of the hidden state.", 64)] = None
    layers: Annotated[int | None, with_default("So many layers of it, each reading the one below.", 1)] = None
    source: Annotated[
        str | None, no_default("Go on from a trained network (a run, a file, package.module:factory).", "--from")
    ] = None
    layer_settings: Annotated[
        list[str] | None, no_default("Option of the layer, name=value; may be repeated.", "--set")
    ] = None
    task_settings: Annotated[list[str] | None, no_default("Option of the task, name=value.", "--task-set")] = None


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
        """The settings for a task."""
        gone = () if task.labels_sequences else self.soft
        return {name: value for name, value in self.training.items() if name not in gone}


def plan_of(asked: ModelOptions, settings: TrainingOptions, compute: Compute) -> Plan:
    """What the command line asks for; a preset gives what it leaves open.

    Raises:
        ConfigurationError: an unknown preset, or options that contradict each other or have no effect.
        FileFormatError: a data file that cannot be read.
    """
    from ...analysis.training.planned import ABOUT_CLASSES, DEEP, layer_defaults
    from ...analysis.training.presets import paper_preset

    if asked.source is not None:
        _refuse_beside_a_source(asked)
    preset = None if asked.preset is None else paper_preset(asked.preset)
    task = asked.task or (None if asked.data is not None else preset.task if preset else "digits")
    named = chosen(DataOptions(task, asked.task_settings, asked.data), compute.data_dir, HELD_OUT)
    assert named is not None  # a task is named, or a file
    model = asked.model or (preset.layer if preset else "lipschitz")
    config = assignments("--set", asked.layer_settings or [])
    if preset is not None and model == preset.layer:
        config = {**preset.config, **config}
    if preset is not None and named[0] == preset.task:
        named = named[0], {**preset.options, **named[1]}
    name = asked.preset or f"{named[0] if asked.data is None else asked.data.stem}-{model}"
    if asked.source is not None:
        name = f"{name.removesuffix(model)}repaired"
    hidden = asked.hidden if asked.hidden is not None else preset.hidden if preset else 64
    training = dict(preset.training) if preset else {} if asked.source else layer_defaults(model)
    if preset and named[0] != preset.task:
        training.pop("fresh", None)  # another task need not be a generated one
    chosen_settings = settings.settings(training)
    soft = () if preset else tuple(name for name in ABOUT_CLASSES if name in training and name not in settings.given())
    layers = 1 if asked.layers is None else asked.layers
    if layers < 1 or (model == DEEP and asked.layers is not None):
        raise ConfigurationError(f"--layers must be at least 1, and deep takes --set depth=N, got {layers}")
    name = f"{name}-{layers}-layers" if layers > 1 else name
    return Plan(name, model, hidden, config, named, chosen_settings, soft, asked.source, layers)


def _refuse_beside_a_source(asked: ModelOptions) -> None:
    """A network that is there already has its layer, its size and its options."""
    for name in ("preset", "model", "hidden", "layers", "layer_settings"):
        if getattr(asked, name) is not None:
            option = NAMES.get(name, f"--{name}")
            raise ConfigurationError(f"--from goes on from a network as it is: leave {option} away")


def prepare(plan: Plan, track_every: int, compute: Compute) -> tuple[Any, Any, Any]:
    """The network, its data and what records its spectra.

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
