"""What stability costs: accuracy against the time after which two trajectories are certainly half as far apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..formatting import number, percent
from ..names import printable, shorten
from ..stored.collect import ModelRecord
from .small import MUTED, Axis, Plot, color_of

Interval = tuple[float, float, float]
_PLACES = (
    (7.0, 3.5, "start"), (-7.0, 3.5, "end"), (7.0, -7.0, "start"), (7.0, 13.0, "start"), (-7.0, -7.0, "end"),
    (-7.0, 13.0, "end"), (7.0, -17.0, "start"), (-7.0, -17.0, "end"), (7.0, 23.0, "start"), (-7.0, 23.0, "end"),
)  # fmt: skip
_HIGH, _WIDE = 11.0, 6.3  # of a line of letters, and of one letter


def price(
    models: Sequence[ModelRecord],
    accuracies: Mapping[str, Interval],
    halved: Mapping[str, float],
    *,
    unit: str = "steps",
    width: float = 640.0,
) -> str | None:
    """The figure: certified models by their halving time, all others in a column at the right.

    Args:
        models: the records.
        accuracies: of each by name, with its interval.
        halved: the guaranteed halving time of each certified one.
        unit: of these times.
        width: of the drawing.

    Returns:
        The drawing; ``None`` where fewer than two models have an accuracy, or none is certified.
    """
    known = [m for m in models if m.name in accuracies]
    times = [halved[m.name] for m in known if halved.get(m.name, 0) > 0]
    if len(known) < 2 or not times:
        return None
    low, high = min(times), max(times)
    right = high * max(high / low, 10.0) ** 0.6  # where those without a proof stand
    border = high * (right / high) ** 0.45
    words = f"{unit} until certainly half as far apart"
    x = Axis(low / 1.6, right * max(high / low, 10.0) ** 0.32, log=True, title=words, last=border)
    ends = [v for m in known for v in accuracies[m.name]]
    pad = 0.08 * (max(ends) - min(ends)) or 0.01
    y = Axis(max(0.0, min(ends) - pad), min(1.0, max(ends) + pad), title="accuracy", percent=True)
    plot = Plot("What stability costs", x, y, width=width, height=0.5 * width)
    plot.upright(border, dash="2 3")
    plot.say(right, y.high, "no proof", anchor="middle", shift=(0.0, 9.0))
    places = {m.name: (max(halved[m.name], low / 1.5) if m.name in halved else right) for m in known}
    loose = [m for m in known if m.name not in halved]
    for k, m in enumerate(loose):  # side by side, so that they are told apart
        places[m.name] = right * (x.high / right) ** (0.7 * (2 * k + 1 - len(loose)) / max(1, len(loose)))
    taken: list[tuple[float, float, float, float]] = []
    points = {m.name: tuple(plot.at(places[m.name], accuracies[m.name][0])) for m in known}
    taken += [(a - 4, b - 4, a + 4, b + 4) for a, b in points.values()]
    edge, _ = plot.at(border, y.low)
    taken.append((edge - 2, 0.0, edge + 2, plot.height))
    strokes = [
        (at - 1, plot.at(places[m.name], above)[1], at + 1, plot.at(places[m.name], below)[1])
        for m in known
        for _, below, above in [accuracies[m.name]]
        for at in [points[m.name][0]]
    ]
    for m in known:
        value, below, above = accuracies[m.name]
        color, at = color_of(m.place - 1), places[m.name]
        mark = "measured"
        plot.line([at, at], [below, above], color, mark, width=1.2, opacity=0.6)
        plot.dots([at], [value], color, mark, size=7.0 if m.name in halved else 5.0)
        _label(plot, shorten(printable(m.title), 22), points[m.name], (at, value), color, taken, strokes)
    return plot.svg(_finding(known, accuracies, halved, unit))


def _label(
    plot: Plot, text: str, point: tuple[float, ...], at: tuple[float, float], color: str,
    taken: list[tuple[float, float, float, float]], strokes: list[tuple[float, float, float, float]],
) -> None:  # fmt: skip
    """The name beside its point where it lies on nothing else, if need be on strokes; with no such place, none."""
    wide = _WIDE * len(text)
    for lines, (dx, dy, anchor) in ((lines, place) for lines in (strokes, []) for place in _PLACES):
        left = point[0] + dx - (wide if anchor == "end" else 0.0)
        box = (left, point[1] + dy - _HIGH + 2, left + wide, point[1] + dy + 2)
        free = all(box[2] <= b[0] or b[2] <= box[0] or box[3] <= b[1] or b[3] <= box[1] for b in taken + lines)
        if free and left >= plot.left and box[2] <= plot.width:
            taken.append(box)
            plot.say(*at, text, color if color == MUTED else "var(--ink)", "measured", anchor=anchor, shift=(dx, dy))
            return


def _finding(
    models: Sequence[ModelRecord], accuracies: Mapping[str, Interval], halved: Mapping[str, float], unit: str
) -> str:
    best = max(models, key=lambda m: accuracies[m.name][0])
    kept = max((m for m in models if m.name in halved), key=lambda m: accuracies[m.name][0])
    text = f"the most accurate model is {best.title} with {percent(accuracies[best.name][0])}"
    if kept is not best:
        text += f"; of the certified ones {kept.title} with {percent(accuracies[kept.name][0])}"
    when = f"half as far apart after {number(halved[kept.name], 4)} {unit}"
    return f"Accuracy against guaranteed halving time: {text}, {when}"
