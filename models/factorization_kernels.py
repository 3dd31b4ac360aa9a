"""Autograd functions behind ``factorizations``: clean input only, formulas as in that module's docstring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .derivatives import SavedFunction, copyltu
from .precision import full_precision


class _QRFunction(SavedFunction):
    """QR of a checked matrix. The backward pass is made of differentiable operations, so it runs twice."""

    @staticmethod
    def forward(A: Tensor) -> tuple[Tensor, Tensor]:
        return _positive_diagonal(*torch.linalg.qr(A, mode="reduced"))

    @staticmethod
    @full_precision
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        A, Q, R = ctx.saved_tensors
        gQ, gR = grads
        m, n = A.shape[-2:]
        if m >= n:
            return _qr_rule(Q, R, gQ, gR)
        Y, U = A[..., m:], R[..., :m]
        gU, gV = gR[..., :m], gR[..., m:]
        gX = _qr_rule(Q, U, gQ + Y @ gV.mH, gU)
        return torch.cat([gX, Q @ gV], dim=-1)


class _LQFunction(SavedFunction):
    """LQ of a checked matrix, by its own formulas (not as a transposed QR)."""

    @staticmethod
    def forward(A: Tensor) -> tuple[Tensor, Tensor]:
        Q, R = _positive_diagonal(*torch.linalg.qr(A.mH, mode="reduced"))
        return R.mH.resolve_conj().contiguous(), Q.mH.resolve_conj().contiguous()

    @staticmethod
    @full_precision
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        A, L, Q = ctx.saved_tensors
        gL, gQ = grads
        m, n = A.shape[-2:]
        if m <= n:
            return _lq_rule(L, Q, gL, gQ)
        Y, U = A[..., n:, :], L[..., :n, :]
        gU, gV = gL[..., :n, :], gL[..., n:, :]
        gX = _lq_rule(U, Q, gU, gQ + gV.mH @ Y)
        return torch.cat([gX, gV @ Q], dim=-2)


def _qr_rule(Q: Tensor, R: Tensor, gQ: Tensor, gR: Tensor) -> Tensor:
    """Return ``[gQ + Q copyltu(R gR^H - gQ^H Q)] R^{-H}`` for square R."""
    M = R @ gR.mH - gQ.mH @ Q
    return torch.linalg.solve_triangular(R.mH, gQ + Q @ copyltu(M), upper=False, left=False)


def _lq_rule(L: Tensor, Q: Tensor, gL: Tensor, gQ: Tensor) -> Tensor:
    """Return ``L^{-H} [gQ + copyltu(L^H gL - gQ Q^H) Q]`` for square L."""
    M = L.mH @ gL - gQ @ Q.mH
    right = (gQ + copyltu(M) @ Q).mH  # solved from the right: the rows of L and of this lie as the solver wants them
    return torch.linalg.solve_triangular(L, right, upper=False, left=False).mH.resolve_conj()


def _positive_diagonal(Q: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """Move signs (phases) from R to Q, in place, so that ``diag(R)`` is real and non-negative."""
    d = R.diagonal(dim1=-2, dim2=-1)
    phase = torch.where(d == 0, torch.ones_like(d), torch.sgn(d))
    size = d.abs()
    Q, R = Q.mul_(phase.unsqueeze(-2)), R.mul_(phase.conj().unsqueeze(-1)).triu()  # triu: no negative zeros
    if R.is_complex():  # |phase| is 1 up to rounding only: make the diagonal exactly real
        R.diagonal(dim1=-2, dim2=-1).copy_(size)
    return Q, R


def pivot_order(A: Tensor) -> Tensor:
    """Return the greedy column order ``(..., n)`` of QR with pivoting, by Gram-Schmidt on scaled columns."""
    m, n = A.shape[-2:]
    scale = A.abs().amax(dim=(-2, -1), keepdim=True)
    rest = A / torch.where(scale > 0, scale, torch.ones_like(scale))
    taken = torch.zeros((*A.shape[:-2], n), dtype=torch.bool, device=A.device)
    picks = []
    for _ in range(min(m, n)):
        norms = torch.linalg.vector_norm(rest, dim=-2).masked_fill(taken, -1.0)
        pick = norms.argmax(dim=-1, keepdim=True)
        picks.append(pick)
        taken = taken.scatter(-1, pick, True)
        q = torch.gather(rest, -1, pick.unsqueeze(-2).expand((*A.shape[:-1], 1)))
        length = torch.linalg.vector_norm(q, dim=-2, keepdim=True)
        q = q / torch.where(length > 0, length, torch.ones_like(length))
        for _ in range(2):  # twice is enough: the second pass removes what rounding left of the first
            rest = rest - q @ (q.mH @ rest)
    remaining = torch.argsort(taken.to(torch.int8), dim=-1, stable=True)[..., : n - len(picks)]
    return torch.cat([*picks, remaining], dim=-1)


qr_factors = _QRFunction.apply
lq_factors = _LQFunction.apply
