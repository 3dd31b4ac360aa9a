"""The counter-examples of ``docs/errata.md``, run: what a paper prints, what is found, and what holds instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stability.certification import certify
from stability.search.criteria.theorem1 import theorem1
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify

from ...models import RotRNN
from ...models.factorizations import pivoted_qr
from ...models.parametrizations.rotation import normaliser, published_normaliser
from ...models.parametrizations.symmetric_skew import proposition1_bounds, published_proposition1_bounds, symmetric_skew
from .base import Frame, Row, Study, register_study
from .lipschitz import GAMMA
from .lipschitz_spectra import STEP_BETAS, exponent, step_change
from .result import Compared, Figure

LIPSCHITZ, ROTRNN, QRLQ = "Lipschitz RNN", "RotRNN", "QR and LQ"  # the papers


def _row(paper: str, where: str, printed: str, found: Any, instead: str, after: Any, wrong: bool) -> Row:
    return {
        "paper": paper,
        "where": where,
        "printed": printed,
        "found": found,
        "instead": instead,
        "found_instead": after,
        "printed_is_wrong": wrong,
    }


def _theorem1b(count: int) -> list[Row]:
    """A system that meets the printed case (b) and has an unstable equilibrium, with a proof of that."""
    A = np.array([[-1, 13, 29], [-8, -26, -5], [-30, 18, -2]]) / 40
    W = np.array([[-15, 8, 21], [24, -19, 25], [-9, -31, -16]]) / 8
    found = theorem1(A, W)
    v = np.array([4.0, 0.0, 4.0])
    h = -np.linalg.solve(A, np.tanh(v))
    growth = float(np.linalg.eigvals(A + np.diag(1 / np.cosh(v) ** 2) @ W).real.max())
    certificate = certify(DrivenSystem(LureSystem.recurrent(A, W), "tanh", np.eye(3), v - W @ h))
    refuted = str(certificate.verdict) == "refuted" and verify(certificate).valid
    return [
        _row(
            LIPSCHITZ,
            "theorem 1 (b)",
            "its hypotheses make the equilibrium globally exponentially stable",
            f"hypotheses {'hold' if found.b_published.holds else 'fail'}, an eigenvalue of the Jacobian has real part "
            f"{growth:+.3f}",
            "L W symmetric negative definite, A^T L W + L W A positive definite",
            f"{'holds' if found.b_sound.holds else 'fails'}; the network is {certificate.verdict}",
            bool(found.b_published.holds and growth > 0 and refuted),
        )
    ]


def _proposition1(count: int) -> list[Row]:
    """The interval of real parts lacks a factor of two: symmetric M, and Gaussian M at beta 0.5."""
    M = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    real = torch.linalg.eigvals(symmetric_skew(M, 0.5, 0.25)).real.tolist()
    printed, corrected = published_proposition1_bounds(M, 0.5, 0.25), proposition1_bounds(M, 0.5, 0.25)
    rows = [
        _row(
            LIPSCHITZ,
            "proposition 1",
            f"real parts within {list(printed)} (M = diag(1, -1), beta 0.5)",
            ", ".join(f"{v:g}" for v in real),
            "a factor of two before 1 - beta",
            str(list(corrected)),
            not printed[0] <= min(real) <= max(real) <= printed[1]
            and corrected[0] <= min(real) <= max(real) <= corrected[1],
        )
    ]
    outside = {"printed": 0, "corrected": 0}
    for seed in range(count):
        G = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        real_parts = torch.linalg.eigvals(symmetric_skew(G, 0.5, GAMMA)).real
        for name, bounds in (("printed", published_proposition1_bounds), ("corrected", proposition1_bounds)):
            low, high = bounds(G, 0.5, GAMMA)
            outside[name] += not (low <= float(real_parts.min()) and float(real_parts.max()) <= high)
    rows.append(
        _row(
            LIPSCHITZ,
            "proposition 1",
            f"no Gaussian M of 64 units outside at beta 0.5 ({count} drawn)",
            f"{outside['printed']} outside",
            "the corrected interval",
            f"{outside['corrected']} outside",
            outside["printed"] > 0 and outside["corrected"] == 0,
        )
    )
    return rows


def _lemma4(count: int) -> list[Row]:
    """The last line of the proof lacks the halves; that of proposition 1 lacks gamma at its upper end."""
    A = np.array([[3.0, 1.0], [0.0, 4.0]])
    real, ends = np.linalg.eigvals(A).real, np.linalg.eigvalsh(A + A.T)
    halves = ends / 2
    S = symmetric_skew(torch.eye(1, dtype=torch.float64), 0.5, 2.0)
    value, upper = float(S), 2 * (1 - 0.5) * 1.0
    return [
        _row(
            LIPSCHITZ,
            "lemma 4, last line",
            f"{ends[0]:.2f} <= Re lambda <= {ends[1]:.2f}",
            ", ".join(f"{v:g}" for v in real),
            "halves of both ends",
            f"{halves[0]:.2f} to {halves[1]:.2f}",
            bool(real.min() < ends[0] and halves[0] <= real.min() <= real.max() <= halves[1]),
        ),
        _row(
            LIPSCHITZ,
            "proof of proposition 1, last interval",
            f"the proposition's upper end is {upper:g} (M = 1, beta 0.5, gamma 2)",
            f"{value:g}, for the end is less by gamma",
            "upper end less gamma",
            f"{upper - 2.0:g}",
            value == upper - 2.0,
        ),
    ]


def _lemma2(count: int) -> list[Row]:
    """One step changes the symmetric parts by the square of 1 - beta with gradient descent, and not with Adam."""
    powers = {name: exponent({b: step_change(name, b) for b in STEP_BETAS}) for name in ("SGD", "Adam")}
    return [
        _row(
            LIPSCHITZ,
            "lemma 2, figure 5",
            "power 2 of 1 - beta; figure 5 is made with Adam",
            f"power {powers['Adam']:.2f} with Adam",
            "gradient descent",
            f"power {powers['SGD']:.2f}",
            powers["Adam"] < 1.5 < powers["SGD"],
        )
    ]


def _rotrnn_norms(count: int) -> list[Row]:
    """The normaliser for c other than 1, the limit of equation 14, and the norm under inputs that are not white."""
    gamma, trace, c = torch.tensor(0.9), torch.tensor(3.0), 0.5
    limits = [
        float(xi**2 * trace / (1 - gamma**2))
        for xi in (published_normaliser(1 - gamma**2, trace, c), normaliser(1 - gamma**2, trace, c))
    ]
    square = 0.9**2
    sums = sum(square**i for i in range(1, 500)), sum(square**i for i in range(500))
    limit = 1 / (1 - square)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = RotRNN(4, 16, heads=1, gamma_min=0.9, gamma_max=0.9).double()
    white = torch.randn(count, 200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norms = [
        float(layer.states(x)[:, -1].detach().square().sum(dim=1).mean()) for x in (white, torch.ones_like(white[:1]))
    ]
    return [
        _row(
            ROTRNN,
            "equation 11",
            "E|x|^2 tends to c = 0.5 (gamma 0.9)",
            f"{limits[0]:.3f}",
            "sqrt(c (1 - gamma^2) / Tr(B^T B))",
            f"{limits[1]:.3f}",
            abs(limits[0] - c) > 1e-3 > abs(limits[1] - c),
        ),
        _row(
            ROTRNN,
            "equation 14",
            f"the sum from i = 1 tends to {limit:.2f} (|lambda| = 0.9)",
            f"{sums[0]:.2f}",
            "the sum from i = 0",
            f"{sums[1]:.2f}",
            abs(sums[0] - limit) > 0.5 and abs(sums[1] - limit) < 1e-6,
        ),
        _row(
            ROTRNN,
            "section 3.3, figure 3",
            "the normalisation keeps the mean squared norm at 1",
            f"{norms[1]:.2f} for constant inputs of power 1",
            "for white inputs",
            f"{norms[0]:.2f}",
            norms[1] > 2 and abs(norms[0] - 1) < 0.5,
        ),
    ]


def _pivoted(count: int) -> list[Row]:
    """The gradient of the pivoted factorisation, against central differences of its own values."""
    rng = np.random.default_rng(3)
    n, step = 4, 1e-6
    weights = torch.from_numpy(rng.standard_normal((n, n)))
    while True:
        A = torch.from_numpy(rng.standard_normal((n, n))).requires_grad_()
        P = pivoted_qr(A)[2].detach()
        if not torch.equal(P @ P, torch.eye(n, dtype=P.dtype)):  # its own inverse would show no difference
            break

    def value(matrix: torch.Tensor) -> torch.Tensor:
        return (pivoted_qr(matrix)[1] * weights).sum()

    (gradient,) = torch.autograd.grad(value(A), A)
    slopes = torch.zeros_like(weights)
    for i, k in np.ndindex(n, n):
        shift = torch.zeros_like(weights)
        shift[i, k] = step
        slopes[i, k] = (value(A.detach() + shift) - value(A.detach() - shift)) / (2 * step)
    inner = gradient @ P  # B_bar, for gradient = B_bar P^T
    errors = [float((g - slopes).abs().max()) for g in (inner @ P, gradient)]
    return [
        _row(
            QRLQ,
            "pivoted case",
            "the gradient is B_bar P",
            f"off by {errors[0]:.2g} from differences",
            "B_bar P^T",
            f"off by {errors[1]:.1g}",
            errors[0] > 0.1 and errors[1] < 1e-6,
        )
    ]


CASES: tuple[Callable[[int], list[Row]], ...] = (_theorem1b, _proposition1, _lemma4, _lemma2, _rotrnn_norms, _pivoted)


def _unstable_path(steps: int = 3000, dt: float = 0.02) -> list[Row]:
    """The distance from the equilibrium of the counter-example to theorem 1 (b), by the classical Runge-Kutta rule."""
    A = np.array([[-1, 13, 29], [-8, -26, -5], [-30, 18, -2]]) / 40
    W = np.array([[-15, 8, 21], [24, -19, 25], [-9, -31, -16]]) / 8
    v = np.array([4.0, 0.0, 4.0])
    rest = -np.linalg.solve(A, np.tanh(v))
    bias = v - W @ rest

    def field(h: np.ndarray) -> np.ndarray:
        return A @ h + np.tanh(W @ h + bias)

    h, rows = rest + 1e-3 * np.ones(3) / np.sqrt(3), []
    for k in range(steps + 1):
        if k % 20 == 0:
            rows.append({"time": k * dt, "distance": float(np.linalg.norm(h - rest))})
        k1 = field(h)
        k2 = field(h + dt / 2 * k1)
        k3 = field(h + dt / 2 * k2)
        h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + field(h + dt * k3))
    return rows


def _conclusion(frame: Frame) -> str:
    return (
        f"{frame['printed_is_wrong'].sum()} of {len(frame)} printed statements fail in the example given, and what "
        "stands here in their place holds in it."
    )


register_study(
    Study(
        "errata",
        "the counter-examples to what the papers print, run and shown",
        "Slips of the papers: the counter-examples, run",
        "All papers of this toolkit; docs/errata.md explains each.",
        {"full": {"samples": 200}, "quick": {"samples": 20}},
        _conclusion,
        compute=lambda size, seed: ([row for case in CASES for row in case(size["samples"])], _unstable_path()),
        compared=lambda frame: [
            Compared(row.where, row.found, row.printed, row.paper) for row in frame.itertuples(index=False)
        ],
        figures=(
            Figure(
                "lines", "Theorem 1 (b) as printed: distance from the equilibrium", "time", "distance", log="y",
                caption="All printed hypotheses hold; a start 0.001 away leaves for a limit cycle.",
            ),
        ),
    )
)  # fmt: skip
