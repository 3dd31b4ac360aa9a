r"""Parametrizations of networks that contract for every value of their free parameters, with their proofs.

Both parametrizations satisfy the multiplier LMI for slopes in [0, 1] by construction and return its solution
``(P, L)`` with the matrices. Every network that the LMI certifies with the margin is reached. The discrete one is an
explicit variant (no channel feedback) of the networks of Revay, Wang, Manchester, "Recurrent Equilibrium
Networks: Flexible Dynamic Models with Guaranteed Stability and Robustness" (2021).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ContinuousFactors(NamedTuple):
    """Network ``dh/dt = A h + phi(W h + ...)`` with its proof: ``P (n, n)``, ``L (n,)``."""

    A: Tensor
    W: Tensor
    P: Tensor
    L: Tensor


class DiscreteFactors(NamedTuple):
    """Network ``h+ = A h + B phi(W h + ...)`` with its proof: factors of ``P = E^T H33^{-1} E``, and ``L (n,)``."""

    A: Tensor
    B: Tensor
    W: Tensor
    E: Tensor
    H33: Tensor
    L: Tensor

    def metric(self) -> Tensor:
        """Return ``P``, symmetric to the last bit."""
        P = self.E.T @ torch.linalg.solve(self.H33, self.E)
        return 0.5 * (P + P.T)


def _eye(like: Tensor, n: int | None = None) -> Tensor:
    return torch.eye(like.shape[-1] if n is None else n, dtype=like.dtype, device=like.device)


def unit_ball(raw: Tensor) -> Tensor:
    r"""Map all square matrices smoothly and bijectively onto those of spectral norm below 1.

    .. math:: S = R\, U^{-1}, \quad U^T U = I + R^T R, \quad\text{so}\quad I - S^T S = (U U^T)^{-1} > 0 .

    Args:
        raw: ``(n, n)``, free.

    Returns:
        ``S (n, n)``.

    Example:
        >>> unit_ball(torch.tensor([[1e3]]))[0, 0].item() < 1
        True
    """
    lower = torch.linalg.cholesky_ex(_eye(raw) + raw.T @ raw)[0]  # _ex: NaN in, NaN out, and no device sync
    return torch.linalg.solve_triangular(lower.T, raw, upper=True, left=False)


def continuous_factors(
    V: Tensor, l: Tensor, X: Tensor, S_raw: Tensor, K_raw: Tensor, rate: float, margin: float
) -> ContinuousFactors:
    r"""Return a continuous-time network that contracts at ``rate`` or faster, for slopes in [0, 1].

    .. math:: P = V^T V + \delta I, \quad Q = X^T X + \epsilon I, \quad L = \mathrm{diag}(e^{l}), \quad
              A = P^{-1}(-Q/2 - \lambda P + K), \quad W = L^{-1}(\sqrt 2 L^{1/2} S X - P)

    with ``K`` skew, ``|S| < 1``. The LMI at ``(P, L, rate)`` is then ``[-Q, sqrt(2) X^T S^T L^{1/2}; ., -2 L]``, whose
    Schur complement is at most ``-eps I``; ``eps = margin tr(P + X^T X) / n`` and ``delta = margin tr(V^T V) / n``
    (which bounds the condition of ``P``, so that rounding the matrices cannot break the LMI).

    Args:
        V: ``(n, n)``, free.
        l: ``(n,)``, free.
        X: ``(n, n)``, free.
        S_raw: ``(n, n)``, free (see ``unit_ball``).
        K_raw: ``(n, n)``, free.
        rate: ``lambda >= 0``.
        margin: relative strictness of the LMI, > 0.

    Returns:
        ``A``, ``W`` and the proof ``P``, ``L``.
    """
    gram, square = V.T @ V, X.T @ X
    P = gram + margin * gram.diagonal().mean() * _eye(V)
    Q = square + margin * (P.diagonal().mean() + square.diagonal().mean()) * _eye(X)
    factor = torch.linalg.cholesky_ex(P)[0]
    A = torch.cholesky_solve(K_raw - K_raw.T - 0.5 * Q, factor) - rate * _eye(P)
    coupling = math.sqrt(2.0) * torch.exp(-0.5 * l)[:, None] * (unit_ball(S_raw) @ X)
    return ContinuousFactors(A, coupling - torch.exp(-l)[:, None] * P, P, torch.exp(l))


def discrete_factors(
    X: Tensor, Y: Tensor, W: Tensor, V: Tensor, l: Tensor, rho: float, margin: float
) -> DiscreteFactors:
    r"""Return a discrete-time network that contracts by the factor ``rho`` per step or faster, for slopes in [0, 1].

    .. math:: M = X^T X + \epsilon, \quad L = \mathrm{diag}(e^{l}), \quad \kappa = (1 + \delta) / 2,

    .. math:: H_{11} = M_{11} + \kappa W^T L W, \quad H_{31} = M_{21} - \kappa V W, \quad
              H_{33} = M_{22} + \kappa V L^{-1} V^T,

    .. math:: E = \tfrac12 (H_{11} + H_{33} / \rho^2 + Y - Y^T), \quad A = E^{-1} H_{31}, \quad B = E^{-1} V

    with ``X``, ``M`` in blocks of size ``n``, ``delta`` the margin, and ``eps`` diagonal: in each block
    ``margin`` times the mean diagonal entry of the matrix to which it is added. By the Schur complement of ``2 L``,
    ``M > 0`` is equivalent to ``[H11, -W^T L, H31^T; ., 2 L, V^T; ., ., H33] > 0``. Since ``E + E^T - H33 / rho^2`` is
    at most ``rho^2 E^T H33^{-1} E = rho^2 P``, this implies
    ``[rho^2 P, -W^T L, A^T E^T; ., 2 L, B^T E^T; ., ., H33] > 0``, whose Schur complement of ``H33`` is the LMI at
    ``(P, L, rho)``.

    Args:
        X: ``(2 n, 2 n)``, free.
        Y: ``(n, n)``, free.
        W: ``(n, n)``, free; it is the ``W`` of the network.
        V: ``(n, n)``, free.
        l: ``(n,)``, free.
        rho: in (0, 1].
        margin: relative strictness of the LMI, > 0.

    Returns:
        ``A``, ``B``, ``W`` and the proof in factors.
    """
    n = Y.shape[-1]
    L, kappa = torch.exp(l), 0.5 * (1.0 + margin)
    gram = X.T @ X
    H11 = _strict(gram[:n, :n] + kappa * (W.T @ (L[:, None] * W)), margin)
    H33 = _strict(gram[n:, n:] + kappa * ((V / L) @ V.T), margin)
    H31 = gram[n:, :n] - kappa * (V @ W)
    E = 0.5 * (H11 + H33 / rho**2 + Y - Y.T)
    AB = torch.linalg.solve_ex(E, torch.cat((H31, V), dim=1))[0]
    return DiscreteFactors(AB[:, :n], AB[:, n:], W, E, H33, L)


def _strict(block: Tensor, margin: float) -> Tensor:
    """Add ``margin`` times the mean of the diagonal to the diagonal of ``block``."""
    return block + margin * block.diagonal().mean() * _eye(block)
