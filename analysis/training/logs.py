"""Log entries of a tracker: records and verdicts as named numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from stability.certification import certify_contraction
from stability.errors import StabilityError
from stability.kernel.format.claims import Verdict

Log = Callable[[Mapping[str, float], int], Any]
VERDICTS = {Verdict.CERTIFIED: 1.0, Verdict.INCONCLUSIVE: 0.0, Verdict.REFUTED: -1.0}
"""Verdicts as numbers, for logs that draw curves."""


def numbers_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, float]:
    """Return the finite rows of a record as named numbers.

    Args:
        rows: ``(step, epoch, matrix, quantity, value)``.

    Example:
        >>> numbers_of([(0, 0, "W", "sigma_max", 1.5), (0, 0, "margins", "gap", float("nan"))])
        {'stability/W/sigma_max': 1.5}
    """
    return {f"stability/{m}/{q}": float(v) for _, _, m, q, v in rows if math.isfinite(float(v))}


def verdict_of(model: nn.Module, seconds: float | None) -> tuple[dict[str, float], str]:
    """Certify contraction of the present model; return the verdict as numbers for a log, and as a word.

    Args:
        model: the model in any mode; it is certified in evaluation mode.
        seconds: time limit of the certificate; ``None``: none.

    Returns:
        ``stability/verdict`` (1 certified, 0 inconclusive, -1 refuted) and, where one is proved, ``stability/rate``;
        the verdict's name, or why there is none.
    """
    modes = [(part, part.training) for part in model.modules()]
    try:
        model.eval()
        certificate = certify_contraction(model, time_limit=seconds)
    except StabilityError as error:
        return {}, str(error)
    finally:
        for part, training in modes:
            part.training = training
    rate = {} if certificate.rate is None else {"stability/rate": float(certificate.rate)}
    return {"stability/verdict": VERDICTS[certificate.verdict], **rate}, str(certificate.verdict)
