"""QR factors in the gauge of ``factorizations``, and the order of columns for pivoting."""

from __future__ import annotations

import torch
from torch import Tensor


def qr_factors(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``Q`` and ``R`` with a real, non-negative diagonal of R, differentiable any number of times."""
    Q, R = torch.linalg.qr(A, mode="reduced")
    d = R.detach().diagonal(dim1=-2, dim2=-1)
    phase = torch.where(d == 0, torch.ones_like(d), torch.sgn(d))
    Q, R = Q * phase.unsqueeze(-2), (R * phase.conj().unsqueeze(-1)).triu()
    if R.is_complex():  # |phase| is 1 up to rounding only: make the diagonal exactly real
        R = torch.where(torch.eye(*R.shape[-2:], dtype=torch.bool, device=R.device), R.real.to(R.dtype), R)
    return Q, R


def pivot_order(A: Tensor) -> Tensor:
    """Greedy column order ``(..., n)`` of QR with pivoting, by Gram-Schmidt on scaled columns."""
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
    left = torch.argsort(taken.to(torch.int8), dim=-1, stable=True)[..., : n - len(picks)]
    return torch.cat([*picks, left], dim=-1)
