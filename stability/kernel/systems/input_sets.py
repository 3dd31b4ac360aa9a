"""Input sets of gated linear layers: the ball of a norm, the vocabulary of a model, a box."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import add_up, norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.serialization import subject
from stability.kernel.systems.signals import ALL, Array, Rows, Signal, as_array, spectral_norms

LEAST_EPS, LARGEST_ENTRY = 1e-200, 1e100
"""Limits within which no square in the norm of an embedding over- or underflows."""
CHUNK = 4096
"""Tokens of a vocabulary that are handled at once, which bounds the memory."""


class InputSet(Signal):
    """Set of all allowed inputs ``u`` of a layer."""

    @property
    def inputs(self) -> InputSet:
        """The set itself."""
        return self

    @property
    def phrase(self) -> str:
        """Description of the set in a sentence."""
        raise NotImplementedError

    def points(self, stored: Array) -> Ball | None:
        """Enclose the inputs ``(T, d)`` that a proof stores, or return ``None`` where one may lie outside the set."""
        return None

    def at(self, inputs: Ball, entries: slice = ALL) -> Ball:
        """Return entries of the inputs."""
        return inputs[:, entries]

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the largest factor of every part."""
        scales = self._scales(scales)
        return np.abs(scales).reshape(len(scales), groups, -1).max(axis=-1)


@subject("norm_ball")
@dataclass(frozen=True, eq=False, repr=False)
class NormBall(InputSet):
    r"""Outputs of RMSNorm or LayerNorm: :math:`u = (o + w) * z + c` with :math:`\|z\|_2 \le \sqrt d`.

    The set contains the norm's output for every finite input of the norm and every ``eps >= 0``.

    Args:
        weight: ``w (d,)``.
        bias: ``c (d,)``; zero by default.
        offset: ``o``: 0, or 1 for norms that store the difference to one.
        centered: LayerNorm: the entries of ``z`` have the sum 0.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: another offset.
    """

    weight: Any
    bias: Any = None
    offset: int = 0
    centered: bool = False

    def __post_init__(self) -> None:
        weight = as_array("weight", self.weight, (None,))
        bias = np.zeros(len(weight)) if self.bias is None else as_array("bias", self.bias, weight.shape)
        if self.offset not in (0, 1) or isinstance(self.offset, bool) or not isinstance(self.centered, bool):
            raise ConfigurationError(f"offset of a norm must be 0 or 1, and centered a truth value, got {self.offset}")
        self._set(weight=weight, bias=bias, factor=weight + float(self.offset))

    factor: Any = field(default=None, init=False)

    @property
    def size(self) -> int:
        """Number of features ``d``."""
        return len(self.weight)

    @property
    def phrase(self) -> str:
        """Describe the set: every input of the norm."""
        return f"every input of the {'LayerNorm' if self.centered else 'RMSNorm'} in front of it"

    def _radius(self) -> float:
        return float(upper(np.sqrt(float(self.size)), 4 * EPS))

    def points(self, stored: Array) -> Ball | None:
        r"""Return ``(o + w) * z + c`` for stored ``z``, less their mean in a LayerNorm, with :math:`\|z\|_2 < \sqrt d`.

        The norm reaches them where its ``eps`` is positive.
        """
        if not (norm_above(stored) < np.sqrt(self.size) * (1.0 - 4 * EPS)).all():
            return None
        z = Ball.exact(stored)
        if self.centered:
            size = np.abs(stored).mean(axis=1, keepdims=True)
            mid = stored - stored.mean(axis=1, keepdims=True)
            z = Ball(mid, upper(gamma(self.size + 8) * size + 2 * EPS * np.abs(mid)))
        return z * (Ball.exact(self.weight) + float(self.offset)) + self.bias

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        r"""Return :math:`g \cdot c \mp \sqrt d \|P (g * w)\|_2`, rounded outwards; ``P`` removes the mean."""
        scaled = rows.scaled(self.factor).dense()
        error = 4.0 * EPS * norm_above(scaled)
        if self.centered:  # any subtracted number gives an upper bound of the norm of the centered vector
            scaled = scaled - scaled.mean(axis=-1, keepdims=True)
        reach = upper(self._radius() * add_up(norm_above(scaled), error), 4 * EPS)
        center, error = rows.dot(self.bias), rows.error(self.magnitude)
        return -add_up(reach, -center, error), add_up(reach, center, error)

    def _bounds(self) -> tuple[Array, Array]:
        reach = upper(self._radius() * np.abs(self.factor), 8 * EPS)
        return -add_up(reach, -self.bias), add_up(reach, self.bias)

    def affine_norms(self, weight: Array, bias: Array, groups: int, scales: Array) -> Array:
        r"""Return :math:`\sqrt d \|\mathrm{diag}(s) W \mathrm{diag}(w)\|_2 + |s * (W c + b)|_2` of every part."""
        spectral = spectral_norms(weight, self.factor, groups, scales)
        center = add_up(
            np.abs(weight @ self.bias + bias), Rows(weight).error(np.abs(self.bias)), 2.0 * EPS * np.abs(bias)
        )
        shift = norm_above(upper(np.abs(scales) * center, 4 * EPS).reshape(*spectral.shape, -1))
        return upper(self._radius() * spectral + shift, 8 * EPS)

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return ``sqrt(d) max |s w| + |s * c|_2`` of every part, or the bound by entries where it is smaller."""
        scales = self._scales(scales)
        split = (len(scales), groups, -1)
        largest = np.abs(scales * self.factor).reshape(split).max(axis=-1)
        shift = norm_above((scales * self.bias).reshape(split))
        return np.minimum(upper(self._radius() * largest + shift, 16 * EPS), self.entry_norms(groups, scales))


@subject("input_box")
@dataclass(frozen=True, eq=False, repr=False)
class InputBox(InputSet):
    """Inputs with entries between two bounds.

    Args:
        low: ``(d,)``.
        high: ``(d,)``.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: a lower bound above its upper bound.
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        low = as_array("low", self.low, (None,))
        high = as_array("high", self.high, low.shape)
        if (low > high).any():
            raise ConfigurationError("every lower bound of an input box must be at most its upper bound")
        self._set(low=low, high=high)

    @property
    def size(self) -> int:
        """Number of features ``d``."""
        return len(self.low)

    @property
    def phrase(self) -> str:
        """Describe the set."""
        return "all inputs that stay in the stored box"

    def points(self, stored: Array) -> Ball | None:
        """Return stored inputs of the box."""
        return Ball.exact(stored) if (self.low <= stored).all() and (stored <= self.high).all() else None

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return the sums of the smaller and of the larger of ``g_i low_i`` and ``g_i high_i``, rounded outwards."""
        G, error = rows.dense(), rows.error(self.magnitude)
        positive, negative = np.maximum(G, 0.0), np.minimum(G, 0.0)
        return (
            -add_up(-(positive @ self.low + negative @ self.high), error),
            add_up(positive @ self.high + negative @ self.low, error),
        )

    def _bounds(self) -> tuple[Array, Array]:
        return self.low, self.high


@subject("vocabulary")
@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary(InputSet):
    r"""Outputs of the norm for the embeddings of all tokens: :math:`u = (o + w) * x / \sqrt{|x|^2 / d + \epsilon} + c`.

    Args:
        embedding: ``x (tokens, d)``: the inputs of the norm.
        norm: ball of the norm.
        eps: epsilon of the norm, > 0.
        padded: whether the set contains the zero vector too, because a convolution pads the norm's outputs.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: an epsilon that is not positive.
    """

    embedding: Any
    norm: NormBall
    eps: float
    padded: bool = False
    vectors: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.norm, NormBall) or not (isinstance(self.eps, float) and 0.0 < self.eps < np.inf):
            raise ConfigurationError(f"a vocabulary needs its norm and a positive eps, got eps = {self.eps!r}")
        if self.eps < LEAST_EPS or not isinstance(self.padded, bool):
            raise ConfigurationError(f"eps must be at least {LEAST_EPS}, and padded a truth value, got {self.eps!r}")
        x = as_array("embedding", self.embedding, (None, self.norm.size))
        if np.abs(x).max() > LARGEST_ENTRY:
            raise ConfigurationError(f"entries of an embedding must be at most {LARGEST_ENTRY:g}")
        z = x - x.mean(axis=1, keepdims=True) if self.norm.centered else x
        size = np.sqrt((z * z).mean(axis=1, keepdims=True) + self.eps)
        vectors = z / size * self.norm.factor + self.norm.bias
        # the centered vector is off by d roundings of the largest entry, relative to its own size
        entry = (np.abs(x).max(axis=1, keepdims=True) / size).max() if self.norm.centered else np.sqrt(self.norm.size)
        error = 4.0 * gamma(self.norm.size + 16) * ((entry + 1.0) * np.abs(self.norm.factor) + np.abs(self.norm.bias))
        self._set(embedding=x, vectors=np.vstack([vectors, np.zeros((1, x.shape[1]))]) if self.padded else vectors)
        self._set(error=upper(error), sizes=np.abs(vectors).max(axis=0))

    error: Any = field(default=None, init=False)
    sizes: Any = field(default=None, init=False)

    @property
    def size(self) -> int:
        """Number of features ``d``."""
        return self.norm.size

    @property
    def phrase(self) -> str:
        """Describe the set: every sequence of tokens."""
        return f"every sequence of its {len(self.embedding)} tokens"

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return least and largest ``g . u`` over all tokens, rounded outwards."""
        G = rows.dense()
        least, most = np.full(len(G), np.inf), np.full(len(G), -np.inf)
        for start in range(0, len(self.vectors), CHUNK):
            values = G @ self.vectors[start : start + CHUNK].T
            least, most = np.minimum(least, values.min(axis=1)), np.maximum(most, values.max(axis=1))
        error = add_up(rows.error(self.sizes), upper(2.0 * (np.abs(G) @ self.error), gamma(self.size)))
        return -add_up(-least, error), add_up(most, error)

    def _bounds(self) -> tuple[Array, Array]:
        least, most = self.vectors.min(axis=0), self.vectors.max(axis=0)
        return -add_up(-least, self.error), add_up(most, self.error)

    def affine_norms(self, weight: Array, bias: Array, groups: int, scales: Array) -> Array:
        """Return the largest norm over all tokens of every part."""
        error = Rows(weight).error(self.sizes) + 2.0 * (np.abs(weight) @ self.error) + 4.0 * EPS * np.abs(bias)
        most = np.zeros((len(scales), groups))
        for start in range(0, len(self.vectors), CHUNK // 8):
            values = np.abs(self.vectors[start : start + CHUNK // 8] @ weight.T + bias) + error
            for row, scale in enumerate(scales):
                parts = norm_above(upper(values * np.abs(scale), 8 * EPS).reshape(len(values), groups, -1))
                most[row] = np.maximum(most[row], parts.max(axis=0))
        return most
