"""Representations of results: ``repr``, HTML for notebooks, data frames, plots.

pandas and matplotlib are imported only for a frame or a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

LONGEST = 300
"""Most letters of a fact in a table cell."""
SHORT = 120
"""Most letters of a fact in ``repr``, so that sentences appear only in the notebook's table."""
Fact = tuple[str, str]


class Displayed:
    """Base of results: ``facts()`` gives the line of ``repr`` and the table of a notebook, ``TABLE`` the data frame.

    Attributes:
        TABLE: name of the attribute whose entries are the rows of ``frame()``.
    """

    TABLE = ""

    def facts(self) -> list[Fact]:
        """Return names and values, the most important first; values without a name stand alone."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = (f"{name} {text}" if name else text for name, text in self.facts() if len(text) <= SHORT)
        return f"<{type(self).__name__}: {', '.join(facts)}>"

    def _repr_html_(self) -> str:
        """Return the table that Jupyter shows; every text in it is escaped."""
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(_shortened(text))}</td></tr>'
            for name, text in self.facts()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{cells}</tbody></table>"

    def frame(self) -> pandas.DataFrame:
        """Return the parts of the result as a table, one row each."""
        import pandas

        return pandas.DataFrame([vars(part) for part in getattr(self, self.TABLE)]).drop(
            columns="witness", errors="ignore"
        )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def number(value: float | None) -> str:
    """Format a proved number with all its digits, since rounding could strengthen the claim.

    >>> number(0.1 + 0.2), number(None)
    ('0.30000000000000004', 'none')
    """
    return "none" if value is None else repr(float(value))


def draw_envelope(
    pairs: Sequence[tuple[float, float]], discrete: bool, ax: Axes | None, title: str, until: float | None = None
) -> Axes:
    r"""Draw the proved bound on the distance of two trajectories over time.

    .. math:: \min_j C_j \rho_j^k \quad (\text{or } \min_j C_j e^{-\lambda_j t})

    over the proved pairs ``(rate, overshoot)``, the curve of each pair, and the levels 1 (distance at the start), 1/2.

    Args:
        pairs: pairs of rate and overshoot.
        discrete: whether rates are per step.
        ax: axes to draw on; ``None``: a new figure.
        title: text above the axes; the only text if there are no pairs.
        until: the last step or time; by default the one at which the bound is a hundredth.

    Returns:
        The axes.
    """
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    if not pairs:
        axes.text(0.5, 0.5, title, ha="center", va="center", wrap=True, transform=axes.transAxes)
        axes.set_axis_off()
        return axes
    decays = [(-np.log(max(rate, 1e-300)) if discrete else rate, over) for rate, over in pairs]
    last = until or min((np.log(100.0 * over)) / decay for decay, over in decays if decay > 0)
    last = max(1.0, np.ceil(last)) if discrete else last
    times = np.arange(int(last) + 1) if discrete else np.linspace(0.0, last, 200)
    curves = [over * np.exp(-decay * times) for decay, over in decays]
    for curve in curves if len(curves) > 1 else ():
        axes.plot(times, curve, color="0.75", linewidth=1)
    axes.plot(times, np.min(curves, axis=0), label="proved bound")
    for level, name in ((1.0, "as at the start"), (0.5, "half")):
        axes.axhline(level, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(name, (times[-1], level), ha="right", va="bottom", fontsize="small", color="0.35")
    axes.set_yscale("log")
    axes.set_xlabel("step" if discrete else "time")
    axes.set_ylabel("distance / distance at the start")
    axes.set_title(title)
    return axes
