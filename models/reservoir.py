r"""Echo state network: a fixed random recurrence with a fitted read-out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_choice

from .factorizations import qr
from .lure import LureLayer, Prepared
from .options import real
from .recurrent import register_layer

KINDS = ("orthogonal", "gaussian")


@register_layer("reservoir")
class EchoStateRNN(LureLayer):
    r"""Echo state network :math:`h^+ = (1 - a) h + a \phi(W h + U x + b)` with fixed random W, U and b.

    ``orthogonal``: ``W = radius Q`` with Q uniform over the orthogonal matrices (the Q of a Gaussian matrix). With
    ``radius < 1`` and slopes in [0, 1] the map contracts by ``1 - a + a radius`` per step, which is the echo state
    property, and ``certify`` proves it. ``gaussian``: Gaussian W scaled to the spectral radius ``radius``, the usual
    recipe, which does not imply contraction.

    Weights are parameters without gradient: files contain them, optimizers do not change them.
    ``stability.analysis.fit_readout`` fits the head by least squares.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        radius: norm of W (``orthogonal``) or its spectral radius (``gaussian``).
        leak: ``a`` in (0, 1].
        input_scale: entries of U are uniform in ``+- input_scale / sqrt(input_size)``.
        bias_scale: entries of b are uniform in ``+- bias_scale``.
        kind: ``orthogonal`` or ``gaussian``.
        activation: ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``, ``saturation`` or ``deadzone``.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        H. Jaeger, "The echo state approach to analysing and training recurrent neural networks" (GMD report 148, 2001).

    Example:
        >>> from stability import certify
        >>> layer = EchoStateRNN(2, 8, radius=0.9, leak=0.5)
        >>> certificate = certify(layer)
        >>> str(certificate.verdict), certificate.rate <= 0.951
        ('certified', True)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        radius: float = 0.95,
        leak: float = 1.0,
        input_scale: float = 1.0,
        bias_scale: float = 0.1,
        kind: str = "orthogonal",
        activation: str = "tanh",
    ) -> None:
        super().__init__(input_size, hidden_size, activation=activation)
        self.radius = real("radius", radius, 0.0)
        self.leak = real("leak", leak, 0.0, 1.0, strict=True)
        self.input_scale = real("input_scale", input_scale, 0.0)
        self.bias_scale = real("bias_scale", bias_scale, 0.0)
        self.kind = as_choice("kind", kind, KINDS)
        n, bound = self.hidden_size, self.input_scale / self.input_size**0.5
        drawn = torch.randn(n, n, dtype=torch.float64)
        scale = 1.0 if drawn.is_meta else float(torch.linalg.eigvals(drawn).abs().max())
        W = drawn / scale if kind == "gaussian" or drawn.is_meta else qr(drawn).Q
        self.weight_hh = _fixed((self.radius * W).to(torch.get_default_dtype()).contiguous())
        self.weight_ih = _fixed(torch.empty(n, self.input_size).uniform_(-bound, bound))
        self.bias = _fixed(torch.empty(n).uniform_(-self.bias_scale, self.bias_scale))

    def matrices(self) -> dict[str, Tensor]:
        """Return ``W``, and with a leak below one ``A = (1 - a) I`` and ``B = a I``."""
        if self.leak == 1.0:
            return {"W": self.weight_hh}
        eye = torch.eye(self.hidden_size, dtype=self.weight_hh.dtype, device=self.weight_hh.device)
        return {"A": eye - self.leak * eye, "B": self.leak * eye, "W": self.weight_hh}

    def prepare(self) -> Prepared:
        """Return ``W`` transposed for row vectors; the leak needs no matrix."""
        return Prepared(None, None, self.weight_hh.T)

    def transition(self, drive: Tensor, state: Tensor, prepared: Prepared) -> Tensor:
        """Return ``h + a (phi(W h + drive) - h)``."""
        channel = self._phi(torch.addmm(drive, state, prepared.W_t))
        return channel if self.leak == 1.0 else torch.lerp(state, channel, self.leak)

    def contraction_gap(self) -> Tensor:
        """Return ``a (1 - M |W|)`` with ``M`` the slope of the activation, per step."""
        return self.leak * (1 - lookup(self.activation).slope[1] * torch.linalg.matrix_norm(self.weight_hh, 2))


def _fixed(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)
