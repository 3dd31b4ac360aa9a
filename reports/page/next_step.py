"""What to do next about a model: one sentence and a command that works, by verdict and reason."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ..boxes import box_option
from ..stored.reasons import model_advice, named
from ..stored.records import ModelRecord

NO_DECAY = ("antisymmetric", "neural_ode")  # A = 0: the linear part does not decay by itself
EXTENSIBLE = ("lipschitz",)  # layers with a linear part, whose training can be held to a margin


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
    layer, task = _layer(model), _task(model)
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
    if layer in NO_DECAY:
        why = "Its linear part has no decay of its own (A = 0): a Lipschitz RNN has one, held to a margin in training"
        return why, f"stability train --model lipschitz{task} --margin-penalty 1 --out next-{model.place}"
    if layer in EXTENSIBLE:
        why = "Train the same layer with a penalty on the shortfall of its contraction gap"
        return why, f"stability train --model {layer}{task} --margin-penalty 1 --out next-{model.place}"
    if model.state == "refuted" and layer:
        why = "Where contraction is needed: a layer that has it for every value of its parameters"
        return why, f"stability train --model contracting{task} --out next-{model.place}"
    option = box_option(model.analysis)
    again = " ".join(filter(None, (f"stability certify {named(model)} --criteria all", option)))
    return "See how far every criterion is from holding", again


def _layer(model: ModelRecord) -> str:
    described = model.run.get("model", {})
    config: Any = described.get("config", {})
    name = (
        config.get("layer")
        if described.get("layer") == "deep" and isinstance(config, Mapping)
        else described.get("layer")
    )
    return str(name or "")


def _task(model: ModelRecord) -> str:
    """The option that names the model's task; empty for the default one."""
    name = model.run.get("task", {}).get("name")
    if name == "data":
        return " --data FILE.npz"
    return "" if name in (None, "", "digits") else f" --task {shlex.quote(str(name))}"
