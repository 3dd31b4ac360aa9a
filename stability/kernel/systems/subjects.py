"""Base class of all subjects: the systems that a claim can be about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np


class Subject:
    """Base class of subjects: a frozen dataclass whose fields are stored in the certificate file.

    Every subject has ``states``, ``outputs``, ``is_discrete``, ``part`` and ``phrase`` (whom a claim is about, in
    words); one with inputs has ``inputs``, ``advance(state, u)`` (the next state, or the right-hand side of a flow) and
    ``output(state)``, what a layer above reads. A layer of a stack has ``kind_name``, too.
    """

    part: str
    optional: ClassVar[tuple[str, ...]] = ("part",)
    """Fields that the stored content omits where they are ``None``, ``False`` or no text."""
    input_low: Any = None
    input_high: Any = None
    """Input box ``(p,)``, ``(p,)`` that every claim presupposes; ``None``: claims hold for every input."""
    rests_on_boxes: bool = False
    """True if proofs about it use a box of its inputs and one of its states (``low``, ``high`` of the proof)."""

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        raise NotImplementedError

    @property
    def is_discrete(self) -> bool:
        """True if time advances in steps, as it does by default."""
        return True

    def with_inputs(self, low: Any, high: Any) -> Any:
        """Return the subject with another input box; by default itself, since its claims hold for every input."""
        return self

    @property
    def outputs(self) -> int:
        """Number of outputs; by default the states."""
        return self.states

    def output(self, state: Any) -> Any:
        """Return the output of a state ``(..., n)``; by default the state."""
        return state

    @property
    def output_bound(self) -> float:
        """Bound ``b`` with ``|y| <= b`` for every output from the first step on; by default infinite."""
        return float("inf")

    def output_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a box ``(m,)``, ``(m,)`` of all outputs from the first step on; its ends may be infinite."""
        bound = np.full(self.outputs, self.output_bound)
        return -bound, bound

    def _set(self, **values: Any) -> None:
        """Set the checked values of all fields once; the class is frozen."""
        vars(self).update(values)

    def payload(self) -> dict[str, Any]:
        """Return the stored content: the fields, without empty optional ones."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        stored = (name for name, x in values.items() if name not in self.optional or isinstance(x, np.ndarray) or x)
        return {name: values[name] for name in stored}

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> Any:
        """Invert ``payload``."""
        names = (field.name for field in fields(cls))  # type: ignore[arg-type]
        return cls(**{name: data[name] for name in names if name in data or name not in cls.optional})
