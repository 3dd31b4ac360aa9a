r"""Lipschitz RNN: a continuous-time network with a linear term and symmetric-skew matrices.

.. math:: \dot h = A h + \tanh(W h + U x + b),
          \quad A = S(M_A, \beta_A, \gamma_A), \; W = S(M_W, \beta_W, \gamma_W)

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz Recurrent Neural Networks" (ICLR 2021), Eq. 4-6.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stability.errors import DimensionError

from .continuous import ContinuousRNN
from .options import pair, real
from .parametrizations.symmetric_skew import SymmetricSkew, skew_bounds, symmetric_skew
from .recurrent import register_layer


@register_layer("lipschitz")
class LipschitzRNN(ContinuousRNN):
    r"""Lipschitz RNN, by forward Euler or explicit midpoint.

    Euler: :math:`h^+ = h + dt\,(\alpha A h + \tanh(W h + U x + b))`. All matrices act on columns, as in the
    formulas; the authors' code keeps the transposes.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        beta: share of the skew-symmetric part, in [0, 1]; a number, or an ``(A, W)`` pair.
        gamma: shift of the spectrum to the left, >= 0; a number, or an ``(A, W)`` pair.
        dt: step size.
        integrator: ``euler`` or ``midpoint``.
        alpha: factor of the linear term (an ablation; 0 leaves a neural ODE with this ``W``).
        activation: ``tanh`` (the paper's), ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.
        init_std: standard deviation of the entries of ``M_A`` and ``M_W``; ``None`` is ``0.1 / hidden_size``
            as in the authors' code: so small that training starts near ``A = W = -gamma I``.

    Shapes:
        input ``(batch, time, input_size)``, output ``(batch, time, hidden_size)``,
        state ``(batch, hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> layer = LipschitzRNN(2, 8, beta=(0.75, 0.8), gamma=0.1, dt=0.1)
        >>> outputs, h = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape, layer.lure().is_discrete
        (torch.Size([3, 5, 8]), torch.Size([3, 8]), True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        beta: float | tuple[float, float] = 0.75,
        gamma: float | tuple[float, float] = 0.001,
        dt: float = 0.03,
        integrator: str = "euler",
        alpha: float = 1.0,
        activation: str = "tanh",
        init_std: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, integrator=integrator, activation=activation)
        self.beta = pair("beta", beta, 0.0, 1.0)
        self.gamma = pair("gamma", gamma, 0.0)
        self.alpha = real("alpha", alpha, 0.0)
        self.M_A = self.normal_matrix(init_std, 0.1 / self.hidden_size)
        self.M_W = self.normal_matrix(init_std, 0.1 / self.hidden_size)

    @classmethod
    def from_matrices(cls, A: Tensor, W: Tensor, U: Tensor, b: Tensor | None = None, **options: Any) -> LipschitzRNN:
        """Return the layer with the given realized matrices.

        Args:
            A: ``(n, n)`` linear part.
            W: ``(n, n)`` recurrent weights.
            U: ``(n, p)`` input weights.
            b: ``(n,)`` bias, zero by default.
            options: the constructor's keyword arguments; beta must be able to represent the matrices.

        Returns:
            The layer, in the dtype of ``A``.

        Raises:
            DimensionError: shapes that do not fit together.
            ConfigurationError: a matrix that beta 0 or 1 cannot represent.

        Example:
            >>> eye = torch.eye(2, dtype=torch.float64)
            >>> layer = LipschitzRNN.from_matrices(-eye, 0.5 * eye, eye, gamma=0.1)
            >>> bool(torch.allclose(layer.matrices()["A"], -eye))
            True
        """
        A, W, U = (torch.as_tensor(value) for value in (A, W, U))
        n = A.shape[0] if A.dim() == 2 else 0
        b = torch.zeros(n, dtype=A.dtype) if b is None else torch.as_tensor(b)
        if U.dim() != 2 or U.shape[0] != n or 0 in U.shape:
            raise DimensionError("U", f"({n}, p) with p >= 1", tuple(U.shape))
        for name, value, shape in (("A", A, (n, n)), ("W", W, (n, n)), ("b", b, (n,))):
            if tuple(value.shape) != shape:
                raise DimensionError(name, shape, tuple(value.shape))
        layer = cls(U.shape[1], n, **options).to(A.dtype)
        with torch.no_grad():
            layer.M_A.copy_(SymmetricSkew(layer.beta[0], layer.gamma[0]).right_inverse(A))
            layer.M_W.copy_(SymmetricSkew(layer.beta[1], layer.gamma[1]).right_inverse(W))
            layer.weight_ih.copy_(U)
            layer.bias.copy_(b)
        return layer

    @property
    def idle_parameters(self) -> int:
        """Count the unused entries: a part of each free matrix for ``beta`` 0 or 1, all of A for ``alpha`` 0."""
        n = self.hidden_size
        of_A, of_W = (n * (n - 1) // 2 if b == 0.0 else n * (n + 1) // 2 if b == 1.0 else 0 for b in self.beta)
        return of_W + (n * n if self.alpha == 0.0 else of_A)

    def matrices(self) -> dict[str, Tensor]:
        """Return ``alpha A`` (none for ``alpha = 0``) and ``W``."""
        W = symmetric_skew(self.M_W, self.beta[1], self.gamma[1])
        if self.alpha == 0.0:
            return {"W": W}
        A = symmetric_skew(self.M_A, self.beta[0], self.gamma[0])
        return {"A": A if self.alpha == 1.0 else self.alpha * A, "W": W}

    def real_part_bounds(self, published: bool = False) -> dict[str, tuple[float, float]]:
        """Return Proposition 1 of the paper for ``A`` and ``W``; see ``proposition1_bounds``."""
        A, W = ((self.M_A, self.beta[0], self.gamma[0]), (self.M_W, self.beta[1], self.gamma[1]))
        return skew_bounds({"A": (*A, self.alpha), "W": (*W, 1.0)}, published)
