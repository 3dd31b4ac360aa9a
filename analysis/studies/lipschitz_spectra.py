"""Study of the Lipschitz RNN paper's eigenvalue bounds: figure 4 (proposition 1) and lemma 2.

Extreme real parts of the eigenvalues of ``S(M, beta, gamma)`` for random M are compared with the interval of
proposition 1, as printed and corrected. By lemma 2 one step of size delta moves the singular values of the symmetric
parts by ``O(delta (1 - beta)^2)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from ...models import LipschitzRNN, SequenceModel
from ...models.parametrizations.symmetric_skew import proposition1_bounds, published_proposition1_bounds, symmetric_skew
from .base import Frame, Row, Size, Study, register_study
from .lipschitz import GAMMA, PAPER
from .result import Compared, Figure

STEP_BETAS = tuple(1 - 0.5**k for k in range(3, 9))
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}


def step_change(optimizer: str, beta: float, seed: int = 0, lr: float = 1e-3) -> float:
    r"""Return how far one step moves the singular values of ``A + A^T`` and ``W + W^T``: the left side of lemma 2.

    .. math:: \max_k |\Delta \sigma_k(A + A^T)| + \max_k |\Delta \sigma_k(W + W^T)|

    Args:
        optimizer: ``SGD`` or ``Adam``.
        beta: skew-symmetric share of both matrices.
        seed: seed of weights and data.
        lr: the step size.

    Example:
        >>> ratio = step_change("SGD", 0.975) / step_change("SGD", 0.9875)
        >>> round(ratio)
        4
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = LipschitzRNN(2, 16, beta=beta, gamma=GAMMA, dt=0.1, init_std=0.1)
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
    """Return the power of ``1 - beta`` with which changes fall: least squares of the logarithms.

    Args:
        changes: beta to change.

    Example:
        >>> round(exponent({beta: (1 - beta) ** 2 for beta in (0.9, 0.95, 0.99)}), 6)
        2.0
    """
    return float(np.polyfit(np.log([1 - b for b in changes]), np.log(list(changes.values())), 1)[0])


def _spectra(size: Size, seed: int) -> tuple[list[Row], list[Row]]:
    """Return the rows of the table and of the curves."""
    rows, curves = [], []
    for beta in size["betas"]:
        outside = {"printed": 0, "corrected": 0}
        for draw in range(seed, seed + size["matrices"]):
            n = size["units"]
            M = torch.randn(n, n, generator=torch.Generator().manual_seed(draw), dtype=torch.float64) / n**0.5
            real = torch.linalg.eigvals(symmetric_skew(M, beta, GAMMA)).real
            extremes = {"real part": (float(real.min()), float(real.max()))}
            for name, bounds in (("printed", published_proposition1_bounds), ("corrected", proposition1_bounds)):
                extremes[name] = low, high = bounds(M, beta, GAMMA)
                outside[name] += bool(real.min() < low - 1e-9 or real.max() > high + 1e-9)
            curves += [
                {"beta": beta, "line": f"{name}, {end}", "value": value}
                for name, pair in extremes.items()
                for end, value in zip(("least", "largest"), pair)
            ]
        rows.append({"beta": beta, **{f"outside_{name}": n / size["matrices"] for name, n in outside.items()}})
    for name in OPTIMIZERS:
        curves += [{"line": name, "gap": 1 - beta, "change": step_change(name, beta, seed)} for beta in STEP_BETAS]
    return rows, curves


def _powers() -> dict[str, float]:
    """Return the power of ``1 - beta`` measured with each optimizer."""
    return {name: exponent({beta: step_change(name, beta) for beta in STEP_BETAS}) for name in OPTIMIZERS}


def _spectra_compared(frame: Frame) -> Sequence[Compared]:
    powers = _powers()
    return (
        Compared(
            "largest share of matrices outside the printed interval", frame["outside_printed"].max(), 0.0, "figure 4"
        ),
        Compared("share outside the corrected interval", frame["outside_corrected"].max(), None, "proposition 1"),
        Compared("power of 1 - beta, one step of gradient descent", powers["SGD"], 2.0, "lemma 2"),
        Compared("power of 1 - beta, one step of Adam", powers["Adam"], 2.0, "lemma 2, figure 5"),
    )


def _spectra_conclusion(frame: Frame) -> str:
    powers = _powers()
    holds = "holds for every matrix" if frame["outside_corrected"].max() == 0 else "FAILS for some matrix"
    return (
        f"The corrected interval of proposition 1 {holds}, the printed one fails for up to "
        f"{frame['outside_printed'].max():.0%} of them at a beta; lemma 2's power is {powers['SGD']:.2f} with gradient "
        f"descent and {powers['Adam']:.2f} with Adam."
    )


register_study(
    Study(
        "lrnn-spectra",
        "eigenvalues against beta, lemma 2 (Lipschitz RNN, figures 4, 5)",
        "Eigenvalues of symmetric-skew matrices: bounds, and one step of training",
        f"{PAPER}, figure 4, lemma 2",
        {
            "full": {"units": 128, "matrices": 10, "betas": tuple(0.5 + 0.05 * k for k in range(11))},
            "quick": {"units": 64, "matrices": 4, "betas": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)},
        },
        _spectra_conclusion,
        compute=_spectra,
        compared=_spectra_compared,
        figures=(
            Figure(
                "lines", "Real parts and bounds", "beta", "value", "line", ylabel="real part",
                caption="Bands over the matrices; the printed interval lacks a factor of two.",
            ),
            Figure(
                "lines", "One step: change of the symmetric parts", "gap", "change", "line", log="xy",
                xlabel="1 − beta", caption="Lemma 2 predicts slope 2; Adam shows slope 1.",
            ),
        ),
        differences=(
            "Figure 4 is drawn with the interval as printed and with the missing factor of two.",
            "Lemma 2, which is about gradient descent, is measured with one step of gradient descent and with one of "
            "Adam, the optimizer of the paper's figure 5.",
        ),
    )
)  # fmt: skip
