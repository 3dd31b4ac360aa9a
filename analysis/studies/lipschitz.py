"""Studies of the Lipschitz RNN paper: accuracy by pixels, ablation, conditions of theorem 1.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stability.certification import certify

from ...models import LSTM, AntisymmetricRNN, ElmanRNN, LipschitzRNN, SequenceModel
from ..tasks import Task
from .base import Case, Frame, Row, Size, Study, means, network, ranking, register_study, verdict
from .result import Compared, Figure

PAPER = "Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, Lipschitz recurrent neural networks (ICLR 2021)"
GAMMA = 0.001  # damping of both matrices in the paper
SEEDS = "Mean over the seeds, band from the least to the largest."
SHORT: dict[str, Any] = {"lr": 1e-2, "batch_size": 32, "clip": 1.0}
SMALLER = (
    "Images of 7 x 7 pixels (49 steps in place of 784), few units, 3,000 images and 6 epochs: the paper trains 128 "
    "units for 100 epochs on 60,000 images, and its accuracies are far higher.",
    "Steps of 0.3 in place of 0.03, a learning rate of 0.01 for the fewer epochs, and gradients clipped to norm 1.",
)

# ---- tables 1 and 4: digits by pixels ------------------------------------------------------------------------------

BETAS = {"ordered": 0.75, "permuted": 0.8}
TABLE1 = {
    ("ordered", "Lipschitz, Euler"): 0.994, ("ordered", "Lipschitz, midpoint"): 0.993,
    ("permuted", "Lipschitz, Euler"): 0.963, ("permuted", "Lipschitz, midpoint"): 0.962,
}  # fmt: skip


def _pixels(size: Size, order: str) -> dict[str, Any]:
    return {"layout": "pixels", "size": 7, "permuted": order == "permuted", "limit": size["limit"]}


def _pixel_cases(size: Size) -> list[Case]:
    def layers(order: str) -> dict[str, Any]:
        options, n = {"beta": BETAS[order], "gamma": GAMMA, "dt": 0.3}, size["hidden"]
        return {
            "Lipschitz, Euler": network(LipschitzRNN, n, **options),
            "Lipschitz, midpoint": network(LipschitzRNN, n, **options, integrator="midpoint"),
            "antisymmetric": network(AntisymmetricRNN, n, dt=0.3),
            "LSTM": network(LSTM, n),
            "Elman": network(ElmanRNN, n),
        }

    training = {**SHORT, "epochs": size["epochs"]}
    return [
        Case({"task": order, "model": name}, make, "digits", _pixels(size, order), training)
        for order in BETAS
        for name, make in layers(order).items()
    ]


register_study(
    Study(
        "lrnn-pixels",
        "digits by pixels, ordered and permuted (Lipschitz RNN, tables 1, 4)",
        "Digits pixel by pixel, ordered and permuted",
        f"{PAPER}, section 6.1, tables 1 and 4",
        {
            "full": {"hidden": 32, "limit": 3000, "epochs": 6, "seeds": 3},
            "quick": {"hidden": 16, "limit": 800, "epochs": 2, "seeds": 2},
        },
        lambda frame: "Mean test accuracies: "
        + "; ".join(f"{order}: {ranking(frame, task=order)}" for order in BETAS)
        + ".",
        _pixel_cases,
        compared=lambda frame: [
            Compared(f"{model}, {order}: accuracy", means(frame, "test_metric", task=order)[model], said, "table 1")
            for (order, model), said in TABLE1.items()
        ],
        figures=tuple(
            Figure(
                "lines", f"Test accuracy, {order} pixels", "step", "test_metric", "model", where={"task": order},
                xlabel="epoch", ylabel="accuracy", percent=True, marks=((0.1, "chance"),), caption=SEEDS,
            )
            for order in BETAS
        ),
        differences=(
            *SMALLER, "Exponential, nonnormal and incremental RNN of the paper's table are not part of this toolkit.",
        ),
    )
)  # fmt: skip

# ---- figure 3: ablation over the linear term and the skew-symmetric share ------------------------------------------

ORDERS = {"ordered": 0.65, "permuted": 0.8}  # the paper's beta for the ablation over alpha
PEAKS = {"ordered": "0.65 or 0.7", "permuted": "0.8 or 0.85"}  # the paper's best beta


def _ablation_cases(size: Size) -> list[Case]:
    grid = [("alpha", order, alpha, beta) for order, beta in ORDERS.items() for alpha in size["alphas"]]
    grid += [("beta", order, 1.0, beta) for order in ORDERS for beta in size["betas"]]
    training = {**SHORT, "epochs": size["epochs"]}
    return [
        Case(
            {"varied": varied, "task": order, "alpha": alpha, "beta": beta},
            network(LipschitzRNN, size["hidden"], alpha=alpha, beta=beta, gamma=GAMMA, dt=0.3),
            "digits", _pixels(size, order), training,
        )
        for varied, order, alpha, beta in grid
    ]  # fmt: skip


def _ablation_compared(frame: Frame) -> list[Compared]:
    rows = []
    for order, peak in PEAKS.items():
        over_alpha, over_beta = (means(frame, "test_metric", by, varied=by, task=order) for by in ("alpha", "beta"))
        listed = ", ".join(f"{over_alpha[alpha]:.1%}" for alpha in (0.0, 1.0, 2.0))
        best = max(over_beta, key=lambda beta: over_beta[beta])
        rows += [
            Compared(f"{order}: beta of the best accuracy", best, peak, "figure 3b"),
            Compared(
                f"{order}: accuracy at alpha 0, 1, 2", listed, "depends on alpha, degenerates above 1.6", "figure 3a"
            ),
        ]
    return rows


register_study(
    Study(
        "lrnn-ablation",
        "accuracy over alpha and over beta (Lipschitz RNN, figure 3)",
        "Ablation of the Lipschitz RNN: the linear term (alpha) and the skew-symmetric share (beta)",
        f"{PAPER}, section 7.1 and figure 3",
        {
            "full": {
                "hidden": 32, "limit": 3000, "epochs": 6, "seeds": 2,
                "alphas": (0.0, 0.4, 0.8, 1.0, 1.2, 1.6, 2.0), "betas": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
            },
            "quick": {
                "hidden": 16, "limit": 800, "epochs": 2, "seeds": 1,
                "alphas": (0.0, 1.0, 2.0), "betas": (0.5, 0.75, 1.0),
            },
        },
        lambda frame: "; ".join(f"{c.what}: {c.ours} (the paper: {c.paper})" for c in _ablation_compared(frame)) + ".",
        _ablation_cases,
        compared=_ablation_compared,
        figures=tuple(
            Figure(
                "points", title, by, "test_metric", "task", "table", {"varied": by}, ylabel="test accuracy",
                percent=True, caption=caption,
            )
            for by, title, caption in (
                ("alpha", "Accuracy over the linear term", "alpha 0 is a neural ODE."),
                ("beta", "Accuracy over the skew-symmetric share", "beta 1 is skew-symmetric but for the shift."),
            )
        ),
        differences=(*SMALLER, "Few seeds: differences of a few per cent between neighboring points say nothing."),
    )
)  # fmt: skip

# ---- theorem 1: which trained networks meet which condition --------------------------------------------------------

RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the paper's": ({"gamma": GAMMA}, {}),
    "beta 0.95": ({"beta": 0.95, "gamma": GAMMA}, {}),
    "gamma 1 on A": ({"gamma": (1.0, GAMMA)}, {}),
    "gamma 1 on A and W": ({"gamma": (1.0, 1.0)}, {}),
    "gamma 1 on A, margin penalty": ({"gamma": (1.0, GAMMA)}, {"margin_penalty": 1.0, "margin_target": 0.05}),
}
"""Options of the layer and of the training, by name."""
CRITERIA = {
    "theorem1a": "theorem 1 (a)", "theorem1b_published": "theorem 1 (b), printed", "theorem1b": "theorem 1 (b), sound",
    "small_gain": "small gain", "circle": "circle criterion", "multiplier": "multiplier inequality",
}  # fmt: skip


def _certified_cases(size: Size) -> list[Case]:
    training = {"lr": 3e-3, "batch_size": 32, "clip": 1.0, "epochs": size["epochs"]}
    options = {"layout": "8", "limit": size["limit"]}
    common = {"beta": 0.75, "dt": 0.1}
    return [
        Case({"model": name}, network(LipschitzRNN, size["hidden"], **{**common, **own}), "digits", options,
             {**training, **more})
        for name, (own, more) in RECIPES.items()
    ]  # fmt: skip


def _conditions(model: SequenceModel, task: Task, size: Size, seed: int, probed: Sequence[Row]) -> Row:
    layer: Any = model.layer
    system = layer.lure(continuous=True)
    row: Row = {}
    for name, words in CRITERIA.items():
        asked = "theorem1b" if name == "theorem1b_published" else name
        certificate = certify(system, criterion=asked, rate="any", refute=False, seed=seed)
        matching = [f for f in certificate.findings if f.criterion == name]
        row[words] = any(f.holds for f in matching)
        if name == "theorem1a":
            row["margin of (a)"] = matching[0].margin if matching else None
    return {**row, "verdict": verdict(layer, seed)}


def _certified_conclusion(frame: Frame) -> str:
    ours = frame[frame["model"] == "the paper's"]
    met = [words for words in CRITERIA.values() if ours[words].any()]
    held = [name for name, rows in frame.groupby("model", sort=False) if rows["multiplier inequality"].all()]
    says = f"met in some training: {', '.join(met)}" if met else "no trained network meets any of the conditions"
    listed = ", ".join(map(str, held)) or "none"
    return f"By the paper's recipe {says}; the multiplier inequality holds in every training for: {listed}."


register_study(
    Study(
        "lrnn-certified",
        "which trained networks meet which condition (Lipschitz RNN, theorem 1)",
        "Trained Lipschitz RNNs against theorem 1, small gain, circle and multiplier criteria",
        f"{PAPER}, theorem 1 and section 4",
        {
            "full": {"hidden": 12, "limit": 1000, "epochs": 4, "seeds": 3},
            "quick": {"hidden": 8, "limit": 400, "epochs": 2, "seeds": 1},
        },
        _certified_conclusion,
        _certified_cases,
        _conditions,
        compared=lambda frame: [
            Compared(
                f"the paper's recipe: share of trained networks that meet {CRITERIA[c]}",
                means(frame, CRITERIA[c])["the paper's"], "parameters often remain in the region of (b)", "section 4",
            )
            for c in ("theorem1a", "theorem1b_published", "theorem1b")
        ],
        figures=(Figure("points", "Margin of theorem 1 (a)", "model", "margin of (a)", source="table"),),
        differences=(
            "The paper does not check a trained network. 98 steps of 8 pixels, few units and epochs, so that every "
            "criterion is decided in a moment.",
            "Criteria are about the differential equation, as the theorem is; the verdict is about the Euler map.",
            "The last recipe adds a penalty on a negative contraction gap to the loss; the paper has no such term.",
        ),
    )
)  # fmt: skip
