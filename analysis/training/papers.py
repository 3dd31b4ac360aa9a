"""The settings of the papers' experiments by name: what each paper says, and what it leaves open.

``PAPERS`` holds one row an experiment. A value stands here because its ``source`` gives it; what the source does not
say was chosen here, and ``open`` names it. Where the data of an experiment cannot be had, the nearest task stands in
its place, and ``open`` says so.

Not here, for want of a task: noise-padded CIFAR-10 (Lipschitz RNN), Text and Retrieval (RotRNN). The copying of the
Householder paper (section 5.5) comes without numbers. The numbers of Table 8 of the Lipschitz RNN paper are known here
for the rows that its authors' commands repeat, the pixels of MNIST; its TIMIT row is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stability.kernel.checks import as_choice

LIPSCHITZ = "Erichson et al., Lipschitz recurrent neural networks (2021)"
HOUSEHOLDER = "Mhammedi et al., Efficient orthogonal parametrisation of recurrent neural networks (2017)"
ROTRNN = "Biegun et al., RotRNN: modelling long sequences with rotations (2024)"


@dataclass(frozen=True)
class PaperPreset:
    """One experiment of a paper.

    Attributes:
        task: name of the task.
        layer: name of the layer; ``deep`` for a network of blocks.
        hidden: size of the hidden state.
        source: paper and place.
        options: of the task.
        config: of the layer, besides its sizes.
        training: fields of ``Settings``.
        open: what the source does not say, with what was chosen here.
    """

    task: str
    layer: str
    hidden: int
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    open: tuple[str, ...] = ()


def _pixels(lr: float, **options: Any) -> PaperPreset:
    """Pixel by pixel MNIST of the Lipschitz RNN."""
    return PaperPreset(
        "digits",
        "lipschitz",
        128,
        f"{LIPSCHITZ}, appendix C (Adam, 100 epochs, decay after 90, no clipping) and the authors' command for Table 8",
        {"layout": "pixels", **options},
        {"beta": 0.75, "gamma": 0.001, "dt": 0.03},
        {"epochs": 100, "lr": lr, "batch_size": 128, "milestones": (90,), "decay": 0.1, "clip": None},
    )


_ROTRNN_OPEN = (
    "the optimizer (AdamW: a weight decay is given)",
    "the schedule of the learning rate (constant)",
    "clipping (none)",
    "the mixing of a block (glu)",
)


def _rotrnn(
    task: str,
    place: str,
    *,
    width: int,
    hidden: int,
    lr: float,
    recurrent: float,
    batch: int,
    decay: float,
    dropout: float,
    length: Mapping[str, int],
    gamma: tuple[float, float],
    theta: float,
    both_ways: bool,
    options: Mapping[str, Any],
    more: tuple[str, ...] = (),
) -> PaperPreset:
    """A row of Table 3 of the RotRNN paper."""
    layer = {"heads": 32, "gamma_min": gamma[0], "gamma_max": gamma[1], "theta_max": theta}
    return PaperPreset(
        task,
        "deep",
        hidden,
        f"{ROTRNN}, Table 3, {place} (6 layers, 32 heads, batch norm: appendix B.2)",
        options,
        {
            "layer": "rotrnn",
            "width": width,
            "depth": 6,
            "norm": "batch",
            "mixing": "glu",
            "dropout": dropout,
            "options": {**layer, **({"bidirectional": True} if both_ways else {})},
        },
        {
            **length,
            "batch_size": batch,
            "optimizer": "adamw",
            "weight_decay": decay,
            "lr": lr,
            "group_lr": {"recurrent": recurrent},
            "clip": None,
        },
        (*_ROTRNN_OPEN, *more),
    )


def _orthogonal(
    task: str, place: str, hidden: int, reflections: int, options: Mapping[str, Any], *more: str, **training: Any
) -> PaperPreset:
    """An experiment of section 5 of the Householder paper: Adam, and no word of clipping."""
    config = {"reflections": reflections}
    settings = {"clip": None, **training}
    return PaperPreset(task, "householder", hidden, f"{HOUSEHOLDER}, {place}", options, config, settings, more)


_SPLIT = "the number of epochs (20)", "the 5,000 validation images are not held out: --patience holds some out"
_TREEBANK = ("the length of a piece: a line there, 118 letters on average, 118 here",)
_TEXT = {"units": "characters", "steps": 118, "limit": 50000, "test_limit": 5000}  # all of it
_STEPS = "iterations: it needs less than 5,000 in Figure 4 (5,000)"
_CONSTANT = "at this constant rate our runs stay at the baseline, see the study adding"
_TABLE_8 = "units, rate, beta, gamma, dt and batch stand in Table 8, not at hand (as for the pixels of MNIST)"

PAPERS: dict[str, PaperPreset] = {
    "lipschitz-pixels": _pixels(0.003),
    "lipschitz-pixels-permuted": _pixels(0.0035, permuted=True),
    "lipschitz-robustness": PaperPreset(
        "digits",
        "lipschitz",
        128,
        f"{LIPSCHITZ}, section 7, Table 3 (98 steps of 8 pixels, SGD with momentum) and appendix C (rate 0.1 for SGD)",
        {"layout": 8},
        {"beta": 0.75, "gamma": 0.001, "dt": 0.03},
        {
            "epochs": 100,
            "lr": 0.1,
            "batch_size": 128,
            "optimizer": "sgd",
            "momentum": 0.9,
            "milestones": (90,),
            "clip": None,
        },
        ("momentum (0.9)", "clipping (none)", "units, beta, gamma, dt, batch, epochs, milestones (as for the pixels)"),
    ),
    "lipschitz-cifar": PaperPreset(
        "cifar10",
        "lipschitz",
        128,
        f"{LIPSCHITZ}, appendix C (Adam, 100 epochs, decay after 90, no clipping)",
        {"layout": "pixels"},
        {"beta": 0.75, "gamma": 0.001, "dt": 0.03},
        {"epochs": 100, "lr": 0.003, "batch_size": 128, "milestones": (90,), "clip": None},
        (_TABLE_8,),
    ),
    "lipschitz-characters": PaperPreset(
        "treebank",
        "lipschitz",
        128,
        f"{LIPSCHITZ}, Table 6 (pieces of 150) and appendix C (Adam with its defaults, 200 epochs)",
        {"units": "characters", "steps": 150, "limit": 40000, "test_limit": 4000},
        {"beta": 0.75, "gamma": 0.001, "dt": 0.03},
        {"epochs": 200, "lr": 0.003, "batch_size": 128, "clip": None},
        (_TABLE_8, "clipping (none)"),
    ),
    "lipschitz-words": PaperPreset(
        "treebank",
        "lipschitz",
        128,
        f"{LIPSCHITZ}, Table 7 (pieces of 300) and appendix C (RMSprop with alpha 0.9, 500 epochs)",
        {"units": "words", "steps": 300},
        {"beta": 0.75, "gamma": 0.001, "dt": 0.03},
        {"epochs": 500, "lr": 0.003, "batch_size": 128, "optimizer": "rmsprop", "alpha": 0.9, "clip": None},
        (_TABLE_8, "clipping (none)", "the 1,000 most frequent words, one-hot, in place of 10,000"),
    ),
    "orthogonal-generation": _orthogonal(
        "generation",
        "section 5.1, about 1,000 parameters",
        40,
        40,
        {"steps": 800, "excerpt": 0},
        "the excerpts: a recording there, plucked notes here",
        "units: counted here, 981 free parameters",
        epochs=5000,
        lr=1e-3,
        batch_size=1,
    ),
    "orthogonal-adding": _orthogonal(
        "adding",
        "section 5.2, T = 400",
        128,
        16,
        {"steps": 400},
        _STEPS,
        _CONSTANT,
        epochs=50,
        fresh=100,
        lr=0.01,
        batch_size=50,
    ),
    "orthogonal-adding-800": _orthogonal(
        "adding",
        "section 5.2, T = 800",
        128,
        16,
        {"steps": 800},
        _STEPS,
        _CONSTANT,
        epochs=50,
        fresh=100,
        lr=0.01,
        batch_size=50,
    ),
    "orthogonal-pixels": _orthogonal(
        "digits", "section 5.3, Table 3", 256, 32, {"layout": "pixels"}, *_SPLIT, epochs=20, lr=1e-4, batch_size=1
    ),
    "orthogonal-pixels-50": _orthogonal(
        "digits",
        "section 5.3, batches of 50",
        128,
        16,
        {"layout": "pixels"},
        *_SPLIT,
        epochs=20,
        lr=1e-3,
        batch_size=50,
    ),
    "orthogonal-characters": _orthogonal(
        "treebank", "section 5.4, one character ahead", 512, 510, _TEXT, *_TREEBANK, epochs=20, lr=1e-4, batch_size=1
    ),
    "orthogonal-characters-5": _orthogonal(
        "treebank",
        "section 5.4, five characters ahead",
        512,
        510,
        {**_TEXT, "ahead": 5},
        *_TREEBANK,
        epochs=20,
        lr=1e-4,
        batch_size=1,
    ),
    "rotrnn-listops": _rotrnn(
        "listops",
        "ListOps",
        width=128,
        hidden=256,
        lr=1e-3,
        recurrent=1e-3,
        batch=32,
        decay=0.05,
        dropout=0.0,
        length={"epochs": 80, "fresh": 1000},
        gamma=(0.5, 0.999),
        theta=math.pi / 100,
        both_ways=False,
        options={},
        more=("fresh expressions in every batch, in place of 96,000 that are kept",),
    ),
    "rotrnn-pathfinder": _rotrnn(
        "pathfinder",
        "Pathfinder",
        width=192,
        hidden=256,
        lr=4.5e-3,
        recurrent=1e-3,
        batch=64,
        decay=0.03,
        dropout=0.05,
        length={"epochs": 500, "fresh": 1000},
        gamma=(0.1, 0.9999),
        theta=math.pi / 10,
        both_ways=True,
        options={"side": 32},
        more=("the pictures: those of the Long Range Arena there, drawn by our generator here",),
    ),
    "rotrnn-pathx": _rotrnn(
        "pathfinder",
        "PathX",
        width=192,
        hidden=256,
        lr=4.5e-3,
        recurrent=1e-3,
        batch=32,
        decay=0.03,
        dropout=0.2,
        length={"epochs": 250, "fresh": 1000},
        gamma=(0.999, 0.9999),
        theta=math.pi / 10,
        both_ways=True,
        options={"side": 128},
        more=("the pictures: those of the Long Range Arena there, drawn by our generator here",),
    ),
    "rotrnn-image": _rotrnn(
        "cifar10",
        "Image",
        width=512,
        hidden=384,
        lr=4.5e-3,
        recurrent=1e-3,
        batch=50,
        decay=0.05,
        dropout=0.1,
        length={"epochs": 250},
        gamma=(0.99, 0.999),
        theta=2 * math.pi,
        both_ways=False,
        options={"layout": "pixels", "grey": True},
    ),
    "rotrnn-commands": _rotrnn(
        "speech_commands",
        "Speech Commands",
        width=96,
        hidden=128,
        lr=8e-3,
        recurrent=1e-3,
        batch=16,
        decay=0.04,
        dropout=0.1,
        length={"epochs": 40},
        gamma=(0.1, 0.9999),
        theta=math.pi / 10,
        both_ways=False,
        options={},
        more=(
            "40 epochs of some 85,000 recordings are the 212,000 iterations",
            "the pooling over time: a shorter recording is read out at its own last step",
        ),
    ),
}
"""The experiments by name."""


def paper_preset(name: str) -> PaperPreset:
    """The experiment of this name.

    Raises:
        ConfigurationError: an unknown name.

    Example:
        >>> preset = paper_preset("lipschitz-pixels")
        >>> preset.training["lr"], preset.config["dt"]
        (0.003, 0.03)
    """
    return PAPERS[as_choice("preset", name, PAPERS)]
