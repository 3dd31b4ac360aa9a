"""Boxes of inputs within an l_inf radius, and evaluation at one input of a box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stability.kernel.reachability.affine_forms import AffineArithmetic
from stability.kernel.reachability.classifier_run import Numbers, margins
from stability.kernel.systems.classifier import Classifier

Array = np.ndarray


def input_box(
    x: Array, radius: float, mask: Array | None = None, bounds: Sequence[float] | None = None
) -> tuple[Array, Array]:
    """Return the box of all inputs within an l_inf radius, rounded outwards.

    Args:
        x: ``(T, p)`` center.
        radius: half width of the box, > 0.
        mask: ``(T, p)``, zero where an entry may not change.
        bounds: least and largest value of a perturbed entry.

    Returns:
        Lower and upper ends, ``(T, p)`` each.

    Example:
        >>> low, high = input_box(np.array([[0.0, 0.75]]), 0.5, bounds=(0.0, 1.0))
        >>> [end.round(3).tolist() for end in (low, high)]
        [[[0.0, 0.25]], [[0.5, 1.0]]]
    """
    low, high = np.nextafter(x - radius, -np.inf), np.nextafter(x + radius, np.inf)
    if bounds is not None:
        low, high = np.maximum(low, bounds[0]), np.minimum(high, bounds[1])
    if mask is not None:
        low, high = np.where(mask != 0, low, x), np.where(mask != 0, high, x)
    return low, high


def count_perturbed(tube: AffineArithmetic) -> int:
    """Return the number of moving entries of the input."""
    return sum(len(moves) for _, moves, _ in tube.inputs)


def inputs_of(tube: AffineArithmetic) -> Array:
    """Return the symbols of the moving entries of the input."""
    return np.concatenate([np.arange(first, first + len(moves)) for _, moves, first in tube.inputs])


def evaluate_at(
    classifier: Classifier, tube: AffineArithmetic, point: Array, label: int
) -> tuple[list[list[tuple[Array, Array]]], Array]:
    """Evaluate the network at one input of a tube's box.

    Args:
        classifier: the network.
        tube: the tube.
        point: one number from -1 to 1 for each moving entry of the input.
        label: the class.

    Returns:
        The arguments of the nonlinear units, and the margins.
    """
    x, at = np.stack([centre for centre, _, _ in tube.inputs]), 0
    for t, (_, moves, first) in enumerate(tube.inputs):
        x[t, moves] += point[at : at + len(moves)] * tube.radius[first : first + len(moves)]
        at += len(moves)
    run = Numbers()
    value: Any = margins(classifier, run, x, x, label)
    return run.met, value.c
