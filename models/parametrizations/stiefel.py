r"""Orthonormal frames by retraction: the Q of a QR factorization, or of an LQ one for wide matrices.

.. math:: X = Q R, \quad \mathrm{diag}(R) > 0 \;\; (m \ge n), \qquad X = L Q \;\; (m < n)

The free matrix is the whole of X; the positive diagonal makes Q a smooth function of it, and a frame is its own Q.
Reflections cost less for square matrices (``Householder``); this reaches tall and wide ones, batches and complex ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from stability.errors import ConfigurationError, DimensionError

from ..factorizations import DTYPES, lq, qr
from ..options import positive_int
from .vectors import orthogonality_error


def orthonormal(X: Tensor) -> Tensor:
    """Retract a matrix: orthonormal columns if tall, orthonormal rows if wide.

    Args:
        X: ``(..., m, n)`` of full rank.

    Returns:
        ``Q (..., m, n)``; raises what ``qr`` and ``lq`` raise.

    Example:
        >>> Q = orthonormal(torch.randn(2, 5, dtype=torch.float64))
        >>> torch.allclose(Q @ Q.T, torch.eye(2, dtype=torch.float64))
        True
    """
    return lq(X).Q if isinstance(X, Tensor) and X.dim() >= 2 and X.shape[-2] < X.shape[-1] else qr(X).Q


class Stiefel(nn.Module):
    """Map from matrices of full rank onto those with orthonormal columns (rows, if wide).

    For ``torch.nn.utils.parametrize``: input maps that keep lengths, read-outs, encoders.

    Args:
        m: rows.
        n: columns.

    Raises:
        ConfigurationError: a size that is no positive integer.

    Example:
        >>> linear = torch.nn.Linear(3, 8, bias=False, dtype=torch.float64)
        >>> _ = parametrize.register_parametrization(linear, "weight", Stiefel(8, 3))
        >>> x = torch.randn(3, dtype=torch.float64)
        >>> torch.allclose(linear(x).norm(), x.norm())
        True
    """

    def __init__(self, m: int, n: int) -> None:
        super().__init__()
        self.m, self.n = positive_int("m", m), positive_int("n", n)

    def forward(self, X: Tensor) -> Tensor:
        """Return ``Q (m, n)`` of ``X (m, n)``; errors as in ``qr`` and ``lq``.

        Raises:
            DimensionError: a wrong shape.
        """
        if isinstance(X, Tensor) and tuple(X.shape) != (self.m, self.n):
            raise DimensionError("X", (self.m, self.n), tuple(X.shape))
        return orthonormal(X)

    def right_inverse(self, W: Tensor) -> Tensor:
        """Return the frame itself as its free matrix; any other matrix of full rank is retracted first."""
        return self(W.detach())

    def in_manifold(self, W: Any, tolerance: float | None = None) -> bool:
        """Return True if ``W (m, n)`` has orthonormal columns (rows) up to the tolerance, ``10 max(m, n)`` units."""
        if not isinstance(W, Tensor) or W.dtype not in DTYPES or W.shape != (self.m, self.n):
            return False
        allowed = 10 * max(W.shape) * torch.finfo(W.dtype).eps if tolerance is None else tolerance
        return orthogonality_error(W if self.m >= self.n else W.mH) <= allowed

    def sample(self, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw a frame from the Haar measure: the Q of a Gaussian matrix with a positive diagonal of R."""
        generator = torch.Generator().manual_seed(seed)
        return self(torch.randn(self.m, self.n, generator=generator, dtype=dtype))

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"m={self.m}, n={self.n}"


def make_orthonormal(module: nn.Module, name: str = "weight") -> nn.Module:
    """Parametrize a weight of a module to have orthonormal columns (rows, if wide).

    Args:
        module: any module.
        name: the parameter, a matrix of full rank.

    Returns:
        The module itself, with the parametrization registered.

    Raises:
        ConfigurationError: the module has no such parameter.
        DimensionError: it is no matrix; and what else ``qr`` raises.

    Example:
        >>> layer = make_orthonormal(torch.nn.RNN(3, 8), "weight_ih_l0")
        >>> torch.allclose(layer.weight_ih_l0.T @ layer.weight_ih_l0, torch.eye(3), atol=1e-5)
        True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ConfigurationError(f"{type(module).__name__} has no parameter {name!r}")
    if weight.dim() != 2:
        raise DimensionError(name, "(m, n)", tuple(weight.shape), "a matrix")
    parametrize.register_parametrization(module, name, Stiefel(*weight.shape))
    return module
