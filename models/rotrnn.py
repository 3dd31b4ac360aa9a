r"""RotRNN: linear recurrence with damped rotations and states of constant expected norm."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from .linear import LinearLayer, Realised, initial_skip, radii
from .options import positive_int, real
from .parametrizations.planes import Rotation
from .parametrizations.rotation import (
    damping,
    damping_parameter,
    expected_squared_norm,
    normaliser,
    rotation_basis,
    rotation_matrix,
    stationary_factor,
)
from .recurrent import register_layer
from .scans.linear import rotations


@register_layer("rotrnn")
class RotRNN(LinearLayer):
    r"""RotRNN, heads of damped rotations: :math:`x_t = \gamma A x_{t-1} + \xi B u_t`, :math:`y_t = C x_t + D u_t`.

    For each head :math:`A = P \Theta P^\top` in SO(d) with :math:`P = e^{M - M^\top}`, :math:`\gamma =
    e^{-e^{g}}` and :math:`\xi = \sqrt{c (1 - \gamma^2) / \mathrm{Tr}(B^\top B)}`, recomputed in every forward
    pass, so that for white input :math:`E\|x_t\|^2 = c (1 - \gamma^{2t})` holds at every stage of training.

    The state is kept as :math:`P^\top x`, which has the same norm; ``C P`` reads it. All heads together have the
    expected squared norm ``heads * c``.

    Args:
        input_size: features per time step.
        hidden_size: size of the state, all heads together.
        heads: number of heads, a divisor of ``hidden_size``; heads of odd size have one entry without rotation.
        output_size: outputs; ``input_size`` by default.
        norm: limit ``c`` of the expected squared norm of a head.
        stationary_start: True if the expected squared norm is ``c`` from the first step; False if it grows from zero.
        bidirectional: True to run backward as well, with a separate ``C``; ``step`` is then not available.
        gamma_min: least damping factor at the start of training, in (0, 1).
        gamma_max: largest damping factor at the start of training, in (0, 1).
        theta_max: largest angle at the start of training.

    Attributes:
        gamma_log: ``(heads,)``.
        theta: ``(heads, d // 2)``.
        M: ``(heads, d, d)``.
        B: ``(heads, d, input_size)``.
        C: ``(output_size, hidden_size)``; ``C_back`` has the same shape, for the backward direction.
        D: ``(output_size,)``, or ``(output_size, input_size)`` if the two sizes differ.

    Raises:
        ConfigurationError: heads that do not divide the state, or an option out of its range.

    Source:
        K. Biegun, R. Dolga, J. Cunningham, D. Barber, "RotRNN: modelling long sequences with rotations" (2024).
        Its coefficient (equation 11) holds for ``c = 1``; the one here holds for every ``c``.

    Example:
        >>> layer = RotRNN(2, 8, heads=2)
        >>> outputs, state = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, state.shape
        (torch.Size([3, 5, 2]), torch.Size([3, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 8,
        output_size: int | None = None,
        norm: float = 1.0,
        stationary_start: bool = False,
        bidirectional: bool = False,
        gamma_min: float = 0.5,
        gamma_max: float = 0.999,
        theta_max: float = math.pi / 10,
    ) -> None:
        super().__init__(input_size, hidden_size, input_size if output_size is None else output_size)
        self.heads = positive_int("heads", heads)
        if hidden_size % heads:
            raise ConfigurationError(f"heads must divide hidden_size: {heads} do not divide {hidden_size}")
        for name, value in (("stationary_start", stationary_start), ("bidirectional", bidirectional)):
            if not isinstance(value, bool):
                raise ConfigurationError(f"{name} must be True or False, got {value!r}")
        self.norm = real("norm", norm, 0.0, strict=True)
        self.stationary_start = stationary_start
        self.bidirectional = bidirectional
        why = "without damping, the norm of the state has no limit"
        self.gamma_min, self.gamma_max = radii(("gamma_min", "gamma_max"), gamma_min, gamma_max, why)
        self.theta_max = real("theta_max", theta_max, 0.0)
        d, n, out = self.width, self.hidden_size, self.output_size
        self.gamma_log = nn.Parameter(damping_parameter(torch.rand(heads), self.gamma_min, self.gamma_max))
        self.theta = nn.Parameter(self.theta_max * torch.rand(heads, d // 2))
        self.M = nn.Parameter(torch.randn(heads, d, d))
        self.B = nn.Parameter(torch.randn(heads, d, self.input_size) / math.sqrt(self.input_size))
        self.C = nn.Parameter(torch.randn(out, n) / math.sqrt(n))
        self.C_back = nn.Parameter(torch.randn(out, n) / math.sqrt(n)) if bidirectional else None
        self.D = nn.Parameter(initial_skip(self.input_size, out))

    @property
    def idle_parameters(self) -> int:
        """Number of parameters without effect: the symmetric part of every ``M``."""
        return self.heads * self.width * (self.width + 1) // 2

    def load_rotations(self, A: Tensor) -> RotRNN:
        r"""Set angles and bases so that :math:`P \Theta P^\top` are the given rotations.

        Args:
            A: ``(heads, d, d)``, each in SO(d); ``(d, d)`` for one rotation in all heads. The damping is unchanged.

        Returns:
            The layer itself.

        Raises:
            DimensionError: another shape. ``rotation_planes`` lists the errors for matrices that are not rotations.

        Example:
            >>> from stability.models.parametrizations.planes import Rotation
            >>> layer, A = RotRNN(2, 8, heads=2), Rotation(4).sample(seed=3, dtype=torch.float32)
            >>> block = layer.load_rotations(A).matrices()["A"][:4, :4]
            >>> torch.allclose(block / block.norm(dim=0), A, atol=1e-6)
            True
        """
        d = self.width
        if not isinstance(A, Tensor) or tuple(A.shape) not in ((d, d), (self.heads, d, d)):
            received = tuple(A.shape) if isinstance(A, Tensor) else type(A).__name__
            raise DimensionError("A", f"({self.heads}, {d}, {d}) or ({d}, {d})", received, "one rotation per head")
        free = [Rotation(d).right_inverse(block.double()) for block in A.expand(self.heads, d, d)]
        with torch.no_grad():
            self.theta.copy_(torch.stack([theta for theta, _ in free]))
            self.M.copy_(torch.stack([M for _, M in free]))
        return self

    def realise(self, double: bool = False) -> Realised:
        """Return eigenvalues ``gamma e^{i theta}``, ``xi P^T B`` and ``C P``."""
        own = (self.gamma_log, self.theta, self.M, self.B, self.C)
        gamma_log, theta, M, B, C = (p.double() if double else p for p in own)
        gamma, rest = damping(gamma_log)
        P = rotation_basis(M)
        xi = normaliser(rest, B.square().sum((1, 2)), self.norm)
        into = (xi[:, None, None] * (P.mT @ B)).flatten(0, 1)
        back = None
        if self.C_back is not None:
            back = self._through(self.C_back.double() if double else self.C_back, P)
        return Realised(rotations(gamma, theta, self.width).flatten(), into, self._through(C, P), back)

    def _through(self, C: Tensor, P: Tensor) -> Tensor:
        return torch.einsum("ohd,hde->ohe", C.unflatten(1, (self.heads, self.width)), P).flatten(1)

    def transition_matrix(self, double: bool = False) -> Tensor:
        """Return ``gamma Theta (n, n)``, block-diagonal."""
        gamma_log, theta = (p.double() if double else p for p in (self.gamma_log, self.theta))
        return torch.block_diag(*(damping(gamma_log)[0][:, None, None] * rotation_matrix(theta, self.width)))

    def matrices(self) -> dict[str, Tensor]:
        """Return ``A``: the damped rotations ``gamma P Theta P^T`` of all heads, block-diagonal."""
        gamma, _ = damping(self.gamma_log)
        blocks = gamma[:, None, None] * rotation_matrix(self.theta, self.width, rotation_basis(self.M))
        return {"A": torch.block_diag(*blocks)}

    def initial_state(self, x: Tensor, prepared: Realised) -> Tensor:
        """Return zero, or for a stationary start the state that gives an expected squared norm ``c`` at step 1."""
        if not self.stationary_start:
            return super().initial_state(x, prepared)
        gamma, rest = damping(self.gamma_log)
        factor = stationary_factor(gamma, rest)
        unit = rotations(torch.ones_like(gamma), -self.theta, self.width)
        first = self.complex_state(nn.functional.linear(x[:, 0], prepared.into))
        return self.real_state((factor[:, None] * unit).flatten() * first)

    def expected_squared_norm(self, t: int) -> Tensor:
        """Return ``(heads,)``: the expected squared norm of each head after ``t`` steps of white input."""
        return expected_squared_norm(self.gamma_log.detach().double(), t, self.norm, self.stationary_start)
