r"""Linear recurrent unit (LRU): a complex diagonal recurrence with a freely trained normalizer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from .linear import LinearLayer, Realised, initial_skip, radii
from .options import real
from .parametrizations.rotation import damping_parameter
from .recurrent import register_layer


@register_layer("lru")
class LRU(LinearLayer):
    r"""Complex diagonal recurrence: :math:`x_t = \lambda \odot x_{t-1} + n \odot (B u_t)`, :math:`y_t =
    \mathrm{Re}(C x_t) + D u_t`.

    :math:`\lambda = \exp(-e^{\nu} + i e^{\theta})`, inside the unit circle for all parameters. The normalizer
    ``n`` starts at :math:`\sqrt{1 - |\lambda|^2}` and is trained like any weight, so the size of the states changes in
    training.

    Args:
        input_size: features per time step.
        hidden_size: real entries of the state, even: twice the number of complex units.
        output_size: outputs; ``input_size`` by default.
        r_min: least initial ``|lambda|``, in (0, 1).
        r_max: largest initial ``|lambda|``.
        theta_max: largest initial angle.

    Attributes:
        nu_log: ``(n/2,)``, ``nu`` above.
        theta_log: ``(n/2,)``, ``theta`` above.
        normaliser: ``(n/2,)``, ``n`` above.
        B: ``(n/2, 2, input_size)``, real and imaginary parts.
        C: ``(output_size, n/2, 2)``, real and imaginary parts.
        D: ``(output_size,)``, or ``(output_size, input_size)`` if the two sizes differ.

    Raises:
        ConfigurationError: an odd size, or an option out of its range.

    Source:
        A. Orvieto, S. L. Smith, A. Gu, A. Fernando, C. Gulcehre, R. Pascanu, S. De, "Resurrecting recurrent neural
        networks for long sequences" (ICML 2023).

    Example:
        >>> layer = LRU(2, 8)
        >>> outputs, state = layer(torch.zeros(3, 5, 2))
        >>> outputs.shape, state.shape
        (torch.Size([3, 5, 2]), torch.Size([3, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        output_size: int | None = None,
        r_min: float = 0.5,
        r_max: float = 0.999,
        theta_max: float = math.pi / 10,
    ) -> None:
        super().__init__(input_size, hidden_size, input_size if output_size is None else output_size)
        if hidden_size % 2:
            raise ConfigurationError(
                f"hidden_size must be even (real and imaginary parts of complex units), got {hidden_size}"
            )
        why = "on the unit circle there is no normaliser"
        self.r_min, self.r_max = radii(("r_min", "r_max"), r_min, r_max, why)
        self.theta_max = real("theta_max", theta_max, 0.0, strict=True)
        units, p, out = hidden_size // 2, self.input_size, self.output_size
        nu = damping_parameter(torch.rand(units), self.r_min, self.r_max)
        self.nu_log = nn.Parameter(nu)
        # 1 - rand lies in (0, 1]; an angle of zero would have no logarithm
        self.theta_log = nn.Parameter(torch.log(self.theta_max * (1.0 - torch.rand(units))))
        self.normaliser = nn.Parameter(torch.sqrt(-torch.expm1(-2.0 * torch.exp(nu))))
        self.B = nn.Parameter(torch.randn(units, 2, p) / math.sqrt(2 * p))
        self.C = nn.Parameter(torch.randn(out, units, 2) / math.sqrt(units))
        self.D = nn.Parameter(initial_skip(p, out))

    def eigenvalues(self, double: bool = False) -> Tensor:
        """Return ``lambda``, ``(n/2,)`` complex."""
        nu_log, theta_log = (p.double() if double else p for p in (self.nu_log, self.theta_log))
        return torch.polar(torch.exp(-torch.exp(nu_log)), torch.exp(theta_log))

    def realise(self, double: bool = False) -> Realised:
        """Return eigenvalues, ``n B`` and ``C`` in real form."""
        n, B, C = (p.double() if double else p for p in (self.normaliser, self.B, self.C))
        into = (n[:, None, None] * B).flatten(0, 1)
        out = torch.stack([C[..., 0], -C[..., 1]], dim=-1).flatten(1)
        return Realised(self.eigenvalues(double), into, out, None)

    def transition_matrix(self, double: bool = False) -> Tensor:
        """Return ``(n, n)``: 2x2 blocks ``[[Re, -Im], [Im, Re]]``."""
        lam = self.eigenvalues(double)
        blocks = torch.stack([torch.stack([lam.real, -lam.imag], -1), torch.stack([lam.imag, lam.real], -1)], -2)
        return torch.block_diag(*blocks)

    def matrices(self) -> dict[str, Tensor]:
        """Return ``A``: the eigenvalues as 2x2 blocks."""
        return {"A": self.transition_matrix()}

    def expected_squared_norm(self, t: int) -> Tensor:
        r"""Return ``(n/2,)``: :math:`n_j^2 \|B_j\|^2 (1 - |\lambda_j|^{2t}) / (1 - |\lambda_j|^2)` for white input."""
        rate = torch.exp(self.nu_log.detach().double())
        size = (self.normaliser[:, None, None] * self.B).detach().double().square().sum((1, 2))
        return size * torch.expm1(-2.0 * t * rate) / torch.expm1(-2.0 * rate)
