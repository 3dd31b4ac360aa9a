"""What stability costs: accuracy against the time after which two trajectories are certainly half as far apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..formatting import number, percent
from ..names import printable, shorten
from ..stored.records import ModelRecord
from .labels import WIDE, box_of, placed
from .small import Axis, Plot, color_of

Interval = tuple[float, float, float]
ASIDE = "no proof"  # above the column of those without


def price(
    models: Sequence[ModelRecord],
    accuracies: Mapping[str, Interval],
    halved: Mapping[str, float],
    *,
    unit: str = "steps",
    width: float = 640.0,
) -> str | None:
    """The figure: certified models by their halving time, all others in a column at the right.

    Every point has its name: beside it, at the end of a line, or, where there is no room, with its numbers beneath.

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
    plot.say(right, y.high, ASIDE, anchor="middle", shift=(0.0, 9.0))
    places = {m.name: (max(halved[m.name], low / 1.5) if m.name in halved else right) for m in known}
    loose = [m for m in known if m.name not in halved]
    for k, m in enumerate(loose):  # side by side, so that they are told apart
        places[m.name] = right * (x.high / right) ** (0.7 * (2 * k + 1 - len(loose)) / max(1, len(loose)))
    points = {m.name: plot.at(places[m.name], accuracies[m.name][0]) for m in known}
    edge, _ = plot.at(border, y.low)
    (left, top), (end, bottom) = plot.at(x.low, y.high), plot.at(x.high, y.low)
    middle, _ = plot.at(right, y.high)
    taken = [(a - 4, b - 4, a + 4, b + 4) for a, b in points.values()]
    taken += [(edge - 2, 0.0, edge + 2, plot.height), box_of(ASIDE, middle - 0.5 * WIDE * len(ASIDE), top + 9.0)]
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
    named = {m.name: shorten(printable(m.title), 22) for m in known}
    labels = placed([(named[m.name], points[m.name]) for m in known], (left, top, end, bottom), taken, strokes)
    for m, label in zip(known, labels, strict=True):
        color = color_of(m.place - 1)
        if label is not None:
            plot.label(named[m.name], label.box, label.leader, color, "measured", label.anchor)
            continue
        when = f"after {number(halved[m.name], 4)} {unit}" if m.name in halved else ASIDE
        plot.beneath(f"{named[m.name]}: {percent(accuracies[m.name][0])}, {when}", color, "measured")
    return plot.svg(_finding(known, accuracies, halved, unit))


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
