"""Types of the fields of proofs, with the test and the allowed shapes of each.

A proof is a frozen dataclass whose fields are annotated with the types below, such as ``P: Metric`` or ``gap: Number``.
Fields with a default are optional. The sizes are named as in ``docs/certificate-format.md``: ``n`` states, ``m``
channels, ``p`` inputs; ``k``, ``l`` and ``q`` are numbers of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields, replace
from typing import Annotated, Any, Self, TypeVar, dataclass_transform, get_args, get_type_hints

import numpy as np

from stability.kernel.arithmetic.definiteness import Definiteness, is_symmetric

Array = np.ndarray
Value = TypeVar("Value")
EXACT_INTEGERS = 2**53  # integers up to here are exact in float64
LIMIT = 1e100  # largest absolute entry of pairs and of arrays with a declared shape
LONGEST = 64  # most rows of an orbit


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= EXACT_INTEGERS
    return isinstance(value, float) and math.isfinite(value)


def is_float64(value: Any) -> bool:
    """Return True for an array of float64."""
    array: Any = value
    return isinstance(value, np.ndarray) and array.dtype == np.float64


def _is_array(value: Any) -> bool:
    return is_float64(value) and bool(np.isfinite(value).all())


def _is_pair(value: Any) -> bool:
    if _is_array(value):
        return value.shape == (2,) and bool((np.abs(value) <= LIMIT).all())
    pair: tuple[Any, ...] = tuple(value) if type(value) in (list, tuple) else ()
    return len(pair) == 2 and all(_is_number(x) and abs(x) <= LIMIT for x in pair)


FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "number": ("a finite number", _is_number),
    "number or null": ("a finite number or null", lambda v: v is None or _is_number(v)),
    "count": ("a positive integer", lambda v: type(v) is int and 0 < v <= EXACT_INTEGERS),
    "index": ("an integer from zero", lambda v: type(v) is int and 0 <= v <= EXACT_INTEGERS),
    "array": ("an array of finite numbers", _is_array),
    "pair": ("a pair of numbers up to 1e100", _is_pair),
    "text": ("a string", lambda v: isinstance(v, str)),
    "mapping": ("a mapping", lambda v: isinstance(v, Mapping)),
    "list": ("a list", lambda v: isinstance(v, (list, tuple))),
}
"""Types of proof data: description and test."""


@dataclass(frozen=True)
class Size:
    """Allowed shapes of an array.

    Attributes:
        axes: allowed shapes with one letter per axis: ``n``, ``m``, ``p`` are sizes of the subject, any other letter
            stands for 1 to ``most`` rows.
        symmetric: True for matrices that must be symmetric to the last bit.
        most: largest number of rows.
    """

    axes: tuple[str, ...]
    symmetric: bool = False
    most: int = LONGEST

    def admits(self, value: Array, subject: Any) -> bool:
        """Return True for an array of finite numbers with an allowed shape and entries up to ``LIMIT``."""
        fits = any(len(value.shape) == len(axes) and self._fits(value, axes, subject) for axes in self.axes)
        return fits and (not self.symmetric or is_symmetric(value)) and bool((np.abs(value) <= LIMIT).all())

    def _fits(self, value: Array, axes: str, subject: Any) -> bool:
        known = sizes(subject)
        return all(s == known[axis] if axis in known else 1 <= s <= self.most for axis, s in zip(axes, value.shape))


def sizes(subject: Any) -> dict[str, int]:
    """Return the subject's numbers of states, channels and inputs, as far as they exist."""
    system = getattr(subject, "system", None)
    numbers = {"n": subject.states, "m": getattr(system, "channels", None), "p": getattr(subject, "inputs", None)}
    return {axis: size for axis, size in numbers.items() if size is not None}


@dataclass(frozen=True)
class Datum:
    """Type of a field.

    Attributes:
        type: a key of ``FIELDS``.
        size: allowed shapes of an array; ``None`` if the rule's own check tests them.
        words: reason for refusing another shape, with ``{n}``, ``{m}``, ``{p}``; if empty, the rule's own reason.
    """

    type: str
    size: Size | None = None
    words: str = ""


Number = Annotated[float, Datum("number")]
NumberOrNull = Annotated[float | None, Datum("number or null")]
Count = Annotated[int, Datum("count")]
Index = Annotated[int, Datum("index")]
Text = Annotated[str, Datum("text")]
Pair = Annotated[Sequence[float], Datum("pair")]
Inner = Annotated[Mapping[str, Any], Datum("mapping")]
Parts = Annotated[Sequence[Any], Datum("list")]
AnyArray = Annotated[Array, Datum("array")]
"""Array whose size the rule's own check tests."""
State = Annotated[Array, Datum("array", Size(("n",)))]
Input = Annotated[Array, Datum("array", Size(("p",)))]
Channels = Annotated[Array, Datum("array", Size(("m",)))]
Metric = Annotated[Array, Datum("array", Size(("nn",), symmetric=True))]
States = Annotated[Array, Datum("array", Size(("kn",)))]
Inputs = Annotated[Array, Datum("array", Size(("qp",)))]


def as_rows(value: Array) -> Array:
    """Return one vector as ``(1, n)``, several unchanged."""
    return np.atleast_2d(value)


def _datum(hint: Any) -> Datum:
    """Return the type behind an annotation: ``State``, ``State | None``, ``Annotated[State, words]``."""
    metadata = [m for part in (hint, *get_args(hint)) for m in getattr(part, "__metadata__", ())]
    words = [m for m in metadata if isinstance(m, str)]
    datum = next((m for m in metadata if isinstance(m, Datum)), Datum("unknown"))
    return replace(datum, words=words[0]) if words else datum


class Refused(Exception):
    """Failed condition of a check; its text is the reason, which the rule returns."""


def require(holds: Any, reason: str) -> None:
    """Check one condition of a theorem.

    Raises:
        Refused: the condition does not hold; the text is ``reason``.
    """
    if not holds:
        raise Refused(reason)


def require_definite(outcome: Definiteness, reason: str) -> None:
    """Check a matrix inequality.

    Raises:
        Refused: it is not proved; the text is ``reason`` and what fails.
    """
    require(outcome.holds, f"{reason}: {outcome.reason}")


def required(value: Value | str | None, reason: str = "") -> Value:
    """Return the result of a step of a check.

    Raises:
        Refused: the result is ``None``, or a text that says why there is none.
    """
    if value is None or isinstance(value, str):
        raise Refused(value or reason)
    return value


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class ProofData:
    """Data of one kind of proof: every subclass is a frozen dataclass with fields of the types above."""

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, kw_only=True, init=False, repr=False)(cls)  # generated methods would cost import time

    def __init__(self, **data: Any) -> None:
        known = {f.name: f.default for f in fields(self)}  # pyright: ignore[reportArgumentType]
        if data.keys() - known.keys() or any(d is MISSING and name not in data for name, d in known.items()):
            raise TypeError(f"a {type(self).__name__} takes {', '.join(known)}, got {', '.join(data)}")
        vars(self).update(data)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"{name} of a proof cannot be set")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{name} of a proof cannot be deleted")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @classmethod
    def types(cls, *, optional: bool) -> dict[str, Datum]:
        """Return the types of the optional, or of the required, fields."""
        hints = get_type_hints(cls, include_extras=True)
        return {
            f.name: _datum(hints[f.name])
            for f in fields(cls)  # pyright: ignore[reportArgumentType]
            if (f.default is not MISSING) is optional
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Return the proof with a file's data; a missing field raises only when read, since a sentence needs fewer."""
        made = object.__new__(cls)
        vars(made).update({f.name: data[f.name] for f in fields(cls) if f.name in data})  # pyright: ignore[reportArgumentType]
        return made

    def sentence(self, subject: Any, claim: Any) -> str:
        """Return the only sentence that such a proof may support."""
        raise NotImplementedError

    def check(self, subject: Any, claim: Any) -> str:
        """Run the theorem's check on data of checked types and sizes; return the proved result in words.

        Raises:
            Refused: a condition of the theorem does not hold.
        """
        raise NotImplementedError
