r"""Eigenvalues of symmetric-skew matrices: against beta, along training, and after one step of an optimizer.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021). Figure 4: extreme
real parts of the eigenvalues of :math:`S(M, \beta, \gamma)` for random M beside the interval of proposition 1,
as printed and corrected. Figure 5: the largest real part of A and of W along training. Lemma 2: one step of size delta
moves the singular values of the symmetric parts by :math:`O(\delta (1 - \beta)^2)`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ...models import LipschitzRNN, SequenceModel
from ...models.parametrizations import proposition1_bounds, published_proposition1_bounds, symmetric_skew
from ..tasks import Task, make_task
from ..training.settings import Settings
from ..training.spectra import SpectrumTracker
from .base import Job, Training, register_study, write_table
from .networks import LIPSCHITZ
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Eigenvalues of symmetric-skew matrices: bounds, training, one step"
FULL: dict[str, Any] = {
    "sizes": (64, 128), "matrices": 10, "betas": (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0),
    "hidden": 32, "trained_betas": (0.65, 0.75, 0.8, 0.9, 0.95), "epochs": 8, "limit": 2000, "seeds": 2,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "sizes": (64,), "matrices": 4, "betas": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "hidden": 16, "trained_betas": (0.65, 0.95), "epochs": 2, "limit": 600, "seeds": 1,
}  # fmt: skip
GAMMA, DT, EVERY = 0.001, 0.1, 10
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 64, "clip": None}
STEP_BETAS = tuple(1 - 0.5**k for k in range(3, 9))
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}
REGIONS = {"theorem1a": "(a)", "theorem1b_published": "(b) as printed", "theorem1b_sound": "(b) sound"}
DIFFERENCES = (
    "Figure 5 of the paper is for 784 steps of one pixel and 128 units; here are 98 steps of 8 pixels, fewer units and "
    "few epochs, with several beta in place of two.",
    "Figure 4 is drawn with the interval as printed and with the missing factor of two.",
    "Lemma 2 is measured with one step of plain gradient descent, about which it is, and with one of Adam, with which "
    "the paper's figure 5 is made.",
)


def _model(beta: float, hidden: int, task: Task) -> SequenceModel:
    layer = LipschitzRNN(task.input_size, hidden, beta=beta, gamma=GAMMA, dt=DT)
    return SequenceModel(layer, task.output_size, reduction=task.reduction)


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"layout": "8", "limit": settings["limit"], "test_limit": 200}


def _plan(quick: bool) -> list[Training]:
    chosen = QUICK if quick else FULL
    return [
        Training("digits", _options(chosen), functools.partial(_model, beta, chosen["hidden"]), TRAINING)
        for beta in chosen["trained_betas"]
    ]


def extremes(size: int, beta: float, seed: int) -> dict[str, float]:
    """Extreme real parts of ``S(M, beta, GAMMA)`` for a Gaussian M of variance 1/size, and both intervals.

    Args:
        size: of the matrix.
        beta: share of the skew-symmetric part.
        seed: of M.

    Returns:
        ``low`` and ``high``: real parts; ``corrected_low`` ...: proposition 1 with the factor of two, ``printed_low``
        ...: as printed.

    Example:
        >>> found = extremes(8, 1.0, 0)
        >>> round(found["high"], 6), found["corrected_high"], found["printed_high"]
        (-0.001, -0.001, -0.001)
    """
    generator = torch.Generator().manual_seed(seed)
    M = torch.randn(size, size, generator=generator, dtype=torch.float64) / size**0.5
    real = torch.linalg.eigvals(symmetric_skew(M, beta, GAMMA)).real
    (low, high), (printed_low, printed_high) = (
        bounds(M, beta, GAMMA) for bounds in (proposition1_bounds, published_proposition1_bounds)
    )
    return {
        "low": float(real.min()), "high": float(real.max()), "corrected_low": low, "corrected_high": high,
        "printed_low": printed_low, "printed_high": printed_high,
    }  # fmt: skip


LINES = {
    "high": "largest real part", "low": "smallest real part",
    "corrected_high": "corrected bound, upper", "corrected_low": "corrected bound, lower",
    "printed_high": "printed bound, upper", "printed_low": "printed bound, lower",
}  # fmt: skip


def _bounds(settings: Mapping[str, Any], first: int) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    for size in settings["sizes"]:
        for beta in settings["betas"]:
            for seed in range(first, first + settings["matrices"]):
                yield {"size": size, "beta": beta, "seed": seed}, extremes(size, beta, seed)


def _curve(key: Mapping[str, Any], found: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"what": "bounds", **key, "line": LINES[name], "value": value} for name, value in found.items()]


def step_change(optimizer: str, beta: float, seed: int = 0, lr: float = 1e-3) -> float:
    r"""By how much one step moves the singular values of ``A + A^T`` and ``W + W^T``: the left side of lemma 2.

    .. math:: \max_k |\Delta \sigma_k(A + A^T)| + \max_k |\Delta \sigma_k(W + W^T)|

    Args:
        optimizer: a key of ``OPTIMIZERS``.
        beta: of both matrices.
        seed: of weights and data.
        lr: the step size delta.

    Returns:
        The change.

    Example:
        >>> ratio = step_change("SGD", 0.975) / step_change("SGD", 0.9875)
        >>> round(ratio)
        4
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = LipschitzRNN(2, 16, beta=beta, gamma=GAMMA, dt=DT, init_std=0.1)
        model = SequenceModel(layer, 3).double()
    x = torch.randn(32, 20, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (32,), generator=generator)
    step = OPTIMIZERS[optimizer](model.parameters(), lr=lr)  # type: ignore[call-arg]

    def spectra() -> list[torch.Tensor]:
        return [torch.linalg.svdvals((S + S.mT).detach()) for S in layer.matrices().values()]

    before = spectra()
    nn.functional.cross_entropy(model(x), y).backward()
    step.step()
    return sum(float((a - b).abs().max()) for a, b in zip(before, spectra()))


def exponent(changes: Mapping[float, float]) -> float:
    """The power of ``1 - beta`` with which changes fall: least squares of the logarithms.

    Args:
        changes: beta to change.

    Example:
        >>> round(exponent({beta: (1 - beta) ** 2 for beta in (0.9, 0.95, 0.99)}), 6)
        2.0
    """
    return float(np.polyfit(np.log([1 - b for b in changes]), np.log(list(changes.values())), 1)[0])


def _trained(job: Job, task: Task, settings: Mapping[str, Any], beta: float, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = _model(beta, settings["hidden"], task)
    tracker = SpectrumTracker(model, EVERY, margins=["theorem1"], eigenvalues=False)
    training = Settings(epochs=settings["epochs"], seed=seed, **TRAINING)
    result = job.train(model, task, training, f"beta {beta:g}, seed {seed}", tracker=tracker)
    frame = tracker.frame()
    paths = {}
    for matrix in ("A", "W"):
        own: Any = frame[(frame["matrix"] == matrix) & (frame["quantity"] == "max_real")]
        paths[matrix] = [[int(s), float(v)] for s, v in zip(own["step"], own["value"])]
    margins: Any = frame[frame["matrix"] == "margins"]
    inside = {name: float((margins[margins["quantity"] == name]["value"] > 0).mean()) for name in REGIONS}
    return {"paths": paths, "inside": inside, "accuracy": result.test_metric, "seconds": result.seconds}


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for beta in settings["trained_betas"]:
        for seed in range(job.seed, job.seed + settings["seeds"]):
            decided = {**settings, **TRAINING, "beta": beta, "seed": seed, "data": task.describe()}
            yield Part(f"beta{beta:g}-{seed}", decided, functools.partial(_trained, job, task, settings, beta, seed))


@register_study(
    "lrnn-spectra", "eigenvalues against beta, along training, lemma 2 (Lipschitz RNN, figures 4, 5)", _plan
)
def run_lrnn_spectra(job: Job) -> StudyResult:
    """Draw matrices, train networks, take single steps.

    Args:
        job: ``quick``: fewer and smaller ones; ``data_dir``: folder with MNIST. Beside the parts there is
            ``curves.csv``; its column ``what`` says which figure a row is of.

    Returns:
        One row a size and beta (share of matrices outside each interval), one a trained beta (how far the abscissas
        went, share of the records at which a condition of theorem 1 held), one an optimizer (the power in lemma 2).
    """
    settings = QUICK if job.quick else FULL
    task = make_task("digits", data_dir=job.data_dir, **_options(settings))
    seeds = tuple(range(job.seed, job.seed + settings["seeds"]))
    outcomes = iter(list(job.parts(_parts(job, settings, task))))
    found = list(_bounds(settings, job.seed))
    curves = [row for key, values in found for row in _curve(key, values)]
    rows = _bound_rows(found)
    for beta in settings["trained_betas"]:
        parts = []
        for seed in seeds:
            parts.append(next(outcomes))
            curves += [
                {"what": f"training {matrix}", "beta": beta, "seed": seed, "step": step, "value": value}
                for matrix, path in parts[-1]["paths"].items()
                for step, value in path
            ]
        rows.append(_trained_row(beta, parts))
        write_table(job.out / "curves.csv", curves)
    changes = {name: {beta: step_change(name, beta, job.seed) for beta in STEP_BETAS} for name in OPTIMIZERS}
    curves += [
        {"what": "lemma 2", "line": name, "gap": 1 - beta, "value": value}
        for name, path in changes.items()
        for beta, value in path.items()
    ]
    write_table(job.out / "curves.csv", curves)
    rows += [{"what": "lemma 2", "optimizer": name, "power": exponent(path)} for name, path in changes.items()]
    shown = {**settings, **TRAINING, "gamma": GAMMA, "dt": DT}
    return StudyResult(
        "lrnn-spectra", TITLE, job.quick, shown, tuple(rows), _notes(rows),
        conclusion=_conclusion(rows), paper=f"{LIPSCHITZ}, figures 4 and 5, lemma 2", compared=_compared(rows),
        differences=DIFFERENCES, figures=_figures(settings), seeds=seeds,
    )  # fmt: skip


def _bound_rows(found: list[tuple[dict[str, Any], dict[str, float]]]) -> list[dict[str, Any]]:
    rows = []
    for size, beta in dict.fromkeys((key["size"], key["beta"]) for key, _ in found):
        own = [values for key, values in found if (key["size"], key["beta"]) == (size, beta)]

        def outside(which: str, own: list[dict[str, float]] = own) -> float:
            slack = 1e-9
            return float(
                np.mean([v["low"] < v[f"{which}_low"] - slack or v["high"] > v[f"{which}_high"] + slack for v in own])
            )

        shares = {f"outside_{which}": outside(which) for which in ("corrected", "printed")}
        rows.append({"what": "bounds", "size": size, "beta": beta, "matrices": len(own), **shares})
    return rows


def _trained_row(beta: float, parts: list[dict[str, Any]]) -> dict[str, Any]:
    moved = {
        f"moved_{matrix}": float(np.mean([abs(p["paths"][matrix][-1][1] - p["paths"][matrix][0][1]) for p in parts]))
        for matrix in ("A", "W")
    }
    ends = {f"end_{matrix}": float(np.mean([p["paths"][matrix][-1][1] for p in parts])) for matrix in ("A", "W")}
    inside = {f"inside_{name}": float(np.mean([p["inside"][name] for p in parts])) for name in REGIONS}
    accuracy = float(np.mean([p["accuracy"] for p in parts]))
    return {"what": "training", "beta": beta, **moved, **ends, **inside, "accuracy": accuracy}


def _of(rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["what"] == what]


def _facts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    trained = _of(rows, "training")
    first, last = trained[0], trained[-1]
    return {
        "corrected": max(r["outside_corrected"] for r in _of(rows, "bounds")),
        "printed": max(r["outside_printed"] for r in _of(rows, "bounds")),
        "powers": {r["optimizer"]: r["power"] for r in _of(rows, "lemma 2")},
        "calmer": all(last[f"moved_{m}"] < first[f"moved_{m}"] for m in ("A", "W")),
        "longer": last["inside_theorem1b_published"] > first["inside_theorem1b_published"],
        "first": first,
        "last": last,
    }


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    facts = _facts(rows)
    first, last = facts["first"], facts["last"]

    def both(name: str) -> str:
        return f"{first[name]:.3g} at beta {first['beta']:g}, {last[name]:.3g} at {last['beta']:g}"

    return (
        Compared("largest share of random matrices outside the printed interval", facts["printed"], 0.0, "figure 4"),
        Compared("the same for the corrected interval", facts["corrected"], None, "proposition 1, corrected"),
        Compared("by how much training moves the abscissa of A", both("moved_A"), "less for larger beta", "figure 5"),
        Compared("by how much it moves that of W", both("moved_W"), "less for larger beta", "figure 5"),
        Compared(
            "share of training inside (b) as printed",
            both("inside_theorem1b_published"),
            "more for larger beta",
            "figure 5",
        ),
        Compared("power of 1 - beta, one step of gradient descent", facts["powers"]["SGD"], 2.0, "lemma 2"),
        Compared("power of 1 - beta, one step of Adam", facts["powers"]["Adam"], 2.0, "lemma 2, figure 5"),
    )


def _conclusion(rows: list[dict[str, Any]]) -> str:
    facts = _facts(rows)
    powers = facts["powers"]
    inside = max(row[f"inside_{name}"] for row in _of(rows, "training") for name in REGIONS)
    share = f"the share of training inside (b) {'grows' if facts['longer'] else 'does not grow'} with beta"
    stay = share if inside > 0 else "no training is ever inside any region of theorem 1"
    move = "move less" if facts["calmer"] else "do not move less"
    holds = "holds for every matrix" if facts["corrected"] == 0 else "FAILS for some matrix"
    return (
        f"The corrected interval of proposition 1 {holds}, the printed one fails for up to {facts['printed']:.0%} of "
        f"them at a beta; abscissas {move} for larger beta, and {stay}; lemma 2's power is {powers['SGD']:.2f} with "
        f"gradient descent and {powers['Adam']:.2f} with Adam."
    )


def _notes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    outside = [row for row in _of(rows, "bounds") if row["outside_printed"] > 0]
    notes = [
        f"{r['size']} units, beta {r['beta']:g}: {r['outside_printed']:.0%} of {r['matrices']} matrices outside the "
        "printed interval."
        for r in outside
    ]
    for row in _of(rows, "training"):
        shares = ", ".join(f"{words} {row[f'inside_{name}']:.0%}" for name, words in REGIONS.items())
        notes.append(f"Trained at beta {row['beta']:g}: share of the records at which theorem 1 holds: {shares}.")
    return tuple(notes)


def _figures(settings: Mapping[str, Any]) -> tuple[Figure, ...]:
    bounds = [
        Figure(
            "lines", f"Real parts and bounds, {size} units", "beta", "value", "line",
            where={"what": "bounds", "size": size}, ylabel="real part",
            caption="Bands over the matrices; the printed interval lacks a factor of two.",
        )
        for size in settings["sizes"]
    ]  # fmt: skip
    training = [
        Figure(
            "lines", f"Largest real part of {matrix} along training", "step", "value", "beta",
            where={"what": f"training {matrix}"}, xlabel="step of Adam", ylabel="real part",
            marks=((0.0, "stable below"),), caption="A line a beta, band over the seeds.",
        )
        for matrix in ("A", "W")
    ]  # fmt: skip
    lemma = Figure(
        "lines", "One step: change of the symmetric parts", "gap", "value", "line", where={"what": "lemma 2"}, log="xy",
        xlabel="1 − beta", ylabel="change", caption="Slope 2 is lemma 2; slope 1 is what Adam leaves of it.",
    )  # fmt: skip
    return (*bounds, *training, lemma)
