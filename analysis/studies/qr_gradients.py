"""How accurate the gradients of QR and LQ are: every shape, real and complex, pivoted, over condition numbers.

Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep - real or
complex - matrices and their software implementation". The reference is another algorithm in more digits: Gram and
Schmidt's, twice, on dual numbers (a value and its derivative along a direction), in the platform's extended precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stability.errors import RankError

from ...models.factorizations import lq, pivoted_qr, qr
from .base import Job, register_study, write_table
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Gradients of QR and LQ: accuracy by shape and condition number"
PAPER = "Roberts, Roberts, QR and LQ decomposition matrix backpropagation algorithms"
FULL: dict[str, Any] = {"size": 12, "conditions": tuple(10.0**k for k in range(0, 13, 2)), "draws": 5, "directions": 6}
QUICK: dict[str, Any] = {"size": 6, "conditions": (1.0, 1e4, 1e8), "draws": 2, "directions": 3}
KINDS = ("real", "complex")
STEP = 6e-6  # the cube root of the unit of rounding
DIFFERENCES = (
    "The paper has formulas and no experiment of this kind: there are no numbers to be compared with.",
    "Only the leading square block is given a condition number, since the gradients solve with its triangle.",
)
FIGURES = tuple(
    Figure("lines", f"{kind} matrices", "condition", "error", "series", where={"kind": kind}, log="xy",
           xlabel="condition number of the leading block", ylabel="relative error",
           caption="Means over the shapes with their range; pivoting takes well conditioned columns first.")
    for kind in KINDS
)  # fmt: skip


class Dual(NamedTuple):
    """A value and its derivative along a direction."""

    value: np.ndarray
    slope: np.ndarray


def dual_qr(A: np.ndarray, E: np.ndarray) -> tuple[Dual, Dual]:
    """Factors of the QR factorisation with positive diagonal, and their derivatives along ``E``, by Gram and Schmidt.

    Args:
        A: ``(m, n)``, in extended precision.
        E: ``(m, n)``.

    Returns:
        ``Q (m, k)`` and ``R (k, n)`` with slopes.

    Example:
        >>> Q, R = dual_qr(np.array([[2.0]]), np.array([[1.0]]))
        >>> R.value.item(), R.slope.item(), Q.slope.item()
        (2.0, 1.0, 0.0)
    """
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


def drawn(m: int, n: int, kind: str, condition: float, rng: np.random.Generator) -> np.ndarray:
    """A matrix whose leading square block has singular values from 1 to ``1 / condition``; Gaussian elsewhere."""
    k = min(m, n)

    def gauss(*shape: int) -> np.ndarray:
        real = rng.standard_normal(shape)
        return real + 1j * rng.standard_normal(shape) if kind == "complex" else real

    U, V = np.linalg.qr(gauss(m, k))[0], np.linalg.qr(gauss(k, k))[0]
    block = (U * np.geomspace(1.0, 1.0 / condition, k)) @ V
    return np.hstack([block, gauss(m, n - k)]) if n > k else block


def _torch_qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """``torch.linalg.qr`` in the gauge of a positive diagonal, by signs that count as constants."""
    Q, R = torch.linalg.qr(A)
    phase = torch.sgn(R.diagonal().detach())
    return Q * phase, phase.conj()[:, None] * R


def _transposed(factor: Callable[[Tensor], Any], A: Tensor) -> tuple[Tensor, Tensor]:
    """An LQ factorisation of ``A^H``, read as QR of A."""
    L, Q = factor(A.mH)
    return Q.mH, L.mH


METHODS: dict[str, Callable[[Tensor], Any]] = {
    "qr": qr,
    "lq": functools.partial(_transposed, lq),
    "pivoted_qr": lambda A: pivoted_qr(A)[:2],
    "torch.linalg.qr": _torch_qr,
}
SHAPES = {"square": (1, 1), "deep": (2, 1), "wide": (1, 2)}


def errors(method: str, m: int, n: int, kind: str, condition: float, settings: Mapping[str, Any], seed: int) -> Any:
    """Relative errors of the directional derivatives of a random linear function of the factors.

    Args:
        method: a key of ``METHODS``.
        m: rows.
        n: columns.
        kind: ``real`` or ``complex``.
        condition: of the leading block.
        settings: ``draws`` and ``directions``.
        seed: of everything.

    Returns:
        The median over the draws, of the gradient and of central differences; the message where there is no gradient.
    """
    found = []
    for draw in range(settings["draws"]):
        rng = np.random.default_rng([seed, draw, m, n, KINDS.index(kind)])
        A = drawn(m, n, kind, condition, rng)
        if method == "pivoted_qr":  # the permutation is locally constant: the reference is QR of the permuted matrix
            order = pivoted_qr(torch.from_numpy(A)).permutation.numpy()
        else:
            order = np.arange(n)
        k = min(m, n)
        weights = [rng.standard_normal(s) + (1j * rng.standard_normal(s) if kind == "complex" else 0.0)
                   for s in ((m, k), (k, n))]  # fmt: skip
        try:
            gradient = _gradient(METHODS[method], A, weights)
        except (RankError, torch.linalg.LinAlgError) as error:
            return {"refused": str(error).split("\n")[0]}
        found.append(_against(A, order, gradient, weights, settings["directions"], rng, METHODS[method], condition))
    ours, differences = (float(np.median([f[i] for f in found])) for i in (0, 1))
    return {"error": ours, "differences": differences}


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
    """Root mean square errors over directions, relative to the reference: of a gradient, of differences."""
    wide = np.clongdouble if np.iscomplexobj(A) else np.longdouble
    size = float(np.linalg.norm(A, 2))
    exact, ours, differences = [], [], []
    for _ in range(directions):
        E = rng.standard_normal(A.shape) + (1j * rng.standard_normal(A.shape) if np.iscomplexobj(A) else 0.0)
        factors = dual_qr(A.astype(wide)[:, order], E.astype(wide)[:, order])
        exact.append(float(sum((w.conj() * F.slope).sum().real for F, w in zip(factors, weights, strict=True))))
        ours.append(float((gradient.conj() * E).sum().real))
        h = STEP * size * condition ** (-2 / 3)  # where truncation and rounding are of one size
        ends = [float(_scalar(factor, torch.from_numpy(A + s * h * E), weights)) for s in (1, -1)]
        differences.append((ends[0] - ends[1]) / (2 * h))
    scale = np.sqrt(np.mean(np.square(exact)))
    return tuple(float(np.sqrt(np.mean(np.square(np.subtract(v, exact)))) / scale) for v in (ours, differences))  # type: ignore[return-value]


def _parts(job: Job, settings: dict[str, Any]) -> Iterator[Part]:
    for kind in KINDS:
        for shape, (a, b) in SHAPES.items():
            m, n = a * settings["size"], b * settings["size"]
            for method in METHODS:
                decided = {**settings, "kind": kind, "m": m, "n": n, "method": method, "seed": job.seed}
                column = functools.partial(_column, method, m, n, kind, settings, job.seed)
                yield Part(f"{method.replace('.', '-')}-{kind}-{shape}", decided, column)


@register_study("qr-gradients", "accuracy of the gradients of QR, LQ and pivoted QR in every shape (QR/LQ paper)")
def run_gradients(job: Job) -> StudyResult:
    """Compare gradients with a reference in extended precision over condition numbers.

    Args:
        job: ``quick``: small matrices, three condition numbers. ``curves.csv`` has one row a series and condition.

    Returns:
        One row a factorisation, kind, shape and condition number.
    """
    settings = QUICK if job.quick else FULL
    rows, parts = [], job.parts(_parts(job, settings))
    for kind in KINDS:
        for shape, (a, b) in SHAPES.items():
            m, n = a * settings["size"], b * settings["size"]
            for method in METHODS:
                part = next(parts)
                rows += [
                    {"method": method, "kind": kind, "shape": f"{shape} ({m} x {n})", "condition": condition,
                     **{name: found.get(name) for name in ("error", "differences", "refused")}}
                    for condition, found in zip(settings["conditions"], part, strict=True)
                ]  # fmt: skip
                job.progress(f"{method}, {kind}, {shape}")
    curves = [
        {"kind": r["kind"], "series": r["method"], "shape": r["shape"], "condition": r["condition"],
         "error": max(r["error"], 1e-17)}
        for r in rows if r["error"] is not None
    ]  # fmt: skip
    curves += [
        {"kind": r["kind"], "series": "central differences", "shape": r["shape"], "condition": r["condition"],
         "error": max(r["differences"], 1e-17)}
        for r in rows if r["method"] == "qr"
    ]  # fmt: skip
    write_table(job.out / "curves.csv", curves)
    bits = np.finfo(np.longdouble).nmant + 1
    return StudyResult(
        "qr-gradients", TITLE, job.quick, settings, tuple(rows), conclusion=_conclusion(rows), paper=PAPER,
        differences=DIFFERENCES, figures=FIGURES, seeds=(job.seed,), compared=_compared(rows),
        notes=(f"The reference computes with {bits} bits, against 53 in double precision.",
               "At condition 1 columns are equally long: pivots change between the ends of a difference, which fails.",
               "An error of the size of the condition number times 1e-16 is that of the factors themselves."),
    )  # fmt: skip


def _column(method: str, m: int, n: int, kind: str, settings: Mapping[str, Any], seed: int) -> list[Any]:
    return [errors(method, m, n, kind, condition, settings, seed) for condition in settings["conditions"]]


def _worst(rows: list[dict[str, Any]], method: str, most: float = np.inf) -> float:
    return max(r["error"] for r in rows if r["method"] == method and r["error"] is not None and r["condition"] <= most)


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    refused = sorted({r["shape"].split()[0] for r in rows if r["method"] == "torch.linalg.qr" and r["refused"]})
    return (
        Compared("wide QR: largest error at condition 1", _shape(rows, "qr", "wide"), None, "proposition 2"),
        Compared("deep QR", _shape(rows, "qr", "deep"), None, "proposition 1"),
        Compared("LQ of wide matrices (deep, transposed)", _shape(rows, "lq", "deep"), None, "equation 17"),
        Compared("LQ of deep matrices (wide, transposed)", _shape(rows, "lq", "wide"), None, "proposition 3"),
        Compared("shapes without a gradient in torch.linalg.qr", ", ".join(refused) or "none",
                 "wide and complex ones were added by the authors", "section 5"),
    )  # fmt: skip


def _shape(rows: list[dict[str, Any]], method: str, shape: str) -> float:
    low = min(r["condition"] for r in rows)
    found = [r for r in rows if r["method"] == method and r["shape"].startswith(shape) and r["condition"] == low]
    return max(r["error"] for r in found)


def _conclusion(rows: list[dict[str, Any]]) -> str:
    low = min(r["condition"] for r in rows)
    ours = max(_worst(rows, name, low) for name in ("qr", "lq", "pivoted_qr"))
    growth = max(
        r["error"] / r["condition"] for r in rows if r["error"] is not None and r["method"] != "torch.linalg.qr"
    )
    torchs = _worst(rows, "torch.linalg.qr", low)
    return (
        f"Gradients of QR, LQ and pivoted QR are right to {ours:.0e} in every shape at condition {low:g} (torch's QR: "
        f"{torchs:.0e}), and their relative error stays below {growth:.0e} times the condition number."
    )
