"""Representations of results: ``repr``, HTML for notebooks, data frames, plots.

Nothing here computes; pandas and matplotlib are loaded by who asks for a frame or a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

LONGEST = 300
"""Letters of a fact in a cell."""
SHORT = 120
"""Letters of a fact at a prompt: sentences are left to the notebook's table."""
Fact = tuple[str, str]


class Shown:
    """Base of answers: ``facts()`` makes the line of ``repr`` and the table of a notebook, ``rows()`` the frame."""

    def facts(self) -> list[Fact]:
        """Names and values, the most important first; values without a name stand alone."""
        raise NotImplementedError

    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of ``frame``."""
        raise NotImplementedError

    def plot(self, ax: Axes | None = None) -> Axes:
        """What is said of it as a table, where there is nothing to draw.

        Args:
            ax: where to draw; a new figure without it.

        Returns:
            The axes.
        """
        return draw_facts(self.facts(), ax, type(self).__name__)

    def __repr__(self) -> str:
        said = (f"{name} {text}" if name else text for name, text in self.facts() if len(text) <= SHORT)
        return f"<{type(self).__name__}: {', '.join(said)}>"

    def _repr_html_(self) -> str:
        """The table that Jupyter shows; every text in it is escaped."""
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(_cut(text))}</td></tr>'
            for name, text in self.facts()
        )
        return f"<table><caption>{escape(type(self).__name__)}</caption><tbody>{cells}</tbody></table>"

    def frame(self) -> pandas.DataFrame:
        """The parts of the answer as a table, one row each."""
        import pandas

        return pandas.DataFrame(list(self.rows()))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def number(value: float | None) -> str:
    """A proved number as a prompt shows it: all its digits, for rounding could make it say more.

    >>> number(0.1 + 0.2), number(None)
    ('0.30000000000000004', 'none')
    """
    return "none" if value is None else repr(float(value))


def briefly(value: Any) -> str:
    """The shape of an array, the number of entries of a list or a mapping; anything else as it is.

    >>> briefly(np.zeros((2, 3))), briefly([1, 2]), briefly("text")
    ('array (2, 3)', '2 entries', 'text')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        return f"array {value.shape}"
    return f"{len(value)} entries" if isinstance(value, (list, tuple, Mapping)) else str(value)


def draw_envelope(
    pairs: Sequence[tuple[float, float]], discrete: bool, ax: Axes | None, title: str, until: float | None = None
) -> Axes:
    r"""The proved bound on the distance of two trajectories over time.

    .. math:: \min_j C_j \rho_j^k \quad (\text{or } \min_j C_j e^{-\lambda_j t})

    over the proved pairs ``(rate, overshoot)``, and each of them; the levels 1 (as far as at the start) and 1/2.

    Args:
        pairs: rate and overshoot, at least one.
        discrete: whether rates are per step.
        ax: where to draw; a new figure without it.
        title: above it.
        until: the last step or time; by default where the bound has fallen to a hundredth.

    Returns:
        The axes.
    """
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
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


def draw_margins(rows: Sequence[Mapping[str, Any]], ax: Axes | None, title: str) -> Axes:
    """Signed margins of criteria, a row each in its own unit, drawn up to 1 in size: right of zero it holds. The
    numbers stand beside the bars, since units differ.

    Args:
        rows: ``criterion``, ``holds`` and ``margin`` of each; those without a margin are named without a bar.
        ax: where to draw; a new figure without it.
        title: above it.

    Returns:
        The axes; with a sentence where there are no rows.
    """
    from matplotlib import pyplot

    if not rows:
        return nothing_to_draw(ax, f"{title}: no criterion was asked")
    axes: Any = pyplot.subplots()[1] if ax is None else ax
    for at, row in enumerate(rows):
        margin = row["margin"]
        words = ("holds" if row["holds"] else "fails") + ("" if margin is None else f" {margin:+.3g}")
        side = 0.0 if margin is None else float(np.sign(margin) * min(1.0, abs(margin)))
        axes.barh(at, side, color="tab:green" if row["holds"] else "tab:red", height=0.5)
        axes.annotate(words, (max(side, 0.0), at), xytext=(4, 0), textcoords="offset points", va="center")
    axes.axvline(0.0, color="0.2", linewidth=1)
    axes.set_yticks(range(len(rows)), [str(row["criterion"]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(-1.1, 1.6)
    axes.set_xlabel("margin, cut at 1 in size")
    axes.set_title(title)
    return axes


def draw_facts(facts: Sequence[Fact], ax: Axes | None, title: str) -> Axes:
    """Names and values, a line each, long values on several lines."""
    from textwrap import fill

    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    said = "\n".join(fill(f"{name}: {_cut(text)}" if name else _cut(text), 70) for name, text in facts)
    axes.text(0.0, 1.0, said, ha="left", va="top", transform=axes.transAxes, fontsize="small", parse_math=False)
    axes.set_axis_off()
    axes.set_title(title)
    return axes


def draw_radii(radii: Sequence[float], ax: Axes | None, title: str, words: str) -> Axes:
    """How many of some proved balls have a radius of at least so much.

    Args:
        radii: of the balls, at least one.
        ax: where to draw; a new figure without it.
        title: above it.
        words: under it: the radius and its norm.

    Returns:
        The axes.
    """
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    at = np.sort(np.asarray(radii, dtype=np.float64))
    axes.step(np.concatenate([[0.0], at]), np.concatenate([[len(at)], np.arange(len(at), 0, -1)]), where="pre")
    axes.set_ylim(0, len(at) + 0.5)
    axes.set_xlabel(words)
    axes.set_ylabel("inputs with at least that radius")
    axes.set_title(title)
    return axes


def draw_factors(certified: float, destabilising: float, ax: Axes | None, title: str) -> Axes:
    """Two factors on one line: proved up to the first, undecided between them, provably lost from the second.

    Args:
        certified: the largest factor with a proof, 0 for none.
        destabilising: the smallest with a proved counter-example, infinite for none.
        ax: where to draw; a new figure without it.
        title: above it.

    Returns:
        The axes.
    """
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    known = [value for value in (certified, destabilising) if 0.0 < value < np.inf]
    last = 1.25 * max([1.0, *known])
    lost = min(destabilising, last)
    for left, right, color, words in (
        (0.0, certified, "tab:green", f"proved up to {certified:.6g}"),
        (certified, lost, "0.8", "not decided"),
        (lost, last, "tab:red", f"provably lost from {destabilising:.6g}"),
    ):
        if right > left:
            axes.barh(0, right - left, left=left, color=color, label=words, height=0.5)
    axes.axvline(1.0, color="0.2", linestyle=":", linewidth=1, label="as it is")
    axes.set_xlim(0.0, last)
    axes.set_ylim(-0.5, 1.0)
    axes.set_yticks([])
    axes.set_xlabel("factor of the slopes")
    axes.legend(loc="upper left", fontsize="small", ncols=2)
    axes.set_title(title)
    return axes


def nothing_to_draw(ax: Axes | None, why: str) -> Axes:
    """Axes with a sentence in place of a figure."""
    from matplotlib import pyplot

    axes: Any = pyplot.subplots()[1] if ax is None else ax
    axes.text(0.5, 0.5, why, ha="center", va="center", wrap=True, transform=axes.transAxes)
    axes.set_axis_off()
    return axes
