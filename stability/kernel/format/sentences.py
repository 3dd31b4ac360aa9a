"""Building blocks of the sentences of claims, with numbers rounded on the safe side.

The verifier forms the sentence of each claim again and refuses a certificate whose sentence differs. Upper bounds are
rounded up and lower bounds down, so that the sentence stays true; the proof holds the exact numbers. A *bare* system is
a ``LureSystem`` without a given activation: its claims hold for every activation in its sector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

DIGITS = 4  # significant digits of bounds in sentences


def at_most(value: Any, near: float | None = None) -> str:
    """Format an upper bound: the next larger number of four digits, of six digits just above one.

    Args:
        value: the bound; a value that is not finite is shown unchanged.
        near: a number that the value must not be confused with: three digits of the distance to it are kept.

    Returns:
        A decimal number at least as large.

    Example:
        >>> at_most(1.23411), at_most(0.99999871, near=1.0), at_most(25954.3), at_most(1 + 1e-12)
        ('1.235', '0.99999871', '25960', '1.00001')
    """
    return _rounded(value, ROUND_CEILING, near)


def at_least(value: Any) -> str:
    """Format a lower bound: the next smaller number of four digits; see ``at_most``.

    Example:
        >>> at_least(1.23479), at_least(3.9999e-9)
        ('1.234', '3.999e-9')
    """
    return _rounded(value, ROUND_FLOOR, None)


def _rounded(value: Any, direction: str, near: float | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return repr(value)
    if value == 0:
        return "0"
    exact = Decimal(value)
    last = -5 if 1 < value < 1.001 else exact.adjusted() - DIGITS + 1
    gap = abs(exact - Decimal(near)) if near is not None else Decimal(0)
    if gap:
        last = min(last, gap.adjusted() - 2)
    rounded = exact.quantize(Decimal(1).scaleb(last), rounding=direction)
    if -5 <= rounded.adjusted() < 9:
        text = f"{rounded:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{rounded.normalize():e}".replace("e+", "e")


def decay_factor(rate: Any, discrete: bool, start: str = "0") -> str:
    """Format ``rho^k`` or ``exp(-lambda t)``, rounded towards slower decay and counted from a start."""
    time = "k" if discrete else "t"
    elapsed = time if start == "0" else f"({time} - {start})"
    return f"{at_most(rate, near=1.0)}^{elapsed}" if discrete else f"exp(-{at_least(rate)} {elapsed})"


def exact_text(value: Any) -> str:
    """Return the shortest decimal that reads back as the same float64, without a trailing ``.0``.

    Example:
        >>> exact_text(1.0), exact_text(0.1), exact_text(0.9999996)
        ('1', '0.1', '0.9999996')
    """
    text = repr(float(value) + 0.0)
    return text[:-2] if text.endswith(".0") else text


def interval_phrase(low: Any, high: Any) -> str:
    """Format ``[low, high]`` with the exact ends."""
    return f"[{exact_text(low)}, {exact_text(high)}]"


def slopes_phrase(system: Any) -> str:
    """Describe the slope intervals of a bare system with exact numbers, per channel if they differ."""
    ends = sorted(set(zip(system.alpha.tolist(), system.beta.tolist())))
    if len(ends) == 1:
        return f"every activation with slopes in {interval_phrase(*ends[0])}"
    kinds = ", ".join(interval_phrase(*e) for e in ends[:4]) + (", ..." if len(ends) > 4 else "")
    return (
        "every activation whose slope in channel i lies in [alpha_i, beta_i] of the file "
        f"({len(ends)} different intervals: {kinds})"
    )


def inputs_phrase(subject: Any, noun: str = "", box: tuple[Any, Any] | None = None) -> str:
    """Describe the inputs of a claim: all inputs, or those in a box.

    Args:
        subject: the subject.
        noun: words for the inputs; default: every input sequence or signal.
        box: ``low`` and ``high`` of the proof; default: the input box of the subject, or of a stack's lowest layer.

    Returns:
        The noun with the range of the entries.
    """
    noun = noun or f"every input {'sequence' if subject.is_discrete else 'signal'}"
    layer = (getattr(subject, "layers", ()) or (subject,))[0]
    low, high = box or (getattr(layer, "input_low", None), getattr(layer, "input_high", None))
    if low is None or high is None:
        return noun
    if len(set(low.tolist())) <= 1 and len(set(high.tolist())) <= 1 and len(low):
        return f"{noun} with entries in {interval_phrase(low[0], high[0])}"
    size = interval_phrase(min(low, default=0.0), max(high, default=0.0))
    return f"{noun} with entry j in [low_j, high_j] of {'the proof' if box else 'its box'} (all within {size})"


def phrase_of(subject: Any) -> str:
    """Describe the subject of a claim without quantifiers or article: stored numbers in exact arithmetic."""
    return getattr(subject, "phrase", type(subject).__name__)


def for_every(subject: Any, inputs: str = "") -> str:
    """Begin a theorem with its quantifiers: the activations of a bare Lur'e system, and the inputs."""
    bare = getattr(subject, "system", None) is subject and subject.channels
    return f"For {f'{slopes_phrase(subject)} and ' if bare else ''}{inputs or inputs_phrase(subject)}"


def theorem(subject: Any, *sentences: str) -> str:
    """State a theorem: the subject, the sentences, and for inputs in a box that other inputs are not covered."""
    phrase = phrase_of(subject)
    text = " ".join((f"{phrase[:1].upper()}{phrase[1:]}.", *sentences))
    return f"{text} Other inputs are not covered." if " with entr" in text else text  # see inputs_phrase


NOT_CONTRACTING = "It is not contracting."


def undecided(subject: Any, inputs: str = "") -> str:
    """Return the sentence of an undecided claim of contraction."""
    quantifiers = for_every(subject, inputs)
    return theorem(subject, f"Contraction f{quantifiers[1:]} is neither proved nor refuted.")


def undecided_in_box(subject: Any) -> str:
    """Return the sentence of an undecided claim of contraction under inputs in a box."""
    return undecided(subject, "every input in the requested range")


def unbounded_is_open(subject: Any) -> str:
    """Return the sentence of an undecided claim of a state bound of a gated linear layer."""
    return theorem(subject, f"Boundedness of its states for {subject.inputs_phrase} is neither proved nor refuted.")


OPEN: dict[str, Callable[[Any], str]] = {
    "contraction": undecided,
    "driven_contraction": undecided_in_box,
    "state_bound": unbounded_is_open,
}
"""Sentence of an undecided claim, by the name of the claim."""


def decays(rate: float, discrete: bool) -> bool:
    """Return True for a rate of exponential decay: below one per step, above zero in continuous time."""
    return 0.0 < rate < 1.0 if discrete else 0.0 < rate < math.inf


def decay_bound(overshoot: float, rate: float, discrete: bool, start: str = "0", norm: str = "2") -> str:
    """State the exponential bound of the distance of two trajectories ``x``, ``y`` from step or time ``start`` on."""
    time = "k" if discrete else "t"
    now, first = (f"|x({at}) - y({at})|_{norm}" for at in (time, start))
    return f"{now} <= {at_most(overshoot)} * {decay_factor(rate, discrete, start)} {first} for all {time} >= {start}"


def contraction(subject: Any, rate: float, overshoot: float) -> str:
    """State exponential incremental stability."""
    bound = decay_bound(overshoot, rate, subject.is_discrete)
    return theorem(subject, f"{for_every(subject)}, any two trajectories x, y satisfy {bound}.")


def nonexpansion(subject: Any, factor: float) -> str:
    """State that no step increases the distance of two trajectories by more than a factor close to one."""
    shown = "" if factor == 1.0 else f"{at_most(factor, near=1.0)} "
    bound = f"|x(k + 1) - y(k + 1)|_2 <= {shown}|x(k) - y(k)|_2 for all k >= 0"
    near = ["This factor is within 1e-6 of one."] if shown else []
    return theorem(subject, f"{for_every(subject)}, any two trajectories x, y satisfy {bound}.", *near)


def one_equilibrium(subject: Any, start: str = "", box: tuple[Any, Any] | None = None) -> str:
    """State that every constant input (in a box, if given) has exactly one equilibrium, which attracts trajectories.

    ``start`` restricts the trajectories to those from certain initial states.
    """
    layers = " of all layers" if getattr(subject, "layers", ()) else ""
    return theorem(
        subject,
        f"{for_every(subject, inputs_phrase(subject, 'every constant input', box))}, there is exactly one equilibrium"
        f"{layers}.",
        f"Every trajectory{start} converges to it under that input.",
    )


def stays_in_box(
    subject: Any, box: tuple[Any, Any], names: tuple[str, str], diagonal: float, *more: str, start: str = ""
) -> str:
    """State that every trajectory is in a box of states from step ``K`` or time ``T`` on.

    Args:
        subject: the subject.
        box: ends of the inputs.
        names: names of the fields of the proof that hold the lower and upper ends of the states.
        diagonal: Euclidean length of the diagonal of the box of states.
        *more: further sentences.
        start: restriction of the initial states.
    """
    (low, high), (at, first) = names, ("k", "K") if subject.is_discrete else ("t", "T")
    layers = ["The vector x holds the states of all layers."] if getattr(subject, "layers", ()) else []
    return theorem(
        subject,
        f"{for_every(subject, inputs_phrase(subject, box=box))}, every trajectory x{start} satisfies {low}_i <= "
        f"x_i({at}) <= {high}_i for all {at} >= {first}.",
        f"This box of the proof has diagonal at most {at_most(diagonal)}.",
        *layers,
        *more,
    )


def contracts_in_box(subject: Any, box: tuple[Any, Any], overshoot: float, rate: float, *entry: str) -> str:
    """State contraction under inputs in a box, from step ``K`` or time ``T`` on; ``entry`` states that step or time."""
    discrete = subject.is_discrete
    bound = decay_bound(overshoot, rate, discrete, "K" if discrete else "T")
    inputs = inputs_phrase(subject, box=box)
    return theorem(subject, f"{for_every(subject, inputs)}, any two trajectories x, y satisfy {bound}.", *entry)


def entry_time(start: str, least: str, duration: str, size: tuple[str, str], room: float) -> str:
    """State the step or time from which a claim holds, as a function of the size ``V`` of the initial states.

    Args:
        start: name of the step or time, ``K`` or ``T``.
        least: its value for initial states within the set.
        duration: formula of the additional steps or time for other initial states.
        size: ``V`` of one initial state, and the fields of the proof that it uses.
        room: relative widening of the set that trajectories enter in finite time.
    """
    return (
        f"Here {start} = N + {least} with N = {duration}, or N = 0 if V <= {exact_text(1.0 + room)}. "
        f"V is the largest {size[0]} over the initial states s, with {size[1]} of the proof."
    )


def orbits_apart(subject: Any, inputs: str, shift: int, first: int, second: int | None) -> str:
    """State that two orbits with periods ``first`` and ``second`` stay apart.

    If ``second`` is ``None``, the trajectories are one orbit and the same orbit ``shift`` steps later.
    """
    if second is None:
        found, apart = (
            f"is an orbit of period {first}",
            f"Two trajectories on it, {shift} step{'s' * (shift > 1)} apart,",
        )
    elif max(first, second) == 1:
        found, apart = "are two different equilibria", "Two trajectories that start there"
    else:
        found, apart = f"are two orbits of periods {first} and {second}", "Trajectories from their first points"
    return theorem(
        subject, NOT_CONTRACTING, f"Under {inputs} there {found}.", f"{apart} do not converge to each other."
    )


def gain_bound(subject: Any, gain: float, measure: str, horizon: float | None, output: str, start: str = "") -> str:
    """State an incremental gain from inputs to outputs.

    Args:
        subject: the subject.
        gain: upper bound of the gain.
        measure: ``final`` for the output at the end, ``l2`` for the whole output sequence.
        horizon: number of steps or length of time; ``None`` for any.
        output: sentence that defines the output.
        start: restriction of the initial state.
    """
    discrete = subject.is_discrete
    kind, unit, l2 = ("sequences", "steps", "l2") if discrete else ("signals", "units of time", "L2")
    unbounded = "any number of steps" if discrete else "any length of time"
    span = f"{at_least(horizon) if isinstance(horizon, float) else horizon} {unit}"
    if measure == "final":
        norm, over = "2", f"at the end of {unbounded if horizon is None else span}"
    else:
        norm, over = l2, f"over {f'{kind} of any length' if horizon is None else span}"
    return theorem(
        subject,
        f"{for_every(subject, inputs_phrase(subject, f'any two input {kind} u, v'))} and any common initial state"
        f"{start}, the outputs y, z satisfy |y - z|_{norm} <= {at_most(gain)} |u - v|_{l2} {over}.",
        output,
    )
