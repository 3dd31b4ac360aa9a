r"""Base of the orthogonal and the unitary RNN: :math:`h^+ = \phi(W h + V x + b)` with an isometry W."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from stability.kernel.systems.pairwise import PAIRWISE, PairwiseSystem
from stability.systems import DrivenSystem

from .activations import CHANNELWISE, Expansion, expansion_of, layer_activation, modrelu, oplu
from .lure import rnn_subject
from .recurrent import RecurrentLayer
from .tensors import to_numpy


class OrthogonalLayer(RecurrentLayer):
    r"""Base of the layers :math:`h^+ = \phi(W h + V x + b)` with orthogonal W and a learned ``h0``.

    Args:
        input_size: features per time step.
        hidden_size: number of real units ``n``.
        activation: a name in ``stability.models.activations.LAYER_ACTIVATIONS``.
    """

    def __init__(self, input_size: int, hidden_size: int, *, activation: str) -> None:
        super().__init__(input_size, hidden_size)
        n = self.hidden_size
        self.activation = layer_activation(activation, n)
        self.V = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n, self.input_size)))
        # modReLU has its bias inside: one for each pair
        self.b = nn.Parameter(torch.zeros(n // 2 if activation == "modrelu" else n))
        bound = (1.5 / n) ** 0.5  # the norm of h0 is about one half
        self.h0 = nn.Parameter(torch.empty(n).uniform_(-bound, bound))

    @abstractmethod
    def weight(self, double: bool = False) -> Tensor:
        """Return ``W (n, n)``; ``double``: from exact float64 copies of the parameters."""

    def prepare(self) -> tuple[Tensor, ...]:
        """Return the factors of W for rows: ``W^T``, or ``(X^T, V^T)`` if ``W = I - V X``."""
        return (self.weight().mT,)

    def drive(self, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return ``V x + b`` for all times (``V x`` with modReLU, whose bias is inside the activation)."""
        return nn.functional.linear(x, self.V, None if self.activation == "modrelu" else self.b)

    def initial_state(self, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the learned ``h0`` for every sequence of the batch."""
        return self.h0.expand(x.shape[0], -1)

    def transition(self, drive: Tensor, state: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return ``phi(W h + drive)``."""
        if len(prepared) == 1:
            z = torch.addmm(drive, state, prepared[0])
        else:
            z = torch.addmm(drive + state, state @ prepared[0], prepared[1], alpha=-1.0)
        if self.activation == "modrelu":
            return modrelu(z, self.b)
        return oplu(z) if self.activation == "oplu" else CHANNELWISE[self.activation](z)

    def matrices(self) -> dict[str, Tensor]:
        """Return ``W``."""
        return {"W": self.weight()}

    def expansion(self) -> Expansion:
        """Classify the map as contracting, non-expansive, or neither (in the Euclidean norm), with the reason.

        ``|W| = 1``, so with slopes in [-1, 1] distances between two states under the same input never grow.
        They also need not shrink: where the slope is one the map is an isometry, so a criterion that asks for
        a rate below one cannot hold for tanh, ReLU or leaky ReLU, and no contraction is certified.

        Returns:
            The verdict with its factor and its reason.

        Raises:
            NonFiniteError: NaN or infinite weights.
        """
        self.check_finite()
        norm = float(torch.linalg.matrix_norm(self.weight(double=True).detach(), 2))
        return expansion_of(self.activation, norm, self.b if self.activation == "modrelu" else None)

    def driven(self, continuous: bool = False) -> DrivenSystem | PairwiseSystem:
        """Return the map with W realized in float64 from exact copies of the weights.

        For modReLU and OPLU, which act on pairs, it is the one whose W is the orthogonal matrix nearest to that one: W
        is orthogonal by construction, and no claim may hang on how it was rounded.

        Raises:
            UnsupportedError: for the differential equation, which this map does not have.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous)
        self.check_finite()
        W, V, b = (to_numpy(value) for value in (self.weight(double=True), self.V, self.b))
        name = type(self).__name__
        if self.activation in PAIRWISE:
            return PairwiseSystem(W, V, b, self.activation, orthogonal=True, name=name)
        return rnn_subject(W, V, b, self.activation, name)
