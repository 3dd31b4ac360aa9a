r"""Parametrization of all weights whose gain and rate a quadratic storage function proves, for slopes in [0, beta].

Let :math:`d`, :math:`u`, :math:`v = W d + V u` and :math:`w` be the differences of two runs in states, inputs,
pre-activations and activations. Slopes in :math:`[0, \beta]` give :math:`w_i (\beta v_i - w_i) \ge 0`. Hence, for a
storage function with matrix :math:`P` and diagonal multipliers :math:`L`,

.. math:: \begin{bmatrix} 2 L - P & -\beta L W & -\beta L V \\ \cdot & \rho^2 P & 0 \\ \cdot & \cdot & g^2 I
          \end{bmatrix} \succ 0 \;\Longrightarrow\; w^T P w \le \rho^2\, d^T P d + g^2 |u|^2 .

Write :math:`2 L = \Lambda^2`, :math:`P = R R^T` and :math:`2 L - P = S S^T`: the rows of :math:`[R\;S]` are orthogonal,
:math:`[R\;S] = \Lambda\,[O_1\;O_2]` with orthonormal rows. The Schur complement then says that
:math:`[W\;V]` is, up to known factors, a matrix :math:`[N_h\;N_x]` of norm at most one:

.. math:: W = \tfrac{2 \rho}{\beta} \Lambda^{-1} O_2 N_h O_1^T \Lambda, \qquad
          V = \tfrac{2 g}{\beta} \Lambda^{-1} O_2 N_x .

The free parameters are two frames and a diagonal. :math:`O_1 = O_2 = I / \sqrt 2` gives
:math:`W = \rho N_h / \beta` in a diagonal scaling, the case of :math:`P` diagonal. In general :math:`|W|` may exceed
one. The frames are scaled by :math:`1 - \delta`, which makes the inequality strict for every value of the parameters.
Adding :math:`\delta \Lambda^2` makes :math:`P` positive definite.

Source: the inequality is that of M. Revay, R. Wang, I. Manchester, "Recurrent equilibrium networks" (IEEE TAC 2024);
here the factors are frames made of Householder reflections.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SlopedGain(NamedTuple):
    """Weights with the proof of their gain: ``W (n, n)``, ``V (n, p)``, ``P (n, n)``, ``L (n,)`` and ``g``.

    ``g`` is the factor of the input in the inequality: the state moves by at most ``g / sqrt(lambda_min(P)) |u|``.
    """

    W: Tensor
    V: Tensor
    P: Tensor
    L: Tensor
    gain: Tensor


def sloped_gain(
    O: Tensor, N: Tensor, scales: Tensor, *, gain: float, rate: float, slope: float, margin: float
) -> SlopedGain:
    """Return weights whose gain from input sequence to state is at most ``gain`` in l2, and their proof.

    Args:
        O: ``(n, 2 n)`` with orthonormal rows.
        N: ``(n, n + p)`` with orthonormal rows.
        scales: ``(n,)``, the logarithms of ``Lambda / sqrt(2)``.
        gain: gain of the state at any time.
        rate: ``rho``, at most one.
        slope: ``beta``, the largest slope of the activation.
        margin: ``delta``, in (0, 1).

    Returns:
        Weights and proof, differentiable.

    Example:
        >>> I = torch.eye(2, dtype=torch.float64)
        >>> O, N = torch.cat([I, I], 1) / 2**0.5, torch.cat([0.6 * I, 0.8 * I], 1)
        >>> made = sloped_gain(O, N, torch.zeros(2).double(), gain=1.0, rate=1.0, slope=1.0, margin=1e-9)
        >>> torch.allclose(made.W, 0.6 * I), torch.allclose(made.V, 0.8 * I)
        (True, True)
    """
    n = len(O)
    first, second = ((1.0 - margin) * part for part in (O[:, :n], O[:, n:]))
    size = 2.0**0.5 * scales.exp()
    root = size[:, None] * first
    P = root @ root.mT + margin * torch.diag(size.square())
    P = 0.5 * (P + P.mT)
    g = gain * torch.linalg.eigvalsh(P)[0].clamp(min=torch.finfo(P.dtype).tiny).sqrt()
    left_part = (2.0 / slope) * second / size[:, None]
    W = rate * (left_part @ N[:, :n]) @ root.mT
    return SlopedGain(W, g * (left_part @ N[:, n:]), P, 0.5 * size.square(), g)
