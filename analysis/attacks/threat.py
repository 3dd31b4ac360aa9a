"""Threat model of an attack, and the recomputation of its success on the stored sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from ..drawn import Curve
from ..guard import check_int, check_labelled, check_number, logits_of, untouched
from ..results import Record, plain_value
from .masked import by_the_input, finite, vanishes, warn_of
from .padding import masked_padding
from .projections import Box, Geometry, Radius, geometry

Bounds = tuple[Any, Any] | None


@dataclass(frozen=True, eq=False)
class AttackResult(Record):
    """Result of an attack, evaluated again on the stored sequences.

    Attributes:
        attack: name of the attack.
        norm: ``l2`` or ``linf``; ``l2_step`` for the longest step, ``max_t |d_t|_2``.
        epsilon: radius of the attack; infinite for an attack that minimizes the perturbation.
        adversarial: ``(batch, time, features)``; the original sequence where no attack succeeded or none was
            needed.
        success: ``(batch,)`` the stored sequence is misclassified.
        already_wrong: ``(batch,)`` the original one is: counts as a success of norm 0.
        norms: ``(batch,)`` float64, size of the stored perturbation in ``norm``.
        iterations: gradient steps taken at most by one sample.
        seed: seed of random starts.
        blind: ``(batch,)`` still classified correctly, with no gradient at the input nor at the end of the attack.
    """

    curve = Curve("size", ("robust_accuracy",), steps=True)

    attack: str
    norm: str
    epsilon: float
    adversarial: Tensor
    success: Tensor
    already_wrong: Tensor
    norms: Tensor
    iterations: int
    seed: int
    blind: Tensor

    @property
    def robust_accuracy(self) -> float:
        """Share of sequences that are still classified correctly."""
        return 1.0 - float(self.success.double().mean())

    def curves(self) -> pd.DataFrame:
        """Return the share of sequences that no perturbation up to a size changed, one row where it falls."""
        size = torch.where(self.success, self.norms.double(), torch.inf).masked_fill(self.already_wrong, 0.0)
        ordered = size.cpu().numpy()
        at = sorted({0.0, float(self.epsilon), *(float(s) for s in ordered if s < float("inf"))})
        return pd.DataFrame({"size": at, "robust_accuracy": [float((ordered > s).mean()) for s in at]})

    def frame(self) -> pd.DataFrame:
        """Return one row per sequence: ``sample``, ``success``, ``already_wrong``, ``size`` of the perturbation."""
        return pd.DataFrame(
            {
                "sample": range(len(self.success)),
                "success": self.success.cpu().numpy(),
                "already_wrong": self.already_wrong.cpu().numpy(),
                "size": self.norms.cpu().numpy(),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the sequences as JSON values."""
        names = [each.name for each in fields(self) if each.name != "adversarial"]
        return {name: plain_value(getattr(self, name)) for name in (*names, "robust_accuracy")}


def margins(logits: Tensor, y: Tensor) -> Tensor:
    """Return ``max_{j != y} z_j - z_y (batch,)``, the loss of attacks; positive where misclassified."""
    others = logits.scatter(1, y[:, None], float("-inf")).amax(dim=1)
    return others - logits.gather(1, y[:, None])[:, 0]


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda logits, y: nn.functional.cross_entropy(logits, y, reduction="none"),
    "margin": margins,
}


@dataclass(frozen=True, eq=False)
class Threat:
    """Checked attack problem: model, sequences, bounds and radius; the tensors are per sample.

    With ``radii (batch,)`` every sequence has its own radius, and ``epsilon`` is only the largest that is meant.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    box: Box
    geometry: Geometry
    epsilon: float
    seed: int
    radii: Tensor | None = None

    @property
    def reach(self) -> Radius:
        """Return the radius of each sequence, or the common one."""
        return self.epsilon if self.radii is None else self.radii

    def take(self, index: Tensor) -> Threat:
        """Return the problem restricted to the selected samples."""
        radii = None if self.radii is None else self.radii[index]
        parts = {"x": self.x[index], "y": self.y[index], "box": self.box.take(index)}
        return replace(self, **parts, radii=radii)

    def logits(self, z: Tensor) -> Tensor:
        """Return the checked logits of ``z``, without a graph."""
        with torch.no_grad():
            return logits_of(self.model, z, self.y)

    def wrong(self, z: Tensor) -> Tensor:
        """Return True where ``z`` is misclassified."""
        return self.logits(z).argmax(dim=1) != self.y

    def ascend(self, z: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss ``(batch,)``, its input gradient (0 where frozen or not finite), and the logits."""
        z = z.detach().requires_grad_(True)
        logits = logits_of(self.model, z, self.y)
        values = loss(logits, self.y)
        return values.detach(), self.seen(by_the_input(values, z)), logits.detach()

    def seen(self, gradient: Tensor) -> Tensor:
        """Return the gradients ``(batch, time, features)`` with 0 where they are not finite or frozen."""
        return finite(torch.where(self.box.lower < self.box.upper, gradient, 0.0))

    def blind(self, z: Tensor) -> Tensor:
        """Return ``(batch,)``: True where the margin has no finite gradient at ``z``, though some entry may change."""
        z = z.detach().requires_grad_(True)
        free = self.box.lower < self.box.upper
        gradient = by_the_input(margins(logits_of(self.model, z, self.y), self.y), z)
        return vanishes(torch.where(free, gradient, 0.0)) & free.flatten(1).any(dim=1)

    def inside(self, z: Tensor, epsilon: Radius | None = None) -> Tensor:
        """Project ``z`` onto the ball (of another radius, if given) and the box; rounding leaves neither."""
        radius = self.reach if epsilon is None else epsilon
        if isinstance(radius, Tensor) or radius < float("inf"):
            z = self.geometry.clip(self.x, z, radius)
        return self.box.clip(z)  # x is in the box, so clipping only brings z nearer to x

    def judge(self, attack: str, z: Tensor, iterations: int, already: Tensor | None = None) -> AttackResult:
        """Clip the points, run the model again, and record which ones are misclassified.

        Args:
            attack: name of the attack.
            z: points found by the attack.
            iterations: number of steps.
            already: mask of originally misclassified sequences, if this batch was run before; ``None``: compute it.
        """
        z = self.inside(z.detach())
        already = self.wrong(self.x) if already is None else already
        z = torch.where(already[:, None, None], self.x, z)
        success = self.wrong(z)
        norms = self.geometry.size(z.double() - self.x.double())
        name = self.geometry.name
        blind = torch.zeros_like(success)
        for point in (self.x, z):
            rows = (~success if point is self.x else blind).nonzero()[:, 0]
            if len(rows):
                blind[rows] = self.take(rows).blind(point[rows])
        return AttackResult(attack, name, self.epsilon, z, success, already, norms, iterations, self.seed, blind)


def attacked(threat: Threat, name: str, run: Callable[[Threat], tuple[Tensor, int]], starts: int = 1) -> AttackResult:
    """Run an attack from several starts and judge its best points; later starts skip sequences already misclassified.

    Args:
        threat: the problem.
        name: name of the attack.
        run: one start for a part of the problem; returns the points and the number of steps taken.
        starts: number of starts.
    """
    with untouched(threat.model):
        for parameter in threat.model.parameters():
            parameter.requires_grad_(False)  # no derivative by them is needed, nor a graph that leads to them
        adversarial, longest = threat.x.clone(), 0
        already = threat.wrong(threat.x)
        standing = (~already).nonzero()[:, 0]
        for remaining in reversed(range(starts)):
            if not len(standing):
                break
            part = threat.take(standing)
            z, taken = run(part)
            longest = max(longest, taken)
            adversarial[standing] = z
            standing = standing[~part.wrong(z)] if remaining else standing
        result = threat.judge(name, adversarial, longest, already)
    warn_of(result.blind, len(threat.x))
    return result


def _bound(value: Any, x: Tensor, name: str, default: float) -> Tensor:
    if value is None:
        return torch.full_like(x, default)
    if isinstance(value, bool | str):
        raise ConfigurationError(f"the {name} bound must be a number or a tensor, got {value!r}")
    try:
        bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"the {name} bound must be a number or a tensor, got {value!r}") from error
    if bound.isnan().any():
        raise ConfigurationError(f"the {name} bound holds NaN")
    return _broadcast(bound, x, f"the {name} bound")


def _broadcast(value: Tensor, x: Tensor, name: str) -> Tensor:
    try:
        return value.broadcast_to(x.shape)
    except RuntimeError as error:
        raise DimensionError(name, f"broadcastable to {tuple(x.shape)}", tuple(value.shape)) from error


def free_box(x: Tensor, bounds: Bounds, mask: Any) -> tuple[Box, Tensor]:
    """Return the bounds of every entry, and the mask of entries that may change, in the shape of ``x``.

    Args:
        x: ``(batch, time, features)``.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``; ``None``: true everywhere.

    Raises:
        ConfigurationError: bounds or mask of a wrong kind, crossed bounds, or ``x`` outside of them.
        DimensionError: a bound or mask of another shape.
    """
    if bounds is not None and (not isinstance(bounds, tuple | list) or len(bounds) != 2):
        raise ConfigurationError(f"bounds must be a pair (lower, upper) or None, got {bounds!r}")
    lower, upper = (None, None) if bounds is None else bounds
    low, high = _bound(lower, x, "lower", float("-inf")), _bound(upper, x, "upper", float("inf"))
    if (low > high).any():
        raise ConfigurationError("a lower bound lies above its upper bound")
    if (x < low).any() or (x > high).any():
        raise ConfigurationError(
            f"the entries of x span [{float(x.min()):.4g}, {float(x.max()):.4g}], outside the bounds: "
            "pass bounds=(lower, upper) of the data (numbers or tensors, one per feature), or None"
        )
    if mask is None:
        return Box(low, high), torch.ones_like(x, dtype=torch.bool)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise ConfigurationError("mask must be a boolean tensor, true where the input may change")
    return Box(low, high), _broadcast(mask.to(x.device), x, "mask")


def _box(x: Tensor, bounds: Bounds, mask: Any) -> Box:
    box, free = free_box(x, bounds, mask)
    return Box(torch.where(free, box.lower, x), torch.where(free, box.upper, x))


def open_threat(
    model: Any, x: Any, y: Any, *, norm: str, bounds: Bounds, mask: Any, seed: Any, epsilon: Any = 0.0
) -> Threat:
    """Check all arguments of an attack and return its problem.

    Args:
        model: ``model(x) -> logits (batch, classes)``.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        norm: ``"l2"`` or ``"linf"``.
        bounds: pair of numbers or of tensors that broadcast to ``x`` (one per feature, per position);
            ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry; ``None``: everywhere but in
            padding.
        seed: seed of random starts.
        epsilon: radius; ``None`` means no limit.

    Returns:
        The problem.

    Raises:
        ConfigurationError: an invalid option or tensor, ``x`` outside its bounds, labels that are
            no class.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.
    """
    shape = geometry(norm)
    radius = float("inf") if epsilon is None else check_number("epsilon", epsilon)
    x, y = check_labelled(model, x, y)
    mask = masked_padding(model, x, mask)
    return Threat(model, x, y, _box(x, bounds, mask), shape, radius, check_int("seed", seed, 0))
