"""Residual networks: recurrent layers in residual blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import as_choice, as_matrix
from stability.kernel.format.serialization import subject
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
Block = DrivenSystem | PairwiseSystem
STRETCH = {"identity": 1.0, "gelu": 1.129}
r"""Lipschitz constants of the maps between a layer and its mixing. The slope of GELU is largest where
:math:`\varphi(z) (2 - z^2) = 0`, and :math:`\Phi(\sqrt 2) + \sqrt 2\, \varphi(\sqrt 2) = 1.12890...`.
"""


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(values: Array) -> Array:
    return 0.5 * values * (1.0 + np.asarray(_erf(values / math.sqrt(2.0)), dtype=np.float64))


@subject("residual")
@dataclass(frozen=True, eq=False, repr=False)
class ResidualStack(Subject):
    r"""Stack of residual blocks around recurrent layers.

    .. math:: s_0 = E u + e, \qquad s_k = s_{k-1} + M_k\, \psi(y_k) + m_k

    at every time step, where ``y_k`` is the state of layer ``k``, which reads :math:`g_k \odot s_{k-1} + c_k`, and
    ``psi`` acts entry by entry. The output is :math:`s_K`.

    Args:
        layers: discrete ``DrivenSystem`` or ``PairwiseSystem`` with ``w`` inputs, the lowest first.
        encoder: ``E (w, p)``.
        mixing: ``M_k (w, n_k)``, one per layer.
        scales: ``g (K, w)``, such as those of a batch norm in evaluation; ones by default.
        shifts: ``c (K, w)``; zeros by default.
        encoder_bias: ``e (w,)``; zero by default.
        mixing_bias: ``m (K, w)``; zeros by default.
        between: ``psi``, ``identity`` or ``gelu``.
        name: name in reports.
        part: ``"PATH of WHOLE"`` for a part of a larger model, see ``stability.kernel.systems.parts``.

    Raises:
        ConfigurationError: no layers, other subjects, or layers in continuous time.
        DimensionError: shapes that do not fit together.

    Example:
        >>> half = PairwiseSystem(0.5 * np.eye(2), 0.5 * np.eye(2), np.zeros(2), "abs")
        >>> network = ResidualStack([half], np.ones((2, 1)), [np.eye(2)])
        >>> network.states, network.inputs, network.outputs
        (2, 1, 2)
        >>> network.run(np.array([[4.0], [0.0]]))  # 4 + |2|, then 0 + |0.5 * 2|
        array([[6., 6.],
               [1., 1.]])
    """

    layers: Sequence[Block]
    encoder: Any
    mixing: Sequence[Any]
    _: KW_ONLY
    scales: Any = None
    shifts: Any = None
    encoder_bias: Any = None
    mixing_bias: Any = None
    between: str = "identity"
    name: str = "residual network"
    part: str = ""

    def __post_init__(self) -> None:
        layers, encoder = tuple(self.layers), as_matrix("encoder", self.encoder)
        w, count = len(encoder), len(layers)
        as_choice("activation between layer and mixing", self.between, tuple(STRETCH))
        if not layers or not all(isinstance(layer, Block) and layer.is_discrete for layer in layers):
            raise ConfigurationError("residual blocks need layers that are a discrete DrivenSystem or a PairwiseSystem")
        if len(self.mixing) != count:
            raise DimensionError("mixing", f"{count} matrices", (len(self.mixing),), "one per layer")
        for k, layer in enumerate(layers):
            if layer.inputs != w:
                raise DimensionError(f"the input of layer {k}", (w,), (layer.inputs,), "it reads the residual stream")
        mixing = tuple(as_matrix(f"mixing {k}", M, (w, y.outputs)) for k, (M, y) in enumerate(zip(self.mixing, layers)))

        def rows(name: str, value: Any, default: float) -> Array:
            return as_matrix(name, np.full((count, w), default) if value is None else value, (count, w))

        bias = np.zeros(w) if self.encoder_bias is None else np.asarray(self.encoder_bias)
        self._set(
            layers=layers,
            encoder=encoder,
            mixing=mixing,
            scales=rows("scales", self.scales, 1.0),
            shifts=rows("shifts", self.shifts, 0.0),
            encoder_bias=as_matrix("encoder_bias", bias.reshape(-1, 1), (w, 1))[:, 0],
            mixing_bias=rows("mixing_bias", self.mixing_bias, 0.0),
            name=str(self.name),
            part=as_part(self.part),
        )

    def __repr__(self) -> str:
        return f"ResidualStack({len(self.layers)} layers, inputs={self.inputs}, name={self.name!r})"

    @property
    def states(self) -> int:
        """Size of all states together."""
        return sum(layer.states for layer in self.layers)

    @property
    def inputs(self) -> int:
        """Number of inputs ``p``."""
        return self.encoder.shape[1]

    @property
    def outputs(self) -> int:
        """Number of features between blocks ``w``."""
        return len(self.encoder)

    @property
    def phrase(self) -> str:
        """Describe the subject of a claim, without quantifiers."""
        blocks = "residual block" if len(self.layers) == 1 else "residual blocks"
        title = part_phrase(self, f"network of {len(self.layers)} {blocks}")
        kinds = ", ".join(layer.kind_name for layer in self.layers)
        return f"{title} ({kinds}; stored weights and biases{origin_phrase(self)}, exact arithmetic)"

    def advance(self, state: Array, u: Array) -> Array:
        """Run one step: ``(..., n)``, ``(..., p)`` to ``(..., n)``."""
        return self._step(state, u)[0]

    def run(self, inputs: Array) -> Array:
        """Return the outputs from the zero state, ``(time, p)`` to ``(time, w)``."""
        state, out = np.zeros(self.states), []
        for u in np.asarray(inputs, dtype=np.float64):
            state, signal = self._step(state, u)
            out.append(signal)
        return np.array(out)

    def _step(self, state: Array, u: Array) -> tuple[Array, Array]:
        """Return the next state and its output."""
        next_states, first = [], 0
        signal = np.asarray(u, dtype=np.float64) @ self.encoder.T + self.encoder_bias
        for layer, M, g, c, m in zip(self.layers, self.mixing, self.scales, self.shifts, self.mixing_bias):
            part = np.asarray(state, dtype=np.float64)[..., first : first + layer.states]
            first += layer.states
            next_states.append(layer.advance(part, signal * g + c))
            y = layer.output(next_states[-1])
            signal = signal + (_gelu(y) if self.between == "gelu" else y) @ M.T + m
        return np.concatenate(next_states, axis=-1), signal
