"""Records of a tracker in other people's logs: TensorBoard, MLflow, Weights & Biases, Lightning's loggers, a function.

None of these libraries is imported here: what can be called as one of them can is taken for one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from torch import nn

from stability.certification import certify
from stability.errors import ConfigurationError, StabilityError
from stability.kernel.format.claims import Verdict

Log = Callable[[Mapping[str, float], int], Any]
VERDICTS = {Verdict.CERTIFIED: 1.0, Verdict.INCONCLUSIVE: 0.0, Verdict.REFUTED: -1.0}
"""A verdict as a number, for logs that draw curves."""


def as_log(target: Any) -> Log:
    """A function ``log(numbers, step)`` for whatever keeps curves.

    Args:
        target: a function ``(dict, step)``; something with ``add_scalar(name, value, step)`` (TensorBoard's
            ``SummaryWriter``), ``log_metrics(dict, step=...)`` (``mlflow``, loggers of Lightning) or
            ``log(dict, step=...)`` (a run of Weights & Biases, ``wandb`` itself); or a list of such.

    Returns:
        The function.

    Raises:
        ConfigurationError: none of these.

    Example:
        >>> kept = []
        >>> as_log([lambda numbers, step: kept.append((step, numbers))])({"rate": 0.9}, 10)
        >>> kept
        [(10, {'rate': 0.9})]
    """
    if isinstance(target, (list, tuple)):
        return partial(_to_each, [as_log(each) for each in target])
    if isinstance(target, logging.Logger):
        raise ConfigurationError("a logging.Logger keeps texts: give a function (numbers, step) that writes them to it")
    if callable(getattr(target, "add_scalar", None)):
        return partial(_one_by_one, target.add_scalar)
    for method in ("log_metrics", "log"):
        if callable(getattr(target, method, None)):
            return partial(_with_step, getattr(target, method))
    if callable(target):
        return target
    raise ConfigurationError(
        "log must be a function (numbers, step), or have add_scalar (TensorBoard), log_metrics (MLflow, Lightning) or "
        f"log (Weights & Biases); a {type(target).__name__} has none of them"
    )


def _to_each(logs: Iterable[Log], numbers: Mapping[str, float], step: int) -> None:
    for log in logs:
        log(numbers, step)


def _one_by_one(add: Callable[..., Any], numbers: Mapping[str, float], step: int) -> None:
    for name, value in numbers.items():
        add(name, value, step)


def _with_step(write: Callable[..., Any], numbers: Mapping[str, float], step: int) -> None:
    write(dict(numbers), step=step)


def numbers_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, float]:
    """The rows of a record as named numbers, those that are finite.

    Args:
        rows: ``(step, epoch, matrix, quantity, value)``.

    Example:
        >>> numbers_of([(0, 0, "W", "sigma_max", 1.5), (0, 0, "margins", "gap", float("nan"))])
        {'stability/W/sigma_max': 1.5}
    """
    return {f"stability/{m}/{q}": float(v) for _, _, m, q, v in rows if math.isfinite(float(v))}


def verdict_of(model: nn.Module, seconds: float | None) -> tuple[dict[str, float], str]:
    """The verdict about a model as it is now, as numbers for a log, and in a word.

    Args:
        model: the model, in whatever mode; it is asked as it would run in evaluation.
        seconds: time limit of the certificate; ``None``: none.

    Returns:
        ``stability/verdict`` (1 certified, 0 inconclusive, -1 refuted) and, where one is proved, ``stability/rate``;
        the verdict's name, or why there is none.
    """
    modes = [(part, part.training) for part in model.modules()]
    try:
        model.eval()
        found = certify(model, time_limit=seconds)
    except StabilityError as error:
        return {}, str(error)
    finally:
        for part, training in modes:
            part.training = training
    rate = {} if found.rate is None else {"stability/rate": float(found.rate)}
    return {"stability/verdict": VERDICTS[found.verdict], **rate}, str(found.verdict)
