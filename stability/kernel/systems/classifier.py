"""Classifiers: a recurrent network with a linear head, from an input sequence to logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.checks import as_choice, as_matrix, as_vectors
from stability.kernel.format.serialization import subject
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.relu_channels import relu_system
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
Recurrent = DrivenSystem | GatedCell | LayerStack
REDUCTIONS = ("last", "mean")
LARGEST = 1e60
"""Largest number of a network: products of several stay within the range of floats."""


@subject("classifier")
@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Subject):
    r"""Network of recurrent layers from a given state, with a linear head on its outputs.

    .. math:: s_0 = \mathrm{start}, \quad s_{t+1} = \mathrm{advance}(s_t, x_t), \quad
              \mathrm{logits} = V r + b, \quad r = y_T \;\text{or}\; \tfrac1T \sum_{t=1}^{T} y_t ,

    with ``y_t`` the output of the state ``s_t`` (of a stack: of its last layer). Its class is the largest logit's.

    Args:
        recurrent: a ``DrivenSystem`` that is a map, a ``GatedCell``, or a ``LayerStack`` of such, in one direction.
            Of a differential equation the Euler or midpoint map is taken, see ``LureSystem.discretise``; an activation
            on pairs that is piecewise linear is unfolded, see ``stability.kernel.systems.relu_channels``.
        weight: ``(k, n)`` of the head, ``n`` the outputs.
        bias: ``(k,)`` of the head; ``None`` is zero.
        reduction: ``last``, the output after the last step, or ``mean``, the mean of the outputs of all steps.
        start: ``(n,)`` the states of all layers before the first step, in their order; ``None`` is zero.
        packed: whether it stands for a network that reads the first steps of a padded sequence and finds their number
            by itself: its inputs are those steps, and claims say that their number counts as given.

    Raises:
        UnsupportedError: a subject of another kind, a flow, modReLU, or a stack in two directions.
        DimensionError: a head that does not fit.
        ConfigurationError: an unknown reduction, or a promise about the inputs: a perturbation need not keep it.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> Classifier(cell, [[1.0], [-1.0]]).logits(np.ones((1, 1, 1))).round(3)
        array([[ 0.762, -0.762]])
    """

    recurrent: Any
    weight: Any
    bias: Any = None
    reduction: str = "last"
    start: Any = field(default=None, kw_only=True)
    packed: bool = field(default=False, kw_only=True)

    optional = ("start", "packed")
    part: ClassVar[str] = ""  # a network inside something bigger says so itself, see ``phrase``

    def __post_init__(self) -> None:
        network = _with_relu_channels(self.recurrent)
        if not isinstance(network, (DrivenSystem, GatedCell, LayerStack)):
            raise UnsupportedError(
                "no local certificate is known for this kind of recurrent part; there are some for networks "
                "h+ = A h + B phi(C h + ...), for LSTM and GRU, and for stacks of these"
            )
        if not network.is_discrete:
            raise UnsupportedError(
                "a classifier needs a network in steps: take the Euler or midpoint map of this differential equation"
            )
        layers = layers_of(network)
        if isinstance(network, LayerStack) and network.directions != 1:
            raise UnsupportedError("a classifier needs layers that run forwards: there is one here that runs backwards")
        if layers[0].input_low is not None:
            raise ConfigurationError(
                "a classifier takes any input: give the network without a promise about it, with_inputs(None, None)"
            )
        weight = as_matrix("weight", self.weight, (None, layers[-1].outputs))
        raw = np.zeros((len(weight), 1)) if self.bias is None else np.reshape(np.asarray(self.bias), (-1, 1))
        bias = as_matrix("bias", raw, (len(weight), 1))[:, 0]
        if len(weight) < 2:
            raise DimensionError("weight", "(k, n) with k >= 2 classes", weight.shape)
        as_choice("reduction", self.reduction, REDUCTIONS)
        if not isinstance(self.packed, bool):
            raise ConfigurationError(f"packed must be true or false, got {self.packed!r}")
        given = np.zeros(network.states) if self.start is None else self.start
        start = as_matrix("start", np.reshape(np.asarray(given), (-1, 1)), (network.states, 1))[:, 0]
        self._set(recurrent=network, weight=weight, bias=bias, start=start)

    def __repr__(self) -> str:
        return f"Classifier({self.recurrent!r}, classes={self.classes}, reduction={self.reduction!r})"

    @property
    def layers(self) -> tuple[DrivenSystem | GatedCell, ...]:
        """Recurrent layers, the lowest first."""
        return layers_of(self.recurrent)

    @property
    def starts(self) -> list[Array]:
        """Initial state of every layer."""
        return np.split(self.start, np.cumsum([layer.states for layer in self.layers])[:-1])

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.recurrent.states

    @property
    def inputs(self) -> int:
        """Number of inputs ``p`` per step."""
        return self.recurrent.inputs

    @property
    def classes(self) -> int:
        """Number of classes ``k``."""
        return self.weight.shape[0]

    @property
    def phrase(self) -> str:
        """Describe the subject of a claim, without quantifiers."""
        read = "last output" if self.reduction == "last" else "mean output"
        begun = " from its stored initial state" if self.start.any() else ""
        own = " (length of each sequence taken as given)" if self.packed else ""
        return f"linear head (stored weights) on the {read}{begun}{own} of the {self.recurrent.phrase}"

    def checked(self, x: Any) -> Array:
        """Return inputs ``(..., T, p)`` as float64.

        Raises:
            ConfigurationError: no real numbers.
            DimensionError: another number of features, or no step.
            NonFiniteError: NaN or infinite entries.
        """
        out = as_vectors("x", x, self.inputs)
        if out.ndim < 2 or out.shape[-2] == 0:
            raise DimensionError("x", f"(..., T >= 1, {self.inputs})", out.shape)
        return out

    def logits(self, x: Any) -> Array:
        """Return the logits of input sequences, in float64.

        Args:
            x: ``(..., T, p)``.

        Returns:
            ``(..., k)``.
        """
        x = self.checked(x)
        signals = np.moveaxis(x, -2, 0)  # (T, ..., p)
        for layer, start in zip(self.layers, self.starts):
            state, outputs = np.broadcast_to(start, (*x.shape[:-2], layer.states)), []
            for u in signals:
                state = layer.advance(state, u)
                outputs.append(layer.output(state))
            signals = np.stack(outputs)
        read = signals[-1] if self.reduction == "last" else signals.mean(axis=0)
        return read @ self.weight.T + self.bias

    @property
    def out_of_range(self) -> str | None:
        """Return the reason why the network exceeds the range of float proofs, or ``None``.

        Example:
            >>> from stability.systems import LureSystem
            >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1e61]])
            >>> Classifier(cell, [[1.0], [-1.0]]).out_of_range
            'the network holds a number of the size 1e+61: nothing is proved of inputs to one beyond 1e+60'
        """
        size = largest_number(self)
        if size <= LARGEST:
            return None
        return (
            f"the network holds a number of the size {size:.3g}: "
            f"nothing is proved of inputs to one beyond {LARGEST:.0e}"
        )

    def require_range(self) -> None:
        """Raise an error if the network exceeds the range of float proofs.

        Raises:
            ConfigurationError: ``out_of_range``.
        """
        if self.out_of_range is not None:
            raise ConfigurationError(self.out_of_range)

    def payload(self) -> dict[str, Any]:
        """Return the stored content; a start at zero is omitted."""
        return {name: value for name, value in super().payload().items() if name != "start" or self.start.any()}


def largest_number(value: Any) -> float:
    """Return the largest absolute value in an array, or in the payload of a subject."""
    if isinstance(value, Subject):
        value = value.payload()
    if isinstance(value, Mapping):
        return max((largest_number(part) for part in value.values()), default=0.0)
    if isinstance(value, (list, tuple)):
        return max((largest_number(part) for part in value), default=0.0)
    numbers = isinstance(value, (np.ndarray, float, int))
    return float(np.abs(np.asarray(value, dtype=np.float64)).max(initial=0.0)) if numbers else 0.0


def _with_relu_channels(network: Any) -> Any:
    """Return the network with its activations on pairs as ReLU channels.

    Raises:
        UnsupportedError: modReLU.
    """
    if isinstance(network, PairwiseSystem):
        return relu_system(network)
    if isinstance(network, LayerStack) and any(isinstance(layer, PairwiseSystem) for layer in network.layers):
        return replace(network, layers=[_with_relu_channels(layer) for layer in network.layers])
    return network


def layers_of(network: Recurrent) -> tuple[DrivenSystem | GatedCell, ...]:
    """Return the layers of a network, the lowest first; a network that is no stack is its own only layer."""
    return tuple(network.layers) if isinstance(network, LayerStack) else (network,)
