"""Formats of numbers and verdicts for the page and the command line."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import zip_longest
from typing import Any

from stability.kernel.format.sentences import at_least as lower
from stability.kernel.format.sentences import at_most

MISSING = "–"
_MARGIN_ROUNDING = 1e-14  # rounding error of a margin: a few float64 operations on numbers near one
WORDS = {
    "certified": "Proven stable",
    "refuted": "Proven not stable",
    "inconclusive": "Undecided",
    "invalid": "Does not verify",
    "stale": "Results not shown",
    "uncovered": "Undecided",
}
SIGNS = {"certified": "✓", "refuted": "✗", "inconclusive": "?", "uncovered": "?", "invalid": "!", "stale": "!"}
METRICS = {
    "accuracy": "accuracy",
    "mse": "mean squared error",
    "bits_per_character": "bits per character",
    "perplexity": "perplexity",
}


def _real(value: Any) -> float | None:
    """Return ``value`` as a float, or ``None`` if it is missing, NaN or not a number."""
    if value is None or isinstance(value, (str, bool)):
        return None
    value = float(value)
    return None if math.isnan(value) else value


def number(value: Any, digits: int = 3) -> str:
    """Format a number to a given number of significant digits; use a power of ten for large and small numbers.

    Args:
        value: the number; ``None`` and NaN show as a dash.
        digits: significant digits.

    Returns:
        The text, with the typographic minus sign.

    Example:
        >>> number(0.012345), number(-1234567.0), number(2.0), number(None)
        ('0.0123', '−1.23×10⁶', '2', '–')
    """
    x = _real(value)
    if x is None:
        return MISSING
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    exponent = math.floor(math.log10(abs(x)))
    if -4 <= exponent < 5:
        text = f"{x:.{max(0, digits - 1 - exponent)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace("-", "−")
    mantissa, power = f"{x:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return (mantissa + "×10").replace("-", "−") + raised


def signed(value: Any) -> str:
    """Format like ``number``, with a plus sign for positive values.

    Example:
        >>> signed(0.25), signed(-0.25), signed(0)
        ('+0.25', '−0.25', '0')
    """
    x = _real(value)
    text = number(value)
    return "+" + text if x is not None and x > 0 else text


def margin_words(value: Any) -> str:
    """Format the margin of a criterion; add its rounding error if the margin is zero up to rounding.

    Example:
        >>> margin_words(-0.25), margin_words(-4.44e-16), margin_words(0)
        ('−0.25', '−4.44×10⁻¹⁶ (0 up to rounding)', '0')
    """
    x = _real(value)
    return signed(value) + " (0 up to rounding)" * (x is not None and 0 < abs(x) <= _MARGIN_ROUNDING)


def percent(value: Any) -> str:
    """Format a share as a percentage with one decimal; only exactly 0 is ``0 %`` and only exactly 1 is ``100 %``.

    Example:
        >>> percent(0.9704), percent(0.0002), percent(0.0), percent(0.99999), percent(1.0)
        ('97.0 %', '< 0.1 %', '0 %', '> 99.9 %', '100 %')
    """
    x = _real(value)
    if x is None:
        return MISSING
    if x in (0.0, 1.0):
        return f"{x:.0%}".replace("%", " %")
    if 0 < x < 0.001:
        return "< 0.1 %"
    if 0.999 < x < 1:
        return "> 99.9 %"
    return f"{100 * x:.1f} %".replace("-", "−")


def whole_percent(share: float, *, proved: bool = False) -> str:
    """Format a share in whole percent: a proved one is rounded down, a measured one to the nearest number.

    Example:
        >>> whole_percent(0.4567), whole_percent(0.4567, proved=True), whole_percent(0.001), whole_percent(1.0)
        ('46', '45', '< 1', '100')
    """
    if proved:
        return str(math.floor(100 * share + 1e-9))
    return "< 1" if 0 < share < 0.01 else "> 99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def metric(value: Any, name: str | None) -> str:
    """Format a task's metric: an accuracy as a percentage, anything else as a number.

    Example:
        >>> metric(0.5, "accuracy"), metric(0.0123, "mse")
        ('50.0 %', '0.0123')
    """
    return percent(value) if name == "accuracy" else number(value)


def metric_word(name: Any) -> str:
    """Return the name of a task's metric in words.

    Example:
        >>> metric_word("mse"), metric_word("accuracy"), metric_word("perplexity")
        ('mean squared error', 'accuracy', 'perplexity')
    """
    return METRICS.get(str(name), str(name))


def count(value: Any) -> str:
    r"""Format a whole number with thin spaces between thousands.

    Example:
        >>> count(1234567) == "1\u202f234\u202f567"
        True
    """
    x = _real(value)
    return MISSING if x is None else f"{round(x):,}".replace(",", "\u202f").replace("-", "−")


def duration(seconds: Any) -> str:
    """Format a duration in readable units.

    Example:
        >>> duration(0.0421), duration(7.31), duration(192.0), duration(7300)
        ('42 ms', '7.3 s', '3 min 12 s', '2 h 2 min')
    """
    x = _real(seconds)
    if x is None:
        return MISSING
    if x < 0.9995:
        return "< 1 ms" if 0 < x < 0.0005 else f"{1000 * x:.0f} ms"
    if x < 99.95:
        return f"{x:.1f} s" if x < 9.95 else f"{x:.0f} s"
    minutes = round(x / 60) if x >= 3570 else int(x // 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    rest = round(x - 60 * minutes)
    return f"{minutes + 1} min 0 s" if rest == 60 else f"{minutes} min {rest} s"


def bound(value: Any, digits: int, *, up: bool) -> str:
    """Format a proved bound like ``number``, rounded so that it claims no more than was proved.

    Args:
        value: the number; ``None`` and NaN show as a dash.
        digits: significant digits.
        up: an upper bound, which is rounded up; a lower one is rounded down.

    Example:
        >>> bound(0.972104, 5, up=True), bound(0.972104, 5, up=False), bound(0.1, 5, up=True), bound(4630.2, 3, up=True)
        ('0.97211', '0.9721', '0.1', '4640')
    """
    x = _real(value)
    if x is None or x == 0 or math.isinf(x):
        return number(value, digits)
    exact = Decimal(repr(x))
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return number(float(exact.quantize(last, rounding=ROUND_CEILING if up else ROUND_FLOOR)), digits)


def at_least(value: Any) -> str:
    """Format a proved lower bound to three digits.

    >>> at_least(0.42997), at_least(None)
    ('0.429', '–')
    """
    return bound(value, 3, up=False)


def rate(value: Any, discrete: bool) -> str:
    """Format a certified rate with its symbol and unit, with the digits of the certificate's statement.

    Args:
        value: ``lambda`` (continuous) or ``rho`` (discrete).
        discrete: True for a rate per step, False for a rate per unit of time.

    Example:
        >>> rate(0.99999001, True), rate(0.97, True), rate(0.50009, False)
        ('ρ = 0.99999001 per step', 'ρ = 0.97 per step', 'λ = 0.5 per unit of time')
    """
    if _real(value) is None:
        return MISSING
    value = float(value)
    return f"ρ = {at_most(value, near=1.0)} per step" if discrete else f"λ = {lower(value)} per unit of time"


def half_life(value: Any, discrete: bool) -> float | None:
    r"""Return the time in which a difference halves: ``log 2 / lambda``, or ``log 2 / -log rho`` steps.

    Args:
        value: the rate; ``None`` gives ``None``.
        discrete: True for a rate per step, False for a rate per unit of time.

    Returns:
        The half-life; 0 if differences vanish after one step, infinite if they do not contract.

    Example:
        >>> half_life(0.5, True), round(half_life(2.0, False), 4)
        (1.0, 0.3466)
    """
    x = _real(value)
    if x is None:
        return None
    if discrete:
        return 0.0 if x <= 0 else math.inf if x >= 1 else math.log(2) / -math.log(x)
    return math.inf if x <= 0 else math.log(2) / x


def time_to(share: float, pairs: Sequence[tuple[float, float]], discrete: bool) -> float | None:
    r"""Return the time at which a proved bound on a distance falls below a share of the initial distance.

    Args:
        share: 1 for the distance at the start, 0.5 for half of it.
        pairs: proved ``(rate, overshoot)``, all of one network: ``C rho^k`` or ``C exp(-lambda t)``.
        discrete: True for rates per step, False for rates per unit of time.

    Returns:
        Discrete: smallest number of steps after which the bound is below the share. Continuous: time after which the
        bound is at most the share. ``None`` if no pair gives such a time.

    Example:
        >>> time_to(1.0, [(0.9732, 2.902)], True), time_to(0.5, [(0.9732, 2.902)], True)
        (40, 65)
        >>> time_to(1.0, [(0.9732, 2.902), (0.999, 1.0)], True)
        1
    """
    times: list[float] = []
    for rate, overshoot in pairs:
        decay = (math.inf if rate <= 0 else -math.log(rate)) if discrete else rate
        if decay > 0:
            needed = max(0.0, math.log(overshoot / share)) / decay
            times.append(math.floor(needed) + 1 if discrete else needed)
    return min(times, default=None)


def bound_at(time: float, pairs: Sequence[tuple[float, float]], discrete: bool) -> float | None:
    """Return the smallest proved bound on the distance at a time, as a multiple of the initial distance.

    Example:
        >>> round(bound_at(28, [(0.9732, 2.902)], True), 2)
        1.36
    """
    return min((c * (r**time if discrete else math.exp(-r * time)) for r, c in pairs), default=None)


def time_unit(discrete: bool) -> str:
    """Return the unit of a half-life.

    Example:
        >>> time_unit(True)
        'steps'
    """
    return "steps" if discrete else "units of time"


def verdict_word(state: Any) -> str:
    """Return the display name of a verdict.

    Args:
        state: a verdict, ``invalid`` (a file that does not verify), ``stale`` (results about other weights), or
            ``uncovered`` (no theorem is about such a model).

    Example:
        >>> verdict_word("certified"), verdict_word(None)
        ('Proven stable', 'Not examined')
    """
    return WORDS.get(str(state), "Not examined")


def verdict_sign(state: Any) -> str:
    """Return the sign that precedes a verdict.

    Example:
        >>> verdict_sign("refuted"), verdict_sign(None)
        ('✗', '–')
    """
    return SIGNS.get(str(state), MISSING)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), most: int | None = None
) -> str:
    """Format a table of plain text, with two spaces between columns.

    Args:
        header: names of the columns.
        rows: the cells.
        right: indices of the columns that are aligned to the right.
        most: maximum width of a column in characters; longer cells are wrapped.

    Returns:
        Lines without a final newline.

    Example:
        >>> print(table(("name", "x"), (("a", "1"), ("bcd", "10")), right=(1,)))
        name   x
        a      1
        bcd   10
        >>> print(table(("name", "x"), (("a longer name", "1"),), most=8))
        name      x
        a longer  1
        name
    """
    grid = [[_pieces(cell, most) for cell in line] for line in (header, *rows)]
    widths = [max(len(piece) for line in grid for piece in line[i]) for i in range(len(header))]
    lines = []
    for line in grid:
        for pieces in zip_longest(*line, fillvalue=""):
            cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(pieces, widths))]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _pieces(cell: str, most: int | None) -> list[str]:
    """Split a cell into lines; a word longer than a line is broken."""
    return [cell] if most is None or len(cell) <= most else textwrap.wrap(cell, most, break_on_hyphens=False)


_SHOWN = (number, signed, percent, count, duration, metric, rate, half_life, time_unit, metric_word)
FILTERS = {show.__name__: show for show in (*_SHOWN, verdict_sign, verdict_word)}
"""Filters of the page's templates, by name."""
