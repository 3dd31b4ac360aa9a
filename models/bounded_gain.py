r"""Recurrent network whose gain from inputs to states is bounded by construction, before and after training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activations import activation as lookup
from stability.kernel.checks import as_choice
from stability.search.gains.gain import Gain
from stability.search.gains.stored_gain import carried_gain
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem

from .activations import NORM_PRESERVING, householder
from .options import TORCH_ACTIVATIONS, real
from .parametrizations.frames import frame_vectors, reflected_frame
from .parametrizations.householder import random_reflections
from .parametrizations.sloped_gain import SlopedGain, sloped_gain
from .precision import full_precision
from .recurrent import RecurrentLayer, register_layer
from .tensors import to_numpy

MARGIN = 1e-5
"""Distance of the norm of ``K`` below one: above the rounding of float32 (1e-6 for hundreds of units), so that the
running network also keeps the bound over every horizon. Differences of states shrink by at least this share per step.
"""
PAIRS = (*NORM_PRESERVING, "householder")
"""Norm-preserving activations on pairs of units; all others have slopes."""
STARTS = ("random", "delay_line")
LOWER_LAYER_RATE = 0.9
"""Default rate of all layers of a stack except the last one."""


@register_layer("bounded_gain")
class BoundedGainRNN(RecurrentLayer):
    r"""Recurrent network with a prescribed gain for every value of its parameters, so that any optimizer can train it.

    .. math:: h^+ = \sigma\bigl(\rho K_h h + g K_x x + b\bigr), \qquad K = [K_h\;K_x], \quad K K^T = (1 - \delta)^2 I

    The activation preserves norms and has Lipschitz constant 1. Let two runs start from one state, with inputs that
    differ by ``u``. Their states differ by ``d`` with :math:`|d_{t+1}|^2 \le \rho^2 |d_t|^2 + g^2 |u_t|^2`.
    Hence :math:`|d_t| \le g |u|_2` at any time, over every horizon, and over the whole sequence
    :math:`|d|_2 \le g / \sqrt{1 - \rho^2}\, |u|_2`. Under one input, differences shrink by the factor :math:`\rho` per
    step (:math:`1 - \delta` without a rate). ``certify``, ``incremental_gain`` and ``certified_radius`` prove these
    bounds for the stored weights.

    Up to the factor :math:`1 - \delta`, :math:`K^T` consists of the first :math:`n` columns of a product of :math:`n`
    Householder reflections of size :math:`n + p`. Such products reach every matrix with orthonormal rows. Gradients
    through ``K`` keep their norms as well.

    For an activation with slopes in :math:`[0, \beta]`, the parameters are two frames and a diagonal. They reach all
    weights for which a quadratic storage function proves the same two bounds, see ``parametrizations.sloped_gain``.
    The rate then holds in the norm of the storage function, with an overshoot from its condition number;
    ``carried_gain`` and ``witness`` are the proof.

    Args:
        input_size: features per time step, ``p``.
        hidden_size: ``n``, even for activations on pairs.
        gain: ``g > 0``, from the input sequence to the state at any time, in the l2 norm.
        rate: ``rho`` in (0, 1], the factor by which differences shrink per step; ``None``: ``1 - delta``.
        activation: ``maxmin`` (sorts pairs ``2 i``, ``2 i + 1``; also called ``oplu``), ``abs``, or ``householder``
            (reflects pairs at a learned angle); or ``tanh``, ``relu``, ``leaky_relu``, ``sigmoid``,
            ``saturation``, ``deadzone``.
        start: initial weights: ``random``, or a ``delay_line``: each step shifts the state by ``p`` units and writes
            the input into the last ``p``. With ``abs`` the state then stores the last ``n / p`` inputs, if they are not
            negative. This suits long sequences of few features, such as images pixel by pixel.

    Attributes:
        U: ``(n + p, n)`` reflection vectors, lower trapezoidal.
        bias: ``(n,)``.
        angles: ``(n/2,)``, only for the Householder activation.
        storage: ``(2 n, n)`` reflection vectors of the second frame, only for an activation with slopes.
        scales: ``(n,)``, logarithms of the diagonal, only for an activation with slopes.

    Raises:
        ConfigurationError: an option out of its range, or an odd number of units.

    Source: the orthonormal form of the robust networks of Z. Wang, I. Manchester, "Direct parameterization of
    Lipschitz-bounded deep networks" (ICML 2023), with the norm-preserving activations of C. Anil, J. Lucas, R. Grosse
    (ICML 2019) and S. Singla, S. Singla, S. Feizi (ICLR 2022), unrolled in time; the reflections are those of Z.
    Mhammedi et al. (ICML 2017).

    Example:
        >>> import stability
        >>> layer = BoundedGainRNN(2, 8, gain=0.5)
        >>> outputs, h = layer(torch.zeros(3, 5, 2))
        >>> stability.incremental_gain(layer, measure="final").value <= layer.gain
        True
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "lr": 5e-3,
        "batch_size": 256,
        "schedule": "cosine",
        "warm_up": 0.3,
        "temperature": 5.0,
        "objective": "certified",
    }

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        gain: float = 1.0,
        rate: float | None = None,
        *,
        activation: str = "maxmin",
        start: str = "random",
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.gain = real("gain", gain, 0.0, 1e6, strict=True)
        self.rate = None if rate is None else real("rate", rate, 0.0, 1.0, strict=True)
        self.activation = as_choice("activation", activation, (*PAIRS, *TORCH_ACTIVATIONS))
        n, p = self.hidden_size, self.input_size
        if n % 2 and activation in PAIRS:
            raise ConfigurationError(f"{activation} acts on pairs of units: hidden_size must be even, got {n}")
        self.start = as_choice("start", start, STARTS)
        self.U = nn.Parameter(random_reflections(n + p, n))
        if start == "delay_line":
            with torch.device("cpu"), torch.no_grad():
                self.U.copy_(frame_vectors(torch.eye(n + p).roll(-p, dims=0)[:n]))
        self.bias = nn.Parameter(torch.zeros(n))
        if activation == "householder":
            self.angles = nn.Parameter(torch.full((n // 2,), 0.5 * torch.pi))
        if activation not in PAIRS:
            with torch.device("cpu"):  # also where the layer is made without numbers, on the meta device
                both = frame_vectors(torch.eye(n).repeat(1, 2) / math.sqrt(2.0))
            self.storage = nn.Parameter(torch.empty(2 * n, n))
            self.scales = nn.Parameter(torch.zeros(n))
            with torch.no_grad():
                self.storage.copy_(both)

    def frame(self, double: bool = False) -> Tensor:
        """Return ``K (n, n + p)``, ``K K^T = (1 - delta)^2 I``; ``double``: from exact float64 weights."""
        return (1.0 - MARGIN) * reflected_frame(self.U.double() if double else self.U)

    def weights(self, double: bool = False) -> tuple[Tensor, Tensor]:
        """Return ``rho K_h (n, n)`` and ``g K_x (n, p)``, the weights of states and inputs."""
        if self.activation not in PAIRS:
            weights = self.sloped(double)
            return weights.W, weights.V
        K, n = self.frame(double), self.hidden_size
        W = K[:, :n] if self.rate is None else self.rate * K[:, :n]
        return W, K[:, n:] if self.gain == 1.0 else self.gain * K[:, n:]

    def sloped(self, double: bool = False) -> SlopedGain:
        """Return weights and proof for an activation with slopes; ``double``: from exact float64 copies."""
        U, S, scales = ((v.double() if double else v) for v in (self.U, self.storage, self.scales))
        rate, slope = (1.0 - MARGIN) * (self.rate or 1.0), lookup(self.activation).slope[1]
        sizes: dict[str, float] = {"gain": (1.0 - MARGIN) * self.gain, "rate": rate, "slope": slope, "margin": MARGIN}
        return sloped_gain(reflected_frame(S), reflected_frame(U), scales, **sizes)

    @property
    def prescribed_gain(self) -> float:
        """Gain ``g`` from the input sequence to the state at any time."""
        return self.gain

    @property
    def prescribed_sequence_gain(self) -> float:
        r"""Gain :math:`g / \sqrt{1 - \rho^2}` to the sequence of states; without a rate :math:`\rho = 1 - \delta`."""
        rho = 1.0 if self.rate is None else self.rate
        contraction = (1.0 - MARGIN) * rho
        return self.gain / math.sqrt((1.0 - contraction) * (1.0 + contraction))

    def prepare(self) -> tuple[Tensor, Tensor]:
        """Return ``rho K_h`` and ``g K_x``."""
        return self.weights()

    @full_precision
    def drive(self, x: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``g K_x x + b`` for all times, in the layer's own precision under autocast as well."""
        return nn.functional.linear(x.to(self.bias.dtype), prepared[1], self.bias)

    @full_precision
    def transition(self, drive: Tensor, state: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """Run one step, ``(batch, n)`` to ``(batch, n)``."""
        return self._activated(torch.addmm(drive, state.to(drive.dtype), prepared[0].mT))

    def _activated(self, z: Tensor) -> Tensor:
        if self.activation == "householder":
            return householder(z, self.angles)
        return {**NORM_PRESERVING, **TORCH_ACTIVATIONS}[self.activation](z)

    def matrices(self) -> dict[str, Tensor]:
        """Return the recurrent weights as ``W``."""
        return {"W": self.weights()[0]}

    @property
    def idle_parameters(self) -> int:
        """Number of parameters without effect: zeros above the diagonal of each frame, and lengths of its columns."""
        n = self.hidden_size
        return (n * (n - 1) // 2 + n) * (1 if self.activation in PAIRS else 2)

    @classmethod
    def from_matrices(
        cls, W: Tensor, V: Tensor, b: Tensor | None = None, gain: float = 1.0, rate: float | None = None, **options: Any
    ) -> BoundedGainRNN:
        """Return a layer with the weights if ``[W / rho, V / g]`` has orthonormal rows, else with its retraction.

        Args:
            W: ``(n, n)`` recurrent weights.
            V: ``(n, p)`` input weights.
            b: ``(n,)`` bias, zero by default.
            gain: ``g``.
            rate: ``rho``.
            options: further keyword arguments of the constructor.

        Returns:
            The layer, in the dtype of ``W``; its weights are ``1 - delta`` times those of the retraction.

        Raises:
            DimensionError: shapes that do not fit together.
            RankError: ``[W V]`` has dependent rows.
            ConfigurationError: an option out of its range.

        Example:
            >>> layer = BoundedGainRNN.from_matrices(0.6 * torch.eye(2), 0.8 * torch.eye(2))
            >>> bool(torch.allclose(layer.matrices()["W"], 0.6 * torch.eye(2), atol=1e-4))
            True
        """
        W, V = torch.as_tensor(W), torch.as_tensor(V)
        n = W.shape[0] if W.dim() == 2 else 0
        b = torch.zeros(n, dtype=W.dtype) if b is None else torch.as_tensor(b)
        if V.dim() != 2 or V.shape[0] != n or 0 in V.shape:
            raise DimensionError("V", f"({n}, p) with p >= 1", tuple(V.shape))
        for name, value, shape in (("W", W, (n, n)), ("b", b, (n,))):
            if tuple(value.shape) != shape:
                raise DimensionError(name, shape, tuple(value.shape))
        layer = cls(V.shape[1], n, gain, rate, **options).to(W.dtype)
        slope = 1.0 if layer.activation in PAIRS else lookup(layer.activation).slope[1]
        K = slope * torch.cat([W / (layer.rate or 1.0), V / layer.gain], dim=1)
        with torch.no_grad():
            layer.U.copy_(frame_vectors(K))
            layer.bias.copy_(b)
        return layer

    @classmethod
    def stack_configs(
        cls, widths: list[int], hidden_size: int, gain: float = 1.0, rate: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        r"""Return the options of stacked layers whose gain from input sequence to last state is at most ``gain``.

        From its input sequence to its output sequence, layer ``k`` has the gain :math:`g_k / \sqrt{1 - \rho^2}`, and
        these gains multiply. Each layer below the last has :math:`g_k = \sqrt{1 - \rho^2}`, hence gain one. The last
        layer has ``gain``, since only its last state is read.

        Args:
            widths: input size of each layer, the lowest first.
            hidden_size: hidden size of every layer.
            gain: gain of the stack.
            rate: ``rho`` of all layers; ``None``: no rate for the last layer, 0.9 for the layers below it.
            options: further keyword arguments of the layers.

        Raises:
            ConfigurationError: an option out of its range.

        Example:
            >>> [round(config["gain"], 3) for config in BoundedGainRNN.stack_configs([2, 8, 8], 8, gain=0.5)]
            [0.436, 0.436, 0.5]
        """
        bound = LOWER_LAYER_RATE if rate is None else real("rate", rate, 0.0, 1.0, strict=True)
        contraction = (1.0 - MARGIN) * bound
        common = {"gain": math.sqrt((1.0 - contraction) * (1.0 + contraction)) * (1.0 - 1e-12), "rate": bound}
        configs = [{"input_size": width, "hidden_size": hidden_size, **options} for width in widths]
        return [{**config, **common} for config in configs[:-1]] + [{**configs[-1], "gain": gain, "rate": rate}]

    def driven(self, continuous: bool = False) -> PairwiseSystem | DrivenSystem:
        """Return the map, with weights realized in float64 from exact copies of the parameters.

        Raises:
            UnsupportedError: ``continuous=True``; this layer has no differential equation.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous)
        self.check_finite()
        W, V = (to_numpy(value) for value in self.weights(double=True))
        b, name = to_numpy(self.bias), type(self).__name__
        if self.activation not in PAIRS:
            n, slope = self.hidden_size, (0.0, lookup(self.activation).slope[1])
            system = LureSystem(np.zeros((n, n)), np.eye(n), W, slope=slope, dt=1.0)
            return DrivenSystem(system, self.activation, V, b, name=name)
        sigma = "oplu" if self.activation == "maxmin" else self.activation
        more: dict[str, Any] = {"angles": to_numpy(self.angles)} if sigma == "householder" else {}
        return PairwiseSystem(W, V, b, sigma, name=name, **more)

    def witness(self) -> dict[str, Any] | None:
        """Return ``P``, ``L`` and the rate for an activation with slopes; other activations need none."""
        if self.activation in PAIRS:
            return None
        with torch.no_grad():
            weights = self.sloped(double=True)
        contraction = (1.0 - MARGIN) * (self.rate or 1.0)
        return {"P": to_numpy(weights.P), "L": to_numpy(weights.L), "rate": contraction * (1.0 + 1e-9)}

    def carried_gain(self, output: Any = None) -> Gain | None:
        """Return the gain of an activation with slopes, proved by construction.

        Args:
            output: ``H (k, n)``, such as the weights of a head; the state by default.

        Returns:
            The gain at any time, over every horizon; ``None`` for activations on pairs, where norms prove it.

        Example:
            >>> layer = BoundedGainRNN(2, 5, gain=0.5, activation="tanh")
            >>> 0.49 < layer.carried_gain().value <= 0.5
            True
        """
        subject, proof = self.driven(), self.witness()
        if not isinstance(subject, DrivenSystem) or proof is None:
            return None
        with torch.no_grad():
            gain = float(self.sloped(double=True).gain)
        return carried_gain(subject, proof["P"], proof["L"], gain, output=output)
