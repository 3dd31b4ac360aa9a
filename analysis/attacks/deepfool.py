"""DeepFool: repeated steps to the nearest boundary of the linearized classifier, then bisection back to the input."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from ..guard import check_int, check_number, logits_of, untouched
from .masked import by_the_input, finite, warn_of
from .threat import AttackResult, Bounds, Threat, open_threat


def _differences(threat: Threat, z: Tensor, rivals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``f_k = z_k - z_y`` and their gradients for the rival classes, by one pass over a batch of copies.

    Args:
        threat: the problem.
        z: ``(batch, time, features)``.
        rivals: ``(batch, k)`` classes.

    Returns:
        ``f (batch, k)``, gradients ``(batch, k, time, features)``, and whether each ``z`` is misclassified.
    """
    batch, k = rivals.shape
    copies = z.repeat_interleave(k, dim=0).requires_grad_(True)
    truth = threat.y.repeat_interleave(k)
    logits = logits_of(threat.model, copies, truth)
    f = logits.gather(1, rivals.reshape(-1, 1))[:, 0] - logits.gather(1, truth[:, None])[:, 0]
    gradient = by_the_input(f, copies)
    wrong = logits.detach()[::k].argmax(dim=1) != threat.y
    gradient = gradient.reshape(batch, k, *z.shape[1:])
    gradient = torch.where((threat.box.lower < threat.box.upper)[:, None], gradient, 0.0)
    return f.detach().reshape(batch, k), finite(gradient), wrong


def _nearest(threat: Threat, z: Tensor, f: Tensor, gradient: Tensor) -> Tensor:
    """Return the smallest step that reaches a linearized class boundary: length ``|f_k| / |g_k|*``."""
    batch, k = f.shape
    flat = threat.box.turned(z, gradient).flatten(0, 1)
    steepness = threat.geometry.dual(flat)
    distance = torch.where(steepness > 0, f.abs().reshape(-1).double() / steepness, float("inf"))
    distances = distance.reshape(batch, k)
    best = distances.argmin(dim=1)
    rows = torch.arange(batch, device=z.device)
    length = distances[rows, best]
    length = torch.where(length < float("inf"), length, 0.0).to(z.dtype)  # no boundary can be reached
    return threat.geometry.step(flat.reshape(batch, k, *z.shape[1:])[rows, best], length)


def search_boundary(threat: Threat, steps: int, overshoot: float, candidates: int) -> tuple[Tensor, int]:
    """Return the first misclassified iterate of each sequence, else the last, and the number of steps."""
    z, total = threat.x.clone(), torch.zeros_like(threat.x)
    logits = threat.logits(threat.x)
    order = logits.scatter(1, threat.y[:, None], float("-inf")).argsort(dim=1, descending=True)
    rivals = order[:, : min(candidates, logits.shape[1]) - 1]
    remaining = (logits.argmax(dim=1) == threat.y).nonzero()[:, 0]
    for taken in range(steps):
        if not len(remaining):
            return z, taken
        part = threat.take(remaining)
        f, gradient, wrong = _differences(part, z[remaining], rivals[remaining])
        total[remaining] += torch.where(wrong[:, None, None], 0.0, _nearest(part, z[remaining], f, gradient))
        moved = part.box.clip(part.x + (1 + overshoot) * total[remaining])
        z[remaining] = torch.where(wrong[:, None, None], z[remaining], moved)
        remaining = remaining[~wrong]
    return z, steps


def bisected(threat: Threat, z: Tensor, halvings: int, is_wrong: Callable[[Threat, Tensor], Tensor]) -> Tensor:
    """Bisect the segments from ``x`` to misclassified points ``z``; return the misclassified ends next to ``x``."""
    low, high = torch.zeros(len(z), 1, 1, dtype=z.dtype, device=z.device), torch.ones_like(z[:, :1, :1])
    boundary = z
    for _ in range(halvings):
        middle = (low + high) / 2
        point = threat.box.clip(threat.x + middle * (z - threat.x))
        wrong = is_wrong(threat, point)[:, None, None]
        boundary = torch.where(wrong, point, boundary)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return boundary


def move_to_boundary(threat: Threat, z: Tensor, halvings: int, fooled: bool = False) -> Tensor:
    """Return a misclassified point close to the class boundary on the segment from ``x`` to each misclassified ``z``.

    The last step of the search may be long: if some entries are at a bound, the others must change more.

    Args:
        threat: the problem.
        z: ``(batch, time, features)``, within the bounds.
        halvings: number of bisection steps.
        fooled: True if it is known that each ``z`` is misclassified and its ``x`` is not.

    Returns:
        ``(batch, time, features)``; correctly classified points are unchanged.
    """
    if fooled:
        rows = torch.arange(len(z), device=z.device)
    else:
        rows = (threat.wrong(z) & ~threat.wrong(threat.x)).nonzero()[:, 0]
    if not len(rows):
        return z
    boundary = bisected(threat.take(rows), z[rows], halvings, Threat.wrong)
    shorter = z.index_copy(0, rows, boundary)
    wrong = threat.wrong(threat.box.clip(shorter))  # near the boundary, rounding depends on the size of the batch
    return torch.where(wrong[:, None, None], shorter, z)


def deepfool(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    steps: int = 7,
    overshoot: float = 0.02,
    candidates: int = 10,
    halvings: int = 12,
    epsilon: float | None = None,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    seed: int = 0,
) -> AttackResult:
    """Find a small perturbation by repeated linearization: ``min_k |f_k| / |grad f_k|*``, ``f_k = z_k - z_y``.

    ``|.|*`` is the dual norm (l2 for l2, l1 for linf). Entries at a bound that would cross it are left out of a step.
    Finally, bisection shortens the perturbation while the class stays wrong. The published algorithm ends with its
    first misclassified iterate (``halvings=0``), which lies far behind the boundary if the last step was long. On an
    affine classifier without active bounds one step is exact: the norm found exceeds the distance to the nearest
    decision boundary by a relative error of at most ``(1 + overshoot) 2^-halvings``.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        norm: ``"l2"`` or ``"linf"`` over the whole sequence.
        steps: linearizations.
        overshoot: relative step beyond the boundary.
        candidates: number of considered classes, the true one and those of largest logits; 2 or more.
        halvings: bisection steps from the misclassified iterate towards ``x``; 0 for the algorithm as published.
        epsilon: radius to which the result is projected before it is judged; ``None``: no limit.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: no bounds.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        seed: recorded only; the attack is deterministic.

    Returns:
        The result, with success recomputed on the stored sequences; ``norms`` of successes are upper bounds
        of the true radius.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    Source: S. Moosavi-Dezfooli, A. Fawzi, P. Frossard (2016), algorithm 2 and section 2.3; the bisection is added.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False)).double()
    >>> _ = model[1].weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))  # boundary 3 a + 4 b = 0
    >>> point = torch.tensor([[[1.0, 0.5]]], dtype=torch.float64)  # at distance (3 + 2) / 5
    >>> round(float(deepfool(model, point, torch.tensor([0]), bounds=None).norms), 2)
    1.0
    >>> round(float(deepfool(model, point, torch.tensor([0]), bounds=None, halvings=0).norms), 9)
    1.02
    """
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed, epsilon=epsilon)
    steps, candidates = check_int("steps", steps), check_int("candidates", candidates, 2)
    halvings = check_int("halvings", halvings, 0)
    overshoot = check_number("overshoot", overshoot)
    if overshoot > 1:
        raise ConfigurationError(f"overshoot must be at most 1, got {overshoot!r}")
    with untouched(model):
        z, taken = search_boundary(threat, steps, overshoot, candidates)
        z = move_to_boundary(threat, z, halvings)
        result = threat.judge("deepfool", z, taken)
    warn_of(result.blind, len(threat.x))
    return result
