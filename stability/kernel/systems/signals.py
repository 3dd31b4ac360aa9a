r"""Signals of gated linear layers: vectors computed from the inputs ``u_t, u_{t-1}, ...`` of a layer.

Gates and injected values need only two kinds of numbers, which every signal bounds above, all rounding included: the
extremes of :math:`g \cdot x` and the Euclidean norms of groups of entries. Both are over all sequences of inputs in the
input set. Lipschitz constants are taken against :math:`\sup_t \|u_t - u_t'\|_2`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, Self

import numpy as np

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import gram_norms, norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS, TINY

Array = np.ndarray
ALL = slice(None)
SMALL, LARGE = 256, 1024
"""Rows of a part up to which one Gram matrix serves all scales, and rows or columns up to which each scale has its own;
beyond, one spectral norm is computed and the factors of the rows are bounded by the largest."""


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


def _product(matrix: Array, weight: Array) -> Array:
    """Return ``matrix @ weight`` without the outer columns that are zero in a block of rows, as of block diagonals."""
    out = np.zeros((len(matrix), weight.shape[1]))
    for start in range(0, len(matrix), SMALL):
        rows = matrix[start : start + SMALL]
        used = np.flatnonzero(rows.any(axis=0))
        if len(used):
            columns = slice(used[0], used[-1] + 1)
            np.matmul(rows[:, columns], weight[columns], out=out[start : start + SMALL])
    return out


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
        return Rows(_product(self.matrix, weight), self.mix)

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
    def inputs(self) -> Any:
        """The input set ``u`` of the layer."""
        raise NotImplementedError

    @property
    def taps(self) -> int:
        """Number of input steps that the signal reads: 1, or the taps of a convolution."""
        return 1

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Bound ``inf g . x`` below and ``sup g . x`` above for rows ``g`` of ``size`` entries; ``(k,)`` each."""
        raise NotImplementedError

    def at(self, inputs: Ball, entries: slice = ALL) -> Ball:
        """Enclose entries ``(T, k)`` for inputs ``(T, d)`` that repeat; NaN where no rule encloses them."""
        return Ball.exact(np.full((inputs.shape[0], self.size), np.nan)[:, entries])

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

    def affine_norms(self, weight: Array, bias: Array, groups: int, scales: Array) -> Array | None:
        """Bound ``|s * (W x + b)|_2`` above in each part, or return ``None`` where there is no rule for it."""
        return None

    def _scales(self, scales: Array | None) -> Array:
        return np.ones((1, self.size)) if scales is None else scales

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Bound ``|s * (x - x')|_2`` above in each part by ``L sup_t |u_t - u_t'|_2``; returns ``(k, groups)``."""
        raise NotImplementedError


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


def as_signal(value: Any) -> Signal:
    """Return a signal.

    Raises:
        ConfigurationError: anything else.
    """
    if not isinstance(value, Signal):
        raise ConfigurationError(f"a signal is expected (an input set, Affine, Convolution, SiLU), got {value!r:.60}")
    return value
