r"""Symmetric-skew parametrization of the Lipschitz RNN.

.. math:: S(M) = (1 - \beta)(M + M^T) + \beta (M - M^T) - \gamma I .

``beta`` moves between symmetric (0) and skew-symmetric (1), ``gamma`` shifts the spectrum to the left.
Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz Recurrent Neural Networks" (ICLR 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError

from ..options import real


def _square(name: str, value: Any) -> Tensor:
    matrix = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise DimensionError(name, "(n, n) with n >= 1", tuple(matrix.shape))
    if not matrix.is_floating_point():
        raise ConfigurationError(f"{name} must be real and floating-point, got {matrix.dtype}")
    return matrix


def symmetric_skew(M: Tensor, beta: float, gamma: float) -> Tensor:
    r"""Return :math:`(1 - \beta)(M + M^T) + \beta (M - M^T) - \gamma I`.

    Args:
        M: ``(n, n)`` free matrix.
        beta: share of the skew-symmetric part, in [0, 1].
        gamma: shift of the spectrum to the left.

    Returns:
        ``(n, n)``, in the column convention of the formulas (``S h`` for a column ``h``).

    Example:
        >>> symmetric_skew(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), 1.0, 0.5)
        tensor([[-0.5000,  2.0000],
                [-2.0000, -0.5000]])
    """
    # (1 - b)(M + M^T) + b(M - M^T) = M + (1 - 2b) M^T: one pass over the matrix instead of four
    out = torch.add(M, M.transpose(-2, -1), alpha=1.0 - 2.0 * beta)
    return out - gamma * torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)


def _interval(M: Any, beta: float, gamma: float, factor: float) -> tuple[float, float]:
    beta, gamma = real("beta", beta, 0.0, 1.0), real("gamma", gamma)
    matrix = _square("M", M).detach().to(torch.float64)
    if not torch.isfinite(matrix).all():
        raise NonFiniteError("M")
    spectrum = torch.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    low, high = float(spectrum[0]), float(spectrum[-1])
    return factor * (1 - beta) * low - gamma, factor * (1 - beta) * high - gamma


def proposition1_bounds(M: Any, beta: float, gamma: float) -> tuple[float, float]:
    r"""Bound the real parts of all eigenvalues of :math:`S(M, \beta, \gamma)`.

    .. math:: [2 (1 - \beta) \lambda_{\min}(M_s) - \gamma,\; 2 (1 - \beta) \lambda_{\max}(M_s) - \gamma],
              \quad M_s = (M + M^T) / 2 .

    The symmetric part of ``S`` is ``2 (1 - beta) M_s - gamma I``, and real parts of eigenvalues lie in the
    numerical range of the symmetric part. Proposition 1 of the paper prints the interval without the factor 2
    (``published_proposition1_bounds``): every symmetric ``M`` but zero violates it (for ``beta < 1``), large
    Gaussian ones do for ``beta < 0.634``.

    Args:
        M: ``(n, n)`` free matrix, tensor or array.
        beta: share of the skew-symmetric part, in [0, 1].
        gamma: shift.

    Returns:
        ``(low, high)``.

    Raises:
        DimensionError: M is not square.
        NonFiniteError: M holds NaN or infinities.
        ConfigurationError: beta outside [0, 1].

    Example:
        >>> proposition1_bounds([[1.0, 0.0], [0.0, -1.0]], beta=0.5, gamma=0.25)
        (-1.25, 0.75)
    """
    return _interval(M, beta, gamma, 2.0)


def published_proposition1_bounds(M: Any, beta: float, gamma: float) -> tuple[float, float]:
    """Return the paper's interval, without the factor 2: for comparison only, it does not hold.

    Args:
        M: ``(n, n)`` free matrix, tensor or array.
        beta: share of the skew-symmetric part, in [0, 1].
        gamma: shift.

    Returns:
        ``(low, high)``.

    Example:
        >>> published_proposition1_bounds([[1.0, 0.0], [0.0, -1.0]], beta=0.5, gamma=0.25)
        (-0.75, 0.25)
    """
    return _interval(M, beta, gamma, 1.0)


def skew_bounds(
    parts: Mapping[str, tuple[Tensor, float, float, float]], published: bool
) -> dict[str, tuple[float, float]]:
    """Evaluate Proposition 1 for several matrices ``factor * S(M, beta, gamma)``, except those that are not finite.

    Args:
        parts: ``(M, beta, gamma, factor)`` by name, ``factor >= 0``.
        published: return the interval as printed in the paper.

    Returns:
        ``(low, high)`` by name.
    """
    bounds = published_proposition1_bounds if published else proposition1_bounds
    finite = {name: part for name, part in parts.items() if torch.isfinite(part[0]).all()}
    blocks = {name: (bounds(*part[:3]), part[3]) for name, part in finite.items()}
    return {name: (factor * low, factor * high) for name, ((low, high), factor) in blocks.items()}


class SymmetricSkew(nn.Module):
    r"""Map :math:`M \mapsto S(M, \beta, \gamma)` for ``torch.nn.utils.parametrize``.

    For ``0 < beta < 1`` every square matrix is reached. For ``beta = 1`` the image is the skew-symmetric
    matrices minus ``gamma I``, for ``beta = 0`` the symmetric ones.

    Args:
        beta: share of the skew-symmetric part, in [0, 1].
        gamma: shift.
        project: at ``beta`` 0 or 1, let ``right_inverse`` take the nearest matrix of the image instead of
            refusing one outside (needed to register on a layer with random weights).

    Raises:
        ConfigurationError: beta outside [0, 1].

    Example:
        >>> from torch.nn.utils import parametrize
        >>> linear = torch.nn.Linear(3, 3, bias=False)
        >>> _ = parametrize.register_parametrization(linear, "weight", SymmetricSkew(1.0, 0.1, project=True))
        >>> bool(torch.allclose(linear.weight + linear.weight.T, -0.2 * torch.eye(3)))
        True
    """

    def __init__(self, beta: float, gamma: float, *, project: bool = False) -> None:
        super().__init__()
        self.beta = real("beta", beta, 0.0, 1.0)
        self.gamma = real("gamma", gamma)
        self.project = bool(project)

    def forward(self, M: Tensor) -> Tensor:
        """Return ``S(M)`` for ``M (n, n)``."""
        return symmetric_skew(_square("M", M), self.beta, self.gamma)

    def right_inverse(self, S: Tensor) -> Tensor:
        """Return a free matrix ``M`` with ``S(M) = S``.

        Args:
            S: ``(n, n)``.

        Returns:
            ``(n, n)``.

        Raises:
            DimensionError: S is not square.
            ConfigurationError: at ``beta`` 0 or 1, when S is not in the image and ``project`` is off.
        """
        S = _square("S", S)
        if not self.project and not self.in_manifold(S):
            kind = "skew-symmetric matrix minus gamma I" if self.beta == 1.0 else "symmetric matrix"
            raise ConfigurationError(
                f"with beta = {self.beta:g} only a {kind} can be represented, which the given matrix is not: "
                "use 0 < beta < 1, or project=True for the nearest one"
            )
        symmetric, skew = self._parts(S)
        out = torch.zeros_like(S)
        if self.beta < 1.0:
            out = out + symmetric / (2.0 * (1.0 - self.beta))
        if self.beta > 0.0:
            out = out + skew / (2.0 * self.beta)
        return out

    def in_manifold(self, S: Tensor, tolerance: float | None = None) -> bool:
        """Return True if ``S`` is in the image up to rounding.

        Args:
            S: ``(n, n)``.
            tolerance: allowed largest entry of the part that must vanish, relative to the largest entry of
                ``S``; by default ``10 n`` times the machine epsilon.

        Returns:
            True or False; False for a matrix with NaN or infinite entries.
        """
        S = _square("S", S).detach()
        if not torch.isfinite(S).all():
            return False
        if 0.0 < self.beta < 1.0:
            return True
        tolerance = 10 * len(S) * torch.finfo(S.dtype).eps if tolerance is None else tolerance
        vanishing = self._parts(S)[self.beta == 0.0]
        return bool(vanishing.abs().max() <= tolerance * max(float(S.abs().max()), self.gamma, 1e-30))

    def _parts(self, S: Tensor) -> tuple[Tensor, Tensor]:
        """Return symmetric and skew part of ``S + gamma I``; one of them is zero in the image for ``beta`` 0 and 1."""
        return 0.5 * (S + S.T) + self.gamma * torch.eye(len(S), dtype=S.dtype, device=S.device), 0.5 * (S - S.T)

    def sample(self, n: int, *, std: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw a random member of the image: ``S(M)`` with ``M`` of independent normal entries.

        Args:
            n: size.
            std: standard deviation of the entries of ``M``.
            seed: seed of a separate generator; the global random state is unchanged.
            dtype: dtype of the result.

        Returns:
            ``(n, n)``.
        """
        generator = torch.Generator().manual_seed(seed)
        return self(std * torch.randn(n, n, generator=generator, dtype=dtype))

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"beta={self.beta:g}, gamma={self.gamma:g}"
