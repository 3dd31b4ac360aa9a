r"""Affine expressions in states, inputs and channels, and the system that they define.

Whoever follows the operations of one step (``onnx/algebra.py`` in a graph, ``adapters/steps.py`` in a running function)
keeps every value as :math:`\sum_s M_s s + c`. An activation of such an expression is a new channel. What comes out as
the next state then *is* a Lur'e system: :math:`h^+ = A h + B w + F x + c`, :math:`z = C h + D w + E x + b`,
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
    """Return ``a + factor * b``, where at least one is an expression.

    Raises:
        UnsupportedError: sizes that do not fit.
    """
    b = b.scaled(factor) if isinstance(b, Affine) else np.asarray(b) * factor
    if isinstance(a, Affine) and isinstance(b, Affine):
        if a.size != b.size:
            raise UnsupportedError(f"vectors of {a.size} and {b.size} entries are added")
        return a.plus(b)
    moving, constant = _moving(a, b)
    return moving.plus(Affine(moving.size, {}, _vector(constant, moving.size)))


def multiplied(a: Affine | Array, b: Affine | Array) -> Affine:
    """Return the entrywise product of an expression and a constant.

    Raises:
        UnsupportedError: a product of two expressions, or sizes that do not fit.
    """
    moving, constant = _moving(a, b)
    return moving.scaled(_vector(constant, moving.size))


def divided(a: Affine | Array, b: Affine | Array) -> Affine:
    """Return an expression divided by a constant, entry by entry.

    Raises:
        UnsupportedError: a division by an expression, or sizes that do not fit.
    """
    if isinstance(b, Affine):
        raise UnsupportedError("it divides by a value that depends on state or input")
    moving, constant = _moving(a, b)
    return moving.scaled(1.0 / _vector(constant, moving.size))


def _moving(a: Affine | Array, b: Affine | Array) -> tuple[Affine, Array]:
    """Order a pair of an expression and a constant: the expression first."""
    if isinstance(a, Affine) and isinstance(b, Affine):
        raise UnsupportedError("two values that depend on state or input are multiplied (a gate)")
    if isinstance(a, Affine):
        return a, np.asarray(b)
    if isinstance(b, Affine):
        return b, np.asarray(a)
    raise UnsupportedError("constants that do not fit together are combined")


def _vector(value: Array, size: int) -> Array:
    flat = np.squeeze(np.asarray(value, dtype=np.float64))
    if flat.shape not in ((), (size,)):
        raise UnsupportedError(f"a constant of shape {np.shape(value)} meets a vector of {size} entries")
    return np.broadcast_to(flat, (size,))


@dataclass(frozen=True, eq=False)
class ChannelMap:
    """Map read from a step, ready to run: every channel has its own activation, in order of appearance.

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
        following: Sequence[Affine],
    ) -> ChannelMap:
        """Return the map of a traced step.

        Args:
            channels: name, activation and argument of every channel, in the order in which they were met.
            states: the variables that are states.
            inputs: the variables that are inputs.
            following: the next value of every state.
        """
        met = [z for _, _, z in channels]
        groups = (states, [(name, z.size) for name, _, z in channels], inputs)
        A, B, F = (_coefficients(following, group) for group in groups)
        C, D, E = (_coefficients(met, group) for group in groups)
        kinds = tuple(kind for _, kind, z in channels for _ in range(z.size))
        alpha, beta = np.array([lookup(kind).slope for kind in kinds]).reshape(-1, 2).T
        system = LureSystem(A, B, C, D, (alpha, beta), 1.0)
        return cls(system, kinds, E, F, _offsets(met), _offsets(following))

    def subject(self, name: str) -> DrivenSystem | LureSystem:
        """Return the subject of claims: the network, or, for mixed activations or addends beside the channels, the
        system with every activation of their slopes.
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
    """Return the coefficients of variables in values, ``(entries of the values, entries of the variables)``."""
    if not values or not vectors:
        return np.zeros((sum(v.size for v in values), sum(size for _, size in vectors)))
    return np.block([[v.terms.get(name, np.zeros((v.size, size))) for name, size in vectors] for v in values])


def _offsets(values: Sequence[Affine]) -> Array:
    return np.concatenate([np.zeros(0), *(np.broadcast_to(v.offset, (v.size,)) for v in values)])
