r"""Unitary matrices: complex Householder reflections (all of U(n)), and the product of the first uRNN.

.. math:: W = H_n(u_n) \cdots H_2(u_2)\, \mathrm{diag}(e^{i \theta}), \qquad
          W = D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1 .

The first reaches every unitary matrix (Mhammedi et al. 2017, Corollary 1). The second, of Arjovsky, Shah
and Bengio, "Unitary evolution recurrent neural networks" (ICML 2016), has ``7 n`` real parameters and reaches
a part: phases ``D``, reflections ``R``, the unitary Fourier transform ``F``, a fixed permutation ``Pi``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError, UnsupportedError

from ..precision import full_precision
from .reflections import householder_matrix
from .vectors import ReflectionMap, check_square, orthogonality_error, reduce_by_reflections


@full_precision
def unitary_matrix(U: Tensor, theta: Tensor) -> Tensor:
    r"""Return :math:`H_n(u_n) \cdots H_{n-p+1}(u_{n-p+1}) \,\mathrm{diag}(e^{i\theta})`.

    Args:
        U: ``(n, p)`` complex, ``0 <= p < n``, lower trapezoidal as in ``reflections``; with ``p = n - 1``
            every unitary matrix is reached.
        theta: ``(n,)`` real phases.

    Returns:
        ``(n, n)`` complex.

    Raises:
        RankError: a zero reflection vector.
        DimensionError: shapes that do not fit.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: U is not complex.

    Example:
        >>> unitary_matrix(torch.zeros(2, 0, dtype=torch.complex64), torch.tensor([0.0, torch.pi])).real
        tensor([[ 1.,  0.],
                [ 0., -1.]])
    """
    if not isinstance(U, Tensor) or not U.is_complex():
        raise ConfigurationError("U must be a complex tensor; for real vectors use householder_matrix")
    if U.dim() != 2 or theta.shape != U.shape[:1]:
        raise DimensionError("theta", "(n,) for U (n, p), one phase a row", tuple(theta.shape))
    if not torch.isfinite(theta.detach()).all():
        raise NonFiniteError("theta")
    phases = torch.polar(torch.ones_like(theta), theta)
    if U.shape[1] == 0:
        return torch.diag(phases)
    return householder_matrix(U) * phases


def unitary_vectors(W: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return vectors ``U (n, count)`` and phases ``theta (n,)`` of a unitary matrix (Algorithm 2 over C^n).

    Args:
        W: ``(n, n)`` complex; a matrix that is not unitary is retracted to the Q of its QR factorization.
        count: reflections, all ``n - 1`` by default.

    Returns:
        ``U`` with unit columns and ``theta``; ``unitary_matrix(U, theta)`` is W again when W is unitary.

    Raises:
        UnsupportedError: W is unitary, but no product of so few reflections that Algorithm 2 finds.
        RankError: W is singular.
        DimensionError: W is not square.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: W is not complex.

    Example:
        >>> U, theta = unitary_vectors(torch.diag(torch.tensor([1.0, 1.0j])))
        >>> bool(torch.allclose(unitary_matrix(U, theta), torch.diag(torch.tensor([1.0, 1.0j]))))
        True
    """
    if not isinstance(W, Tensor) or not W.is_complex():
        raise ConfigurationError("W must be a complex tensor; for a real matrix use householder_vectors")
    n = check_square(W).shape[0]
    count = n - 1 if count is None else count
    eps = torch.finfo(W.dtype).eps
    unitary = orthogonality_error(W) <= 10 * n * eps
    U, R = reduce_by_reflections(W, count)
    diagonal = R.diagonal()
    rest = float((R - torch.diag(diagonal)).abs().max())
    if unitary and rest > 100 * n * eps:
        raise UnsupportedError(
            f"this unitary matrix is no product of {count} reflections and phases that Algorithm 2 finds "
            f"(residual {rest:.2g}): use {n - 1} reflections, which reach every unitary matrix"
        )
    return U.to(W.dtype), torch.angle(diagonal).to(W.real.dtype)


class Unitary(ReflectionMap):
    r"""Map :math:`(U, \theta) \mapsto W` onto unitary matrices for ``torch.nn.utils.parametrize``.

    Args:
        n: size of the matrix.
        reflections: ``m`` in 1 .. n; ``n``, the default, reaches every unitary matrix. The phases stand for
            ``H_1``, so ``min(m, n - 1)`` vectors are stored.

    Raises:
        ConfigurationError: m is no integer from 1 to n.

    Example:
        >>> from torch.nn.utils import parametrize
        >>> linear = torch.nn.Linear(3, 3, bias=False, dtype=torch.complex128)
        >>> _ = parametrize.register_parametrization(linear, "weight", Unitary(3))
        >>> from stability.models.parametrizations.vectors import orthogonality_error
        >>> orthogonality_error(linear.weight) < 1e-14
        True
    """

    @property
    def vectors(self) -> int:
        """Number of stored reflection vectors."""
        return min(self.reflections, self.n - 1)

    @property
    def idle_parameters(self) -> int:
        """Count the zeros above the diagonal of U; a complex one counts once, as in ``numel``."""
        return self.vectors * (self.vectors - 1) // 2

    def forward(self, U: Tensor, theta: Tensor) -> Tensor:
        """Return ``W (n, n)`` of ``U (n, vectors)`` and ``theta (n,)``; errors as in ``unitary_matrix``."""
        return unitary_matrix(U, theta)

    def right_inverse(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``U`` and ``theta`` of a unitary matrix; errors as in ``unitary_vectors``."""
        return unitary_vectors(W, self.vectors)

    def in_manifold(self, W: Tensor, tolerance: float | None = None) -> bool:
        """Return True if ``W`` is unitary up to rounding (``10 n`` units by default); False for NaN.

        For ``m < n`` a True does not say that so few reflections give W.
        """
        return self.is_isometry(W, tolerance) and W.is_complex()

    def sample(self, *, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
        """Draw a random member of the image (not Haar-distributed) from a separate generator."""
        generator = torch.Generator().manual_seed(seed)
        U = torch.randn(self.n, self.vectors, generator=generator, dtype=dtype)
        theta = (2 * torch.rand(self.n, generator=generator, dtype=U.real.dtype) - 1) * torch.pi
        return self(U, theta)


@full_precision
def arjovsky_matrix(theta: Tensor, v: Tensor, permutation: Tensor) -> Tensor:
    r"""Return :math:`D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1`, in the column convention ``W h``; O(n log n) a column.

    Args:
        theta: ``(3, n)`` real phases of ``D_1, D_2, D_3``.
        v: ``(2, n)`` complex reflection vectors of ``R_1, R_2``, not zero.
        permutation: ``(n,)`` indices; ``(Pi h)_i = h_{permutation[i]}``.

    Returns:
        ``(n, n)`` unitary.

    Raises:
        RankError: a zero reflection vector.
        NonFiniteError: NaN or infinite entries.
    """
    sizes = v.detach().abs().amax(dim=-1)
    if not (torch.isfinite(sizes).all() and torch.isfinite(theta.detach()).all()):
        raise NonFiniteError("theta or v")
    if not (sizes > 0).all():
        raise RankError("a reflection vector is zero and defines no reflection; set it to another vector")
    v = v / sizes.unsqueeze(-1)  # only the direction counts: no overflow, no underflow
    d = torch.polar(torch.ones_like(theta), theta)
    h = torch.fft.fft(torch.eye(v.shape[-1], dtype=v.dtype, device=v.device) * d[0], norm="ortho")  # a row a vector
    h = _reflect(h, v[0])[..., permutation] * d[1]
    return (_reflect(torch.fft.ifft(h, norm="ortho"), v[1]) * d[2]).mT


def fixed_permutation(n: int) -> Tensor:
    """Return the scrambled permutation of the uRNN, the same in every version and on every machine.

    Args:
        n: size.

    Returns:
        ``(n,)`` indices: 0 .. n-1 in the order of their SplitMix64 hashes.

    Example:
        >>> sorted(fixed_permutation(4).tolist())
        [0, 1, 2, 3]
    """

    def scrambled(k: int) -> int:
        z = (k + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ z >> 31

    return torch.tensor(sorted(range(n), key=scrambled))


def _reflect(h: Tensor, v: Tensor) -> Tensor:
    scale = 2.0 / torch.vdot(v, v).real
    return h - ((h @ v.conj()) * scale).unsqueeze(-1) * v


def real_form(W: Tensor) -> Tensor:
    """Return ``[[A, -B], [B, A]]`` of ``W = A + i B``: orthogonal of size 2n for unitary W.

    Args:
        W: ``(..., n, n)`` complex.

    Returns:
        ``(..., 2n, 2n)`` real; it maps ``[Re h; Im h]`` to ``[Re W h; Im W h]``.

    Example:
        >>> real_form(torch.tensor([[1.0j]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    A, B = W.real, W.imag
    return torch.cat([torch.cat([A, -B], dim=-1), torch.cat([B, A], dim=-1)], dim=-2)
