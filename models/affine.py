r"""Affine expressions in states, inputs and channels, and the system that they define.

The readers of one step (``onnx/algebra.py`` for a graph, ``adapters/steps.py`` for a running function) represent every
value as :math:`\sum_s M_s s + c`. An activation of such an expression is a new channel. The expression of the next
state then defines a Lur'e system: :math:`h^+ = A h + B w + F x + c`, :math:`z = C h + D w + E x + b`,
:math:`w = \phi(z)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.activations import activation as lookup
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
Sized = tuple[str, int]
"""Name of a variable, and its number of entries."""


@dataclass
class Affine:
    """Affine expression ``sum_s terms[s] @ s + offset`` for column vectors; ``size`` entries."""

    size: int
    terms: dict[str, Array] = field(default_factory=dict)
    offset: Array | float = 0.0

    def mapped(self, matrix: Array) -> Affine:
        """Return ``matrix @ self``."""
        offset = matrix @ np.broadcast_to(self.offset, (self.size,))
        return Affine(matrix.shape[0], {s: matrix @ m for s, m in self.terms.items()}, offset)

    def scaled(self, factor: Array | float) -> Affine:
        """Return the entrywise product with a constant."""
        f = np.broadcast_to(factor, (self.size,))
        return Affine(self.size, {s: f[:, None] * m for s, m in self.terms.items()}, f * self.offset)

    def plus(self, other: Affine) -> Affine:
        """Return the sum of both."""
        terms = dict(self.terms)
        for s, m in other.terms.items():
            terms[s] = terms[s] + m if s in terms else m
        return Affine(self.size, terms, self.offset + np.broadcast_to(other.offset, (self.size,)))


def added(a: Affine | Array, b: Affine | Array, factor: Any = 1.0) -> Affine:
    """Return ``a + factor * b``, where at least one of ``a`` and ``b`` is an expression.

    Raises:
        UnsupportedError: sizes that do not fit.
    """
    b = b.scaled(factor) if isinstance(b, Affine) else np.asarray(b) * factor
    if isinstance(a, Affine) and isinstance(b, Affine):
        if a.size != b.size:
            raise UnsupportedError(f"vectors of {a.size} and {b.size} entries are added")
        return a.plus(b)
    expression, constant = _expression_first(a, b)
    return expression.plus(Affine(expression.size, {}, _vector(constant, expression.size)))


def multiplied(a: Affine | Array, b: Affine | Array) -> Affine:
    """Return the entrywise product of an expression and a constant.

    Raises:
        UnsupportedError: a product of two expressions, or sizes that do not fit.
    """
    expression, constant = _expression_first(a, b)
    return expression.scaled(_vector(constant, expression.size))


def divided(a: Affine | Array, b: Affine | Array) -> Affine:
    """Return an expression divided by a constant, entry by entry.

    Raises:
        UnsupportedError: a division by an expression, or sizes that do not fit.
    """
    if isinstance(b, Affine):
        raise UnsupportedError("the step divides by a value that depends on state or input")
    expression, constant = _expression_first(a, b)
    return expression.scaled(1.0 / _vector(constant, expression.size))


def _expression_first(a: Affine | Array, b: Affine | Array) -> tuple[Affine, Array]:
    """Return a pair of an expression and a constant in this order.

    Raises:
        UnsupportedError: two expressions, or two constants.
    """
    if isinstance(a, Affine) and isinstance(b, Affine):
        raise UnsupportedError("two values that depend on state or input are multiplied (a gate)")
    if isinstance(a, Affine):
        return a, np.asarray(b)
    if isinstance(b, Affine):
        return b, np.asarray(a)
    raise UnsupportedError("an operation combines two constants that should be folded")


def _vector(value: Array, size: int) -> Array:
    """Return a constant as a vector of ``size`` entries.

    Raises:
        UnsupportedError: another shape.
    """
    flat = np.squeeze(np.asarray(value, dtype=np.float64))
    if flat.shape not in ((), (size,)):
        raise UnsupportedError(f"a constant of shape {np.shape(value)} is combined with a vector of {size} entries")
    return np.broadcast_to(flat, (size,))


@dataclass(frozen=True, eq=False)
class ChannelMap:
    """Lur'e system of a step that was read; every channel has its own activation, and channels are in reading order.

    Attributes:
        system: ``A``, ``B``, ``C``, ``D`` with each channel's slopes; ``D`` is strictly lower triangular by blocks.
        kinds: the activation of each channel.
        E: ``(m, p)``, inputs to channels.
        F: ``(n, p)``, inputs to states.
        b: ``(m,)``, bias of the channels.
        offset: ``(n,)``, constant term of the next state.
    """

    system: LureSystem
    kinds: tuple[str, ...]
    E: Array
    F: Array
    b: Array
    offset: Array

    @classmethod
    def of(
        cls,
        channels: Sequence[tuple[str, str, Affine]],
        states: Sequence[Sized],
        inputs: Sequence[Sized],
        next_states: Sequence[Affine],
    ) -> ChannelMap:
        """Return the map of a traced step.

        Args:
            channels: name, activation and argument of every channel, in the order of reading.
            states: the variables that are states.
            inputs: the variables that are inputs.
            next_states: the next value of every state.
        """
        arguments = [z for _, _, z in channels]
        groups = (states, [(name, z.size) for name, _, z in channels], inputs)
        A, B, F = (_coefficients(next_states, group) for group in groups)
        C, D, E = (_coefficients(arguments, group) for group in groups)
        kinds = tuple(kind for _, kind, z in channels for _ in range(z.size))
        alpha, beta = np.array([lookup(kind).slope for kind in kinds]).reshape(-1, 2).T
        system = LureSystem(A, B, C, D, (alpha, beta), 1.0)
        return cls(system, kinds, E, F, _offsets(arguments), _offsets(next_states))

    def subject(self, name: str) -> DrivenSystem | LureSystem:
        """Return the subject of claims.

        This is the network if all channels have one activation and the next state has no constant term. Otherwise it
        is the Lur'e system alone, whose claims hold for all activations with its slopes.
        """
        if len(set(self.kinds)) > 1 or self.offset.any():
            return self.system
        kind = self.kinds[0] if self.kinds else "tanh"
        return DrivenSystem(self.system, kind, self.E, self.b, self.F, name=name)

    @property
    def inputs(self) -> int:
        """Number of inputs ``p``."""
        return self.E.shape[1]

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.system.states

    def output(self, x: Array) -> Array:
        """Return the state itself."""
        return x

    def advance(self, x: Array, u: Array) -> Array:
        """Return ``A x + B w + F u + offset`` at states ``(..., n)`` and inputs ``(..., p)``."""
        system = self.system
        z = x @ system.C.T + u @ self.E.T + self.b
        w = np.zeros_like(z)
        for j, kind in enumerate(self.kinds):
            w[..., j] = lookup(kind).function(z[..., j] + w @ system.D[j])
        return x @ system.A.T + w @ system.B.T + u @ self.F.T + self.offset


def _coefficients(values: Sequence[Affine], vectors: Sequence[Sized]) -> Array:
    """Return the matrix of the coefficients of variables; its rows are the entries of the values."""
    if not values or not vectors:
        return np.zeros((sum(v.size for v in values), sum(size for _, size in vectors)))
    return np.block([[v.terms.get(name, np.zeros((v.size, size))) for name, size in vectors] for v in values])


def _offsets(values: Sequence[Affine]) -> Array:
    return np.concatenate([np.zeros(0), *(np.broadcast_to(v.offset, (v.size,)) for v in values)])
