"""Study of the QR and LQ gradients: accuracy in every shape, real and complex, pivoted, over condition numbers.

Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep - real or
complex - matrices and their software implementation". The reference is the Gram-Schmidt process, done twice, on dual
numbers (a value and its derivative along a direction) in the platform's extended precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stability.errors import RankError

from ...models.factorizations import lq, pivoted_qr, qr
from .base import Frame, Row, Size, Study, register_study
from .result import Compared, Figure

PAPER = "Roberts, Roberts, QR and LQ decomposition matrix backpropagation algorithms"
TORCH = "torch.linalg.qr"
KINDS = ("real", "complex")
STEP = 6e-6  # step of central differences: the cube root of the unit of rounding


class Dual(NamedTuple):
    """Value and its derivative along a direction."""

    value: np.ndarray
    slope: np.ndarray


def _dual_qr(A: np.ndarray, E: np.ndarray) -> tuple[Dual, Dual]:
    """Return the QR factors with positive diagonal and their derivatives along ``E``, by the Gram-Schmidt process."""
    m, n = A.shape
    k = min(m, n)
    Q, dQ = np.zeros((m, k), A.dtype), np.zeros((m, k), A.dtype)
    R, dR = np.zeros((k, n), A.dtype), np.zeros((k, n), A.dtype)
    for j in range(n):
        v, dv = A[:, j].copy(), E[:, j].copy()
        for _ in range(2):  # the second pass removes what rounding left of the first
            for i in range(min(j, k)):
                r = Q[:, i].conj() @ v
                dr = dQ[:, i].conj() @ v + Q[:, i].conj() @ dv
                R[i, j] += r
                dR[i, j] += dr
                dv = dv - dQ[:, i] * r - Q[:, i] * dr
                v = v - Q[:, i] * r
        if j < k:
            length = np.sqrt(np.real(np.vdot(v, v)))
            slope = np.real(np.vdot(v, dv)) / length
            R[j, j], dR[j, j] = length, slope
            Q[:, j], dQ[:, j] = v / length, dv / length - v * slope / length**2
    return Dual(Q, dQ), Dual(R, dR)


def _drawn(m: int, n: int, kind: str, condition: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a matrix whose leading square block has singular values from 1 to ``1 / condition``; Gaussian elsewhere."""
    k = min(m, n)

    def gauss(*shape: int) -> np.ndarray:
        real = rng.standard_normal(shape)
        return real + 1j * rng.standard_normal(shape) if kind == "complex" else real

    U, V = np.linalg.qr(gauss(m, k))[0], np.linalg.qr(gauss(k, k))[0]
    block = (U * np.geomspace(1.0, 1.0 / condition, k)) @ V
    return np.hstack([block, gauss(m, n - k)]) if n > k else block


def _torch_qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``torch.linalg.qr`` with a positive diagonal, by signs that count as constants."""
    Q, R = torch.linalg.qr(A)
    phase = torch.sgn(R.diagonal().detach())
    return Q * phase, phase.conj()[:, None] * R


def _transposed(factor: Callable[[Tensor], Any], A: Tensor) -> tuple[Tensor, Tensor]:
    """Return an LQ factorization of ``A^H`` as the QR factors of A."""
    L, Q = factor(A.mH)
    return Q.mH, L.mH


METHODS: dict[str, Callable[[Tensor], Any]] = {
    "qr": qr,
    "lq": functools.partial(_transposed, lq),
    "pivoted_qr": lambda A: pivoted_qr(A)[:2],
    TORCH: _torch_qr,
}
SHAPES = {"square": (1, 1), "deep": (2, 1), "wide": (1, 2)}


def _errors(method: str, m: int, n: int, kind: str, condition: float, size: Size, seed: int) -> Row:
    """Return the median relative errors of directional derivatives: of the gradient and of central differences."""
    rows = []
    for draw in range(size["draws"]):
        rng = np.random.default_rng([seed, draw, m, n, KINDS.index(kind)])
        A, k, order = _drawn(m, n, kind, condition, rng), min(m, n), np.arange(n)
        if method == "pivoted_qr":  # the permutation is locally constant: the reference is QR of the permuted matrix
            order = pivoted_qr(torch.from_numpy(A)).permutation.numpy()
        weights = [
            rng.standard_normal(s) + (1j * rng.standard_normal(s) if kind == "complex" else 0.0)
            for s in ((m, k), (k, n))
        ]
        try:
            gradient = _gradient(METHODS[method], A, weights)
        except (RankError, torch.linalg.LinAlgError):
            return {"error": None, "differences": None}
        rows.append(_against(A, order, gradient, weights, size["directions"], rng, METHODS[method], condition))
    error, differences = np.median(rows, axis=0)
    return {"error": float(error), "differences": float(differences)}


def _gradient(factor: Callable[[Tensor], Any], A: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    X = torch.from_numpy(A).requires_grad_()
    (gradient,) = torch.autograd.grad(_scalar(factor, X, weights), X)
    return gradient.resolve_conj().numpy()


def _scalar(factor: Callable[[Tensor], Any], X: Tensor, weights: list[np.ndarray]) -> Tensor:
    pairs = zip(factor(X), weights, strict=True)
    return torch.stack([(F * torch.from_numpy(w.conj())).sum().real for F, w in pairs]).sum()


def _against(
    A: np.ndarray, order: np.ndarray, gradient: np.ndarray, weights: list[np.ndarray], directions: int,
    rng: np.random.Generator, factor: Callable[[Tensor], Any], condition: float,
) -> tuple[float, float]:  # fmt: skip
    """Return root mean square errors over directions against the reference: of a gradient and of differences."""
    precise = np.clongdouble if np.iscomplexobj(A) else np.longdouble
    size = float(np.linalg.norm(A, 2))
    exact, ours, differences = [], [], []
    for _ in range(directions):
        E = rng.standard_normal(A.shape) + (1j * rng.standard_normal(A.shape) if np.iscomplexobj(A) else 0.0)
        factors = _dual_qr(A.astype(precise)[:, order], E.astype(precise)[:, order])
        exact.append(float(sum((w.conj() * F.slope).sum().real for F, w in zip(factors, weights, strict=True))))
        ours.append(float((gradient.conj() * E).sum().real))
        h = STEP * size * condition ** (-2 / 3)  # where truncation and rounding are of one size
        values = [float(_scalar(factor, torch.from_numpy(A + s * h * E), weights)) for s in (1, -1)]
        differences.append((values[0] - values[1]) / (2 * h))
    scale = np.sqrt(np.mean(np.square(exact)))
    return tuple(float(np.sqrt(np.mean(np.square(np.subtract(v, exact)))) / scale) for v in (ours, differences))  # type: ignore[return-value]


def _table(size: Size, seed: int) -> tuple[list[Row], list[Row]]:
    rows = [
        {"method": method, "kind": kind, "shape": shape, "condition": condition,
         **_errors(method, a * size["size"], b * size["size"], kind, condition, size, seed)}
        for kind in KINDS
        for shape, (a, b) in SHAPES.items()
        for method in METHODS
        for condition in size["conditions"]
    ]  # fmt: skip
    columns = [("error", name, name) for name in METHODS] + [("differences", "qr", "central differences")]
    curves = [
        {"kind": r["kind"], "series": series, "condition": r["condition"], "error": max(r[column], 1e-17)}
        for column, method, series in columns
        for r in rows
        if r["method"] == method and r[column] is not None
    ]
    return rows, curves


def _largest(frame: Frame, method: str, shape: str | None = None) -> float:
    group = frame[(frame["method"] == method) & (frame["condition"] == frame["condition"].min())]
    return float((group if shape is None else group[group["shape"] == shape])["error"].max())


def _compared(frame: Frame) -> list[Compared]:
    refused = frame[(frame["method"] == TORCH) & frame["error"].isna()]
    shapes = ", ".join(sorted(set(refused["shape"]))) or "none"
    asked = (("qr", "wide", "proposition 2"), ("qr", "deep", "proposition 1"), ("lq", "deep", "equation 17"),
             ("lq", "wide", "proposition 3"))  # fmt: skip
    return [
        *(
            Compared(f"{method}, {shape}: largest error at condition 1", _largest(frame, method, shape), None, where)
            for method, shape, where in asked
        ),
        Compared(
            "shapes without a gradient in torch.linalg.qr", shapes, "wide and complex ones were added", "section 5"
        ),
    ]


def _conclusion(frame: Frame) -> str:
    methods = frame[frame["method"] != TORCH]
    ours = max(_largest(frame, method) for method in METHODS if method != TORCH)
    return (
        f"Gradients of QR, LQ and pivoted QR are right to {ours:.0e} in every shape at condition 1 (torch's QR: "
        f"{_largest(frame, TORCH):.0e}), and their relative error stays below "
        f"{(methods['error'] / methods['condition']).max():.0e} times the condition number."
    )


register_study(
    Study(
        "qr-gradients",
        "accuracy of the gradients of QR, LQ and pivoted QR in every shape (QR/LQ paper)",
        "Gradients of QR and LQ: accuracy by shape and condition number",
        PAPER,
        {
            "full": {"size": 12, "conditions": tuple(10.0**k for k in range(0, 13, 2)), "draws": 5, "directions": 6},
            "quick": {"size": 6, "conditions": (1.0, 1e4, 1e8), "draws": 2, "directions": 3},
        },
        _conclusion,
        compute=_table,
        compared=_compared,
        figures=tuple(
            Figure("lines", f"{kind} matrices", "condition", "error", "series", where={"kind": kind}, log="xy",
                   xlabel="condition number of the leading block", ylabel="relative error",
                   caption="Means over the shapes with their range; pivoting takes well conditioned columns first.")
            for kind in KINDS
        ),
        differences=(
            "The paper has formulas and no experiment of this kind: there are no numbers to be compared with.",
            "Only the leading square block is given a condition number, since the gradients solve with its triangle.",
        ),
    )
)  # fmt: skip
