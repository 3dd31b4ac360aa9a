"""The door by which anything becomes a subject: a system that a claim can be about.

Floors above register converters here (for ``torch.nn`` modules, for a user's own classes), so that this floor
never imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from os import PathLike
from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.wire import is_subject


class Subject:
    """What the four kinds of subject share: a frozen dataclass whose fields are what a file keeps.

    Every subject has ``states``, ``outputs``, ``is_discrete``, ``part`` and ``phrase`` (whom a claim is about, in
    words); one with inputs has ``inputs``, ``advance(state, u)`` (the next state, or the right-hand side of a flow) and
    ``output(state)``, what a layer above reads. A layer of a stack has ``kind_name`` and ``draw_states``, too.
    """

    part: str
    rests_on_boxes: bool = False
    """Whether proofs about it rest on a box of its inputs and on one of its states (``low``, ``high`` of the proof)."""

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of outputs: a layer above reads the state, where nothing else is said."""
        return self.states

    def output(self, state: Any) -> Any:
        """What a layer above reads of a state ``(..., n)``: all of it, where nothing else is said."""
        return state

    @property
    def output_bound(self) -> float:
        """``b`` with ``|y| <= b`` for every output from the first step on; infinite, where nothing else is said."""
        return float("inf")

    def output_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends ``(m,)``, ``(m,)`` of a box around all outputs from the first step on; they may be infinite."""
        bound = np.full(self.outputs, self.output_bound)
        return -bound, bound

    def _set(self, **values: Any) -> None:
        """The checked values of all fields, once: the class is frozen."""
        vars(self).update(values)

    def payload(self) -> dict[str, Any]:
        """What a file keeps: the fields, and the part where it is one."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return values if self.part else {key: value for key, value in values.items() if key != "part"}

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> Any:
        """Inverse of ``payload``."""
        values = {field.name: data[field.name] for field in fields(cls) if field.name != "part"}  # type: ignore[arg-type]
        return cls(**values, part=data.get("part", ""))  # type: ignore[call-arg]


_CONVERTERS: list[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = []


def register_converter(kind: type | Callable[[Any], bool], function: Callable[[Any], Any]) -> None:
    """Teach ``certify`` a new kind of object.

    Args:
        kind: a class, or a predicate that recognises the objects.
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


def as_subject(value: Any) -> Any:
    """The subject behind a system, a layer with ``driven()``, or an object of a registered kind.

    Raises:
        UnsupportedError: when nobody knows how to turn it into a system.
    """
    if is_subject(value):
        return value
    for test, function in _CONVERTERS:
        if test(value):
            return function(value)
    if callable(getattr(value, "driven", None)):
        return value.driven()
    raise UnsupportedError(f"no system is known for {_kind(value)}: {_instead(value)}")


def _kind(value: Any) -> str:
    kind = type(value)
    home = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return "None" if value is None else f"a {home}{kind.__qualname__}"


def _instead(value: Any) -> str:
    """What to do with a value that is no subject."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return (
            "numbers alone do not say what they do: LureSystem.recurrent(A, W) is dx/dt = A x + phi(W x), "
            "LureSystem(A, B, C, dt=1.0) the map x+ = A x + B phi(C x), LureSystem.linear(A) dx/dt = A x"
        )
    if isinstance(value, (str, PathLike, Mapping)):
        return "import stability.models, which reads models by their names, and state dicts"
    return (
        "pass a LureSystem, import stability.models for torch.nn modules, or teach it with "
        "stability.register_converter(type, function)"
    )
