"""Checked arguments of radius searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Activated, Stage
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LARGEST, WIDEST

Array = np.ndarray
BUDGETS = ("total", "step")
FARTHEST = 1e3
"""Largest searched radius, in units of one plus the input's largest entry: larger perturbations dwarf the data."""


def is_affine(net: Stages) -> bool:
    """Return True for an affine network, whose tubes lose nothing but rounding errors."""
    return not any(map(_is_nonlinear, net.stages))


def _is_nonlinear(stage: Stage) -> bool:
    least, most = activation(stage.name).slope if isinstance(stage, Activated) else (0.0, 1.0)
    return least < most and bool(stage.B.any() and stage.C.any())


@dataclass(frozen=True, eq=False)
class Request:
    """Inputs with their classes, constraints on their perturbations, and the time limit of the search.

    Attributes:
        classifier: the network.
        x: ``(B, T, p)``.
        y: ``(B,)`` classes.
        margins: ``(B, k)`` logit of the class less the others', infinite for the class itself.
        right: the samples that the network gives their class, by number.
        upper: ``(B,)`` radii that are not to be reached, infinite where none is known.
        epsilon: the only radius to be decided, or ``None`` for the largest.
        mask: ``(T, p)`` true where the input may change; ``None``: everywhere.
        bounds: numbers between which perturbed inputs stay, or ``None``.
        budget: ``total`` or ``step``.
        time_limit: seconds a sample, or ``None``.
    """

    classifier: Classifier
    x: Array
    y: Array
    margins: Array
    right: Array
    upper: Array
    epsilon: float | None
    mask: Array | None
    bounds: tuple[float, float] | None
    budget: str
    time_limit: float | None

    @property
    def free(self) -> Array:
        """Return the mask ``(T, p)`` of entries that may change, one or zero."""
        return np.ones(self.x.shape[1:]) if self.mask is None else self.mask.astype(np.float64)

    def furthest(self, k: int) -> float:
        """Return the largest radius to search for sample ``k``: that of an attack, or ``FARTHEST``."""
        return min(float(self.upper[k]), FARTHEST * (1.0 + float(np.abs(self.x[k]).max())))

    def data(self, k: int, norm: str, radius: float) -> dict[str, Any]:
        """Return the entries of a proof about the ball of sample ``k``."""
        data: dict[str, Any] = {"x": self.x[k], "label": int(self.y[k]), "norm": norm, "radius": float(radius)}
        data |= {} if self.mask is None else {"mask": self.free}
        data |= {} if self.bounds is None else {"bounds": self.bounds}
        return data | ({"budget": "step"} if norm == "l2" and self.budget == "step" else {})


def larger_claim(one: Claim | None, other: Claim | None) -> Claim | None:
    """Return the claim of the larger radius, if there is any."""
    return max((one, other), key=lambda claim: 0.0 if claim is None else claim.value or 0.0)


def checked_request(
    classifier: Classifier,
    x: Any,
    y: Any,
    *,
    upper: Any = None,
    epsilon: float | None = None,
    mask: Any = None,
    bounds: Sequence[Any] | None = None,
    budget: str = "total",
    time_limit: float | None = None,
) -> Request:
    """Check the arguments of ``largest_balls``.

    Bounds may be arrays: what holds between the least and the largest of them holds between them. An end that no ball
    reaches, such as an infinite one, is as good as none.

    Raises:
        ConfigurationError: an unknown budget, labels that are no classes, a radius that is not positive, bounds
            that an input breaks, a network of numbers or an input of features beyond what proofs are made for.
        DimensionError: sizes that do not fit.

    Example:
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> made = checked_request(Classifier(cell, [[1.0], [-1.0]]), [[[1.0]], [[-1.0]]], [0, 0])
        >>> made.right, made.margins.round(3)[:, 1]
        (array([0]), array([ 1.523, -1.523]))
    """
    as_choice("budget", budget, BUDGETS)
    classifier.require_range()
    data, labels = classifier.checked(x), np.asarray(y)
    if data.shape[-1] > WIDEST:
        raise ConfigurationError(f"x may have at most {WIDEST:,} features per step, got {data.shape[-1]:,}")
    if data.ndim != 3 or labels.shape != data.shape[:1]:
        raise DimensionError("x and y", "(B, T, p) and (B,)", (data.shape, labels.shape))
    if len(labels) and not (labels.dtype.kind in "iu" and ((labels >= 0) & (labels < classifier.classes)).all()):
        raise ConfigurationError(f"y must hold class numbers, integers from 0 to {classifier.classes - 1}")
    labels = labels.astype(np.int64)
    radii = np.full(len(data), np.inf) if upper is None else np.asarray(upper, dtype=np.float64).reshape(-1)
    if radii.shape != labels.shape:
        raise DimensionError("upper", labels.shape, radii.shape)
    if epsilon is not None:
        check_radius_range("epsilon", float(epsilon))
    moving = None if mask is None else np.asarray(mask)
    if moving is not None and (moving.shape != data.shape[1:] or moving.dtype != np.bool_):
        raise DimensionError("mask", f"{data.shape[1:]} and dtype bool", f"{moving.shape} and dtype {moving.dtype}")
    logits, rows = classifier.logits(data) if len(data) else np.zeros((0, classifier.classes)), np.arange(len(data))
    margins = logits[rows, labels][:, None] - logits
    margins[rows, labels] = np.inf
    right = np.flatnonzero((margins > 0).all(axis=1))
    radius, interval = None if epsilon is None else float(epsilon), None if bounds is None else _endpoints(bounds, data)
    return Request(classifier, data, labels, margins, right, radii, radius, moving, interval, budget, time_limit)


def check_radius_range(name: str, value: float) -> None:
    """Raise an error, before any computation, for a number that cannot be the radius of a proof.

    Args:
        name: name of the argument or option.
        value: the number.

    Raises:
        ConfigurationError: it is not positive, or beyond what proofs are made for.
    """
    if not 0.0 < value < LARGEST:
        raise ConfigurationError(f"{name} must be a number > 0 and < {LARGEST:g}, got {value:g}")


def _endpoints(bounds: Sequence[Any], x: Array) -> tuple[float, float] | None:
    low, high = float(np.min(bounds[0])), float(np.max(bounds[1]))
    if not (low <= x.min(initial=np.inf) and x.max(initial=-np.inf) <= high):
        raise ConfigurationError(f"inputs lie outside the bounds ({low:g}, {high:g}): clip them or pass wider bounds")
    least, most = float(x.min(initial=np.inf)) - 2.0 * LARGEST, float(x.max(initial=-np.inf)) + 2.0 * LARGEST
    return None if low <= least and most <= high else (max(low, least), min(high, most))
