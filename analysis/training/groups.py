"""Groups of parameters with learning rates of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from stability.errors import ConfigurationError

from ..unroll import recurrent_layers

RECURRENT = "recurrent"
"""The name of all parameters of the recurrent layers."""


def parameter_groups(model: nn.Module, lr: float, group_lr: Mapping[str, float]) -> list[dict[str, Any]]:
    """The groups of an optimizer: the parameters of each name in ``group_lr``, after all others.

    Args:
        model: its parameters that require a gradient are taken.
        lr: learning rate of what has none of its own.
        group_lr: learning rates by name: ``recurrent``, or the beginning of parameters' names, up to a dot.

    Returns:
        Groups with ``params``, ``lr`` and ``initial_lr``, what a schedule multiplies. None is empty.

    Raises:
        ConfigurationError: nothing to train, a name without parameters, a parameter with two rates.

    Example:
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> groups = parameter_groups(SequenceModel(ElmanRNN(2, 4), 3), 0.1, {"recurrent": 0.01})
        >>> [(group["lr"], sum(p.numel() for p in group["params"])) for group in groups]
        [(0.1, 15), (0.01, 28)]
    """
    known = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not known:
        raise ConfigurationError(f"{type(model).__name__} has no parameter that requires a gradient")
    owner: dict[str, str] = {}
    for group in group_lr:
        members = _members(model, group, known)
        twice = next((name for name in members if name in owner), None)
        if twice is not None:
            raise ConfigurationError(f"{twice} belongs to {owner[twice]!r} and to {group!r}: give it one learning rate")
        owner |= dict.fromkeys(members, group)
    rates: dict[str | None, float] = {None: lr, **group_lr}
    groups = [([p for name, p in known.items() if owner.get(name) == group], rate) for group, rate in rates.items()]
    return [{"params": members, "lr": rate, "initial_lr": rate} for members, rate in groups if members]


def _members(model: nn.Module, group: str, known: Mapping[str, Any]) -> list[str]:
    """The names in a group."""
    starts = [path for path, _ in recurrent_layers(model)] if group == RECURRENT else [group]
    members = [name for name in known if any(s == "" or name == s or name.startswith(f"{s}.") for s in starts)]
    if not members:
        heads = ", ".join(dict.fromkeys(name.split(".")[0] for name in known))
        raise ConfigurationError(f"no trained parameter belongs to {group!r}; names begin with {heads}, or {RECURRENT}")
    return members
