"""Study of the Lipschitz RNN paper's robustness section: curvature, attacks and noise of eight networks.

MNIST as 98 steps of 8 pixels, stochastic gradient descent with momentum (section 7, table 3, figure 2): the Hessian of
the training loss by Lanczos, PGD and DeepFool with 7 iterations, white noise and salt and pepper on the input, and
noise on the parameters, which the section discusses and does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...models import (
    AntisymmetricRNN,
    BoundedGainRNN,
    ContractingRNN,
    HouseholderRNN,
    LipschitzRNN,
    NeuralODERNN,
    SequenceModel,
    UnitaryRNN,
)
from ..attacks.deepfool import deepfool
from ..attacks.gradient import pgd
from ..attacks.noise import noise_sweep, parameter_noise_sweep
from ..curvature.hessian import hessian_summary
from ..tasks import Task
from .base import Case, Frame, Row, Size, Study, means, network, register_study, verdict
from .lipschitz import GAMMA, PAPER, SEEDS
from .result import Compared, Figure

STEPS, STEP_SIZE = 7, 0.01  # iterations and step size of PGD in the paper, section 7
LEVELS = {
    "white": (0.0, 0.1, 0.2, 0.3, 0.4),
    "salt_pepper": (0.0, 0.05, 0.1, 0.2, 0.3),
    "parameters": (0.0, 0.05, 0.1, 0.2, 0.3),
}
SMALLER_IS_BETTER = ("lambda_max", "trace", "kappa")
QUANTITIES = {
    "lambda_max": "largest eigenvalue of the Hessian", "trace": "its trace", "kappa": "its condition number",
    "pgd": "accuracy under PGD", "deepfool_l2": "median l2 distance by DeepFool",
    "deepfool_linf": "median linf distance by DeepFool", "white 0.3": "accuracy under white noise 0.3",
    "salt_pepper 0.2": "accuracy under salt and pepper 0.2", "parameters 0.2": "accuracy under parameter noise 0.2",
}  # fmt: skip
RIVALS = ("neural ODE", "antisymmetric")
"""Networks that the Lipschitz RNN surpasses in every column, according to the paper's text."""


def _robust_cases(size: Size) -> list[Case]:
    n, own = size["hidden"], {"beta": 0.75, "gamma": GAMMA, "dt": 0.1}
    layers = {
        "Lipschitz, Euler": network(LipschitzRNN, n, **own),
        "Lipschitz, midpoint": network(LipschitzRNN, n, **own, integrator="midpoint"),
        "neural ODE": network(NeuralODERNN, n, dt=0.1),
        "antisymmetric": network(AntisymmetricRNN, n, gamma=GAMMA, dt=0.1),
        "unitary": network(UnitaryRNN, n, reflections=min(16, n // 2)),
        "orthogonal": network(HouseholderRNN, n, reflections=min(16, n)),
        "contracting": network(ContractingRNN, n, rate=0.99),
        "bounded gain": network(BoundedGainRNN, n, gain=1.0),
    }
    training = {"optimizer": "sgd", "momentum": 0.9, "batch_size": 32, "clip": 1.0, "epochs": size["epochs"]}
    rates = {"neural ODE": 0.01, "unitary": 0.01}
    options = {"layout": "8", "limit": size["limit"]}
    return [
        Case({"model": name}, make, "digits", options, {**training, "lr": rates.get(name, 0.03)})
        for name, make in layers.items()
    ]


def _robustness(model: SequenceModel, task: Task, size: Size, seed: int, probed: Sequence[Row]) -> Row:
    (x, y), (u, v) = task.train, task.test
    x, y, u, v = (t[:n] for t, n in zip((x, y, u, v), 2 * (size["curved"],) + 2 * (size["attacked"],)))
    curvature = hessian_summary(model, x, y, seed=seed, max_iter=30, tol=1e-2, trace_samples=8)
    common: dict[str, Any] = {"epsilon": STEPS * STEP_SIZE, "steps": STEPS, "step_size": STEP_SIZE}
    row: Row = {
        "lambda_max": curvature.lambda_max,
        "trace": curvature.trace,
        "kappa": curvature.condition_number,
        "pgd": pgd(model, u, v, norm="linf", seed=seed, **common).robust_accuracy,
    }
    for norm in ("l2", "linf"):
        attack = deepfool(model, u, v, norm=norm, steps=STEPS)
        distances = attack.norms[attack.success & ~attack.already_wrong]
        row[f"deepfool_{norm}"] = float(distances.double().median()) if len(distances) else None
    curves = []
    for kind, levels in LEVELS.items():
        if kind == "parameters":
            sweep: Any = parameter_noise_sweep(model, u, v, levels=levels, draws=2, seed=seed)
        else:
            sweep = noise_sweep(model, u, v, kind=kind, levels=levels, draws=2, seed=seed)
        curves += [{"noise": kind, "level": k, "accuracy": value} for k, value in zip(levels, sweep.accuracy)]
    at = {f"{p['noise']} {p['level']}": p["accuracy"] for p in curves}
    row |= {name: at[name] for name in ("white 0.3", "salt_pepper 0.2", "parameters 0.2")}
    return {**row, "verdict": verdict(model.layer, seed), "curves": curves}


def _robust_compared(frame: Frame) -> list[Compared]:
    rows = []
    for key, what in QUANTITIES.items():
        values = means(frame, key)
        ours, *rivals = (values[name] for name in ("Lipschitz, Euler", *RIVALS))
        better = all(ours < r if key in SMALLER_IS_BETTER else ours > r for r in rivals)
        listed = ", ".join(f"{name} {values[name]:.3g}" for name in ("Lipschitz, Euler", *RIVALS))
        relation = f"Lipschitz RNN {'smaller' if key in SMALLER_IS_BETTER else 'larger'} than both others"
        rows.append(Compared(what, f"{'yes' if better else 'no'}: {listed}", relation, "section 7, table 3, figure 2"))
    return rows


def _robust_conclusion(frame: Frame) -> str:
    compared = _robust_compared(frame)
    proved = [name for name, rows in frame.groupby("model", sort=False) if (rows["verdict"] == "certified").all()]
    won = sum(c.ours.startswith("yes") for c in compared)
    return (
        f"The Lipschitz RNN is more robust than both rivals by {won} of {len(compared)} measures; "
        f"certified in every training: {', '.join(map(str, proved)) or 'none'}."
    )


NOISES = {
    "white": ("White noise on the input", "standard deviation"),
    "salt_pepper": ("Salt and pepper on the input", "share of the pixels"),
    "parameters": ("Noise on the parameters", "relative standard deviation"),
}

register_study(
    Study(
        "lrnn-robustness",
        "Hessian, PGD, DeepFool and noise of eight networks (Lipschitz RNN, table 3, figure 2)",
        "Robustness of recurrent networks: Hessian, attacks, noise",
        f"{PAPER}, section 7, table 3 and figure 2",
        {
            "full": {"hidden": 32, "seeds": 5, "epochs": 5, "limit": 4000, "attacked": 200, "curved": 200},
            "quick": {"hidden": 16, "seeds": 2, "epochs": 2, "limit": 600, "attacked": 50, "curved": 50},
        },
        _robust_conclusion,
        _robust_cases,
        _robustness,
        compared=_robust_compared,
        figures=(
            *(
                Figure(
                    "lines", title, "level", "accuracy", "model", where={"noise": kind}, xlabel=axis,
                    ylabel="test accuracy", percent=True, caption=SEEDS,
                )
                for kind, (title, axis) in NOISES.items()
            ),
            *(
                Figure(
                    "points", QUANTITIES[key], "model", key, source="table", log="y" * (key == "lambda_max"),
                    percent=key == "pgd", caption="A stroke for each training, a marker at their mean.",
                )
                for key in ("lambda_max", "pgd", "deepfool_l2", "deepfool_linf")
            ),
        ),
        differences=(
            "The paper trains on 60,000 images until all models have roughly the same loss; here are smaller networks "
            "and equal epochs on fewer images. Curvature depends on how far training came.",
            "Learning rate 0.03 in place of 0.1, and 0.01 for the neural ODE and the unitary network; gradients are "
            "clipped to norm 1.",
            "The paper names PGD's 7 steps of 0.01 and no radius; here the radius is 0.07 in every pixel. DeepFool's "
            "distances are medians over the images that are classified correctly.",
            "Orthogonal, contracting and bounded-gain networks, the midpoint rule, and the verdicts are added.",
        ),
    )
)  # fmt: skip
