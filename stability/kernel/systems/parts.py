"""Origin of a subject: the part of a larger model that it is, and whether its weights were computed.

What a container does around its recurrent part (a residual, a feedback of the output) cannot be seen from the part. So
a subject taken out of one carries where it stood, and every sentence about it says so. Layers that compute their
matrices from free parameters run with matrices of their own precision; the sentence says which ones are meant.
"""

from __future__ import annotations

import re
from typing import Any

from stability.errors import ConfigurationError

LONGEST_PATH, LONGEST_WHOLE = 200, 100
ALL_LAYERS = "recurrent-layers-side-by-side"
"""Path of the part of a network that consists of all its recurrent layers without the connections between them."""
COMPUTED, SCALED = "; computed", "; scaled"
ORIGINS = {
    COMPUTED: ", computed in float64 from the model's parameters",
    SCALED: ", its inputs in units of each feature (the input weights are multiplied by them)",
}
"""Words for the endings of ``part``, which no name can hold."""
SPELLED = ("LSTM", "mLSTM", "LRU", "RG-LRU", "RWKV", "HGRN", "S4D", "S5")
"""Beginnings of descriptions that take the article "an"."""
_PATH = rf"[A-Za-z0-9_.\-]{{1,{LONGEST_PATH}}} of [A-Za-z0-9_.\-]{{1,{LONGEST_WHOLE}}}"
_FORM = re.compile(rf"({_PATH})?({COMPUTED})?({SCALED})?")


def as_part(value: Any) -> str:
    """Return a checked ``"PATH of WHOLE"`` with its endings, or the empty string for a subject that is no part.

    Only letters, digits, ``_``, ``-`` and ``.`` are allowed in the two names: no sentence can be smuggled in by them.

    Raises:
        ConfigurationError: anything else.
    """
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        form = "'PATH of WHOLE' (letters, digits, _, -, .), '; computed' and '; scaled', or less"
        raise ConfigurationError(f"part must be {form}, got {str(value)[:60]!r}")
    return value


def part_of(subject: Any) -> str:
    """Return ``"PATH of WHOLE"`` of a subject that is a part; empty for others."""
    return getattr(subject, "part", "").partition(";")[0]


def origin_phrase(subject: Any) -> str:
    """Say which weights are meant where they are not those that the model stores; empty for these."""
    return "".join(words for ending, words in ORIGINS.items() if ending in subject.part)


def part_phrase(subject: Any, noun: str = "") -> str:
    """Return ``part `PATH` of WHOLE`` with its description; for no part the noun.

    Example:
        >>> from stability.systems import LureSystem
        >>> part_phrase(LureSystem.linear([[-1.0]]), "cell")
        'cell'
    """
    path, of, _ = part_of(subject).partition(" of ")
    if not of:
        return noun
    description = f", {'an' if noun.startswith(SPELLED) else 'a'} {noun}" if noun and path != ALL_LAYERS else ""
    return part_title(part_of(subject)).removeprefix("the ") + description


def part_title(part: str) -> str:
    """Return ``the part `PATH` of WHOLE`` for ``"PATH of WHOLE"``; the part ``ALL_LAYERS`` has its own phrase.

    Example:
        >>> part_title("blocks.0.layer of Net")
        'the part `blocks.0.layer` of Net'
    """
    path, _, whole = part.partition(" of ")
    title = f"the network of all layers of {whole}, each with its own input"
    return title if path == ALL_LAYERS else f"the part `{path}` of {whole}"
