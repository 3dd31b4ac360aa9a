"""Checks of arguments: arrays, slopes, feedthrough matrices, names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError, MaskedError, NonFiniteError

Array = np.ndarray


def unmasked(name: str, value: Any) -> Any:
    """Check that no entry is masked, since a conversion would use the values under the mask.

    Args:
        name: name in error messages.
        value: an array of ``numpy.ma``, a list of such arrays, or any other value.

    Returns:
        ``value``, unchanged.

    Raises:
        MaskedError: entries are masked.

    Example:
        >>> unmasked("A", np.ma.masked_array([1.0, 2.0], mask=[True, False]))
        Traceback (most recent call last):
            ...
        stability.errors.MaskedError: A holds 1 masked entry: fill them, for example by A.filled(0.0)
    """
    if isinstance(value, np.ma.MaskedArray):
        count = int(np.ma.count_masked(value))
        if count:
            raise MaskedError(name, count)
    elif isinstance(value, (list, tuple)):
        for part in value:
            unmasked(name, part)
    return value


def as_numbers(name: str, value: Any, dtype: type | None = None) -> Array:
    """Return an array of numbers of any type and shape, or of one type.

    Raises:
        MaskedError: entries are masked.
        ConfigurationError: no numbers, or rows of different lengths.
    """
    unmasked(name, value)
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"{name} must be an array of real numbers, got {type(value).__name__}") from error


def as_vectors(name: str, value: Any, size: int) -> Array:
    """Return finite float64 numbers ``(..., size)``.

    Raises:
        MaskedError: entries are masked.
        ConfigurationError: no numbers.
        DimensionError: another last axis, or none.
        NonFiniteError: NaN or infinite entries.
    """
    out = as_numbers(name, value, np.float64)
    if out.ndim == 0 or out.shape[-1] != size:
        raise DimensionError(name, f"(..., {size})", out.shape)
    if not np.isfinite(out).all():
        raise NonFiniteError(name)
    return out


def as_matrix(name: str, value: Any, shape: tuple[int | None, int | None] = (None, None)) -> Array:
    """Return a finite, real, read-only float64 copy of a 2-D array; ``None`` in ``shape`` means any size.

    Raises:
        DimensionError: wrong number of axes or wrong sizes.
        NonFiniteError: NaN, infinity or a masked entry.
        ConfigurationError: complex or non-numeric entries, or numbers that float64 cannot represent.
    """
    raw = as_numbers(name, value)
    if np.iscomplexobj(raw):
        raise ConfigurationError(
            f"{name} must be real, got dtype {raw.dtype}: pass the real form [[Re, -Im], [Im, Re]] of a complex matrix"
        )
    if raw.dtype.kind not in "fiub":
        raise ConfigurationError(f"{name} must be an array of real numbers, got dtype {raw.dtype}")
    expected = f"({', '.join(word if s is None else str(s) for word, s in zip(('rows', 'columns'), shape))})"
    if raw.ndim != 2 or any(s is not None and s != r for s, r in zip(shape, raw.shape)):
        raise DimensionError(name, expected, raw.shape)
    out = np.array(raw, dtype=np.float64, order="C")
    if not np.isfinite(out).all():
        raise NonFiniteError(name)
    refuse_rounded(name, raw, out)
    out.setflags(write=False)
    return out


def as_column(name: str, value: Any, size: int) -> Array:
    """Return a vector of a known number of entries with any orientation; see ``as_matrix``.

    Raises:
        DimensionError: another number of entries.
        NonFiniteError: NaN, infinity or a masked entry.
        ConfigurationError: see ``as_matrix``.

    Example:
        >>> as_column("b", [[1.0], [2.0]], 2)
        array([1., 2.])
    """
    raw = as_numbers(name, value)
    if raw.size != size:
        raise DimensionError(name, (size,), raw.shape)
    return as_matrix(name, raw.reshape(-1, 1))[:, 0]


def refuse_rounded(name: str, raw: Array, stored: Array) -> None:
    """Raise an error for numbers that float64 rounds, since a claim is about the numbers as given.

    Args:
        name: name in the error message.
        raw: array of any dtype; only integers and floats wider than float64 can fail.
        stored: the same array in float64.

    Raises:
        ConfigurationError: an entry changes its value.
    """
    if raw.dtype.kind in "iu":
        rounded = np.abs(stored) >= 2.0**53
        rounded[rounded] = [int(a) != int(b) for a, b in zip(raw[rounded], stored[rounded])]
    elif raw.dtype.itemsize > stored.dtype.itemsize:
        rounded = stored.astype(raw.dtype) != raw
    else:
        return
    if rounded.any():
        raise ConfigurationError(
            f"{name} holds {raw.dtype} numbers that float64 cannot represent exactly, such as {raw[rounded].flat[0]}: "
            "convert them to float64 first, since a proof is about the exact numbers"
        )


def as_choice(name: str, value: Any, known: Iterable[str], hint: str = "") -> str:
    """Return ``value`` if it is one of the known names.

    Args:
        name: name of the choice in error messages.
        value: the choice.
        known: names, in the order in which the error lists them.
        hint: further text of the error message.

    Returns:
        The name.

    Raises:
        ConfigurationError: any other value.

    Example:
        >>> as_choice("integrator", "euler", ("euler", "midpoint"))
        'euler'
        >>> as_choice("integrator", "heun", ("euler", "midpoint"))
        Traceback (most recent call last):
            ...
        stability.errors.ConfigurationError: unknown integrator 'heun'; the known ones are euler, midpoint
    """
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise ConfigurationError(f"unknown {name} {value!r}; the known ones are {', '.join(names)}{hint}")
    return value


def as_slope(slope: Any, channels: int) -> tuple[Array, Array]:
    """Return slope bounds as two vectors with one entry per channel; each bound may be a number or a vector.

    Raises:
        ConfigurationError: no pair of bounds, bounds that are not finite, or a lower bound above the upper one.
    """
    unmasked("slope", slope)
    try:
        low, high = slope
        bounds = [np.broadcast_to(np.asarray(bound, dtype=np.float64), (channels,)) for bound in (low, high)]
    except (TypeError, ValueError, OverflowError) as error:
        one = isinstance(slope, (int, float)) and not isinstance(slope, bool)
        hint = f": for slopes between 0 and {slope:g} pass ({min(0.0, slope):g}, {max(0.0, slope):g})" if one else ""
        raise ConfigurationError(
            f"slope must be a pair (alpha, beta) of numbers or of vectors with {channels} entries, got {slope!r}{hint}"
        ) from error
    alpha, beta = (np.array(bound) for bound in bounds)
    if not (np.isfinite(alpha).all() and np.isfinite(beta).all()):
        raise ConfigurationError("slope bounds must be finite")
    refuse_rounded("slope", np.broadcast_to(low, (channels,)), alpha)
    refuse_rounded("slope", np.broadcast_to(high, (channels,)), beta)
    if (alpha > beta).any():
        i = int(np.argmax(alpha > beta))
        raise ConfigurationError(f"slope must have alpha <= beta, got ({alpha[i]}, {beta[i]}) in channel {i}")
    alpha.setflags(write=False)
    beta.setflags(write=False)
    return alpha, beta


def levels_of(reads: Array) -> list[Array] | None:
    """Group the nodes of a directed graph in levels, each of which reads earlier ones only.

    Args:
        reads: ``(m, m)`` booleans; ``reads[i, j]``: node ``i`` reads node ``j``.

    Returns:
        Indices, level by level, or ``None`` for a graph with a cycle.

    Example:
        >>> levels_of(np.array([[False, True], [False, False]])), levels_of(np.array([[True]]))
        ([array([1]), array([0])], None)
    """
    levels, done = list[Array](), np.zeros(len(reads), dtype=bool)
    while not done.all():
        ready = np.flatnonzero(~done & ~reads[:, ~done].any(axis=1))
        if not len(ready):
            return None
        levels.append(ready)
        done[ready] = True
    return levels


def is_well_posed(D: Array, alpha: Array, beta: Array) -> bool:
    """Return True if ``I - D K`` is non-singular for every admissible K: acyclic D, or spectral radius of |D| |K| < 1.

    Cost:
        As many operations as ``D`` has entries, times at most 50.
    """
    if levels_of(D != 0) is not None:
        return True
    gain = np.abs(D) * np.maximum(np.abs(alpha), np.abs(beta))[None, :]
    weights = np.ones(D.shape[0])
    for _ in range(50):  # a positive d with gain @ d < d proves it (Perron, Collatz-Wielandt)
        image = gain @ weights
        if (image < 0.999 * weights).all():
            return True
        weights = image + 1e-3 * weights
        weights /= weights.max()
    return False
