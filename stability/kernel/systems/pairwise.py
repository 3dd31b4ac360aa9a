r"""Networks with an activation on pairs of units: modReLU, OPLU and related ones.

.. math:: x^+ = \sigma(W x + V u + b), \qquad \sigma \text{ of } \texttt{stability.kernel.systems.pair_activations} .

These activations act on two channels at a time, so that no interval of slopes and no Lur'e system describes them.
Proofs use the following properties. OPLU, the Householder activation and the absolute value keep the norm of every
vector and do not increase distances (:math:`|\sigma(z)| = |z|`, :math:`|\sigma(y) - \sigma(z)| \le |y - z|`, pair by
pair). modReLU changes the norm of a pair by at most its bias. If the bias is not positive, it is the proximal map of
:math:`-b\,|z|` and does not increase distances; with a positive bias it jumps by :math:`2 b` at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice, as_column, as_matrix
from stability.kernel.format.serialization import subject
from stability.kernel.systems.pair_activations import (
    abs_slopes,
    householder,
    householder_slopes,
    modrelu,
    modrelu_slopes,
    oplu,
    oplu_slopes,
)
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
PAIRWISE = ("modrelu", "oplu", "abs", "householder")
NEARLY_ORTHOGONAL = 1e-6
"""Largest accepted row sum of ``|W^T W - I|``: orthogonal matrices in float32 stay below it at all usual sizes."""


@subject("pairwise")
@dataclass(frozen=True, eq=False, repr=False)
class PairwiseSystem(Subject):
    r"""Network ``x+ = sigma(W x + V u + b)`` with an activation on pairs of units.

    The weights of an orthogonal or unitary layer are orthogonal by construction, but the stored weights have rounding
    errors. With ``orthogonal=True`` the network's ``W`` is the orthogonal matrix nearest to the stored one, which is
    unique.

    Args:
        W: ``(n, n)`` recurrent weights, ``n`` even; a complex matrix in its real form ``[[Re, -Im], [Im, Re]]``.
        V: ``(n, p)`` input weights.
        b: biases, ``(n/2,)`` for modReLU, which contains them, and ``(n,)`` for other activations.
        activation: ``modrelu`` (pairs ``i``, ``i + n/2``), ``oplu`` or ``householder`` (pairs ``2 i``, ``2 i + 1``), or
            ``abs`` (each unit by itself; its pairs are those of OPLU).
        orthogonal: ``W`` is the orthogonal matrix nearest to the stored one.
        name: name in reports.
        angles: ``(n/2,)`` in radians, of the Householder activation; ``None`` for the others.
        part: ``"PATH of WHOLE"`` for a part of a larger model, see ``stability.kernel.systems.parts``.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: an unknown activation, an odd number of units, missing or superfluous angles, or weights
            with ``orthogonal=True`` that are far from orthogonal.

    Example:
        >>> turn = PairwiseSystem([[0.0, -1.0], [1.0, 0.0]], [[1.0], [0.0]], [-0.5], "modrelu", orthogonal=True)
        >>> turn.advance(np.array([2.0, 0.0]), np.zeros(1))
        array([0. , 1.5])
    """

    W: Any
    V: Any
    b: Any
    activation: str
    orthogonal: bool = False
    name: str = "network"
    angles: Any = field(default=None, kw_only=True)
    part: str = field(default="", kw_only=True)

    optional = ("angles", "part")

    def __post_init__(self) -> None:
        as_choice("activation on pairs", self.activation, PAIRWISE)
        if type(self.orthogonal) is not bool:
            raise ConfigurationError(f"orthogonal must be true or false, got {str(self.orthogonal)[:40]!r}")
        n = len(as_matrix("W", self.W))
        if n == 0 or n % 2:
            raise ConfigurationError(f"{self.activation} acts on pairs: W must have an even number of rows, got {n}")
        w, v = as_matrix("W", self.W, (n, n)), as_matrix("V", self.V, (n, None))
        entries = n // 2 if self.activation == "modrelu" else n
        b = as_column("b", self.b, entries)
        if self.orthogonal:
            _refuse_far_from_orthogonal(w)
        angles = _checked_angles(self.activation, self.angles, n // 2)
        self._set(W=w, V=v, b=b, angles=angles, name=str(self.name), part=as_part(self.part))

    def __repr__(self) -> str:
        return f"PairwiseSystem({self.states} states, {self.activation!r}, inputs={self.inputs}, name={self.name!r})"

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.W.shape[0]

    @property
    def inputs(self) -> int:
        """Number of inputs ``p``."""
        return self.V.shape[1]

    @property
    def pairs(self) -> Array:
        """Indices ``(n/2, 2)`` of the units of each pair."""
        order = np.arange(self.states)
        return order.reshape(2, -1).T if self.activation == "modrelu" else order.reshape(-1, 2)

    @property
    def kind_name(self) -> str:
        """Name of this kind of layer in sentences: its activation."""
        return self.activation

    @property
    def jumps(self) -> bool:
        """True if the activation is modReLU with a positive bias, which is discontinuous."""
        return self.activation == "modrelu" and bool((self.b > 0.0).any())

    @property
    def phrase(self) -> str:
        """Describe the subject of a claim, without quantifiers."""
        nearest = ", W the orthogonal matrix nearest to the stored one" if self.orthogonal else ""
        return (
            f"{part_phrase(self) or 'network'} ({self.activation}, stored weights and bias"
            f"{origin_phrase(self)}{nearest}, exact arithmetic)"
        )

    def advance(self, x: Array, u: Array) -> Array:
        """Return the next state for states ``(..., n)`` and inputs ``(..., p)``, computed with the stored ``W``."""
        z = x @ self.W.T + u @ self.V.T
        if self.activation == "modrelu":
            return modrelu(z, self.b)
        z = z + self.b
        if self.activation == "householder":
            return householder(z, self.angles)
        return oplu(z) if self.activation == "oplu" else np.abs(z)

    def jacobian(self, x: Array, u: Array) -> Array:
        """Return ``d advance / d x`` at one state ``(n,)`` and input ``(p,)``, ``(n, n)``; one-sided at a kink."""
        z = self.W @ x + self.V @ u
        if self.activation == "modrelu":
            slopes = modrelu_slopes(z, self.b)
        elif self.activation == "householder":
            slopes = householder_slopes(z + self.b, self.angles)
        else:
            slopes = (oplu_slopes if self.activation == "oplu" else abs_slopes)(z + self.b)
        out = np.empty_like(self.W)
        out[self.pairs] = slopes @ self.W[self.pairs]
        return out


def _checked_angles(activation: str, angles: Any, pairs: int) -> Array | None:
    """Return the angles ``(n/2,)`` of the Householder activation, ``None`` for the others."""
    if (angles is None) is (activation == "householder"):
        words = "needs an angle for each pair" if angles is None else "has no angles: leave them out"
        raise ConfigurationError(f"{activation} {words}")
    return None if angles is None else as_column("angles", angles, pairs)


def _refuse_far_from_orthogonal(w: Array) -> None:
    """Raise an error unless ``W`` is invertible far above rounding, so that the nearest orthogonal matrix is unique."""
    with np.errstate(all="ignore"):
        defect = float(np.abs(w.T @ w - np.eye(len(w))).sum(axis=1).max())
    if not defect <= NEARLY_ORTHOGONAL:
        raise ConfigurationError(
            f"W is far from orthogonal: the largest row sum of |W^T W - I| is {defect:.3g}, more than "
            f"{NEARLY_ORTHOGONAL:g}; leave out orthogonal=True"
        )
