r"""Wide matrices with orthonormal rows as the leading rows of a product of Householder reflections.

.. math:: K^T = \bigl(H_N(u_N) \cdots H_{N-n+1}(u_{N-n+1})\bigr)\begin{bmatrix} I_n \\ 0 \end{bmatrix}, \qquad
          K K^T = I_n, \quad n < N .

Every ``K`` of orthonormal rows is of this form: its transpose is the Q of its own QR factorization by reflections. The
gradient costs some 4 n N^2 operations; the retraction of ``stiefel`` reaches the same matrices at eight times the cost
(measured at 128 rows).
"""

from __future__ import annotations

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError, RankError

from ..tensors import kind_of
from .reflections import householder_matrix
from .vectors import reduce_by_reflections


def reflected_frame(U: Tensor) -> Tensor:
    """Return ``K (n, N)`` with orthonormal rows, from reflection vectors.

    Args:
        U: ``(N, n)``, ``n < N``, lower trapezoidal (what stands above the diagonal is ignored).

    Returns:
        ``(n, N)``; raises what ``householder_matrix`` raises.

    Example:
        >>> K = reflected_frame(torch.randn(5, 2, dtype=torch.float64))
        >>> bool(torch.allclose(K @ K.T, torch.eye(2, dtype=torch.float64)))
        True
    """
    return householder_matrix(U)[:, : U.shape[1]].mT


def frame_vectors(K: Tensor) -> Tensor:
    """Return reflection vectors of a matrix with orthonormal rows, or of the retraction of any other matrix.

    Args:
        K: ``(n, N)``, real, ``n < N``, of full rank; of one whose rows are not orthonormal the LQ factorization with a
            positive diagonal is taken.

    Returns:
        ``U (N, n)`` with unit columns.

    Raises:
        ConfigurationError: K is no real floating-point tensor.
        DimensionError: K is no matrix, or not wide.
        RankError: its rows are dependent.

    Example:
        >>> K = torch.eye(2, 3, dtype=torch.float64)
        >>> bool(torch.allclose(reflected_frame(frame_vectors(K)), K))
        True
    """
    if not isinstance(K, Tensor) or not K.is_floating_point():
        raise ConfigurationError(f"K must be a real floating-point tensor, got {kind_of(K)}")
    if K.dim() != 2 or not 0 < K.shape[0] < K.shape[1]:
        raise DimensionError("K", "(n, N) with n < N", tuple(K.shape), "one row a state")
    n, size = K.shape
    square = torch.cat([K.detach().mT.double(), K.new_zeros(size, size - n).double()], dim=1)
    try:
        return _reduced(square, n).to(K.dtype)
    except RankError as error:
        raise RankError(
            "the rows of K are dependent: there is no matrix of orthonormal rows with their span"
        ) from error


def _reduced(square: Tensor, count: int) -> Tensor:
    """Return the vectors that reduce the first columns, ignoring the later ones."""
    complement = torch.linalg.qr(torch.cat([square[:, :count], torch.eye(len(square), dtype=square.dtype)], dim=1)).Q
    whole = torch.cat([square[:, :count], complement[:, count : len(square)]], dim=1)
    return reduce_by_reflections(whole, count)[0]
