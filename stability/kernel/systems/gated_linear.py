r"""Gated linear layers: ``h+ = M(u) h + b(u)`` with an input set, as subjects of claims.

A layer is a gate (the decay ``a``), an injection (how ``b`` is formed) and the signals that both read. The injection
decides the transition ``M``: diagonal, a number a head, a delta rule, or constant complex numbers.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.format.serialization import subject
from stability.kernel.systems.decay_gates import ConstantGate, Gate, RGLRUGate, SoftplusGate
from stability.kernel.systems.input_sets import InputSet
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.signals import Node, Signal, as_array, as_signal
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
LONGEST_NAME = 24
ACTIVATIONS = ("identity", "silu", "min_gru")
"""Functions of injected values; ``min_gru`` is ``x + 0.5`` for ``x >= 0`` and the logistic function below."""


class Injection(Node):
    """Injected value ``b`` of every channel or head."""

    transition: ClassVar[str]
    """Form of ``M``: ``diagonal``, ``per head``, ``delta rule`` or ``constant complex``."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Signals that it reads."""
        raise NotImplementedError

    def unit_states(self, gate: Gate) -> int:
        """Return the number of real state entries of a channel or head.

        Raises:
            ConfigurationError: sizes that do not fit to those of the gate, or a gate that the injection does not have.
        """
        raise NotImplementedError


def _fits(holds: bool, text: str) -> None:
    if not holds:
        raise ConfigurationError(text)


@subject("step_injection")
@dataclass(frozen=True, eq=False, repr=False)
class StepInjection(Injection):
    r"""Injection of Mamba and Mamba-2: :math:`b = \Delta\, x \otimes B`, with the ``Delta`` of a ``SoftplusGate``.

    With a gate of one number a channel and state (Mamba) the transition is diagonal, entry ``(c, n)`` gets
    ``Delta_c x_c B_n``. With one number a head (Mamba-2) head ``h`` gets the matrix ``Delta_h x_h B_g^T``, where
    consecutive heads share the group ``g``.

    Args:
        values: signal ``x``, ``channels`` or ``heads * head_size`` entries.
        keys: signal ``B``, ``groups * k`` entries.
        groups: number of groups; 1 for a diagonal transition.
    """

    values: Signal
    keys: Signal
    groups: int = 1
    transition: ClassVar[str] = "diagonal or per head"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Values and keys."""
        return self.values, self.keys

    def unit_states(self, gate: Any) -> int:
        """Return ``k`` of a channel, or ``head_size * k`` of a head."""
        values, keys = as_signal(self.values).size, as_signal(self.keys).size
        if not isinstance(gate, SoftplusGate):
            raise ConfigurationError("an injection with a step needs a softplus gate")
        if gate.log_rate.ndim == 2:
            fits = values == gate.units and keys == gate.log_rate.shape[1] and self.groups == 1
        else:
            fits = values % gate.units == 0 and gate.units % self.groups == 0 and keys % self.groups == 0
        _fits(fits, f"{values} values and {keys} keys in {self.groups} groups do not fit to {gate.units} gates")
        return keys if gate.log_rate.ndim == 2 else values // gate.units * (keys // self.groups)


@subject("convex_injection")
@dataclass(frozen=True, eq=False, repr=False)
class ConvexInjection(Injection):
    r"""Injection of minGRU, minLSTM and HGRN: :math:`b = (1 - a) f(x)`.

    Args:
        values: signal ``x``, one entry a channel.
        activation: ``f``, one of ``ACTIVATIONS``.
    """

    values: Signal
    activation: str = "identity"
    transition: ClassVar[str] = "diagonal"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The values."""
        return (self.values,)

    def unit_states(self, gate: Gate) -> int:
        """Return 1."""
        _fits(self.activation in ACTIVATIONS, f"activation must be one of {', '.join(ACTIVATIONS)}")
        fits = as_signal(self.values).size == gate.units and not isinstance(gate, ConstantGate)
        _fits(fits, f"{self.values.size} values do not fit to {gate.units} gates")
        return 1


@subject("root_injection")
@dataclass(frozen=True, eq=False, repr=False)
class RootInjection(Injection):
    r"""Injection of the RG-LRU: :math:`b = \sqrt{1 - a^2}\, \sigma(q) x`; at the first step the root is replaced by 1.

    The first step of a sequence also drops the old state.

    Args:
        values: signal ``x``, one entry a channel.
        insert: pre-activation ``q`` of the input gate.
    """

    values: Signal
    insert: Signal
    transition: ClassVar[str] = "diagonal"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Values and input gate."""
        return self.values, self.insert

    def unit_states(self, gate: Gate) -> int:
        """Return 1."""
        sizes = as_signal(self.values).size, as_signal(self.insert).size
        _fits(isinstance(gate, RGLRUGate), "an injection with a root needs the gate of the RG-LRU")
        _fits(sizes == (gate.units, gate.units), f"sizes {sizes} do not fit to {gate.units} gates")
        return 1


@subject("outer_injection")
@dataclass(frozen=True, eq=False, repr=False)
class OuterInjection(Injection):
    r"""Injection of GLA and mLSTM: :math:`b = e^{c \tanh(q / c)} k \otimes v` a head, the exponential for mLSTM only.

    Args:
        values: signal ``v``, ``heads * value_size`` entries.
        keys: signal ``k``, ``heads * key_size`` entries.
        heads: number of heads; a gate has one number a head, or one a key channel.
        insert: pre-activation ``q (heads,)``; ``None`` for none.
        cap: soft cap ``c``; ``None`` for none.
    """

    values: Signal
    keys: Signal
    heads: int
    insert: Signal | None = None
    cap: float | None = None
    transition: ClassVar[str] = "per head"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Values, keys and input gate."""
        return (self.values, self.keys, *(() if self.insert is None else (self.insert,)))

    def unit_states(self, gate: Gate) -> int:
        """Return ``key_size * value_size`` of a head, ``value_size`` of a key channel."""
        values, keys = as_signal(self.values).size, as_signal(self.keys).size
        fits = values % self.heads == 0 and keys % self.heads == 0 and gate.units in (self.heads, keys)
        fits = fits and (self.insert is None or self.insert.size == self.heads)
        _fits(fits, f"{values} values and {keys} keys do not fit to {self.heads} heads and {gate.units} gates")
        return values // self.heads * (keys // gate.units)


@subject("delta_injection")
@dataclass(frozen=True, eq=False, repr=False)
class DeltaInjection(Injection):
    r"""Delta rule of gated DeltaNet: :math:`S^+ = a (I - \beta k k^T) S + \beta k v^T` with :math:`\|k\|_2 \le 1`.

    The rate is :math:`\beta = s\, \sigma(q)`. Keys are normalized, so they are not stored.

    Args:
        values: signal ``v``, ``heads * value_size`` entries.
        rate: pre-activation ``q (heads,)``.
        scale: ``s``: 1, or 2 where negative eigenvalues are allowed.
        key_size: entries of a key.
    """

    values: Signal
    rate: Signal
    key_size: int
    scale: float = 1.0
    transition: ClassVar[str] = "delta rule"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Values and rate."""
        return self.values, self.rate

    def unit_states(self, gate: Gate) -> int:
        """Return ``key_size * value_size``."""
        heads, values = as_signal(self.rate).size, as_signal(self.values).size
        _fits(type(self.key_size) is int and self.key_size > 0, f"key_size must be positive, got {self.key_size!r}")
        fits = values % heads == 0 and gate.units in (heads, heads * self.key_size) and self.scale in (1.0, 2.0)
        _fits(fits, f"{values} values and {heads} rates do not fit to {gate.units} gates, or the scale is not 1 or 2")
        return values // heads * (self.key_size * heads // gate.units)


@subject("linear_injection")
@dataclass(frozen=True, eq=False, repr=False)
class LinearInjection(Injection):
    r"""Injection of S4D, S5 and LRU: :math:`b = e^{g} f\, B u` with complex ``B``.

    Args:
        weight: ``(2 units, d)``: real and imaginary row of every mode.
        log_scale: ``g (units,)`` logarithm of a factor of every mode; zero by default.
        hold: :math:`f = (e^{\Lambda \Delta} - 1) / \Lambda` of a zero-order hold, in place of 1. Where
            :math:`\mathrm{Re}\, \Lambda \le 0`, the step ``Delta = exp(s)`` of the gate bounds it.
    """

    weight: Any
    log_scale: Any = None
    hold: bool = False
    transition: ClassVar[str] = "constant complex"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """No signal beside the input itself."""
        return ()

    def unit_states(self, gate: Any) -> int:
        """Return 2: real and imaginary part."""
        if not isinstance(gate, ConstantGate):
            raise ConfigurationError("a linear injection needs a constant gate")
        weight = as_array("weight", self.weight, (2 * gate.units, gate.input_set.size))
        scale = np.zeros(gate.units) if self.log_scale is None else as_array("log_scale", self.log_scale, (gate.units,))
        self._set(weight=weight, log_scale=scale)
        return 2


@subject("gated_linear")
@dataclass(frozen=True, eq=False, repr=False)
class GatedLinearLayer(Subject):
    r"""Recurrent layer that is linear in its state: :math:`h^+ = M(u) h + b(u)`.

    Claims hold for all sequences of inputs ``u`` in the layer's input set. With the ball of a norm as input set they
    hold whatever the layers below do.

    Args:
        gate: the decay of every channel or head.
        injection: ``b``, and with it the form of ``M``.
        name: name in reports and sentences, such as ``"Mamba-2"``.
        part: ``"PATH of WHOLE"`` for a layer of a model.

    Raises:
        ConfigurationError: parts that do not fit, or that read different input sets.

    Example:
        >>> from stability.systems import Affine, NormBall, SigmoidGate
        >>> ball = NormBall(np.ones(4))
        >>> weight = np.full((3, 4), 0.1)
        >>> layer = GatedLinearLayer(SigmoidGate(Affine(weight, ball)), ConvexInjection(Affine(weight, ball)), "minGRU")
        >>> layer.transition, layer.states
        ('diagonal', 3)
    """

    gate: Gate
    injection: Injection
    name: str = "gated linear layer"
    _: KW_ONLY
    part: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.gate, Gate) or not isinstance(self.injection, Injection):
            raise ConfigurationError("a gated linear layer needs a gate and an injection")
        self._set(unit_states=self.injection.unit_states(self.gate), name=str(self.name), part=as_part(self.part))
        if not all(signal.inputs.equals(self.input_set) for signal in self.signals):
            raise ConfigurationError("every signal of a layer must read the same input set")
        if re.fullmatch(r"[A-Za-z0-9]+([ -][A-Za-z0-9]+){0,3}", self.name) is None or len(self.name) > LONGEST_NAME:
            raise ConfigurationError(
                f"a name has at most {LONGEST_NAME} letters, digits, spaces and hyphens, got {self.name[:60]!r}"
            )

    unit_states: ClassVar[int]
    """Number of real state entries of a channel or head."""

    def __repr__(self) -> str:
        return f"GatedLinearLayer({self.name}, {self.transition}, {self.units} units, states={self.states})"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Signals of gate and injection."""
        return (*self.gate.signals, *self.injection.signals)

    @property
    def input_set(self) -> InputSet:
        """Set of the inputs of all claims."""
        return self.gate.signals[0].inputs

    @property
    def inputs_phrase(self) -> str:
        """Description of the inputs of all claims, with those of the first layer where it passes values on."""
        first = getattr(self.injection, "first", None)
        return f"{self.input_set.phrase}{' and of the norm in front of the first layer' if first is not None else ''}"

    @property
    def transition(self) -> str:
        """Form of ``M``: ``diagonal``, ``per head``, ``delta rule`` or ``constant complex``."""
        if isinstance(self.injection, StepInjection):
            return "per head" if self.gate.log_decay[0].ndim == 1 else "diagonal"
        return self.injection.transition

    @property
    def unit(self) -> str:
        """Name of a unit of the gate: channel, head or mode."""
        injection: Any = self.injection
        if isinstance(injection, OuterInjection) and self.units != injection.heads:
            return "key channel"
        names = {"diagonal": "channel", "constant complex": "mode"}
        return names.get(self.transition, "head")

    @property
    def units(self) -> int:
        """Number of channels, heads or modes."""
        return self.gate.units

    @property
    def taps(self) -> int:
        """Number of input steps that enter one step of the state."""
        return max((signal.taps for signal in self.signals), default=1)

    @property
    def states(self) -> int:
        """Number of real state entries."""
        return self.units * self.unit_states

    @property
    def inputs(self) -> int:
        """Number of input features."""
        return self.input_set.size

    @property
    def is_discrete(self) -> bool:
        """True: time advances in steps."""
        return True

    @property
    def digest(self) -> str:
        """SHA-256 of all stored numbers, of gate, injection, name and part."""
        content = f"{self.gate.digest} {self.injection.digest} {self.name} {self.part}"
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def phrase(self) -> str:
        """Subject of a claim's sentence, without quantifiers."""
        limits = ", with the limits of its steps" if getattr(self.gate, "limited", False) else ""
        weights = f"stored weights{origin_phrase(self)}{limits}, exact arithmetic"
        return f"{part_phrase(self, f'{self.name} layer')} ({weights})"
