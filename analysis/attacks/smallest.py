"""Upper bound of the robustness radius: the smallest perturbation found by several attacks."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError

from ..guard import check_int, check_labelled, logits_of, untouched
from .apgd import ascend_loss
from .deepfool import bisected, search_boundary
from .masked import by_the_input, warn_of
from .projections import Box, Geometry
from .threat import AttackResult, Bounds, Threat, margins, open_threat

CLEAR = 1e-9
"""Margin, relative to the largest logit, from which a class counts as wrong: above the rounding of float64."""
_SHRINK = 0.95  # APGD searches inside this share of the smallest perturbation found so far
_HALVINGS = 40  # bisection steps towards the boundary: the segment shrinks by 2^-40
_PARTS = (1.0, 0.5, 0.2)
"""Fractions of the step to the linearized boundary that are tried."""
_BEYOND = (1.000001, 1.003, 1.03)
"""Factors by which a proposed perturbation is overshot, since the true boundary may bend away."""


def check_budget(norm: str, budget: str) -> str:
    """Check the word for the limited quantity: the norm of the whole perturbation or of its largest step.

    Args:
        norm: ``"l2"`` or ``"linf"``.
        budget: ``"total"`` or ``"step"``.

    Returns:
        The budget.

    Raises:
        ConfigurationError: an unknown word, or ``"step"`` in l_inf.
    """
    if budget not in ("total", "step"):
        raise ConfigurationError(f"budget must be 'total' or 'step', got {budget!r}")
    if budget == "step" and norm != "l2":
        raise ConfigurationError(
            f"budget 'step' is for norm 'l2', got {norm!r}: the largest change of an entry of the sequence is the "
            "largest one of its steps, so that both budgets are one in l_inf; leave the budget out"
        )
    return budget


def nearest_level(gradient: Tensor, rise: Tensor, low: Tensor, high: Tensor, shape: Geometry) -> Tensor:
    """Return a small ``d`` with ``g . d >= rise`` inside a box: the nearest point of a linear decision boundary.

    ``d = clip(s u)`` with the steepest direction ``u`` of the norm and one ``s >= 0`` a sample, by bisection: entries
    at their bound leave the rest to the others. It is the smallest one in l2 and linf, and without bounds in l2_step.

    Args:
        gradient: ``(batch, time, features)``.
        rise: ``(batch,)``.
        low: lower bounds in the gradient's shape, at most 0.
        high: upper bounds in the gradient's shape, at least 0.
        shape: geometry of the norm.

    Returns:
        As the gradient; the corner of the box that goes farthest where no point of it reaches the level.

    >>> from stability.analysis.attacks.projections import geometry
    >>> g, one = torch.tensor([[[3.0, 4.0]]]), torch.ones(1, 1, 2)
    >>> nearest_level(g, torch.tensor([5.0]), -one, 0.5 * one, geometry("l2"))  # the free answer is (0.6, 0.8)
    tensor([[[0.5000, 0.5000]]])
    """
    direction = shape.step(gradient, torch.ones_like(rise))
    steep = (direction * gradient).flatten(1).sum(dim=1)
    need = torch.where(rise > 0, rise, torch.zeros_like(rise))
    lower_count = torch.zeros_like(need)
    above = torch.where(steep > 0, need / torch.where(steep > 0, steep, torch.ones_like(steep)), lower_count)

    def at(scale: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(scale[:, None, None] * direction, low), high)

    for _ in range(60):  # until everything that matters stands at its bound, or the level is reached
        short = (gradient * at(above)).flatten(1).sum(dim=1) < need
        if not bool(short.any()):
            break
        lower_count, above = torch.where(short, above, lower_count), torch.where(short, 2 * above, above)
    for _ in range(50):
        middle = (lower_count + above) / 2
        short = (gradient * at(middle)).flatten(1).sum(dim=1) < need
        lower_count, above = torch.where(short, middle, lower_count), torch.where(short, above, middle)
    return at(above)


def _fooled(threat: Threat, z: Tensor) -> Tensor:
    """Return True where ``z`` is misclassified by more than rounding."""
    logits = threat.logits(z)
    return margins(logits, threat.y) > CLEAR * logits.abs().amax(dim=1)


def _sizes(threat: Threat, z: Tensor) -> Tensor:
    return threat.geometry.size(z - threat.x)


def _proposals(threat: Threat, z: Tensor) -> Tensor:
    """Return points ``(c, batch, time, features)`` near the closest point of the boundary linearized at ``z``."""
    point = z.detach().requires_grad_(True)
    logits = logits_of(threat.model, point, threat.y)
    f = margins(logits, threat.y)
    gradient = threat.seen(by_the_input(f, point))
    d, low, high = z - threat.x, threat.box.lower - threat.x, threat.box.upper - threat.x
    rise = (gradient * d).flatten(1).sum(dim=1) - f.detach()
    best = nearest_level(gradient, rise, low, high, threat.geometry)
    points = [scale * (d + part * (best - d)) for part in _PARTS for scale in _BEYOND]
    return torch.stack([threat.box.clip(threat.x + p) for p in points])


def _polish(threat: Threat, z: Tensor, steps: int) -> Tensor:
    """Shrink misclassified points along the boundary; each step goes to the nearest point of its linearization.

    A point is where this ends only if its perturbation is the smallest to first order: parallel to the gradient where
    the bounds leave it free (l2). Nothing is taken that is not misclassified and smaller.
    """
    z, moving = z.clone(), torch.arange(len(z), device=z.device)
    for _ in range(steps):
        if not len(moving):
            break
        part, start = threat.take(moving), z[moving]
        points = _proposals(part, start)
        count = len(points)
        every = threat.take(moving.repeat(count))
        flat = points.flatten(0, 1)
        sizes = torch.where(_fooled(every, flat), _sizes(every, flat), float("inf")).reshape(count, -1)
        before, (new_sizes, which) = _sizes(part, start), sizes.min(dim=0)
        smaller = new_sizes < before
        chosen = points[which, torch.arange(len(moving), device=z.device)]
        z[moving] = torch.where(smaller[:, None, None], chosen, start)
        moving = moving[new_sizes < (1 - 1e-4) * before]
    return z


def _free_sizes(box: Box, x: Tensor) -> Tensor:
    """Return an initial radius ``(batch,)`` where no attack succeeded: the norm of the inputs, or of their box."""
    span = torch.where(torch.isfinite(box.upper - box.lower), box.upper - box.lower, x.abs() + 1.0)
    return span.flatten(1).amax(dim=1)


def _rivals(threat: Threat) -> Tensor:
    """Return the other classes ``(batch, k - 1)``, starting with the largest logit at ``x``."""
    logits = threat.logits(threat.x)
    return logits.scatter(1, threat.y[:, None], float("-inf")).argsort(dim=1, descending=True)[:, :-1]


def attack_radii(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    budget: str = "total",
    bounds: Bounds = None,
    mask: Tensor | None = None,
    steps: int = 30,
    restarts: int = 4,
    seed: int = 0,
) -> AttackResult:
    """Find the smallest perturbation of each sequence that changes its class, by several attacks.

    DeepFool first, drawn back to the boundary by bisection. Then the point is moved along the boundary, each step to
    the smallest perturbation inside the bounds that reaches the linearized boundary there; then APGD looks
    from random starts inside of 95 % of what was found, in a ball of each sequence's own radius, with the margin as its
    loss and with the lead of one rival class after the other in turns; what it finds is drawn back and moved alike.
    Where nothing was found the radius is doubled instead.
    Everything runs in float64, and a success is a margin above ``1e-9`` of the largest logit, computed from the
    perturbed sequence.

    Args:
        model: ``model(x) -> logits (batch, classes)``; a float64 copy is judged, in evaluation mode.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        norm: ``"l2"`` or ``"linf"`` over the whole sequence.
        budget: minimized norm: ``"total"``, that of the whole perturbation ``d``, or ``"step"`` (l2 alone),
            the largest of the steps' own, ``max_t |d_t|_2``; the result's ``norm`` is ``"l2_step"`` then.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        steps: along the boundary, and of each run of APGD.
        restarts: runs of APGD.
        seed: seed of the random starts.

    Returns:
        The result, ``adversarial`` and ``norms`` in float64: 0 where ``x`` itself is misclassified, and without meaning
        where ``success`` is false.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    Source: S. Moosavi-Dezfooli, A. Fawzi, P. Frossard (2016); F. Croce, M. Hein (2020), for steps along the boundary
    their "Minimally distorted adversarial examples" (2020), section 3.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False)).double()
    >>> _ = model[1].weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))  # boundary 3 a + 4 b = 0
    >>> point = torch.tensor([[[1.0, 0.5]]], dtype=torch.float64)  # at distance (3 + 2) / 5
    >>> round(float(attack_radii(model, point, torch.tensor([0])).norms), 6)
    1.0
    >>> round(float(attack_radii(model, point, torch.tensor([0]), bounds=(-0.2, 1)).norms), 4)  # b stops at -0.2
    1.0138
    """
    check_labelled(model, x, y)
    steps, restarts = check_int("steps", steps), check_int("restarts", restarts, 0)
    exact = copy.deepcopy(model).double()
    norm = "l2_step" if check_budget(norm, budget) == "step" else norm
    options: dict[str, Any] = {"norm": norm, "seed": seed, "epsilon": None, "mask": mask}
    threat = open_threat(exact, x.double(), y, bounds=stored_bounds(bounds, x), **options)
    generator = torch.Generator().manual_seed(threat.seed)
    with untouched(exact):
        z, taken = search_boundary(threat, steps, 0.02, 10)
        z = torch.where(_fooled(threat, z)[:, None, None], z, threat.x)
        found = torch.full((len(z),), float("inf"), dtype=torch.float64, device=z.device)
        z, found = _better(threat, z, found, threat.x.clone(), steps)  # written into below, which the data are not
        guess = _free_sizes(threat.box, threat.x)
        order = _rivals(threat)
        for restart in range(restarts):
            standing = (found > 0).nonzero()[:, 0]
            if not len(standing):
                break
            radii = torch.where(found < float("inf"), _SHRINK * found, guess)[standing]
            part = replace(threat.take(standing), radii=radii)
            rival = order[standing, restart // 2 % order.shape[1]] if restart % 2 else None
            new, more = ascend_loss(part, steps, margins, generator, rival)
            taken, guess = taken + more, 2 * guess
            z[standing], found[standing] = _better(part, new, found[standing], z[standing], steps)
        result = threat.judge("smallest", z, taken)
    warn_of(result.blind, len(threat.x))
    return result


def stored_bounds(bounds: Bounds, x: Tensor) -> Bounds:
    """Round the bounds as the data are stored: 0.1 in float32 differs from 0.1 in float64, and ``x`` may lie there."""
    if x.dtype == torch.float64 or not x.is_floating_point() or not isinstance(bounds, tuple | list):
        return bounds
    stored = [torch.tensor(v, dtype=x.dtype) if _number(v) else v for v in bounds]
    low, high = (v.to(x.dtype).double() if isinstance(v, Tensor) else v for v in stored)
    return low, high


def _number(value: Any) -> bool:
    return isinstance(value, int | float | list | tuple) and not isinstance(value, bool)


def _better(threat: Threat, new: Tensor, sizes: Tensor, old: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the smaller of the old points and the refined new ones, and its size."""
    rows = _fooled(threat, new).nonzero()[:, 0]
    if not len(rows):
        return old, sizes
    part = replace(threat.take(rows), radii=None)
    moved = bisected(part, _polish(part, bisected(part, new[rows], 12, _fooled), steps), _HALVINGS, _fooled)
    new_sizes = _sizes(part, moved)
    smaller = new_sizes < sizes[rows]
    z, best = old.clone(), sizes.clone()
    z[rows] = torch.where(smaller[:, None, None], moved, old[rows])
    best[rows] = torch.where(smaller, new_sizes, sizes[rows])
    return z, best
