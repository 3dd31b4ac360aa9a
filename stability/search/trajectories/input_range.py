"""Input ranges of searches: the data's range first, then all inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import refuse_rounded

Array = np.ndarray
WIDTHS = (1.0, 5.0, 50.0)  # half widths of the boxes that are tried after the data's range
LARGEST = 1e300
"""Largest bound, so that searches can add and subtract them."""


@dataclass(frozen=True, eq=False)
class InputRange:
    """Box of inputs, or with infinite corners all inputs.

    Attributes:
        low: ``(p,)``, or minus infinity.
        high: ``(p,)``, or infinity.
    """

    low: Array
    high: Array

    @property
    def bounded(self) -> bool:
        """True for a box, False for all inputs."""
        return bool(np.isfinite(self.low).all())

    def contains(self, u: Array) -> bool:
        """Return True if every input ``(..., p)`` lies in the range."""
        return bool(((self.low <= u) & (u <= self.high)).all())

    def clip(self, u: Array) -> Array:
        """Return the nearest inputs ``(..., p)`` in the range."""
        return np.clip(u, self.low, self.high)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], width: int) -> Array:
        """Draw inputs ``(*shape, width)``: alternately inside the box and at its corners, or without a box of sizes
        from 0.1 to 10. The first input is the one nearest to zero.
        """
        if not self.bounded:
            sizes = np.logspace(-1, 1, shape[0]).reshape(-1, *[1] * len(shape))
            out = rng.normal(size=(*shape, width)) * sizes
        else:
            out = 2.0 * rng.uniform(0.5 * self.low, 0.5 * self.high, size=(*shape, width))
            corners = np.where(rng.random((*shape, width)) < 0.5, self.low, self.high)
            out[1::2] = corners[1::2]
        out[0] = self.clip(np.zeros(width))
        return out


ANYWHERE = InputRange(np.array(-np.inf), np.array(np.inf))


def input_range(value: Any, width: int, name: str = "input_range") -> InputRange:
    """Return the checked range of the data's inputs.

    Args:
        value: ``(low, high)``, numbers or ``(width,)`` arrays; ``None`` if the range is unknown.
        width: number of inputs.
        name: name in error messages.

    Returns:
        The range; ``ANYWHERE`` for ``None``.

    Raises:
        ConfigurationError: no pair of finite bounds up to ``LARGEST``, or an empty range.
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
            f"{name} must be (low, high), numbers or arrays of {width} entries, got {value!r}"
        ) from error
    for end in (low, high):
        if end.shape not in ((), (width,)):
            hint = f"one entry for each of the {width} inputs"
            raise DimensionError(f"a bound of {name}", f"() or ({width},)", end.shape, hint)
    for end, stored in zip(value, (low, high)):
        refuse_rounded(name, np.atleast_1d(end), np.atleast_1d(stored))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ConfigurationError(f"{name} must have finite bounds, low <= high")
    if not (np.abs(low) <= LARGEST).all() or not (np.abs(high) <= LARGEST).all():
        raise ConfigurationError(f"{name} must have bounds from -{LARGEST:g} to {LARGEST:g}: sums of others overflow")
    return InputRange(np.broadcast_to(low, (width,)).copy(), np.broadcast_to(high, (width,)).copy())


def input_boxes(low: Array | None, high: Array | None, region: InputRange, size: int) -> list[InputRange]:
    """Return boxes of inputs in the order of a search.

    The data's range comes first, then the box of the system. If every input is allowed, [0, 1], [-1, 1] and wider boxes
    follow instead.

    Args:
        low: ``(p,)`` lower corner of the box of the system, or ``None``.
        high: ``(p,)`` its upper corner, or ``None``.
        region: the range of the data.
        size: number of inputs.

    Returns:
        The boxes.

    Example:
        >>> [(box.low.tolist(), box.high.tolist()) for box in input_boxes(None, None, ANYWHERE, 1)][:2]
        [([0.0], [1.0]), ([-1.0], [1.0])]
    """
    stated = ANYWHERE if low is None or high is None else InputRange(low, high)
    inner = InputRange(np.maximum(stated.low, region.low), np.minimum(stated.high, region.high))
    boxes = [inner] if region.bounded and (inner.low <= inner.high).all() else []
    if stated.bounded:
        boxes.append(stated)
    else:
        wider = (InputRange(np.full(size, -width), np.full(size, width)) for width in WIDTHS)
        boxes += [InputRange(np.zeros(size), np.ones(size)), *wider]
    corners = [(box.low, box.high) for box in boxes]
    return [box for k, box in enumerate(boxes) if not any(np.array_equal(corners[k], other) for other in corners[:k])]
