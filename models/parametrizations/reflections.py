r"""Products of Householder reflections as pure functions, real or complex, with hand-written gradients.

.. math:: W = H_n(u_n) \cdots H_{n-m+1}(u_{n-m+1}), \quad
          H_k(u) = \mathrm{diag}(I_{n-k},\, I_k - 2 u u^H / |u|^2), \quad H_1(u) = \mathrm{diag}(I_{n-1}, u)

The vectors are the columns of ``U (n, m)``: column ``j`` (from 0) is ``u_{n-j}`` below ``j`` zeros, so ``U``
is lower trapezoidal; entries above its diagonal are ignored and get no gradient. For ``m = n`` the last
column is the scalar of ``H_1``, of which only the sign matters (the sign of zero is -1; its gradient is
zero). ``W`` depends only on the directions of the vectors.

Compact WY form: :math:`W = I - U T^{-1} U^H`, :math:`T = \mathrm{striu}(U^H U) + \mathrm{diag}(U^H U)/2`,
and for ``m = n`` this with ``H_1`` on the right. Source: Mhammedi, Hellicar, Rahman, Bailey, "Efficient
orthogonal parametrization of recurrent neural networks using Householder reflections" (ICML 2017), eq. 8
to 17.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError

from ..precision import full_precision
from ..tensors import kind_of
from .reflection_kernels import apply_reflections, reflection_matrix, scaled, triangle

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


class CompactWY(NamedTuple):
    """Compact form ``W = (I - V X) diag(1, ..., 1, sign)`` with two thin factors; ``sign`` is None without ``H_1``."""

    V: Tensor
    X: Tensor
    sign: Tensor | None


@full_precision
def householder_matrix(U: Tensor) -> Tensor:
    """Return the orthogonal (unitary) matrix ``W (n, n)`` of the reflections in ``U``, by the compact WY form.

    Args:
        U: ``(n, m)``, ``1 <= m <= n``, no zero column (above the diagonal nothing counts). Complex vectors
            give a unitary matrix; for them ``m < n``: phases are a diagonal matrix of their own.

    Returns:
        ``(n, n)``, in the column convention ``W h``.

    Raises:
        RankError: a zero reflection vector.
        DimensionError: not two axes, empty, or ``m > n``.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: another dtype than float32, float64, complex64, complex128.

    Example:
        >>> householder_matrix(torch.tensor([[1.0], [1.0]]))
        tensor([[ 0., -1.],
                [-1.,  0.]])
    """
    vectors, sign = _split(check_reflections(U))
    W = reflection_matrix(vectors)
    return W if sign is None else W * _last_factor(sign, len(U))


@full_precision
def householder_apply(U: Tensor, h: Tensor) -> Tensor:
    """Return ``W h`` for rows ``h (..., n)`` by Algorithm 1: one reflection at a time, O(nm) a row, little memory.

    Only U, h and the result are kept for the backward pass: reflections are their own inverses, so the
    intermediate ``H_k`` are regenerated from the result on the way back.

    Args:
        U: ``(n, m)`` as for ``householder_matrix``.
        h: ``(..., n)`` in the dtype of U; each row is a vector.

    Returns:
        ``(..., n)``: ``h W^T`` in matrix notation.

    Raises:
        ConfigurationError: ``h`` is no tensor of the dtype of U.
        DimensionError: ``h`` does not have n entries a row; and what ``householder_matrix`` raises.

    Example:
        >>> householder_apply(torch.tensor([[1.0], [1.0]]), torch.tensor([2.0, 3.0]))
        tensor([-3., -2.])
    """
    vectors, sign = _split(check_reflections(U))
    n = U.shape[0]
    if not isinstance(h, Tensor) or h.dtype != U.dtype:
        raise ConfigurationError(f"h must be a tensor of the dtype of U, {U.dtype}, got {kind_of(h)}")
    if h.dim() == 0 or h.shape[-1] != n or 0 in h.shape:
        raise DimensionError("h", f"(..., {n})", tuple(h.shape), "each row is a vector")
    rows = h.reshape(-1, n)
    return apply_reflections(vectors, rows if sign is None else rows * _last_factor(sign, n)).reshape(h.shape)


@full_precision
def compact_wy(U: Tensor) -> CompactWY:
    """Return the thin factors ``V (n, p)``, ``X = T^{-1} V^H (p, n)`` with ``p = min(m, n - 1)``: T is solved once.

    Args:
        U: ``(n, m)`` as for ``householder_matrix``.

    Returns:
        The factors. Vectors are rescaled by constants first, so derivatives are those of ``V X`` (which does
        not depend on the scale), not of V and X one by one.

    Raises:
        RankError: a zero reflection vector; and what else ``householder_matrix`` raises.

    Example:
        >>> V, X, sign = compact_wy(torch.tensor([[1.0], [1.0]]))
        >>> torch.eye(2) - V @ X
        tensor([[ 0., -1.],
                [-1.,  0.]])
    """
    vectors, sign = _split(check_reflections(U))
    V, _ = scaled(vectors)
    return CompactWY(V, torch.linalg.solve_triangular(triangle(V), V.mH, upper=True), sign)


def check_reflections(U: Any) -> Tensor:
    """Check that ``U`` defines an orthogonal matrix; return it.

    Raises:
        RankError: a zero reflection vector.
        DimensionError: not two axes, empty, or ``m > n``.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: not a tensor, or another dtype.
    """
    if not isinstance(U, Tensor) or U.dtype not in DTYPES:
        raise ConfigurationError(f"U must be a float32, float64, complex64 or complex128 tensor, got {kind_of(U)}")
    if U.dim() != 2 or 0 in U.shape or U.shape[1] > U.shape[0]:
        raise DimensionError("U", "(n, m) with 1 <= m <= n", tuple(U.shape), "one column a reflection")
    if U.is_complex() and U.shape[1] == U.shape[0]:
        hint = "phases are a diagonal matrix of their own"
        raise DimensionError("U", "(n, m) with m < n for complex vectors", tuple(U.shape), hint)
    sizes = U.detach().tril().abs().amax(dim=0)
    if not torch.isfinite(sizes).all():
        raise NonFiniteError("U")
    zero = sizes == 0
    if U.shape[1] == U.shape[0]:
        zero[-1] = False  # the scalar of H_1: the sign of zero is -1
    if zero.any():
        j = int(zero.nonzero()[0])
        raise RankError(
            f"reflection vector {j} of U is zero (on and below row {j}) and defines no reflection; "
            "set it to any non-zero vector"
        )
    return U


def _split(U: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the proper reflection vectors ``(n, min(m, n-1))``, a view, and the sign of H_1."""
    n, m = U.shape
    if m < n:
        return U, None
    last = U.detach()[-1, -1]
    return U[:, :-1], torch.where(last > 0, torch.ones_like(last), -torch.ones_like(last))


def _last_factor(sign: Tensor, n: int) -> Tensor:
    """Return the diagonal ``(1, ..., 1, sign)`` of ``H_1``."""
    diagonal = torch.ones(n, dtype=sign.dtype, device=sign.device)
    diagonal[-1] = sign
    return diagonal
