"""What several studies share: the networks of the Lipschitz RNN paper by name, their verdicts, and small statistics."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import StabilityError
from stability.verification import verify

from ...models import (
    AntisymmetricRNN,
    ContractingRNN,
    HouseholderRNN,
    LipschitzRNN,
    NeuralODERNN,
    SequenceModel,
    UnitaryRNN,
)
from ..tasks import Task

LIPSCHITZ = "Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, Lipschitz recurrent neural networks (ICLR 2021)"
VERDICTS = ("certified", "refuted", "inconclusive", "no verdict")
Make = Callable[[Task], SequenceModel]


def networks(hidden: int, dt: float) -> dict[str, Make]:
    """The networks that the paper's robustness section compares, and three that keep a promise by construction.

    Args:
        hidden: units, even.
        dt: step of those that integrate a differential equation.

    Returns:
        Name to a maker that fits a task with classes.

    Example:
        >>> from stability.analysis import make_task
        >>> task = make_task("digits", layout=8, limit=20, test_limit=10)
        >>> [type(make(task).layer).__name__ for make in networks(4, 0.1).values()][:2]
        ['LipschitzRNN', 'LipschitzRNN']
    """
    paper = {"beta": 0.75, "gamma": 0.001, "dt": dt}
    layers: dict[str, tuple[Callable[..., nn.Module], Mapping[str, Any]]] = {
        "Lipschitz, Euler": (LipschitzRNN, paper),
        "Lipschitz, midpoint": (LipschitzRNN, {**paper, "integrator": "midpoint"}),
        "neural ODE": (NeuralODERNN, {"dt": dt}),
        "antisymmetric": (AntisymmetricRNN, {"gamma": 0.001, "dt": dt}),
        "unitary": (UnitaryRNN, {"reflections": min(16, hidden // 2)}),
        "orthogonal": (HouseholderRNN, {"reflections": min(16, hidden)}),
        "contracting": (ContractingRNN, {"rate": 0.99}),
    }
    return {
        name: functools.partial(_model, layer, hidden=hidden, options=options)
        for name, (layer, options) in layers.items()
    }


def _model(layer: Any, task: Task, *, hidden: int, options: Mapping[str, Any]) -> SequenceModel:
    return SequenceModel(layer(task.input_size, hidden, **options), task.output_size, reduction=task.reduction)


def verdict(layer: nn.Module, seed: int, time_limit: float | None = None) -> str:
    """What ``certify`` says of a trained layer and the checker confirms; ``no verdict`` where there is no claim.

    Args:
        layer: the recurrent layer.
        seed: of the searches.
        time_limit: seconds.

    Returns:
        One of ``VERDICTS``.

    Example:
        >>> verdict(LipschitzRNN(2, 3, gamma=2.0, dt=0.1, init_std=0.0).double(), 0)
        'certified'
    """
    try:
        certificate = certify(layer.to("cpu"), rate="any", seed=seed, time_limit=time_limit)
    except StabilityError:
        return "no verdict"
    return confirmed(certificate)


def confirmed(certificate: Certificate) -> str:
    """The verdict, where it claims something only if the checker proves it again.

    Args:
        certificate: of ``certify``.

    Returns:
        One of ``VERDICTS``.

    Example:
        >>> from stability.systems import LureSystem
        >>> [confirmed(certify(LureSystem.recurrent([[-1.0]], [[w]]))) for w in (0.5, 2.0)]
        ['certified', 'refuted']
    """
    word = str(certificate.verdict)
    return word if word == "inconclusive" or verify(certificate).valid else "no verdict"


def counted(verdicts: Sequence[str]) -> str:
    """Verdicts with their numbers, in words.

    Example:
        >>> counted(["certified", "refuted", "certified"])
        '2 certified, 1 refuted'
    """
    counts = {v: verdicts.count(v) for v in VERDICTS}
    return ", ".join(f"{n} {v}" for v, n in counts.items() if n)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there; ``None`` where none is.

    Example:
        >>> mean([1.0, None, 2.0]), mean([None])
        (1.5, None)
    """
    known = [float(v) for v in values if v is not None]
    return statistics.fmean(known) if known else None


def median(values: torch.Tensor) -> float | None:
    """The median of a tensor; ``None`` for an empty one."""
    return float(values.double().median()) if len(values) else None
