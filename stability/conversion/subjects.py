"""Conversion of objects to subjects: modules, state spaces, reservoirs, registered user classes.

Layers above register converters here (for ``torch.nn`` modules), so that this package never imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from stability.conversion.reservoirs import is_reservoirpy_node, loop_nodes, system_from_reservoirpy
from stability.errors import UnsupportedError
from stability.kernel.format.serialization import is_subject
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.plants import as_plant, is_linear_system


def linear_part(value: Any) -> LureSystem:
    """Return the system without feedback, ``x' = A x`` (``x+ = A x``), as the subject of a state space."""
    plant = as_plant(value)
    return LureSystem.linear(plant.A, plant.dt)


_CONVERTERS: list[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = [
    (is_linear_system, linear_part),
    (is_reservoirpy_node, system_from_reservoirpy),
]


def register_converter(kind: type | Callable[[Any], bool], function: Callable[[Any], Any]) -> None:
    """Register a conversion to subjects for ``certify``.

    Args:
        kind: a class, or a predicate that recognizes the objects.
        function: turns such an object into a subject (``LureSystem``, ``DrivenSystem``, ...).

    Example:
        >>> class Decay:
        ...     rate = 2.0
        >>> from stability.systems import LureSystem
        >>> register_converter(Decay, lambda d: LureSystem.linear([[-d.rate]]))
        >>> as_subject(Decay()).A
        array([[-2.]])
    """
    test = (lambda value, kind=kind: isinstance(value, kind)) if isinstance(kind, type) else kind
    _CONVERTERS.insert(0, (test, function))


CONTROLLERS: list[Any] = [(lambda value: hasattr(value, "nodes"), loop_nodes)]
"""Predicates of the kinds of controllers, with their readers; by default models of reservoirpy."""


def register_controller(test: Callable[[Any], bool], read: Callable[[Any], Sequence[Any]]) -> None:
    """Register a kind of controllers for ``feedback``.

    Args:
        test: predicate that recognizes the objects.
        read: returns the controller as layers in series: subjects, linear systems ``(A, B, C, D, dt)``, static gains,
            names of activations, and ``Component``.

    Example:
        >>> from stability import feedback
        >>> class Proportional:
        ...     proportional_gain = 0.5
        >>> register_controller(lambda c: hasattr(c, "proportional_gain"), lambda c: [np.array([[0.5]])])
        >>> feedback(([[-1.0]], [[1.0]], [[1.0]], [[0.0]]), Proportional()).system.A
        array([[-1.5]])
    """
    CONTROLLERS.insert(0, (test, read))


def as_subject(value: Any) -> Any:
    """Return the subject behind a system, a layer with ``driven()``, or an object of a registered kind.

    Raises:
        UnsupportedError: no conversion to a system is known.
    """
    if is_subject(value):
        return value
    for test, function in _CONVERTERS:
        if test(value):
            return function(value)
    if callable(getattr(value, "driven", None)):
        return value.driven()
    raise UnsupportedError(f"no system is known for {_type_name(value)}: {_advice(value)}")


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return "None" if value is None else f"a {module}{kind.__qualname__}"


def _advice(value: Any) -> str:
    """Return advice about a value that is no subject."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return (
            "arrays alone do not define a system. Use LureSystem.recurrent(A, W) for dx/dt = A x + phi(W x), "
            "LureSystem(A, B, C, dt=1.0) for x+ = A x + B phi(C x), LureSystem.linear(A) for dx/dt = A x"
        )
    if isinstance(value, (str, PathLike, Mapping)):
        return "import stability.models first, which reads model names and state dicts"
    return (
        "pass a LureSystem, import stability.models for torch.nn modules, or add a conversion with "
        "stability.register_converter(type, function)"
    )
