"""Reflection vectors of a matrix by Algorithm 2, a QR factorization by reflections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError, UnsupportedError

from ..options import positive_int
from ..tensors import kind_of


def householder_vectors(W: Tensor, reflections: int | None = None) -> Tensor:
    """Return the reflection vectors of an orthogonal matrix, or of the Q of any non-singular one (Algorithm 2).

    This is a QR factorization with a positive diagonal of R by the reflections ``H_n, ..., H_1``, computed in double
    precision. A matrix that is not orthogonal is replaced by its Q.

    Args:
        W: ``(n, n)``, real.
        reflections: ``m``, all ``n`` by default.

    Returns:
        ``U (n, m)`` with unit columns. For an orthogonal W, ``householder_matrix(U)`` equals W; otherwise it is the
        product of the first m reflections of its Q.

    Raises:
        UnsupportedError: W is orthogonal, but Algorithm 2 finds no product of m reflections that equals it.
        RankError: W is singular.
        DimensionError: W is not square.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: W is not real floating-point, or m is no integer from 1 to n.

    Example:
        >>> householder_vectors(torch.tensor([[0.0, -1.0], [-1.0, 0.0]]))
        tensor([[-0.7071,  0.0000],
                [-0.7071,  1.0000]])
    """
    if not isinstance(W, Tensor) or not W.is_floating_point():
        raise ConfigurationError(f"W must be a real floating-point tensor, got {kind_of(W)}")
    W = check_square(W)
    n = W.shape[0]
    m = n if reflections is None else reflection_count(n, reflections)
    orthogonal = orthogonality_error(W) <= 10 * n * torch.finfo(W.dtype).eps
    U, R = reduce_by_reflections(W, min(m, n - 1))
    if m == n:
        last = R[-1:, -1:]
        bottom = torch.where(last > 0, torch.ones_like(last), -torch.ones_like(last))
        U = torch.cat([U, torch.cat([U.new_zeros(n - 1, 1), bottom])], dim=1)
    elif orthogonal:
        remainder = float((R - torch.eye(n, dtype=R.dtype, device=R.device)).abs().max())
        if remainder > 100 * n * torch.finfo(W.dtype).eps:
            raise UnsupportedError(
                f"this orthogonal matrix is no product of {m} reflections (after them it differs from the identity by "
                f"{remainder:.2g}): use reflections={n}, which reach every orthogonal matrix"
            )
    return U.to(W.dtype)


def reduce_by_reflections(W: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Run the loop of Algorithm 2: return ``U (n, count)`` with unit columns, and the reduced matrix.

    In real matrices each pivot becomes ``+|x|``. In complex ones it keeps its phase, ``x_1 |x| / |x_1|``, so that the
    phases remain on the diagonal. The first entry of ``x - |x| e_1`` is computed without cancellation as
    ``-|x_2..|^2 / (x_1 + |x|)``.

    Raises:
        RankError: a column depends on those before it.
    """
    R = W.detach().to(torch.complex128 if W.is_complex() else torch.float64, copy=True)
    n = R.shape[0]
    tolerance = 4 * n * torch.finfo(W.dtype).eps
    sizes = R.abs().amax(dim=0)
    U = R.new_zeros(n, count)
    for k in range(n):
        x = R[k:, k]
        length = torch.linalg.vector_norm(x)
        if not bool(length > tolerance * sizes[k]):
            raise RankError(f"W is singular: column {k} depends on those before it; no unique factor Q")
        if k >= count:
            break
        phase = torch.sgn(x[0]) if W.is_complex() and x[0] != 0 else torch.ones_like(x[0])
        u = x / (phase * length)
        tail = torch.linalg.vector_norm(u[1:])
        if tail == 0 and u[0].real > 0:  # x is already on the axis: reflect another entry
            u = torch.zeros_like(u)
            u[-1] = 1.0
        else:
            first = u[0].real
            u[0] = -tail * tail / (1.0 + first) if first > 0 else first - 1.0
            u = u / torch.linalg.vector_norm(u)
        U[k:, k] = u
        R[k:, k:] -= 2.0 * torch.outer(u, u.conj() @ R[k:, k:])
    return U, R


def orthogonality_error(W: Tensor) -> float:
    """Return the largest entry of ``|W^H W - I|``, computed in double precision; infinite for NaN.

    Args:
        W: ``(n, n)``.

    Example:
        >>> orthogonality_error(torch.eye(3))
        0.0
    """
    W = W.detach().to(torch.complex128 if W.is_complex() else torch.float64)
    gap = W.mH @ W - torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    return float(gap.abs().nan_to_num(nan=float("inf")).max())


def check_square(W: Tensor, name: str = "W") -> Tensor:
    """Check for a finite square matrix.

    Raises:
        DimensionError: not square, or empty.
        NonFiniteError: NaN or infinite entries.
    """
    if W.dim() != 2 or W.shape[0] != W.shape[1] or W.shape[0] == 0:
        raise DimensionError(name, "(n, n) with n >= 1", tuple(W.shape), "a square matrix")
    if not torch.isfinite(W.detach()).all():
        raise NonFiniteError(name)
    return W


def reflection_count(n: int, m: Any) -> int:
    """Check that ``m`` is a number of reflections for size ``n``.

    Raises:
        ConfigurationError: not an integer in 1 .. n.
    """
    if isinstance(m, bool) or not isinstance(m, int) or not 1 <= m <= n:
        raise ConfigurationError(f"reflections must be an integer from 1 to the matrix size, {n}, got {m!r}")
    return m


class ReflectionMap(nn.Module):
    """Base of the maps onto orthogonal and unitary matrices for ``torch.nn.utils.parametrize``.

    Args:
        n: size of the matrix.
        reflections: ``m`` in 1 .. n; all ``n`` by default.

    Raises:
        ConfigurationError: m is no integer from 1 to n.
    """

    def __init__(self, n: int, reflections: int | None = None) -> None:
        super().__init__()
        self.n = positive_int("n", n)
        self.reflections = n if reflections is None else reflection_count(n, reflections)

    def tolerance(self, W: Tensor, value: float | None) -> float:
        """Return the tolerance of the largest entry of ``|W^H W - I|``: ``value``, or ``10 n`` machine epsilons."""
        return 10 * self.n * torch.finfo(W.dtype).eps if value is None else value

    def is_isometry(self, W: Any, tolerance: float | None) -> bool:
        """Return True for an ``(n, n)`` floating-point tensor ``W`` with ``W^H W = I`` up to the tolerance."""
        numbers = isinstance(W, Tensor) and (W.is_floating_point() or W.is_complex()) and W.shape == (self.n, self.n)
        return numbers and orthogonality_error(W) <= self.tolerance(W, tolerance)

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"n={self.n}, reflections={self.reflections}"
