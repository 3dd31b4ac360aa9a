"""Missing results: the reason, and the command that computes them."""

from __future__ import annotations

import json
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
DATA = ("--data", "--task", "--task-set", "--data-dir")
"""Command-line options that name the data."""
DEFAULTS = {"digits": {"layout": "rows", "size": 28, "permuted": False, "permutation_seed": 784}}
"""Default options of tasks, which a command need not repeat."""
TRAINING = {"epochs": 10, "lr": 3e-3, "batch_size": 64, "seed": 0}
"""Defaults of ``stability train``, which a command need not repeat. They are copied, since the page is drawn without
torch; a test compares them."""
PENALIZED = ("lipschitz", "elman", "RNN")
"""Layers for which training with a margin penalty can lead to a proof."""
TIME_FACTOR = 10  # recommended time limit, divided by the one that was too short


@dataclass(frozen=True)
class Missing:
    """Analyses without a result for one model, for one reason.

    Attributes:
        steps: names of the analyses for readers.
        reason: reason why there is no result.
        command: command that computes them; empty if there is none.
    """

    steps: tuple[str, ...]
    reason: str
    command: str = ""

    @property
    def text(self) -> str:
        """Reason and command in one line."""
        return self.reason + (f": {self.command}" if self.command else "")


def argument(model: ModelRecord) -> str:
    """Return the model as commands name it: its source, or its folder if it was trained for the report.

    Args:
        model: the record.

    Returns:
        The name, quoted for a shell.
    """
    source = model.analysis.get("source")
    if isinstance(source, str) and source and not source.startswith("trained here"):
        return shell_name(source)
    return shell_name(f"models/{model.name}")


def shell_name(name: str) -> str:
    r"""Quote the name of a model for a shell, for any characters in it.

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


def missing(model: ModelRecord, steps: Sequence[str] = tuple(STEPS)) -> list[Missing]:
    """Return the analyses without a result for a model, grouped by reason.

    Args:
        model: the record.
        steps: steps of the analysis to consider.

    Returns:
        One entry per reason, in the order of the steps.
    """
    names_by_reason: dict[str, list[str]] = {}
    data: set[str] = set()
    for step in steps:
        outcome = model.step(step)
        if outcome["status"] not in ("done", "missing"):
            reason = str(outcome.get("reason", ""))
            names_by_reason.setdefault(reason, []).append(STEPS[step])
            if outcome.get("needs") == "data" or reason.startswith(NO_DATA):
                data.add(reason)
    command = f"stability report {argument(model)} --data FILE.npz"
    return [Missing(tuple(names), why, command if why in data else "") for why, names in names_by_reason.items()]


@dataclass(frozen=True)
class CommandContext:
    """Parts of commands about a network.

    Attributes:
        network: name of a network that can be run on data; empty for matrices and weights without a module.
        data: options that name its data; empty if none are known.
        data_recorded: whether its run directory records the data, so that commands need no such options.
        layer: name of its recurrent layer.
        training: options of its training that differ from the defaults.
        radii: whether the radii of single inputs can be certified.
    """

    network: str = ""
    data: str = ""
    data_recorded: bool = False
    layer: str = ""
    training: str = ""
    radii: bool = False


def advice(
    summary: Mapping[str, Any] | None, model: str, seconds: float | None = None, context: CommandContext | None = None
) -> list[tuple[str, str]]:
    """Return commands to try after a certificate, each with a sentence that says what it does.

    Args:
        summary: ``certificates.view``.
        model: the model's name in commands, quoted, with the options needed to read it.
        seconds: time limit of the searches, if known.
        context: parts of commands that run or train the network.

    Returns:
        Pairs of sentence and command.

    Example:
        >>> advice({"verdict": "inconclusive", "needs_box": True}, "lstm.pt")[0][1]
        'stability certify lstm.pt --input-box LOW HIGH'
    """
    if summary is None:
        return []
    verdict, context, steps = state(summary), context or CommandContext(), []
    if summary.get("needs_box") and verdict != "certified" and zero_input(summary) is not True:
        data = f"data{'' if context.data_recorded else f' {context.data}'}"
        outside = ((summary.get("meta") or {}).get("witness") or {}).get("input_in_data_range") is False
        box = data if context.data and (verdict != "refuted" or outside) else "LOW HIGH"
        range_words = "a range that does not contain this input" if verdict == "refuted" else "a range that you state"
        why = f"An LSTM or GRU can be certified for inputs in {range_words}"
        steps.append((why, f"stability certify {model} --input-box {box}"))
    cut = (summary.get("meta") or {}).get("cut")
    if isinstance(cut, (list, tuple)) and cut:
        names = ", ".join(NAMES.get(str(c), str(c).replace("_", " ")) for c in cut)
        limit = "SECONDS" if seconds is None or not seconds > 0 else f"{TIME_FACTOR * seconds:g}"
        command = f"stability certify {model} --time-limit {limit}"
        steps.append((f"The time limit stopped these searches: {names}. More time may give a better answer", command))
    return steps + (_other_training(summary, context) if verdict in ("refuted", "inconclusive") else [])


def _other_training(summary: Mapping[str, Any], context: CommandContext) -> list[tuple[str, str]]:
    """Return commands that train for a proof on the same data, and that certify radii of single inputs."""
    if not context.network:
        return []
    data = context.data or "--data FILE.npz"
    training = f" {context.training}" if context.training else ""
    if context.layer in PENALIZED:
        why = "Continue its training with a stability margin penalty"
        more = f"--from {context.network} {data}{training} --margin-penalty 1 --set until_certified=true"
    else:
        why = "Train a layer that contracts for every value of its weights on the same data"
        more = f"--model contracting {data} --hidden {summary.get('hidden') or 64}{training}"
    steps = [(why, f"stability train {more}")]
    if context.radii:
        option = "" if context.data_recorded else f" {data}"
        steps.append(("Certify radii of single inputs", f"stability radius {context.network}{option} --samples 100"))
    return steps


def zero_input(summary: Mapping[str, Any]) -> bool | None:
    """Return True if the input of a counterexample is zero; ``None`` without a counterexample."""
    limits = summary.get("witness_input")
    return None if limits is None else not any(limits)


def data_words(command: Any, task: Mapping[str, Any]) -> str:
    """Return the options that name the data: those of a command line, or else those of a recorded task.

    Args:
        command: a command line, or ``None``.
        task: task of ``run.json``.

    Example:
        >>> data_words("stability report a --data=b.npz", {})
        '--data b.npz'
        >>> data_words(None, {"name": "digits", "options": {"size": 7}})
        '--task digits --task-set size=7'
    """
    try:
        words = iter(shlex.split(str(command or "")))
    except ValueError:
        words = iter(())
    options_found: list[tuple[str, str]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in DATA:
            options_found.append((name, value if equals else next(words, "")))
    parts: list[Any] = [task.get(key) for key in ("options", "data")]
    options, data = (part if isinstance(part, Mapping) else {} for part in parts)
    if not any(name in DATA[:2] for name, _ in options_found) and task.get("name") == "data":
        options_found = [("--data", str(options.get("file") or data.get("what") or "FILE.npz"))]
    elif not any(name in DATA[:2] for name, _ in options_found) and task.get("name"):
        folder = [("--data-dir", str(data["folder"]))] if data.get("folder") else []
        folder = [pair for pair in options_found if pair[0] == "--data-dir"] or folder
        defaults = DEFAULTS.get(str(task["name"]), {})
        settings = [
            f"{k}={v if isinstance(v, str) else json.dumps(v)}"
            for k, v in options.items()
            if v is not None and v != defaults.get(k)
        ]
        options_found = [("--task", str(task["name"])), *(("--task-set", each) for each in settings), *folder]
    return " ".join(f"{name} {shell_name(value)}" for name, value in options_found)


def model_advice(model: ModelRecord) -> list[tuple[str, str]]:
    """Return ``advice`` about a model of a report, with its input range.

    Args:
        model: the record.
    """
    name = " ".join(filter(None, (argument(model), box_option(model.analysis))))
    return advice(model.certificate, name, context=context_of(model))


def context_of(model: ModelRecord) -> CommandContext:
    """Return the options of commands about a model of a report.

    Args:
        model: the record.
    """
    described = model.run.get("model", {})
    task = model.run.get("task") or {}
    network = argument(model) if model.run or model.step("noise")["status"] == "done" else ""
    training, radii = model.run.get("training", {}), model.step("local")["status"] == "done"
    layer = str(described.get("layer") or "")
    settings = {n: training[n] for n in list(TRAINING)[not layer :] if training.get(n) not in (None, TRAINING[n])}
    options = " ".join(f"--{n.replace('_', '-')} {shell_name(str(value))}" for n, value in settings.items())
    return CommandContext(network, data_words(model.command, task), bool(task), layer, options, radii)


def as_values(model: ModelRecord) -> list[dict[str, Any]]:
    """Return missing results and advice as JSON values: ``what`` (names of analyses), ``reason``, ``command``."""
    rows = [(list(item.steps), item.reason, item.command or None) for item in missing(model)]
    rows += [(["certificate"], why, command) for why, command in model_advice(model)]
    return [{"what": what, "reason": reason, "command": command} for what, reason, command in rows]
