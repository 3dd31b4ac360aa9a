"""White-box gradient attacks on input sequences: FGSM and PGD, and the table of all attacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ..guard import check_int, check_number
from .apgd import apgd
from .deepfool import deepfool
from .strong import strong
from .threat import LOSSES, AttackResult, Bounds, Threat, attacked, margins, open_threat
from .units import per_feature

CLEAR = 1e-3
"""Margin, relative to the largest logit, that rounding in float32 cannot undo in a batch of another size."""


def climb(
    threat: Threat, steps: int, step_size: float, loss: str, generator: torch.Generator | None = None
) -> tuple[Tensor, int]:
    """Run projected gradient ascent; return the points and the largest number of steps of a sequence.

    A point is the first visited one whose margin rounding cannot undo, else the visited one of largest margin; a
    sequence that has the first takes part in no further step.
    """
    start = threat.x
    if generator is not None:
        start = start + threat.geometry.random(start, threat.reach, generator)
    z = threat.inside(start)
    best, best_margin = z.clone(), torch.full((len(z),), float("-inf"), dtype=z.dtype, device=z.device)
    rows = torch.arange(len(z), device=z.device)
    for taken in range(steps):
        _, gradient, logits = threat.ascend(z, LOSSES[loss])
        _keep_best(best, best_margin, rows, z, margins(logits, threat.y))
        standing = (best_margin[rows] <= CLEAR * logits.abs().amax(dim=1)).nonzero()[:, 0]
        if not len(standing):
            return best, taken
        if len(standing) < len(rows):
            rows, z, gradient, threat = rows[standing], z[standing], gradient[standing], threat.take(standing)
        length = torch.full((len(z),), step_size, dtype=z.dtype, device=z.device)
        z = threat.inside(z + threat.geometry.step(gradient, length))
    _keep_best(best, best_margin, rows, z, margins(threat.logits(z), threat.y))
    return best, steps


def _keep_best(best: Tensor, best_margin: Tensor, rows: Tensor, z: Tensor, margin: Tensor) -> None:
    """Write points ``z`` of the selected rows into ``best`` where their margin is larger."""
    better = margin > best_margin[rows]
    best[rows[better]] = z[better]
    best_margin[rows[better]] = margin[better]


@per_feature
def fgsm(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    norm: str = "linf",
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    loss: str = "cross_entropy",
    seed: int = 0,
) -> AttackResult:
    """Take one step along the gradient g of the loss: ``x + eps sign(g)`` (linf) or ``x + eps g / |g|`` (l2).

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: radius, 0 or more; or one for each feature, ``(features,)``.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence; ``"l2_step"`` for every step.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        loss: ``"cross_entropy"`` or ``"margin"``.
        seed: recorded only; the attack is deterministic.

    Returns:
        The result, with success recomputed on the stored sequences.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    Source: I. Goodfellow, J. Shlens, C. Szegedy (2015).

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 where x > 0
    >>> result = fgsm(model, torch.tensor([[[0.25]]]), torch.tensor([0]), epsilon=0.5, bounds=(-1, 1))
    >>> result.adversarial.item(), bool(result.success)
    (-0.25, True)
    """
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed, epsilon=epsilon)
    as_choice("loss", loss, LOSSES)
    return attacked(threat, "fgsm", lambda part: climb(part, 1, threat.epsilon, loss))


@per_feature
def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    norm: str = "linf",
    steps: int = 7,
    step_size: float | None = None,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    random_start: bool = True,
    restarts: int = 1,
    loss: str = "cross_entropy",
    seed: int = 0,
) -> AttackResult:
    """Run projected gradient ascent: ``z <- P(z + step_size * direction(dL/dz))``, ``P`` onto ball and bounds.

    The direction is the steepest one of the norm: the sign (linf) or the unit gradient (l2). Each sequence keeps the
    first visited point that is misclassified beyond rounding, and takes no further step then, else the visited point of
    largest margin. The experiment of the Lipschitz RNN study is ``steps=7, step_size=0.01``.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilon: radius, 0 or more; or one for each feature, ``(features,)``.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence; ``"l2_step"`` for every step.
        steps: gradient steps of each start.
        step_size: length of a step in ``norm``; ``None``: ``2.5 epsilon / steps``.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        random_start: begin at a random point of the ball instead of ``x``.
        restarts: random starts; later ones attack only what still stands.
        loss: ``"cross_entropy"`` or ``"margin"``.
        seed: seed of the random starts.

    Returns:
        The result, with success recomputed on the stored sequences.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    Source: A. Madry et al. (2018).

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> result = pgd(model, torch.tensor([[[0.5]]]), torch.tensor([0]), epsilon=0.25, bounds=(-1, 1))
    >>> bool(result.success), result.robust_accuracy  # class 0 wherever x > 0
    (False, 1.0)
    """
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed, epsilon=epsilon)
    steps, restarts = check_int("steps", steps), check_int("restarts", restarts)
    length = 2.5 * threat.epsilon / steps if step_size is None else check_number("step_size", step_size, strict=True)
    if restarts > 1 and not random_start:
        raise ConfigurationError("restarts without random_start would repeat the same run: set random_start=True")
    as_choice("loss", loss, LOSSES)
    generator = torch.Generator().manual_seed(threat.seed) if random_start else None
    return attacked(threat, "pgd", lambda part: climb(part, steps, length, loss, generator), restarts)


ATTACKS: dict[str, Callable[..., Any]] = {
    "fgsm": fgsm,
    "pgd": pgd,
    "apgd": apgd,
    "deepfool": deepfool,
    "strong": strong,
}
SMALLEST = frozenset({"deepfool", "strong"})  # those whose one answer is pulled back to every radius
