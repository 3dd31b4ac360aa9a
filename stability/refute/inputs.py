"""Where a search looks for inputs: in the range of the data first, then anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError

__all__ = ["ANYWHERE", "InputRange", "input_range"]

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class InputRange:
    """A box of inputs, or with ``None`` for its corners all of them.

    Attributes:
        low: ``(p,)`` or ``None``.
        high: ``(p,)`` or ``None``.
    """

    low: Array | None = None
    high: Array | None = None

    @property
    def bounded(self) -> bool:
        """Whether it is a box."""
        return self.low is not None

    def contains(self, u: Array) -> bool:
        """Whether every input ``(..., p)`` lies in it."""
        return self.low is None or self.high is None or bool(((self.low <= u) & (u <= self.high)).all())

    def clip(self, u: Array) -> Array:
        """The nearest inputs ``(..., p)`` in it."""
        return u if self.low is None or self.high is None else np.clip(u, self.low, self.high)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], width: int) -> Array:
        """Inputs ``(*shape, width)``: of sizes from a tenth to ten, or inside and in corners of the box by turns; the
        first is zero, or what is nearest to it.
        """
        if self.low is None or self.high is None:
            sizes = np.logspace(-1, 1, shape[0]).reshape(-1, *[1] * len(shape))
            out = rng.normal(size=(*shape, width)) * sizes
        else:
            out = 2.0 * rng.uniform(0.5 * self.low, 0.5 * self.high, size=(*shape, width))
            corners = np.where(rng.random((*shape, width)) < 0.5, self.low, self.high)
            out[1::2] = corners[1::2]
        out[0] = self.clip(np.zeros(width))
        return out


ANYWHERE = InputRange()


def input_range(value: Any, width: int) -> InputRange:
    """The range of the data's inputs, checked.

    Args:
        value: ``None`` where it is not known, or ``(low, high)``: numbers or ``(width,)`` arrays.
        width: number of inputs.

    Returns:
        The range; ``ANYWHERE`` for ``None``.

    Raises:
        ConfigurationError: what is no pair of finite bounds, or an empty range.
        DimensionError: bounds of another size.

    Example:
        >>> input_range((0, 1), 2).high
        array([1., 1.])
    """
    if value is None:
        return ANYWHERE
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"input_range must be (low, high), numbers or arrays of {width} entries, got {value!r}"
        ) from error
    for end in (low, high):
        if end.shape not in ((), (width,)):
            raise DimensionError("a bound of input_range", f"a number or ({width},)", end.shape)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ConfigurationError("input_range must have finite bounds, low <= high")
    return InputRange(np.broadcast_to(low, (width,)).copy(), np.broadcast_to(high, (width,)).copy())
