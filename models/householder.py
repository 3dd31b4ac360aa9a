r"""Orthogonal RNN (oRNN): :math:`h^+ = \phi(W h + V x + b)` with W a product of Householder reflections.

Mhammedi, Hellicar, Rahman, Bailey, "Efficient orthogonal parametrisation of recurrent neural networks using
Householder reflections" (ICML 2017).
"""

from __future__ import annotations

from torch import Tensor, nn

from .orthogonal import OrthogonalLayer
from .parametrizations.householder import random_reflections
from .parametrizations.reflections import compact_wy, householder_matrix
from .parametrizations.vectors import reflection_count
from .recurrent import register_layer


@register_layer("householder")
class HouseholderRNN(OrthogonalLayer):
    r"""Orthogonal RNN, :math:`h^+ = \phi(W h + V x + b)`, :math:`W = H_n(u_n) \cdots H_{n-m+1}(u_{n-m+1})`.

    W is orthogonal for all non-zero vectors. It is realized once a forward pass, as a full matrix or as two
    thin ones, whichever is cheaper for the batch. The first state is learned.

    Args:
        input_size: features per time step.
        hidden_size: ``n``.
        reflections: ``m`` in 1 .. n; 16 by default (n, where n is smaller). ``m = n`` reaches every
            orthogonal matrix.
        activation: ``leaky_relu`` (slope 0.1, as in the paper), ``tanh``, ``relu``, ``sigmoid``,
            ``saturation``, ``deadzone``, ``identity``, ``modrelu`` (pairs ``i``, ``i + n/2``), ``oplu`` (sorts pairs
            ``2 i``, ``2 i + 1``).

    Attributes:
        U: ``(n, m)`` reflection vectors, lower trapezoidal.
        V: ``(n, input_size)``.
        b: ``(n,)``, or ``(n/2,)`` for modReLU.
        h0: ``(n,)``.

    Raises:
        ConfigurationError: an option out of its range, or an odd size with an activation on pairs.

    Example:
        >>> import torch
        >>> layer = HouseholderRNN(2, 8, reflections=3)
        >>> outputs, h = layer(torch.zeros(4, 5, 2))
        >>> outputs.shape, layer.expansion().kind
        (torch.Size([4, 5, 8]), 'non-expansive')
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, reflections: int | None = None, activation: str = "leaky_relu"
    ) -> None:
        super().__init__(input_size, hidden_size, activation=activation)
        n = self.hidden_size
        self.reflections = min(16, n) if reflections is None else reflection_count(n, reflections)
        self.U = nn.Parameter(random_reflections(n, self.reflections))

    @property
    def idle_parameters(self) -> int:
        """Count the zeros above the diagonal of ``U``."""
        return self.reflections * (self.reflections - 1) // 2

    def weight(self, double: bool = False) -> Tensor:
        """Return ``W (n, n)``; ``double``: from exact float64 copies of the vectors."""
        return householder_matrix(self.U.double() if double else self.U)

    def prepare(self) -> tuple[Tensor, ...]:
        """Return ``(X^T, V^T)`` where two thin products are faster than one full product, else ``W^T``."""
        if self.hidden_size < THIN_FROM or 4 * self.reflections > self.hidden_size:
            return super().prepare()
        V, X, _ = compact_wy(self.U)
        return X.mT, V.mT


THIN_FROM = 128  # units; measured: a step of training takes 0.6 of the time at 256 units, and 1.2 at 64 units
