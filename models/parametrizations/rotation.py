r"""Damped rotations and normalizers that keep the expected norm of their states.

:math:`x_t = \gamma A x_{t-1} + \xi B u_t` with :math:`A = P \Theta P^\top` in SO(d). For white input
(independent, mean 0, covariance I) :math:`E\|x_t\|^2 = \gamma^2 E\|x_{t-1}\|^2 + \xi^2\,\mathrm{Tr}(B^\top B)`,
for every A.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stability.errors import ConfigurationError


def rotation_basis(M: Tensor) -> Tensor:
    r"""Return ``P = expm(M - M^T)`` in SO(d), for any real ``M (..., d, d)``.

    Source:
        RotRNN paper, Lemma 1: the exponential map takes skew-symmetric matrices onto SO(d).

    Example:
        >>> P = rotation_basis(torch.randn(4, 4, dtype=torch.float64))
        >>> torch.allclose(P @ P.T, torch.eye(4, dtype=torch.float64))
        True
    """
    return torch.linalg.matrix_exp(M - M.mT)


def rotation_matrix(theta: Tensor, d: int, P: Tensor | None = None) -> Tensor:
    r"""Return ``A = P Theta P^T``: 2x2 rotations by ``theta_i`` on the diagonal, in the basis of P.

    Args:
        theta: ``(..., d // 2)`` angles.
        d: size; when it is odd the last diagonal entry of Theta is 1.
        P: ``(..., d, d)`` orthogonal; the identity by default.

    Returns:
        ``(..., d, d)``.

    Raises:
        ConfigurationError: the wrong number of angles.

    Example:
        >>> rotation_matrix(torch.tensor([torch.pi / 2]), 3).round().abs()
        tensor([[0., 1., 0.],
                [1., 0., 0.],
                [0., 0., 1.]])
    """
    if theta.shape[-1] != d // 2:
        raise ConfigurationError(f"{d} entries have {d // 2} angles, got {theta.shape[-1]}")
    cos, sin = torch.cos(theta), torch.sin(theta)
    if d % 2:
        cos, sin = torch.nn.functional.pad(cos, (0, 1), value=1.0), torch.nn.functional.pad(sin, (0, 1))
    rows = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # (..., pairs, 2, 2)
    pairs = cos.shape[-1]
    eye = torch.eye(pairs, dtype=theta.dtype, device=theta.device)
    full = torch.einsum("...pij,pq->...piqj", rows, eye).flatten(-4, -3).flatten(-2, -1)[..., :d, :d]
    return full if P is None else P @ full @ P.mT


def damping(gamma_log: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\gamma = \exp(-\exp(g))` and :math:`1 - \gamma^2`, the latter without cancellation.

    Near the limits ``gamma`` rounds to 1 (or to 0) while ``1 - gamma^2`` keeps its relative accuracy.

    Example:
        >>> gamma, rest = damping(torch.tensor([-40.0]))
        >>> gamma.item(), rest.item() > 0
        (1.0, True)
    """
    rate = torch.exp(gamma_log).clamp_min(torch.finfo(gamma_log.dtype).tiny)
    return torch.exp(-rate), -torch.expm1(-2.0 * rate)


def damping_parameter(uniform: Tensor, low: float, high: float) -> Tensor:
    r"""Return ``gamma_log`` for which ``gamma^2`` is uniform between ``low^2`` and ``high^2``.

    :math:`g = \log(-\tfrac12 \log(u (\gamma_{max}^2 - \gamma_{min}^2) + \gamma_{min}^2))`.

    Example:
        >>> damping(damping_parameter(torch.tensor([0.0, 1.0]), 0.5, 0.9))[0]
        tensor([0.5000, 0.9000])
    """
    return torch.log(-0.5 * torch.log(uniform * (high**2 - low**2) + low**2))


def normaliser(rest: Tensor, trace: Tensor, c: float = 1.0) -> Tensor:
    r"""Return :math:`\xi = \sqrt{c (1 - \gamma^2) / \mathrm{Tr}(B^\top B)}`: the squared norm tends to ``c``.

    Args:
        rest: ``1 - gamma^2``.
        trace: ``Tr(B^T B)``; where it is 0 the state stays 0.
        c: the squared norm to tend to.

    Example:
        >>> normaliser(torch.tensor(0.75), torch.tensor(3.0), c=4.0)
        tensor(1.)
    """
    return torch.sqrt(c * rest / trace.clamp_min(torch.finfo(trace.dtype).tiny))


def published_normaliser(rest: Tensor, trace: Tensor, c: float = 1.0) -> Tensor:
    r"""Return equation 11 of the RotRNN paper, :math:`\sqrt{(1 - c \gamma^2) / \mathrm{Tr}(B^\top B)}`.

    It is ``normaliser`` for ``c = 1`` only: otherwise the squared norm tends to
    :math:`(1 - c\gamma^2) / (1 - \gamma^2)`, and there is no such number (NaN) once :math:`c \gamma^2 > 1`.

    Args:
        rest: ``1 - gamma^2``.
        trace: ``Tr(B^T B)``.
        c: the squared norm that the paper means to reach.

    Example:
        >>> bool(published_normaliser(torch.tensor(0.19), torch.tensor(3.0), c=4.0).isnan())
        True
    """
    return torch.sqrt((1.0 - c * (1.0 - rest)) / trace.clamp_min(torch.finfo(trace.dtype).tiny))


def stationary_factor(gamma: Tensor, rest: Tensor) -> Tensor:
    r"""Return :math:`(1/\sqrt{1-\gamma^2} - 1)/\gamma`, without cancellation for small gamma.

    A state :math:`x_0 = f\, A^{-1} \xi B u_1` before the first step makes :math:`x_1 = \xi B u_1 /
    \sqrt{1 - \gamma^2}`, whose expected squared norm is ``c`` from the start.

    Example:
        >>> stationary_factor(torch.tensor(0.6), torch.tensor(0.64))
        tensor(0.4167)
    """
    root = torch.sqrt(rest)
    return gamma / (root * (1.0 + root))


def expected_squared_norm(gamma_log: Tensor, t: int, c: float = 1.0, stationary: bool = False) -> Tensor:
    r"""Return :math:`E\|x_t\|^2` for white input: :math:`c (1 - \gamma^{2t})` from zero, ``c`` if stationary.

    Args:
        gamma_log: ``(heads,)``.
        t: step, counted from 1.
        c: the squared norm that a head tends to.
        stationary: whether the start is stationary.

    Returns:
        ``(heads,)``.

    Example:
        >>> expected_squared_norm(damping_parameter(torch.ones(1), 0.5, 0.9), 1).round(decimals=4)
        tensor([0.1900])
    """
    if stationary and t > 0:
        return torch.full_like(gamma_log, c)
    rate = torch.exp(gamma_log).clamp_min(torch.finfo(gamma_log.dtype).tiny)
    return -c * torch.expm1(-2.0 * t * rate)
