r"""Input sets by their support functions, and the signals that a layer computes from its inputs.

A signal is a vector ``x`` computed from the inputs ``u_t, u_{t-1}, ...`` of a layer by matrices, causal convolutions
and SiLU. Gates and injected values need only two kinds of numbers, which every signal bounds above, all rounding
included: the extremes of :math:`g \cdot x` and the Euclidean norms of groups of entries. Both are over all sequences of
inputs in the input set. Lipschitz constants are taken against :math:`\sup_t \|u_t - u_t'\|_2`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import (
    SILU_SLOPE,
    add_up,
    gram_norms,
    norm_above,
    silu,
    silu_excess,
    upper,
)
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.format.serialization import subject

Array = np.ndarray
SMALL, LARGE = 256, 1024
"""Rows of a part up to which one Gram matrix serves all scales, and rows or columns up to which each scale has its own;
beyond, one spectral norm is computed and the factors of the rows are bounded by the largest."""
CHUNK = 4096
"""Tokens of a vocabulary that are handled at once, which bounds the memory."""


def as_array(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """Return a finite float64 array of a known shape; ``None`` is any size.

    Raises:
        DimensionError: another shape.
        NonFiniteError: NaN or infinite entries.
    """
    array = np.asarray(value, dtype=np.float64)
    if array.ndim != len(shape) or any(s not in (None, a) for s, a in zip(shape, array.shape)) or not array.size:
        raise DimensionError(name, shape, array.shape)
    if not np.isfinite(array).all():
        raise NonFiniteError(name)
    return array


class Node:
    """Base of the parts of a gated linear layer: frozen dataclasses whose fields are stored in the file."""

    def _set(self, **values: Any) -> None:
        vars(self).update(values)

    def payload(self) -> dict[str, Any]:
        """Return the stored content: the fields."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}  # type: ignore[arg-type]

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> Self:
        """Invert ``payload``."""
        return cls(**data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of type and stored content, 64 hexadecimal digits; a shared part is read once."""
        total = hashlib.sha256(type(self).__name__.encode())
        for name, value in sorted(self.payload().items()):
            if isinstance(value, np.ndarray):
                total.update(f"{name} array {value.shape}".encode())
                total.update(np.ascontiguousarray(value, dtype="<f8").data)
            else:
                said = value.digest if isinstance(value, Node) else repr(value)
                total.update(f"{name} {type(value).__name__} {said} ".encode())
        return total.hexdigest()

    def equals(self, other: Node) -> bool:
        """Return True for the same type with the same stored content."""
        return self is other or self.digest == other.digest


class Rows:
    """Rows ``g`` of linear functionals ``g . x``, as a matrix ``G`` or as a product ``M G`` with few rows in between.

    Args:
        matrix: ``G (r, n)``.
        mix: ``M (k, r)``; ``None`` for the identity.
    """

    def __init__(self, matrix: Array, mix: Array | None = None) -> None:
        self.matrix, self.mix = matrix, mix

    def times(self, weight: Array) -> Rows:
        """Return the functionals of ``W x``; a matrix with fewer rows than there are functionals is kept apart."""
        if self.mix is None and len(self.matrix) > 2 * len(weight):
            return Rows(weight, self.matrix)
        return Rows(self.matrix @ weight, self.mix)

    def scaled(self, factors: Any) -> Rows:
        """Return the functionals of ``factors * x``."""
        return Rows(self.matrix * factors, self.mix)

    def dense(self) -> Array:
        """Return the functionals as one matrix ``(k, n)``."""
        return self.matrix if self.mix is None else self.mix @ self.matrix

    def dot(self, x: Array) -> Array:
        """Return ``g . x`` of every row."""
        product = self.matrix @ x
        return product if self.mix is None else self.mix @ product

    def error(self, sizes: Array) -> Array:
        """Bound the rounding errors of ``dense``, ``dot`` and ``times`` in ``g . x`` above for ``|x_i| <= sizes_i``."""
        product = np.abs(self.matrix) @ sizes
        inner = 0 if self.mix is None else len(self.matrix)
        product = product if self.mix is None else np.abs(self.mix) @ product
        return 4.0 * gamma(len(sizes) + inner + 4) * product + TINY


class Signal(Node):
    """Vector computed from the inputs of a layer; see the module."""

    @property
    def size(self) -> int:
        """Number of entries."""
        raise NotImplementedError

    @property
    def inputs(self) -> InputSet:
        """The input set ``u`` of the layer."""
        raise NotImplementedError

    @property
    def taps(self) -> int:
        """Number of input steps that the signal reads: 1, or the taps of a convolution."""
        return 1

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Bound ``inf g . x`` below and ``sup g . x`` above for rows ``g`` of ``size`` entries; ``(k,)`` each."""
        raise NotImplementedError

    def _bounds(self) -> tuple[Array, Array]:
        raise NotImplementedError

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Bounds ``(size,)``, ``(size,)`` of every entry."""
        return self._bounds()

    @cached_property
    def magnitude(self) -> Array:
        """Upper bound of the absolute value of every entry, ``(size,)``."""
        low, high = self.bounds
        return np.maximum(np.abs(low), np.abs(high))

    @cached_property
    def _results(self) -> dict[tuple[str, int], Array]:
        return {}

    def group_norms(self, groups: int) -> Array:
        """Return ``norms(groups)[0]``, computed once."""
        return self._once("norms", groups)

    def group_constants(self, groups: int) -> Array:
        """Return ``lipschitz_norms(groups)[0]``, computed once."""
        return self._once("lipschitz_norms", groups)

    def _once(self, name: str, groups: int) -> Array:
        if (name, groups) not in self._results:
            self._results[name, groups] = getattr(self, name)(groups)[0]
        return self._results[name, groups]

    def entry_norms(self, groups: int, scales: Array) -> Array:
        """Bound norms as ``norms`` does, from the bounds of the entries."""
        entries = upper(np.abs(scales) * self.magnitude, 4 * EPS)
        return norm_above(entries.reshape(len(scales), groups, -1))

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Bound ``|s * x|_2`` above in each of ``groups`` equal parts, for rows ``s`` of ``scales``.

        Args:
            groups: number of parts.
            scales: ``(k, size)``; one row of ones by default.

        Returns:
            ``(k, groups)``.
        """
        return self.entry_norms(groups, self._scales(scales))

    def _scales(self, scales: Array | None) -> Array:
        return np.ones((1, self.size)) if scales is None else scales

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Bound ``|s * (x - x')|_2`` above in each part by ``L sup_t |u_t - u_t'|_2``; returns ``(k, groups)``."""
        raise NotImplementedError


class Derived(Signal):
    """Signal computed from another one, its ``source``."""

    source: Signal

    @property
    def size(self) -> int:
        """Number of entries: that of the source."""
        return self.source.size

    @property
    def inputs(self) -> InputSet:
        """The input set of the layer."""
        return self.source.inputs

    @property
    def taps(self) -> int:
        """Number of input steps that the signal reads."""
        return self.source.taps


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

    def affine_norms(self, weight: Array, bias: Array, groups: int, scales: Array) -> Array | None:
        """Bound ``|s * (W u + b)|_2`` above in each part, or return ``None`` where there is no rule for it."""
        return None

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the largest factor of every part."""
        scales = self._scales(scales)
        return np.abs(scales).reshape(len(scales), groups, -1).max(axis=-1)


@subject("norm_ball")
@dataclass(frozen=True, eq=False, repr=False)
class NormBall(InputSet):
    r"""Outputs of RMSNorm or LayerNorm: :math:`u = (o + w) * z + c` with :math:`\|z\|_2 \le \sqrt d`.

    The set contains the norm's output for every finite vector in front of the norm, whatever ``eps >= 0``.

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
        return "every input in its box"

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
        embedding: ``x (tokens, d)``: the vectors in front of the norm.
        norm: the norm, by its ball.
        eps: its epsilon, > 0.
        padded: the zero vector belongs to the set (a convolution that pads its inputs behind the norm).

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
        x = as_array("embedding", self.embedding, (None, self.norm.size))
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


def spectral_norms(weight: Array, columns: Array, groups: int, scales: Array) -> Array:
    """Bound the spectral norms of ``diag(s) W diag(columns)`` above in each of ``groups`` parts of the rows.

    Args:
        weight: ``W (size, n)``.
        columns: ``(n,)`` factors of the columns.
        groups: number of parts.
        scales: ``(k, size)`` factors of the rows.

    Returns:
        ``(k, groups)``.
    """
    scaled = (weight * columns).reshape(groups, -1, weight.shape[1])
    rows = norm_above(scaled)  # (groups, rows)
    parts = scales.reshape(len(scales), groups, -1)
    if scaled.shape[1] == 1:
        return upper(np.abs(parts[..., 0]) * rows[:, 0], 16 * EPS)
    # each entry of a Gram matrix is off by the rounding of two scaled rows and of their product
    error = 2.0 * gamma(max(scaled.shape[1:]) + 8)
    if scaled.shape[1] > SMALL:

        def large(part: Array) -> Array:
            rows_of_part = scaled * part[..., None]
            short = rows_of_part if scaled.shape[1] <= scaled.shape[2] else rows_of_part.transpose(0, 2, 1)
            return gram_norms(short @ short.transpose(0, 2, 1), upper(error * norm_above(part * rows) ** 2))

        if min(scaled.shape[1:]) <= LARGE:
            return upper(np.sqrt(np.stack([large(part) for part in parts])), 8 * EPS)
        return upper(np.abs(parts).max(axis=2) * np.sqrt(large(np.ones_like(parts[0]))), 16 * EPS)
    gram = scaled @ scaled.transpose(0, 2, 1)
    found = []
    for part in parts:
        sizes = norm_above(part * rows)
        found.append(gram_norms(gram * part[:, :, None] * part[:, None, :], upper(error * sizes * sizes)))
    return upper(np.sqrt(np.stack(found)), 8 * EPS)


@subject("affine_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Affine(Derived):
    """Matrix applied to a signal: ``W x + b``.

    Args:
        weight: ``W (k, n)``.
        source: signal ``x`` with ``n`` entries.
        bias: ``b (k,)``; zero by default.

    Raises:
        DimensionError: shapes that do not fit.
    """

    weight: Any
    source: Signal
    bias: Any = None

    def __post_init__(self) -> None:
        source = as_signal(self.source)
        weight = as_array("weight", self.weight, (None, source.size))
        bias = np.zeros(len(weight)) if self.bias is None else as_array("bias", self.bias, (len(weight),))
        self._set(weight=weight, bias=bias)

    @property
    def size(self) -> int:
        """Number of rows of ``W``."""
        return len(self.weight)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return the source's extremes of ``g W``, shifted by ``g . b``, rounded outwards."""
        low, high = self.source.extremes(rows.times(self.weight))
        shift, error = rows.dot(self.bias), rows.error(self._reach)
        return -add_up(-low, -shift, error), add_up(high, shift, error)

    @cached_property
    def _reach(self) -> Array:
        """Bound of ``|W| |x| + |b|``, which the rounding errors of ``g W`` are measured by."""
        return upper(np.abs(self.weight) @ self.source.magnitude, gamma(self.weight.shape[1])) + np.abs(self.bias)

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self.source.extremes(Rows(self.weight))
        return -add_up(-low, -self.bias), add_up(high, self.bias)

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the spectral bound where the source is an input set, or the bound by entries where it is smaller."""
        scales = self._scales(scales)
        entries, source = self.entry_norms(groups, scales), self.source
        spectral = source.affine_norms(self.weight, self.bias, groups, scales) if isinstance(source, InputSet) else None
        return entries if spectral is None else np.minimum(spectral, entries)

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return spectral norms times the source's constant."""
        scales = self._scales(scales)
        spectral = spectral_norms(self.weight, np.ones(self.weight.shape[1]), groups, scales)
        return upper(spectral * float(self.source.group_constants(1)[0]), 8 * EPS)


@subject("convolution_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Convolution(Derived):
    r"""Causal convolution of every entry: :math:`y_t = c + \sum_{j < k} K_j * x_{t-j}`.

    At the start of a sequence the taps before the first step are zero, so extremes are taken over ``m = 1, ..., k``
    present taps.

    Args:
        kernel: ``K (k, n)``; row 0 multiplies the present step.
        source: signal ``x`` of ``n`` entries that reads one step.
        bias: ``c (n,)``; zero by default.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: a source that reads several steps.
    """

    kernel: Any
    source: Signal
    bias: Any = None

    def __post_init__(self) -> None:
        source = as_signal(self.source)
        if source.taps != 1:
            raise ConfigurationError("a convolution of a convolution is not supported: join the two kernels")
        kernel = as_array("kernel", self.kernel, (None, source.size))
        bias = np.zeros(source.size) if self.bias is None else as_array("bias", self.bias, (source.size,))
        self._set(kernel=kernel, bias=bias)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.source.size

    @property
    def taps(self) -> int:
        """Number of taps ``k``."""
        return len(self.kernel)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return ``g . c`` and the extreme sums of the source's extremes of ``g * K_j`` over the present taps."""
        total, most = np.zeros(2)[:, None], np.array(-np.inf)  # of -low and high
        for tap in self.kernel:
            terms = rows.scaled(tap)
            low, high = self.source.extremes(terms)
            total = add_up(total, np.stack([-low, high]), terms.error(self.source.magnitude))
            most = np.maximum(most, total)
        shift, error = rows.dot(self.bias), rows.error(np.abs(self.bias))
        low, high = add_up(most, np.stack([-shift, shift]), error)
        return -low, high

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self.source.bounds
        total, most = np.zeros((2, self.size)), np.full((2, self.size), -np.inf)
        for tap in self.kernel:
            ends = np.stack([tap * low, tap * high])
            total = add_up(total, upper(np.stack([-ends.min(axis=0), ends.max(axis=0)]), 4 * EPS))
            most = np.maximum(most, total)
        down, up = add_up(most, np.stack([-self.bias, self.bias]))
        return -down, up

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return ``|s * c|_2`` and the sum of the source's bounds over all taps, or the bound by entries if smaller."""
        scales = self._scales(scales)
        taps = np.concatenate([upper(np.abs(scales) * np.abs(tap), 4 * EPS) for tap in self.kernel])
        parts = self.source.norms(groups, taps).reshape(self.taps, len(scales), groups).sum(axis=0)
        shift = norm_above((scales * self.bias).reshape(len(scales), groups, -1))
        return np.minimum(upper(parts + shift, (self.taps + 8) * EPS), self.entry_norms(groups, scales))

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the sum of the source's constants over all taps."""
        scales = self._scales(scales)
        taps = np.concatenate([upper(np.abs(scales) * np.abs(tap), 4 * EPS) for tap in self.kernel])
        parts = self.source.lipschitz_norms(groups, taps).reshape(self.taps, len(scales), groups)
        return upper(parts.sum(axis=0), (self.taps + 8) * EPS)


@subject("silu_signal")
@dataclass(frozen=True, eq=False, repr=False)
class SiLU(Derived):
    r"""SiLU of every entry: :math:`v = s \sigma(s) = s / 2 + e(s)` with :math:`0 \le e(s) \le \min(s^2 / 4, |s| / 2)`.

    Args:
        source: signal ``s``.
    """

    source: Signal

    def __post_init__(self) -> None:
        as_signal(self.source)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.source.size

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return extremes of the linear part and of the rest, or those by entries where they are tighter."""
        low, high = self.bounds
        G, error, excess = rows.dense(), rows.error(self.magnitude), silu_excess(self.source.magnitude)
        half = 0.5 * float(self.source.group_norms(1)[0])
        found = []
        for sign, linear in zip((-1.0, 1.0), self.source.extremes(rows.scaled(0.5))):
            positive, negative = np.maximum(sign * G, 0.0), np.minimum(sign * G, 0.0)
            entries = add_up(positive @ high + negative @ low, error)
            total = add_up(positive @ excess, error)
            rest = np.minimum(total, upper(norm_above(positive) * half, 8 * EPS))
            found.append(sign * np.minimum(entries, add_up(sign * linear, rest)))
        return found[0], found[1]

    def _bounds(self) -> tuple[Array, Array]:
        return silu(*self.source.bounds)

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the source's bounds, since ``|silu(s)| <= |s|``, or the bound by entries where it is smaller."""
        scales = self._scales(scales)
        return np.minimum(self.source.norms(groups, scales), self.entry_norms(groups, scales))

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return 1.1 times the source's constants."""
        return upper(SILU_SLOPE * self.source.lipschitz_norms(groups, scales), 8 * EPS)


def as_signal(value: Any) -> Signal:
    """Return a signal.

    Raises:
        ConfigurationError: anything else.
    """
    if not isinstance(value, Signal):
        raise ConfigurationError(f"a signal is expected (an input set, Affine, Convolution, SiLU), got {value!r:.60}")
    return value
