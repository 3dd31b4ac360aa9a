"""What was not computed, why, and the command that would give it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stability.storage.artifacts import STEPS

from ..boxes import box_option
from ..names import printable
from ..vocabulary import NAMES, state

if TYPE_CHECKING:  # pandas is not loaded for light commands
    from .records import ModelRecord

NO_DATA = "no data are known"
PATIENCE = 10  # times the seconds that were not enough


@dataclass(frozen=True)
class Missing:
    """Analyses without an answer for one model, for one reason.

    Attributes:
        steps: their names for readers.
        reason: why.
        command: what would give them; empty where no command does.
    """

    steps: tuple[str, ...]
    reason: str
    command: str = ""

    @property
    def text(self) -> str:
        """Reason and command in one line."""
        return self.reason + (f": {self.command}" if self.command else "")


def named(model: ModelRecord, base: str = "models") -> str:
    """The model as commands name it: as it was given, or its folder where it was trained for the report.

    Args:
        model: the record.
        base: the folder ``models`` of the report, as seen from where the command will be given.

    Returns:
        The name, quoted for a shell.
    """
    source = model.analysis.get("source")
    if isinstance(source, str) and source and not source.startswith("trained here"):
        return shell_name(source)
    return shell_name(f"{base}/{model.name}")


def shell_name(name: str) -> str:
    r"""The name of a model as a word of a shell's command that means this model, whatever letters it has.

    Example:
        >>> print(shell_name("my net.pt"), shell_name("-a.npz"), shell_name("a\x1b\udcff.pt"))
        'my net.pt' ./-a.npz $'a\x1b\xff.pt'
    """
    name = f"./{name}" if name.startswith("-") else name
    if printable(name) == name:
        return shlex.quote(name)
    letters = (c if printable(c) == c and c not in "'\\" else "".join(f"\\x{b:02x}" for b in _bytes(c)) for c in name)
    return f"$'{''.join(letters)}'"


def _bytes(letter: str) -> bytes:
    return letter.encode("utf-8", "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass")


def missing(model: ModelRecord, steps: Sequence[str] = tuple(STEPS), base: str = "models") -> list[Missing]:
    """Analyses that gave no answer for a model, gathered by the reason why.

    Args:
        model: the record.
        steps: which of them.
        base: as for ``named``.

    Returns:
        One entry a reason, in the order of the steps.
    """
    found: dict[str, list[str]] = {}
    data: set[str] = set()
    for step in steps:
        outcome = model.step(step)
        if outcome["status"] not in ("done", "missing"):
            reason = str(outcome.get("reason", ""))
            found.setdefault(reason, []).append(STEPS[step])
            if outcome.get("needs") == "data" or reason.startswith(NO_DATA):
                data.add(reason)
    command = f"stability report {named(model, base)} --data FILE.npz"
    return [Missing(tuple(names), why, command if why in data else "") for why, names in found.items()]


def advice(summary: Mapping[str, Any] | None, model: str, seconds: float | None = None) -> list[tuple[str, str]]:
    """What would lead further than a certificate does: a sentence, and the command.

    Args:
        summary: ``certificates.view``.
        model: the model as commands name it, quoted, with the options that it needs to be read.
        seconds: the time limit that the searches had, if it is known.

    Returns:
        Pairs, none where nothing would.

    Example:
        >>> advice({"verdict": "inconclusive", "needs_box": True}, "lstm.pt")[0][1]
        'stability certify lstm.pt --input-box LOW HIGH'
    """
    if summary is None:
        return []
    out = []
    if summary.get("needs_box") and state(summary) != "certified":
        out.append(
            (
                "This is about every input, however large; an LSTM or GRU is certified for inputs in a range that you "
                "state",
                f"stability certify {model} --input-box LOW HIGH",
            )
        )
    cut = (summary.get("meta") or {}).get("cut")
    if isinstance(cut, (list, tuple)) and cut:
        names = ", ".join(NAMES.get(str(c), str(c).replace("_", " ")) for c in cut)
        limit = "SECONDS" if seconds is None or not seconds > 0 else f"{PATIENCE * seconds:g}"
        command = f"stability certify {model} --time-limit {limit}"
        out.append((f"Stopped by the time limit: {names}. With more time the answer may be better", command))
    return out


def model_advice(model: ModelRecord, base: str = "models") -> list[tuple[str, str]]:
    """``advice`` about a model of a report, with its input range.

    Args:
        model: the record.
        base: as for ``named``.
    """
    name = " ".join(filter(None, (named(model, base), box_option(model.analysis))))
    return advice(model.certificate, name)


def as_values(model: ModelRecord) -> list[dict[str, Any]]:
    """All of it about a model as JSON values: ``what`` (names of analyses), ``reason``, ``command`` (or ``None``)."""
    rows = [(list(item.steps), item.reason, item.command or None) for item in missing(model)]
    rows += [(["certificate"], why, command) for why, command in model_advice(model)]
    return [{"what": what, "reason": reason, "command": command} for what, reason, command in rows]


def reasons_for(models: Sequence[ModelRecord], *steps: str) -> tuple[str, ...]:
    """A note for every model and reason why an analyzer could not answer.

    Args:
        models: the records.
        *steps: of the analysis.
    """
    return tuple(f"{m.title}, {', '.join(item.steps)}: {item.text}" for m in models for item in missing(m, steps))


def remarks_on(models: Sequence[ModelRecord], step: str) -> tuple[str, ...]:
    """A note for every model and sentence that an analyzer left beside its results.

    Args:
        models: the records.
        step: of the analysis.
    """
    return tuple(f"{m.title}, {STEPS[step]}: {words}" for m in models for words in m.step(step).get("notes") or ())
