"""Base class of analyzer results: frozen records with JSON values, tables, plots and notebook display."""

from __future__ import annotations

import dataclasses
import html
import math
import os
import re
from collections.abc import Sized
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from .drawn import Curve, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plain_value(value: Any) -> Any:
    r"""Convert ``value`` to JSON types; NaN and infinities become ``None``.

    Text is made encodable: a file name that is no UTF-8 keeps its stray bytes as escapes.

    >>> plain_value((np.float64(1.5), float("nan"), "\udcff"))
    [1.5, None, '\\udcff']
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", errors="backslashreplace").decode("utf-8")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Tensor | np.ndarray):
        return plain_value(value.tolist())
    if isinstance(value, dict):
        return {plain_value(str(key)): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def named_path(text: Any) -> Any:
    r"""Invert ``plain_value`` for a path: undecodable bytes are restored in any locale.

    >>> named_path("absent-\\udcff.npz"), named_path(None)
    ('absent-\udcff.npz', None)
    """
    if not isinstance(text, str) or os.path.lexists(text):
        return text
    name = re.sub(r"\\udc([89a-f][0-9a-f])", lambda m: chr(0xDC00 + int(m[1], 16)), text)
    try:
        return os.fsdecode(name.encode("utf-8", errors="surrogateescape"))
    except UnicodeError:
        return text


ROWS = 20
"""Most rows of a table in a notebook."""
LETTERS = 60
"""Most letters of a value in ``repr``; longer values show their shape or number of entries."""


def _briefly(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        return f"{tuple(value.shape)}"
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    if len(text) <= LETTERS:
        return text
    return f"{len(value)} entries" if isinstance(value, Sized) else "…"


class Record:
    """Base of result dataclasses: JSON values, pandas tables, matplotlib figures, one-line and HTML representations.

    Attributes:
        curve: columns of ``curves()`` that are drawn; ``None``: the table itself is drawn.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Found(Record):
        ...     value: float
        ...     curve: np.ndarray
        >>> Found(0.1 + 0.2, np.zeros((2, 3)))
        <Found: value 0.3, curve (2, 3)>
        >>> "<td>0.3</td>" in Found(0.3, np.zeros(2))._repr_html_()
        True
    """

    curve: ClassVar[Curve | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # before a dataclass writes one that prints whole arrays
            cls.__repr__ = Record._line

    def _line(self) -> str:
        named = [f for f in dataclasses.fields(self) if f.repr]  # type: ignore[arg-type]
        fields_text = (f"{f.name} {_briefly(getattr(self, f.name))}" for f in named)
        return f"<{type(self).__name__}: {', '.join(fields_text)}>"

    def _repr_html_(self) -> str:
        """Return the table that Jupyter shows: the first rows of ``frame()``, with escaped texts."""
        table = self.frame()
        more = len(table) - ROWS
        shown = table.head(ROWS).to_html(index=False, border=0, escape=True)
        remainder = f"<p>and {more} more rows in .frame()</p>" if more > 0 else ""
        return f"<div><p>{html.escape(type(self).__name__)}</p>{shown}{remainder}</div>"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON types."""
        return plain_value(self)

    def frame(self) -> pd.DataFrame:
        """Return a table; one row with the scalar fields unless a subclass overrides it."""
        scalars = {k: v for k, v in self.to_dict().items() if not isinstance(v, list | dict)}
        return pd.DataFrame([scalars])

    def curves(self) -> pd.DataFrame:
        """Return the numbers that ``plot`` draws; those of ``frame()`` unless a subclass overrides it."""
        return self.frame()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result's curve with its band, or its numbers as a table if it has no curve.

        Args:
            ax: axes to draw on; ``None``: a new figure.

        Returns:
            The axes.
        """
        return draw(type(self).__name__, self.curves(), self.curve, ax)
