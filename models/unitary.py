r"""Unitary RNN (uRNN): :math:`h^+ = \phi(W h + V x + b)` with unitary W, run in its real form.

A complex state ``h = p + i q`` of ``n/2`` entries is kept as ``[p; q]`` of ``n`` real ones, and
``W = A + i B`` as ``[[A, -B], [B, A]]``, which is orthogonal.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from .options import positive_int
from .orthogonal import OrthogonalLayer
from .parametrizations.householder import random_reflections
from .parametrizations.unitary import arjovsky_matrix, fixed_permutation, real_form, unitary_matrix
from .parametrizations.vectors import reflection_count
from .recurrent import register_layer

KINDS = ("householder", "arjovsky")


@register_layer("unitary")
class UnitaryRNN(OrthogonalLayer):
    r"""Unitary RNN: :math:`h^+ = \phi(W h + V x + b)` with W unitary on ``n/2`` complex units.

    ``kind="householder"``: :math:`W = H(u) \cdots H(u')\,\mathrm{diag}(e^{i\theta})`, every unitary matrix
    for ``reflections = n/2`` (Mhammedi et al. 2017, Corollary 1). ``kind="arjovsky"``:
    :math:`W = D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1` with ``7 n/2`` parameters (Arjovsky et al. 2016).

    Args:
        input_size: features per time step.
        hidden_size: real units ``n``, even: twice the number of complex ones.
        kind: ``householder`` or ``arjovsky``.
        reflections: for ``householder``, 1 .. n/2; 16 by default (n/2, where that is smaller).
        activation: ``modrelu`` (as in the papers), or one that acts on real and imaginary parts one by one.

    Attributes:
        V: ``(n, input_size)``, real parts then imaginary parts.
        b: ``(n/2,)`` for modReLU, ``(n,)`` otherwise.
        h0: ``(n,)``.
        theta: phases, ``(n/2,)`` or ``(3, n/2)``.
        vectors: ``(n/2, p, 2)`` or ``(2, n/2, 2)`` reflection vectors, real and imaginary part last.

    Raises:
        ConfigurationError: an odd size, or an option out of its range.

    Example:
        >>> layer = UnitaryRNN(2, 8, kind="arjovsky")
        >>> outputs, h = layer(torch.zeros(4, 5, 2))
        >>> outputs.shape, layer.expansion().kind
        (torch.Size([4, 5, 8]), 'non-expansive')
    """

    permutation: Tensor  # of the factors of Arjovsky et al.

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        kind: str = "householder",
        reflections: int | None = None,
        activation: str = "modrelu",
    ) -> None:
        if positive_int("hidden_size", hidden_size) % 2:
            raise ConfigurationError(
                f"hidden_size must be even (real and imaginary parts of complex units), got {hidden_size}"
            )
        super().__init__(input_size, hidden_size, activation=activation)
        self.kind = as_choice("kind", kind, KINDS)
        n = hidden_size // 2
        if kind == "arjovsky":
            if reflections is not None:
                raise ConfigurationError("kind='arjovsky' always has two reflections: leave reflections out")
            self.reflections = 2
            self.theta = nn.Parameter(torch.empty(3, n).uniform_(-math.pi, math.pi))
            self.vectors = nn.Parameter(torch.empty(2, n, 2).uniform_(-1.0, 1.0))
            self.register_buffer("permutation", fixed_permutation(n), persistent=False)
        else:
            self.reflections = min(16, n) if reflections is None else reflection_count(n, reflections)
            count = min(self.reflections, n - 1)  # the phases stand for the last factor
            self.theta = nn.Parameter(torch.empty(n).uniform_(-math.pi, math.pi))
            self.vectors = nn.Parameter(_complex_reflections(n, count))

    @property
    def idle_parameters(self) -> int:
        """Count the complex zeros above the diagonal of the vectors; the factors of Arjovsky et al. have none."""
        count = self.vectors.shape[1]
        return 0 if self.kind == "arjovsky" else count * (count - 1)

    def weight(self, double: bool = False) -> Tensor:
        """Return the real form ``(n, n)`` of W; ``double``: from exact float64 copies of the parameters."""
        theta, vectors = (p.double() if double else p for p in (self.theta, self.vectors))
        U = torch.view_as_complex(vectors.contiguous())
        arjovsky = self.kind == "arjovsky"
        return real_form(arjovsky_matrix(theta, U, self.permutation) if arjovsky else unitary_matrix(U, theta))

    def config(self) -> dict[str, Any]:
        """Return the keyword arguments that build this layer again."""
        config = super().config()
        reflections = config.pop("reflections")
        return config if self.kind == "arjovsky" else {**config, "reflections": reflections}


def _complex_reflections(n: int, count: int) -> Tensor:
    """Draw ``(n, count, 2)`` unit columns, lower trapezoidal."""
    if count == 0:
        return torch.zeros(n, 0, 2)
    parts = torch.stack([random_reflections(n, count), random_reflections(n, count)], dim=-1)
    return parts / math.sqrt(2.0)
