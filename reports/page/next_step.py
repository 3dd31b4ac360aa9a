"""Next step for a model: a label, a sentence and a working command, by verdict and reason."""

from __future__ import annotations

from dataclasses import dataclass

from ..boxes import box_option
from ..stored.facts import recheck
from ..stored.reasons import argument, model_advice
from ..stored.records import ModelRecord

LABELS = {
    "--input-box ": "state a range", "--time-limit": "search longer", "--from": "retrain", "--model ": "switch layer",
}  # fmt: skip
"""Label of an advised command, by an option that only this kind of command has."""


@dataclass(frozen=True)
class Next:
    """A next step.

    Attributes:
        label: two or three words.
        sentence: why.
        command: for the folder of the page where it names models/, else for that of the report's command.
    """

    label: str
    sentence: str
    command: str


def next_step(model: ModelRecord) -> Next:
    """Return the first step to take.

    Args:
        model: the record.
    """
    steps = model_advice(model)
    if steps:
        why, command = steps[0]
        return Next(next((label for option, label in LABELS.items() if option in command), "look closer"), why, command)
    if model.state == "certified":
        rate = (model.certificate or {}).get("rate")
        more = f" --min-rate {rate!r}" if isinstance(rate, float) else ""
        command = recheck(model)
        command += f" --require proved{more}" if " --weights " not in command else ""
        return Next(
            "guard in CI", "Keep it proven: run this in CI. It exits with 0 as long as the proof holds", command
        )
    if model.state in ("invalid", "stale"):
        return Next("examine again", "Examine it again", f"stability certify {argument(model)} -o certificate.json")
    command = f"stability certify {argument(model)} --criteria all {box_option(model.analysis)}".rstrip()
    return Next("see criteria", "Compute every criterion, to see how far each is from holding", command)
