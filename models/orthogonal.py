r"""What the orthogonal and the unitary RNN share: :math:`h^+ = \phi(W h + V x + b)` with an isometry W."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from stability.kernel.systems.pairwise import PAIRWISE, PairwiseSystem
from stability.systems import DrivenSystem

from .activations import CHANNELWISE, Expansion, expansion_of, layer_activation, modrelu, oplu
from .lure import rnn_subject
from .recurrent import RecurrentLayer
from .scans.unrolled import Dense, Thin, can_fuse, unroll
from .tensors import check_sequence, to_numpy


class _Plan:
    """W of one forward pass: realised when the batch and the number of steps are known, then kept."""

    def __init__(self, layer: OrthogonalLayer) -> None:
        self._layer = layer
        self._form: Dense | Thin | None = None

    def form(self, rows: int = 1, steps: int = 1) -> Dense | Thin:
        """W in the form that suits the first caller."""
        if self._form is None:
            self._form = self._layer.recurrence(rows, steps)
        return self._form


class OrthogonalLayer(RecurrentLayer):
    r"""Base of the layers :math:`h^+ = \phi(W h + V x + b)` with orthogonal W and a learned ``h0``.

    OPLU and channelwise activations run as one written-out loop over the sequence (``unrolled``); modReLU, autocast
    and ``torch.func`` transforms take the recorded loop. Both give the same values.

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
        """``W (n, n)`` as realised now; ``double``: from exact float64 copies of the parameters."""

    def recurrence(self, rows: int, steps: int) -> Dense | Thin:
        """W in the form that is cheapest for ``rows`` rows a step and ``steps`` steps: one matrix."""
        return Dense(self.weight())

    def prepare(self) -> _Plan:
        """W, realised on first use."""
        return _Plan(self)

    def drive(self, x: Tensor, prepared: _Plan) -> Tensor:
        """``V x + b`` for all times (``V x`` with modReLU, which has the bias inside)."""
        prepared.form(x.shape[0], x.shape[1])
        return self._input(x)

    def initial_state(self, x: Tensor, prepared: _Plan) -> Tensor:
        """The learned ``h0`` for every sequence of the batch."""
        return self.h0.expand(x.shape[0], -1)

    def transition(self, drive: Tensor, state: Tensor, prepared: _Plan) -> Tensor:
        """``phi(W h + drive)``."""
        z = prepared.form().rows(drive, state)
        if self.activation == "modrelu":
            return modrelu(z, self.b)
        return oplu(z) if self.activation == "oplu" else CHANNELWISE[self.activation](z)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run over a sequence.

        Args:
            x: ``(batch, time, input_size)``.
            state: ``(batch, hidden_size)`` before the first step; ``None`` for the learned ``h0``.

        Returns:
            Outputs ``(batch, time, hidden_size)`` and the final state.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: not a floating-point tensor.
            RankError: a reflection vector has become zero.
            NonFiniteError: NaN or infinite reflection vectors.
        """
        check_sequence(x, self.input_size)
        if not can_fuse(self.activation, x):
            return super().forward(x, state)
        prepared, start = self.begin(x, state)
        form = prepared.form(x.shape[0], x.shape[1])
        states = unroll(self._input(x.transpose(0, 1)), start, form, self.activation)  # time first
        return states.transpose(0, 1), states[-1]

    def matrices(self) -> dict[str, Tensor]:
        """``W``."""
        return {"W": self.weight()}

    def expansion(self) -> Expansion:
        """Whether the map is contracting, non-expansive, or neither (in the Euclidean norm), and why.

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
        """The map with W realised in float64 from exact copies of the weights.

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

    def _input(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.V, None if self.activation == "modrelu" else self.b)
