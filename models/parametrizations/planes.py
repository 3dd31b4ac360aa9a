r"""Rotations :math:`A = P \Theta P^\top` in SO(d) from angles and a free matrix, and the inverse map.

Every rotation turns :math:`\lfloor d/2 \rfloor` orthogonal planes by an angle each: in the basis P of its real Schur
form it is block-diagonal. The same form gives the logarithm of P itself, and so the free matrix M of
:math:`P = e^{M - M^\top}` (RotRNN paper, Lemma 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.linalg import schur
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, UnsupportedError

from ..factorizations import qr
from ..options import positive_int
from ..tensors import kind_of
from .rotation import rotation_basis, rotation_matrix
from .vectors import check_square, orthogonality_error


def rotation_planes(A: Tensor) -> tuple[Tensor, Tensor]:
    r"""Decompose a rotation as :math:`A = P \Theta P^\top`: P in SO(d) and the angles.

    Args:
        A: ``(d, d)`` of determinant 1; a matrix that is not orthogonal is replaced by the Q of its QR factorization.

    Returns:
        ``P (d, d)`` and ``theta (d // 2,)`` in ``[-pi, pi]``, in double precision; for odd d the last column of P is
        the axis.

    Raises:
        UnsupportedError: the determinant is -1: no rotation, but a reflection.
        RankError: A is singular.
        DimensionError: not square.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: not a real floating-point tensor.

    Example:
        >>> P, theta = rotation_planes(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        >>> round(abs(float(theta[0])) / torch.pi, 6)
        0.5
    """
    if not isinstance(A, Tensor) or not A.is_floating_point():
        raise ConfigurationError(f"a rotation must be a real floating-point tensor, got {kind_of(A)}")
    Q = qr(check_square(A, "the rotation").detach().double()).Q
    if torch.linalg.det(Q) < 0:
        raise UnsupportedError("a matrix of determinant -1 is no rotation: negate one of its columns for one")
    T, Z = schur(Q.cpu().numpy(), output="real")[:2]
    columns, angles, plus, minus = _blocks(T)
    for kind, angle in ((minus, np.pi), (plus, 0.0)):  # the number of eigenvalues -1 is even: the determinant is 1
        while len(kind) >= 2:
            columns += [kind.pop(), kind.pop()]
            angles.append(angle)
    P = Z[:, columns + plus]
    if np.linalg.det(P) < 0:  # reverse the orientation of one plane, or of the axis
        P[:, -1] = -P[:, -1]
        if not plus:
            angles[-1] = -angles[-1]
    return torch.from_numpy(P).to(A.device), torch.tensor(angles, dtype=torch.float64, device=A.device)


def _blocks(T: np.ndarray) -> tuple[list[int], list[float], list[int], list[int]]:
    """Return columns and angles of the 2x2 blocks of a real Schur form, and the columns of its eigenvalues 1 and -1."""
    columns: list[int] = []
    angles: list[float] = []
    plus: list[int] = []
    minus: list[int] = []
    j = 0
    while j < len(T):
        if j + 1 < len(T) and T[j + 1, j] != 0:
            columns += [j, j + 1]
            angles.append(float(np.arctan2(T[j + 1, j] - T[j, j + 1], T[j, j] + T[j + 1, j + 1])))
            j += 2
        else:
            (plus if T[j, j] > 0 else minus).append(j)
            j += 1
    return columns, angles, plus, minus


def rotation_generator(P: Tensor) -> Tensor:
    """Return M with ``rotation_basis(M) = P``: half of the skew-symmetric logarithm of a rotation.

    Args:
        P: ``(d, d)`` in SO(d); raises what ``rotation_planes`` raises.

    Returns:
        ``(d, d)``, skew-symmetric, in double precision.

    Example:
        >>> P = rotation_basis(torch.randn(5, 5, dtype=torch.float64))
        >>> torch.allclose(rotation_basis(rotation_generator(P)), P)
        True
    """
    Z, theta = rotation_planes(P)
    d = len(P)
    K = torch.zeros_like(Z)
    first = torch.arange(d // 2, device=Z.device) * 2
    K[first + 1, first], K[first, first + 1] = theta, -theta
    return 0.5 * Z @ K @ Z.mT


class Rotation(nn.Module):
    r"""Map :math:`(\theta, M) \mapsto P \Theta P^\top`, :math:`P = e^{M - M^\top}`, onto SO(d).

    For ``torch.nn.utils.parametrize``. ``RotRNN`` has one of these per head; ``load_rotations`` sets given rotations.

    Args:
        d: size of the matrix.

    Raises:
        ConfigurationError: d is no positive integer.

    Example:
        >>> from torch.nn.utils import parametrize
        >>> linear = torch.nn.Linear(3, 3, bias=False, dtype=torch.float64)
        >>> with torch.no_grad():
        ...     _ = linear.weight.copy_(Rotation(3).sample(seed=1))
        >>> kept = linear.weight.detach().clone()
        >>> _ = parametrize.register_parametrization(linear, "weight", Rotation(3))
        >>> torch.allclose(linear.weight, kept)
        True
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = positive_int("d", d)

    @property
    def idle_parameters(self) -> int:
        """Count the entries of M without effect: its symmetric part."""
        return self.d * (self.d + 1) // 2

    def forward(self, theta: Tensor, M: Tensor) -> Tensor:
        """Return ``A (d, d)`` of ``theta (d // 2,)`` and ``M (d, d)``.

        Raises:
            DimensionError: a wrong shape.
        """
        for name, value, shape in (("theta", theta, (self.d // 2,)), ("M", M, (self.d, self.d))):
            if tuple(value.shape) != shape:
                raise DimensionError(name, shape, tuple(value.shape))
        return rotation_matrix(theta, self.d, rotation_basis(M))

    def right_inverse(self, A: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``theta`` and ``M`` of a rotation, in its dtype; any other matrix is retracted by QR first.

        Raises:
            DimensionError: A is not d by d; and what else ``rotation_planes`` raises.
        """
        if isinstance(A, Tensor) and tuple(A.shape) != (self.d, self.d):
            raise DimensionError("A", (self.d, self.d), tuple(A.shape), "a square weight")
        P, theta = rotation_planes(A)
        return theta.to(A.dtype), rotation_generator(P).to(A.dtype)

    def in_manifold(self, A: Any, tolerance: float | None = None) -> bool:
        """Return True if ``A (d, d)`` is orthogonal up to rounding (``10 d`` units by default), with determinant 1."""
        if not isinstance(A, Tensor) or not A.is_floating_point() or A.shape != (self.d, self.d):
            return False
        allowed = 10 * self.d * torch.finfo(A.dtype).eps if tolerance is None else tolerance
        return orthogonality_error(A) <= allowed and bool(torch.linalg.det(A.detach().double()) > 0)

    def sample(self, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw a rotation from the Haar measure on SO(d): the Q of a Gaussian matrix, one column negated if needed.

        Args:
            seed: seed of a separate generator.
            dtype: dtype of the result.
        """
        generator = torch.Generator().manual_seed(seed)
        Q = qr(torch.randn(self.d, self.d, generator=generator, dtype=torch.float64)).Q
        return (torch.cat([Q[:, :1] * torch.linalg.det(Q).sign(), Q[:, 1:]], dim=1)).to(dtype)

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"d={self.d}"
