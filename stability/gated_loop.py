"""Feedback loops with an LSTM or GRU: simulation, equilibria and linearization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from stability.conversion.parts import subject_as_part
from stability.errors import IllPosedError, UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.checks import levels_of
from stability.kernel.format.serialization import digest_of
from stability.kernel.systems.driven import NONLINEARITIES
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.opaque import OpaqueMap
from stability.search.counterexamples.counterexample_search import refute
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium

Array = np.ndarray
FUNCTIONS = ACTIVATIONS | NONLINEARITIES
STARTS, SETTLE = 8, 300
"""Random states from which equilibria are searched, and steps simulated from each."""


class GatedLoop:
    r"""Closed loop with an LSTM or GRU, in discrete time.

    .. math:: x^+ = A x + B w + F r + f, \quad z = C x + D w + E r + b, \quad w = N(z),

    where ``N`` consists of activations and of the steps of the cells.

    No theorem here covers such loops. ``certify`` and ``refute`` take the linearization at the least stable equilibrium
    found without external input, if it is proved unstable; their answer says so and is about this linear system. That
    it is the linearization of the loop is computed, not proved. Otherwise the answer is inconclusive.

    Args:
        parts: matrices by row (x, z) and column (x, w, r, 1), such as ``xw`` for ``B``.
        maps: activation or cell, and number of arguments, in the order of ``z``.
        dt: step.
        name: name in reports.

    Attributes:
        states: number of states ``n`` of plant, controller and delay.
        inputs: number of external inputs ``p``.

    Raises:
        IllPosedError: an algebraic loop: a plant with direct feed-through and no delay.
        UnsupportedError: a nonlinearity of which only the slopes are known.

    Example:
        >>> from stability import GatedCell, feedback
        >>> cell = GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)))
        >>> loop = feedback(([[0.5]], [[1.0]], [[1.0]], [[0.0]], 1.0), cell)
        >>> loop.states, loop.advance(np.array([1.0, 0.0]), np.zeros(1)).round(3)
        (2, array([0.295, 0.205]))
    """

    is_discrete = True

    def __init__(self, parts: Mapping[str, Array], maps: Sequence[tuple[Any, int]], dt: Any, name: str) -> None:
        self.parts, self.maps, self.dt, self.name = dict(parts), list(maps), dt, name
        self.states, self.inputs = len(parts["xx"]), parts["xr"].shape[1]
        if None in (kind for kind, _ in maps):
            raise UnsupportedError("a loop with an LSTM or GRU needs known nonlinearities, not only their slopes")
        reads = [np.ones((k.states, size)) if isinstance(k, GatedCell) else np.eye(size) for k, size in maps]
        if levels_of(block_diag(*reads) @ (self.parts["zw"] != 0) > 0) is None:
            raise IllPosedError(
                "the plant's output depends on its present input (D): use delay=1 or a plant with D = 0"
            )

    def _apply(self, x: Array, r: Array) -> tuple[Array, Array]:
        """Return ``z`` and ``w``; without an algebraic loop the sweeps end."""
        free = x @ self.parts["zx"].T + r @ self.parts["zr"].T + self.parts["z1"][:, 0]
        w, last = np.zeros((*free.shape[:-1], self.parts["zw"].shape[1])), None
        while last is None or not np.array_equal(w, last, equal_nan=True):
            z, last = free + w @ self.parts["zw"].T, w
            w = np.concatenate([_value(kind, own) for kind, own in self._arguments(z)], axis=-1)
        return z, w

    def _arguments(self, z: Array) -> list[tuple[Any, Array]]:
        """Return each map with its part of ``z (..., m)``."""
        kinds, sizes = zip(*self.maps)
        return list(zip(kinds, np.split(z, np.cumsum(sizes)[:-1], axis=-1)))

    def advance(self, x: Array, r: Array) -> Array:
        """Return the next state for states ``(..., n)`` and external inputs ``(..., p)``."""
        _, w = self._apply(x, r)
        return x @ self.parts["xx"].T + w @ self.parts["xw"].T + r @ self.parts["xr"].T + self.parts["x1"][:, 0]

    def jacobian(self, x: Array, r: Array) -> Array:
        """Return the derivative of the next state by the state, at one state ``(n,)`` and input ``(p,)``."""
        K: Any = block_diag(*(_slopes(kind, own) for kind, own in self._arguments(self._apply(x, r)[0])))
        inner = np.linalg.solve(np.eye(K.shape[1]) - self.parts["zw"] @ K, self.parts["zx"])
        return self.parts["xx"] + self.parts["xw"] @ K @ inner

    def equilibrium(self, r: Any = None, *, seed: int = 0) -> Array | None:
        """Search for equilibria under a constant input from several states; return the least stable one found.

        Args:
            r: ``(p,)`` external input, zero by default.
            seed: seed of the starting states.

        Returns:
            ``(n,)``, or ``None`` if the search found none.
        """
        r = np.zeros(self.inputs) if r is None else np.asarray(r, dtype=np.float64)
        starts = final = np.random.default_rng(seed).normal(size=(STARTS, self.states))
        with np.errstate(all="ignore"):
            for _ in range(SETTLE):
                final = np.clip(self.advance(final, r), -1e100, 1e100)
            found = [newton_equilibrium(self, x, r) for x in (np.zeros(self.states), *starts, *final)]
        return max(
            (x for x in found if x is not None),
            key=lambda x: np.abs(np.linalg.eigvals(self.jacobian(x, r))).max(),
            default=None,
        )

    def linearization(self, x: Array, r: Any = None) -> LureSystem:
        """Return the linear system at a state ``(n,)`` and an external input ``(p,)``, zero by default, as a part."""
        r = np.zeros(self.inputs) if r is None else np.asarray(r, dtype=np.float64)
        return subject_as_part(LureSystem.linear(self.jacobian(x, r), self.dt), "linearization", self.name)

    def driven(self) -> LureSystem | OpaqueMap:
        """Return the subject of certificates: a linearization that is refuted, else a map that no theorem covers."""
        x, seen = self.equilibrium(), "no equilibrium was found"
        if x is not None:
            linear = self.linearization(x)
            if refute(linear).proof is not None:
                return linear
            seen = f"its linearization has spectral radius {np.abs(np.linalg.eigvals(linear.A)).max():.4g} (measured)"
        why = f"no theorem covers a loop with an LSTM or GRU; {seen}"
        return OpaqueMap(self.states, self.inputs, why, weights=digest_of([self.parts, self.maps]), name=self.name)


def _value(kind: Any, z: Array) -> Array:
    """Return an activation's values, or the next state of a cell, whose argument holds its state and then its input."""
    if isinstance(kind, GatedCell):
        return kind.advance(z[..., : kind.states], z[..., kind.states :])
    return FUNCTIONS[kind].function(z)


def _slopes(kind: Any, z: Array) -> Array:
    """Return the derivative of ``_value`` at one point."""
    if isinstance(kind, GatedCell):
        point = z[: kind.states], z[kind.states :]
        return np.hstack([kind.jacobian(*point), kind.input_jacobian(*point)])
    return np.diag(FUNCTIONS[kind].derivative(z))
