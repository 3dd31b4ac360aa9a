"""What to do next about a model: one sentence and a command that works, by verdict and reason."""

from __future__ import annotations

import shlex

from ..boxes import box_option
from ..stored.reasons import model_advice, named
from ..stored.records import ModelRecord


def next_step(model: ModelRecord) -> tuple[str, str]:
    """The sentence and the command.

    Args:
        model: the record.

    Returns:
        Both; the command is for the folder of the page where it names models/, else for that of the report's command.
    """
    told = model_advice(model)
    if told:
        return told[0]
    certificate = shlex.quote(f"models/{model.name}/certificate.json")
    if model.state == "certified":
        rate = (model.certificate or {}).get("rate")
        more = f" --min-rate {rate!r}" if isinstance(rate, float) else ""
        return (
            "Keep it certified: this ends with 0 as long as the proof holds at this rate",
            f"stability verify {certificate} --require proved{more}",
        )
    if model.state in ("invalid", "stale"):
        return "Examine it again", f"stability certify {named(model)} -o certificate.json"
    option = box_option(model.analysis)
    again = " ".join(filter(None, (f"stability certify {named(model)} --criteria all", option)))
    return "See how far every criterion is from holding", again
