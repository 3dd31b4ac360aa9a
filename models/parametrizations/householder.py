r"""Orthogonal matrices by Householder reflections, for ``torch.nn.utils.parametrize``.

``forward`` (vectors to matrix), ``right_inverse`` (Algorithm 2: any orthogonal matrix to its vectors),
``in_manifold``, ``sample``. With ``n`` reflections every orthogonal matrix is reached, of both determinants.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from stability.errors import ConfigurationError, DimensionError

from .reflections import householder_matrix
from .vectors import ReflectionMap, check_square, householder_vectors, reduce_by_reflections, reflection_count


def random_reflections(
    n: int, m: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw ``U (n, m)`` with unit columns: uniform entries in [-1, 1] on and below the diagonal, then normalized.

    Args:
        n: size of the matrix.
        m: number of reflections, ``1 <= m <= n``.
        generator: source of randomness, torch's global one by default.
        dtype: real dtype, torch's default one by default.

    Returns:
        The vectors; for ``m = n`` the scalar of ``H_1`` is +1 or -1.
    """
    count = reflection_count(n, m)
    U = (2.0 * torch.rand(n, count, generator=generator, dtype=dtype) - 1.0).tril()
    return U / torch.linalg.vector_norm(U, dim=0)


class Householder(ReflectionMap):
    r"""Map :math:`U \mapsto H_n(u_n) \cdots H_{n-m+1}(u_{n-m+1})` for ``torch.nn.utils.parametrize``.

    Args:
        n: size of the matrix.
        reflections: ``m`` in 1 .. n; all ``n`` by default, which reaches every orthogonal matrix. Fewer are
            cheaper, reach a part only, and give the determinant ``(-1)^m``.

    Raises:
        ConfigurationError: m is no integer from 1 to n.

    Example:
        >>> linear = torch.nn.Linear(4, 4, bias=False, dtype=torch.float64)
        >>> _ = parametrize.register_parametrization(linear, "weight", Householder(4))
        >>> bool(torch.allclose(linear.weight.T @ linear.weight, torch.eye(4, dtype=torch.float64)))
        True
    """

    @property
    def idle_parameters(self) -> int:
        """Count the zeros above the diagonal of U."""
        return self.reflections * (self.reflections - 1) // 2

    def forward(self, U: Tensor) -> Tensor:
        """Return ``W (n, n)`` of the vectors ``U (n, m)``; errors as in ``householder_matrix``."""
        if isinstance(U, Tensor) and tuple(U.shape) != (self.n, self.reflections):
            raise DimensionError("U", (self.n, self.reflections), tuple(U.shape))
        return householder_matrix(U)

    def right_inverse(self, W: Tensor) -> Tensor:
        """Return vectors of an orthogonal matrix; any other matrix is retracted by QR first.

        Args:
            W: ``(n, n)``.

        Returns:
            ``U (n, m)``.

        Raises:
            DimensionError: W is not n by n; for other errors see ``householder_vectors``.
        """
        if isinstance(W, Tensor) and tuple(W.shape) != (self.n, self.n):
            raise DimensionError("W", (self.n, self.n), tuple(W.shape), "a square weight")
        return householder_vectors(W, self.reflections)

    def in_manifold(self, W: Tensor, tolerance: float | None = None) -> bool:
        """Return True if ``W`` is orthogonal up to rounding and, for ``m < n``, a product that Algorithm 2 finds.

        Args:
            W: ``(n, n)``.
            tolerance: bound of the largest entry of ``|W^T W - I|``; ``10 n`` times machine epsilon by default.

        Returns:
            True or False; False for a matrix with NaN.
        """
        if not self.is_isometry(W, tolerance) or W.is_complex():
            return False
        if self.reflections == self.n:
            return True
        _, R = reduce_by_reflections(W, self.reflections)
        remainder = (R - torch.eye(self.n, dtype=R.dtype, device=R.device)).abs().max()
        return bool(remainder <= max(10 * self.tolerance(W, tolerance), 100 * self.n * torch.finfo(W.dtype).eps))

    def sample(self, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw a random member of the image (not Haar-distributed).

        Args:
            seed: seed of a separate generator; the global random state is unchanged.
            dtype: dtype of the result.

        Returns:
            ``(n, n)``.
        """
        generator = torch.Generator().manual_seed(seed)
        return self(random_reflections(self.n, self.reflections, generator=generator, dtype=dtype))


def make_orthogonal(module: nn.Module, name: str = "weight", reflections: int | None = None) -> nn.Module:
    """Parametrize a square weight of a module as orthogonal.

    Args:
        module: any module.
        name: the parameter, a square matrix.
        reflections: see ``Householder``.

    Returns:
        The module itself, with the parametrization registered.

    Raises:
        ConfigurationError: the module has no such parameter.
        DimensionError: the weight is not square.

    Example:
        >>> layer = make_orthogonal(torch.nn.RNN(3, 4), "weight_hh_l0", reflections=2)
        >>> from stability.models.parametrizations.vectors import orthogonality_error
        >>> orthogonality_error(layer.weight_hh_l0) < 1e-5
        True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ConfigurationError(f"{type(module).__name__} has no parameter {name!r}")
    n = check_square(weight, name).shape[0]
    parametrize.register_parametrization(module, name, Householder(n, reflections))
    return module
