"""Studies of the orthogonal RNN paper: the adding problem, copying by activation, pixels by number of reflections.

Mhammedi, Hellicar, Rahman, Bailey, "Efficient orthogonal parametrisation of recurrent neural networks using Householder
reflections" (ICML 2017).
"""

from __future__ import annotations

from typing import Any

from ...models import LSTM, ElmanRNN, HouseholderRNN, UnitaryRNN
from .base import Case, Frame, Size, Study, means, network, ranking, register_study
from .result import Compared, Figure

PAPER = (
    "Mhammedi, Hellicar, Rahman, Bailey, Efficient orthogonal parametrisation by Householder reflections (ICML 2017)"
)
BASELINE = 1.0 / 6.0  # squared error of always answering 1 to the adding problem
GOAL = BASELINE / 5.0  # mean squared error below which a training counts as solved

# ---- figure 4: the adding problem ----------------------------------------------------------------------------------


def _adding_cases(size: Size) -> list[Case]:
    layers = {
        "oRNN": (network(HouseholderRNN, size["oRNN"], reflections=16), 0.005),
        "LSTM": (network(LSTM, size["LSTM"], forget_bias=5.0), 0.01),
        "Elman": (network(ElmanRNN, size["Elman"]), 0.005),
    }
    common = {
        "epochs": size["iterations"] // size["every"], "fresh": size["every"], "batch_size": 50,
        "schedule": "cosine", "warm_up": 0.04, "clip": 1.0,
    }  # fmt: skip
    options = {"steps": size["steps"], "train": 1, "test": 500}
    return [
        Case({"model": name}, make, "adding", options, {**common, "lr": rate}) for name, (make, rate) in layers.items()
    ]


def _solved(frame: Frame) -> dict[Any, str]:
    groups = frame.groupby("model", sort=False)["lowest_test_loss"]
    return {name: f"{(errors < GOAL).sum()} of {len(errors)}" for name, errors in groups}


register_study(
    Study(
        "adding",
        "oRNN, LSTM and Elman on the adding problem (oRNN paper, figure 4)",
        "Adding problem: squared error of oRNN, LSTM and Elman at equal parameter counts",
        f"{PAPER}, section 5.2 and figure 4",
        {
            "full": {"steps": 400, "iterations": 5000, "every": 100, "oRNN": 128, "LSTM": 24, "Elman": 50, "seeds": 2},
            "quick": {"steps": 50, "iterations": 1000, "every": 50, "oRNN": 64, "LSTM": 16, "Elman": 35, "seeds": 2},
        },
        lambda frame: "Runs whose held-out error falls below a fifth of the baseline: "
        + ", ".join(f"{name} {count}" for name, count in _solved(frame).items())
        + ".",
        _adding_cases,
        compared=lambda frame: [
            Compared(f"{name}: runs that solve it", count, said, "figure 4, section 5.2")
            for (name, count), said in zip(
                _solved(frame).items(),
                ("both, in under 5,000 iterations", "none beats the baseline", "none beats the baseline"),
            )
        ],
        figures=(
            Figure(
                "lines", "Held-out error along training", "step", "test_metric", "model", log="y", xlabel="iteration",
                ylabel="squared error", marks=((BASELINE, "always answering 1"), (GOAL, "a fifth of it")),
                caption="Mean of the seeds, band between them.",
            ),
        ),
        differences=(
            "The learning rate warms up and decays as a cosine, in place of a constant: at a constant rate the oRNN "
            "stays at the baseline or jumps about by a factor of three to the end. Gradients are clipped to norm 1.",
            "The LSTM's peak rate is 0.01: at 0.005 it is too slow to leave the baseline.",
            "400 steps only, and two seeds; the paper also shows 800.",
        ),
    )
)  # fmt: skip

# ---- section 5.5: copying by activation ----------------------------------------------------------------------------

SAID = {
    "oRNN, leaky ReLU": "not the uRNN's performance",
    "oRNN, OPLU": "comparable to the uRNN",
    "oRNN, modReLU": "no better than with the leaky ReLU",
    "uRNN, modReLU": "the reference",
}


def _copying_cases(size: Size) -> list[Case]:
    n = size["hidden"]
    layers = {
        "oRNN, leaky ReLU": network(HouseholderRNN, n, activation="leaky_relu", reflections=n),
        "oRNN, OPLU": network(HouseholderRNN, n, activation="oplu", reflections=n),
        "oRNN, modReLU": network(HouseholderRNN, n, activation="modrelu", reflections=n),
        "uRNN, modReLU": network(UnitaryRNN, n, kind="arjovsky"),
        "LSTM": network(LSTM, n // 2, forget_bias=5.0),
    }
    options = {name: size[name] for name in ("delay", "length", "symbols", "test")} | {"train": 20}
    training = {"lr": 2e-3, "batch_size": 20, "fresh": 50, "clip": 1.0, "epochs": size["iterations"] // 50}
    return [Case({"model": name}, make, "copying", options, training) for name, make in layers.items()]


def _copying_conclusion(frame: Frame) -> str:
    recalled = means(frame, "test_metric")
    leaky, oplu, modrelu, _ = (recalled[name] for name in SAID)
    one, two = ("is" if found else "is not" for found in (oplu > leaky + 0.1, modrelu < leaky + 0.1))
    return (
        f"That OPLU remembers where the leaky ReLU does not {one} found again, that modReLU does not help {two}; "
        f"letters recalled: {ranking(frame, form='.0%')}."
    )


register_study(
    Study(
        "orthogonal-copying",
        "leaky ReLU, OPLU and modReLU on the copying task (oRNN paper, section 5.5)",
        "Copying: recall by orthogonal and unitary networks, by activation",
        f"{PAPER}, section 5.5",
        {
            "full": {
                "delay": 30, "length": 10, "symbols": 8, "hidden": 64, "iterations": 400, "test": 200, "seeds": 2,
            },
            "quick": {"delay": 5, "length": 3, "symbols": 4, "hidden": 32, "iterations": 150, "test": 100, "seeds": 1},
        },
        _copying_conclusion,
        _copying_cases,
        compared=lambda frame: [
            Compared(f"{name}: letters recalled", means(frame, "test_metric")[name], said, "section 5.5")
            for name, said in SAID.items()
        ],
        figures=(
            Figure(
                "lines", "Recall of the last letters on held-out sequences", "step", "test_metric", "model",
                percent=True, xlabel="iterations", ylabel="letters recalled",
                caption="Chance is one over the number of letters.",
            ),
        ),
        differences=(
            "The paper shows no figure and names neither delay nor sizes: here 30 blanks between 10 letters out of 8 "
            "and their recall, 64 units, as many reflections.",
            "Adam at 0.002 with gradients clipped to norm 1, 400 batches of 20 fresh sequences; the uRNN is that of "
            "Arjovsky, Shah and Bengio (2016), with half as many complex units. The LSTM is added.",
        ),
    )
)  # fmt: skip

# ---- table 3 and figure 6: pixels by number of reflections ---------------------------------------------------------


def _pixel_cases(size: Size) -> list[Case]:
    layers = {f"oRNN, m={m}": network(HouseholderRNN, size["hidden"], reflections=m) for m in size["reflections"]}
    layers["LSTM"] = network(LSTM, size["LSTM"], forget_bias=5.0)
    options = {"layout": "pixels", "size": size["side"], "limit": size["limit"], "test_limit": size["test_limit"]}
    training = {"lr": 2e-3, "batch_size": 50, "epochs": size["epochs"], "clip": 1.0}
    return [Case({"model": name}, make, "digits", options, training) for name, make in layers.items()]


register_study(
    Study(
        "orthogonal-pixels",
        "oRNN on pixel MNIST with 16, 32, 64 reflections (oRNN paper, table 3, figure 6)",
        "Pixels of handwritten digits: the orthogonal RNN by number of reflections",
        f"{PAPER}, section 5.3, table 3 and figure 6",
        {
            "full": {
                "side": 14, "limit": 2000, "test_limit": 1000, "hidden": 128, "reflections": (16, 32, 64), "LSTM": 42,
                "epochs": 6, "seeds": 2,
            },
            "quick": {
                "side": 7, "limit": 500, "test_limit": 300, "hidden": 32, "reflections": (4, 8, 16), "LSTM": 12,
                "epochs": 4, "seeds": 1,
            },
        },
        lambda frame: f"Accuracy by number of reflections: {ranking(frame)}.",
        _pixel_cases,
        compared=lambda frame: [
            Compared(f"{name}: test accuracy", value, 0.972 if name == "oRNN, m=32" else None,
                     "table 3 (n=256, m=32, 784 steps)")
            for name, value in means(frame, "test_metric").items()
        ],
        figures=(
            Figure(
                "lines", "Accuracy on held-out images", "step", "test_metric", "model", percent=True, xlabel="epochs",
                ylabel="accuracy", caption="The paper's figure 6 shows the validation accuracy by m.",
            ),
        ),
        differences=(
            "Images of 14 x 14 pixels, 196 steps, 2,000 of them, 6 epochs; the paper: 784 steps of 55,000 images.",
            "128 units; the paper: 128 and 256. Adam at 0.002 and batches of 50; the paper's best run has batches of "
            "one image at 0.0001.",
            "The LSTM has the number of free parameters of the oRNN with the most reflections and is added.",
        ),
    )
)  # fmt: skip
