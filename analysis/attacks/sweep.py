"""Accuracy over a grid of perturbation sizes, with confidence intervals."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice
from stability.statistics import wilson

from ..drawn import Curve
from ..guard import check_labelled, check_number, untouched
from ..intervals import check_confidence
from ..results import Record
from .gradient import ATTACKS, SMALLEST
from .masked import unwarned, warn_of
from .threat import AttackResult, Bounds, Threat, open_threat
from .units import in_units, multiples


@dataclass(frozen=True, eq=False, kw_only=True)
class Sizes(Record):
    """Base of measurements against the size of a perturbation."""

    perturbation: str
    norm: str | None
    axis: str
    sizes: tuple[float, ...]
    ci_low: tuple[float, ...]
    ci_high: tuple[float, ...]
    n: int
    confidence: float
    seed: int
    draws: int = 1
    spread: tuple[float, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    blind: int = 0

    def curves(self) -> pd.DataFrame:
        """Return ``frame()`` with the sizes of the perturbation in a column of one name."""
        return self.frame().rename(columns={self.axis: "size"})

    def frame(self, **measured: Any) -> pd.DataFrame:
        """Return one row per size: the perturbation, the measured value, its interval, and the draws."""
        attack = self.axis == "epsilon"
        head = {"attack": self.perturbation, "norm": self.norm} if attack else {"noise": self.perturbation}
        head |= {name: measured.pop(name) for name in ("metric",) if name in measured}
        body = {**measured, "ci_low": self.ci_low, "ci_high": self.ci_high, "n": self.n}
        tail = {"seed": self.seed} if attack else {"draws": self.draws, "spread": self.spread, "seed": self.seed}
        return pd.DataFrame({**head, self.axis: self.sizes, **body, **tail})


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepResult(Sizes):
    """Accuracy against the size of a perturbation.

    Attributes:
        perturbation: name of the attack or of the noise.
        norm: norm of the sizes (attacks); ``None`` for noise.
        axis: name of the sizes: ``epsilon`` or ``level``.
        sizes: ascending.
        accuracy: share of sequences classified correctly; for attacks in the worst case found at this size
            or a smaller one, for noise in the mean over the draws.
        ci_low: lower end of Wilson's interval over the sequences, one entry per size.
        ci_high: upper end.
        n: sequences.
        confidence: confidence level of the intervals.
        seed: seed of the perturbations.
        draws: independent perturbations per size (noise); 1 for attacks.
        spread: standard deviation of the accuracy over the draws, one entry per size; 0 for attacks.
        options: further options of the perturbation.
        broken_at: ``(n,)`` smallest size at which each sequence was misclassified, infinite if at none
            (attacks); ``None`` for noise.
        blind: number of sequences without a gradient that are right at the largest size, which says nothing about
            robustness.
    """

    curve = Curve("size", ("accuracy",), ("ci_low", "ci_high"))

    accuracy: tuple[float, ...]
    broken_at: NDArray[np.float64] | None = None

    @classmethod
    def of_shares(cls, shares: Sequence[float], n: int, confidence: float, **more: Any) -> SweepResult:
        """Return the sweep with the given accuracies of ``n`` sequences, and their intervals."""
        low, high = zip(*(wilson(share, n, confidence) for share in shares))
        return cls(accuracy=tuple(shares), ci_low=low, ci_high=high, n=n, confidence=confidence, **more)

    def frame(self, **measured: Any) -> pd.DataFrame:
        """Return one row per size: ``attack, norm, epsilon`` or ``noise, level``, then accuracy and interval."""
        return super().frame(accuracy=self.accuracy)


def check_levels(name: str, values: Any, maximum: float = math.inf) -> tuple[float, ...]:
    """Check a grid of sizes; return it in ascending order without repetition.

    Raises:
        ConfigurationError: no sequence of numbers in [0, maximum], or an empty one.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{name} must be a sequence of numbers, got {values!r}")
    numbers = sorted({check_number(f"an entry of {name}", value) for value in values})
    if not numbers:
        raise ConfigurationError(f"{name} must not be empty")
    if numbers[-1] > maximum:
        raise ConfigurationError(f"{name} must not exceed {maximum:g}, got {numbers[-1]:g}")
    return tuple(numbers)


def attack_sweep(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epsilons: Sequence[float | Tensor],
    attack: str = "pgd",
    norm: str = "linf",
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    near: AttackResult | None = None,
    **options: Any,
) -> SweepResult:
    """Measure the worst-case accuracy over a grid of radii.

    Radii are taken in ascending order, and only sequences that are still classified correctly are attacked: an
    adversarial sequence inside a small ball lies in every larger one, so accuracy never rises with the radius.
    Success is recomputed here from the sequences that the attack returns: their norm, bounds and class.

    Where the gradient by the input is zero or not finite (rounded, detached or saturated inputs), attacks cannot move;
    a ``MaskedGradientWarning`` and ``blind`` of the result say so.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``, within the bounds.
        y: ``(batch,)`` class labels.
        epsilons: radii; 0 gives the clean accuracy. Or vectors ``(features,)`` that are multiples of one vector,
            which is then the unit of the result's sizes.
        attack: ``"fgsm"``, ``"pgd"``, ``"apgd"``, ``"deepfool"`` or ``"strong"`` (the last two and APGD in turns, from
            the largest radius down).
        norm: ``"linf"`` or ``"l2"`` over the whole sequence.
        bounds: pair of numbers or of tensors that broadcast to ``x``; ``None``: no bounds.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry; ``None``: everywhere but in
            padding, see ``own_steps_of``.
        seed: seed of random starts.
        confidence: confidence level of the intervals.
        near: result of ``deepfool`` for the same sequences, norm, bounds and mask, if available: ``"deepfool"`` uses
            its points, ``"strong"`` starts at them.
        **options: options of the attack, such as ``steps=7, step_size=0.01``.

    Returns:
        The sweep.

    Raises:
        ConfigurationError: an unknown attack or option, or invalid input.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))  # class 0 where x > 0
    >>> x, y = torch.tensor([[[0.25]], [[0.75]]]), torch.tensor([0, 0])
    >>> attack_sweep(model, x, y, epsilons=[0, 0.5, 1], bounds=(-1, 1)).accuracy
    (1.0, 0.5, 0.0)
    """
    run = ATTACKS[as_choice("attack", attack, ATTACKS)]
    unknown = sorted(set(options) - set(inspect.signature(run).parameters) | ({"epsilon"} & set(options)))
    if near is not None and attack not in SMALLEST:
        raise ConfigurationError(f"near= applies to {' and '.join(sorted(SMALLEST))} only: leave it out for {attack}")
    if unknown:
        raise ConfigurationError(f"{attack} has no option {', '.join(unknown)} in a sweep")
    numbers, unit = multiples(epsilons)
    if unit is not None:
        x, y = check_labelled(model, x, y)
        model, x, bounds, mask = in_units(model, x, unit, bounds, mask)
    sizes, confidence = check_levels("epsilons", numbers), check_confidence(confidence)
    threat = open_threat(model, x, y, norm=norm, bounds=bounds, mask=mask, seed=seed)
    x = threat.x

    def attack_part(part: Threat, **radius: Any) -> AttackResult:
        box = (part.box.lower, part.box.upper)  # equal where the mask forbids a change
        with unwarned():
            told = {"norm": norm, "bounds": box, "mask": box[0] < box[1], "seed": threat.seed}
            return run(model, part.x, part.y, **told, **radius, **options)

    # an attack that does not depend on the radius searches once; its result is projected to each ball
    smallest = None
    if attack in SMALLEST:
        extra: dict[str, Any] = {"epsilon": sizes, "near": near} if attack == "strong" else {}
        smallest = near if near is not None and not extra else attack_part(threat, **extra)
    blind = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    broken = torch.full((len(x),), math.inf, dtype=torch.float64)
    with untouched(model):
        for epsilon in sizes:
            standing = torch.isinf(broken).nonzero()[:, 0].to(x.device)
            if not len(standing):
                break
            part = threat.take(standing)
            if smallest is not None:
                z, blind = smallest.adversarial[standing], smallest.blind
            elif epsilon:
                result = attack_part(part, epsilon=epsilon)
                z = result.adversarial
                blind[standing] = result.blind
            else:  # a ball of radius 0 contains only the input
                z = part.x
            fallen = part.wrong(part.inside(z, epsilon))
            broken[standing[fallen].cpu()] = epsilon
    shares = [float((broken > epsilon).double().mean()) for epsilon in sizes]
    warn_of(blind, len(x))
    return SweepResult.of_shares(
        shares,
        len(x),
        confidence,
        perturbation=attack,
        norm=norm,
        axis="epsilon",
        sizes=sizes,
        seed=threat.seed,
        spread=(0.0,) * len(sizes),
        options=dict(options) if unit is None else {**options, "unit": unit.tolist()},
        broken_at=broken.numpy(),
        blind=int(blind.sum()),
    )
