"""Opaque maps: subjects that run but that no theorem covers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.format.serialization import subject
from stability.kernel.systems.parts import as_part, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
_WHY = 300  # characters of the reason that are stored


@subject("opaque")
@dataclass(frozen=True, eq=False, repr=False)
class OpaqueMap(Subject):
    """Step ``h+ = f(h, u)`` known only by its sizes and the digest of its weights, with the reason.

    ``certify`` answers *inconclusive* about it, with the reason, and nothing is searched for or claimed. It cannot be
    run from a file.

    Args:
        states: size of ``h``.
        inputs: size of ``u``.
        why: reason why the file cannot be read.
        weights: SHA-256 of the weights, 64 hexadecimal digits, or empty.
        name: name in reports.
        part: ``"PATH of WHOLE"`` for a part of something bigger.

    Raises:
        ConfigurationError: a size that is no positive integer, or a digest that is none.

    Example:
        >>> from stability import certify
        >>> certificate = certify(OpaqueMap(8, 3, "it divides by a norm of its state"))
        >>> str(certificate.verdict), certificate.findings[0].detail
        ('inconclusive', 'it divides by a norm of its state')
    """

    size: int
    inputs: int
    why: str
    _: KW_ONLY
    weights: str = ""
    name: str = "step"
    part: str = ""

    def __post_init__(self) -> None:
        for key in ("size", "inputs"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
                raise ConfigurationError(f"{key} of an opaque map must be a positive integer, got {value!r}")
        if not isinstance(self.weights, str) or re.fullmatch(r"([0-9a-f]{64})?", self.weights) is None:
            raise ConfigurationError("weights must be a SHA-256 (64 hexadecimal digits) or empty")
        why = " ".join(str(self.why).split())[:_WHY]
        self._set(why=why, name=str(self.name), part=as_part(self.part))

    def __repr__(self) -> str:
        return f"OpaqueMap(states={self.size}, inputs={self.inputs}, why={self.why!r}, name={self.name!r})"

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.size

    @property
    def kind_name(self) -> str:
        """Name of this kind of layer in sentences."""
        return "step"

    @property
    def phrase(self) -> str:
        """Describe the subject of a claim."""
        return f"{part_phrase(self, 'step')} (code that no criterion can read)"

    def advance(self, state: Array, u: Array) -> Array:
        """Raise an error: the code of the step is not available.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"the step {self.name} cannot be run from what is stored: {self.why}")

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> OpaqueMap:
        """Invert ``payload``."""
        if not all(isinstance(data[key], str) for key in ("why", "weights", "name")):
            raise ConfigurationError("why, weights and name of an opaque map are texts")
        return super().from_payload(data)
