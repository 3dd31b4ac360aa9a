r"""QR and LQ factorizations with gradients: every shape, real and complex, batched, twice differentiable.

The factors are unique, and therefore differentiable, since **diag(R) (diag(L)) is real and positive**.
Let ``E`` be two below the diagonal, one on it and zero above, and ``copyltu(M) = (M o E + (M o E)^H) / 2``:

.. math::
   \text{QR, } m \ge n: \quad & M = R \bar R^H - \bar Q^H Q, \quad
       \bar A = [\bar Q + Q\,\mathrm{copyltu}(M)] R^{-H} \\
   \text{LQ, } m \le n: \quad & M = L^H \bar L - \bar Q Q^H, \quad
       \bar A = L^{-H} [\bar Q + \mathrm{copyltu}(M)\,Q]

Other shapes are partitioned into ``A = [X | Y]`` (wide QR) or ``A = [X; Y]`` (deep LQ), whose leading
square block must be non-singular. Every inverse is a triangular solve.

Source: Roberts and Roberts, "QR and LQ decomposition matrix backpropagation algorithms". Their pivoted
gradient ``B_bar P`` should read ``B_bar P^T``, which is used here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError

from .factorization_kernels import lq_factors, pivot_order, qr_factors
from .precision import full_precision
from .tensors import kind_of

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


class QR(NamedTuple):
    """QR factorization ``A = Q R`` with ``k = min(m, n)``.

    Attributes:
        Q: ``(..., m, k)`` with orthonormal columns.
        R: ``(..., k, n)`` upper triangular.
    """

    Q: Tensor
    R: Tensor


class LQ(NamedTuple):
    """LQ factorization ``A = L Q`` with ``k = min(m, n)``.

    Attributes:
        L: ``(..., m, k)`` lower triangular.
        Q: ``(..., k, n)`` with orthonormal rows.
    """

    L: Tensor
    Q: Tensor


class PivotedQR(NamedTuple):
    """Pivoted QR factorization ``A P = Q R`` with ``k = min(m, n)``.

    Attributes:
        Q: ``(..., m, k)`` with orthonormal columns.
        R: ``(..., k, n)`` upper triangular.
        P: ``(..., n, n)`` a permutation matrix in the dtype of A.
    """

    Q: Tensor
    R: Tensor
    P: Tensor

    @property
    def permutation(self) -> Tensor:
        """Permutation as indices ``(..., n)``: column ``j`` of ``A P`` is column ``permutation[j]`` of A."""
        return self.P.real.argmax(dim=-2)


@full_precision
def qr(A: Tensor) -> QR:
    """Compute the reduced QR factorization with a positive real diagonal of R.

    Args:
        A: ``(..., m, n)``, float32, float64, complex64 or complex128, whose leading ``min(m, n)`` columns are
            linearly independent.

    Returns:
        ``Q (..., m, k)`` with orthonormal columns and upper trapezoidal ``R (..., k, n)``, ``k = min(m, n)``.

    Raises:
        RankError: dependent leading columns; the text names the column (and the batch element).
        ConfigurationError: not a tensor, or another dtype.
        DimensionError: fewer than two axes, or an empty matrix.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> Q, R = qr(torch.tensor([[0.0, -2.0], [-3.0, 1.0]]))
        >>> R
        tensor([[ 3., -1.],
                [ 0.,  2.]])
    """
    A = _checked("A", A)
    Q, R = qr_factors(A)
    _require_rank(R, "R", "column", "pivoted_qr(A) chooses independent columns itself")
    return QR(Q, R)


@full_precision
def lq(A: Tensor) -> LQ:
    """Compute the reduced LQ factorization with a positive real diagonal of L.

    Args:
        A: ``(..., m, n)`` of a dtype that ``qr`` takes, whose leading ``min(m, n)`` rows are independent.

    Returns:
        Lower trapezoidal ``L (..., m, k)`` and ``Q (..., k, n)`` with orthonormal rows, ``k = min(m, n)``.

    Raises:
        RankError: dependent leading rows; the text names the row (and the batch element).
        ConfigurationError: not a tensor, or another dtype.
        DimensionError: fewer than two axes, or an empty matrix.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> L, Q = lq(torch.tensor([[0.0, -3.0], [-2.0, 1.0]]))
        >>> L
        tensor([[ 3.,  0.],
                [-1.,  2.]])
    """
    A = _checked("A", A)
    L, Q = lq_factors(A)
    _require_rank(L.mH, "L", "row", "reorder the rows, for instance by pivoted_qr(A.mH).permutation")
    return LQ(L, Q)


@full_precision
def pivoted_qr(A: Tensor) -> PivotedQR:
    """Compute QR with column pivoting, ``A P = Q R``, for any matrix of full rank, wide ones too.

    Each step takes the column with the largest part outside the span of those taken: ``diag(R)`` decreases.
    ``P`` is locally constant; the gradient is ``A_bar = B_bar P^T`` with ``B = A P``.

    Args:
        A: ``(..., m, n)`` of full rank ``min(m, n)`` and of a dtype that ``qr`` takes.

    Returns:
        ``Q``, ``R`` (positive real diagonal) and the permutation matrix ``P``; ``.permutation``: its indices.

    Raises:
        RankError: a rank below ``min(m, n)``.
        ConfigurationError: not a tensor, or another dtype.
        DimensionError: fewer than two axes, or an empty matrix.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> Q, R, P = pivoted_qr(torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]))
        >>> R.diagonal()
        tensor([2., 1.])
        >>> torch.equal(torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]) @ P, Q @ R)
        True
    """
    A = _checked("A", A)
    order = pivot_order(A.detach())
    B = torch.gather(A, -1, order.unsqueeze(-2).expand(A.shape))
    Q, R = qr_factors(B)
    _require_rank(R, "R", "column", f"the rank of A is below {min(A.shape[-2:])}: no choice of columns helps")
    P = torch.nn.functional.one_hot(order, A.shape[-1]).mT.to(A.dtype)
    return PivotedQR(Q, R, P)


@full_precision
def lstsq(A: Tensor, b: Tensor) -> Tensor:
    r"""Solve a least squares problem, differentiable in A and b; the shortest solution if wide.

    .. math:: m \ge n: \; x = R^{-1} Q^H b, \qquad m < n: \; x = Q^H L^{-1} b .

    Args:
        A: ``(..., m, n)`` of full rank.
        b: ``(..., m, p)`` in the dtype of A.

    Returns:
        ``x (..., n, p)`` minimizing ``|A x - b|`` (and ``|x|`` where there is a choice).

    Raises:
        RankError: a rank below ``min(m, n)``.
        DimensionError: ``b`` does not have m rows.
        ConfigurationError: a dtype other than that of A.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> A = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> (lstsq(A, torch.tensor([[1.0], [3.0], [5.0]])) * 1000).round() / 1000  # the line 1 + 2 t
        tensor([[1.],
                [2.]])
    """
    A, b = _checked("A", A), _checked("b", b)
    if b.shape[-2] != A.shape[-2]:
        raise DimensionError("b", f"(..., {A.shape[-2]}, p)", tuple(b.shape), "one row for each row of A")
    if b.dtype != A.dtype:
        raise ConfigurationError(f"b must have the dtype of A, {A.dtype}, got {b.dtype}")
    if A.shape[-2] >= A.shape[-1]:
        Q, R = qr(A)
        return torch.linalg.solve_triangular(R, Q.mH @ b, upper=True)
    L, Q = lq(A)
    return Q.mH @ torch.linalg.solve_triangular(L, b, upper=False)


def _checked(name: str, A: Any) -> Tensor:
    if not isinstance(A, Tensor) or A.dtype not in DTYPES:
        raise ConfigurationError(f"{name} must be a float32, float64, complex64 or complex128 tensor, got {kind_of(A)}")
    if A.dim() < 2 or 0 in A.shape:
        raise DimensionError(name, "(..., m, n), not empty", tuple(A.shape))
    values = A.detach()
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():  # the sum is a fast first test
        raise NonFiniteError(name, "factorization needs finite entries")
    return A


def _require_rank(R: Tensor, name: str, vector: str, remedy: str) -> None:
    """Raise an error if a diagonal entry is zero up to rounding, relative to the largest entry of its column."""
    R = R.detach()
    k = min(R.shape[-2:])
    d = R.diagonal(dim1=-2, dim2=-1).abs()
    size = R[..., :k].abs().amax(dim=-2)
    tolerance = 4 * max(R.shape[-2:]) * torch.finfo(R.dtype).eps
    bad = d <= tolerance * size
    if not bad.any():
        return
    *batch, j = (int(i) for i in bad.nonzero()[0])
    where = f" of batch element {tuple(batch)}" if batch else ""
    raise RankError(
        f"{vector} {j}{where} depends on the {vector}s before it: |{name}[{j}, {j}]| = "
        f"{d[(*batch, j)].item():.3g} is zero to rounding, so the factors have no derivative; {remedy}"
    )
