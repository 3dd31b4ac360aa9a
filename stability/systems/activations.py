"""Scalar activations with what a proof needs of them: slope interval and bound.

``alpha <= (phi(s) - phi(t)) / (s - t) <= beta`` for all ``s != t``, and ``|phi(s)| <= bound``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.errors import ConfigurationError

__all__ = ["ACTIVATIONS", "Activation", "activation"]

Array = np.ndarray


@dataclass(frozen=True)
class Activation:
    """A slope-restricted scalar function, applied entry by entry.

    Attributes:
        name: the name that files and constructors use.
        function: ``phi``.
        derivative: ``phi'`` (one element of the subdifferential at a kink).
        slope: ``(alpha, beta)``, the tightest interval of difference quotients.
        bound: ``sup |phi|``, infinite where there is none.
    """

    name: str
    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    slope: tuple[float, float]
    bound: float = float("inf")


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _dtanh(z: Array) -> Array:
    return 1.0 - np.tanh(z) ** 2


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("tanh", np.tanh, _dtanh, (0.0, 1.0), 1.0),
        Activation("relu", lambda z: np.maximum(z, 0.0), lambda z: (z > 0) * 1.0, (0.0, 1.0)),
        Activation("sigmoid", _sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z)), (0.0, 0.25), 1.0),
        Activation(
            "leaky_relu",
            lambda z: np.where(z > 0, z, 0.1 * z),
            lambda z: np.where(z > 0, 1.0, 0.1),
            (0.1, 1.0),
        ),
        Activation("identity", lambda z: z * 1.0, np.ones_like, (1.0, 1.0)),
    )
}


def activation(name: str) -> Activation:
    """Look an activation up by name (``leaky_relu`` has slope 0.1 on the negative side).

    Raises:
        ConfigurationError: when there is none of that name.

    Example:
        >>> activation("tanh").slope
        (0.0, 1.0)
    """
    if name not in ACTIVATIONS:
        raise ConfigurationError(f"unknown activation {name!r}; the known ones are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
