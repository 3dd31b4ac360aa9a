"""Base class of all subjects: the systems that a claim can be about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np


class Subject:
    """Base class of subjects: a frozen dataclass whose fields are stored in the certificate file.

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
