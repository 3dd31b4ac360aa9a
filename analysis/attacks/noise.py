"""Accuracy under random perturbations: of the input (white, salt and pepper) and of the parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, NonFiniteError
from stability.kernel.checks import as_choice

from ...models.wrapped import two_logits
from ..curvature.products import select_parameters
from ..guard import check_int, check_labelled, logits_of, untouched
from ..intervals import check_confidence
from .padding import masked_padding
from .projections import Box
from .sweep import SweepResult, check_levels
from .threat import Bounds, free_box


def _white(x: Tensor, level: float, box: Box, generator: torch.Generator) -> Tensor:
    """Return ``x + N(0, level^2)``."""
    return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device).mul_(level).add_(x)


def _salt_pepper(x: Tensor, level: float, box: Box, generator: torch.Generator) -> Tensor:
    """Set each entry, with probability ``level``, to its lower or upper bound with equal chances."""
    dice = torch.rand(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    return torch.where(dice < level / 2, box.lower, torch.where(dice < level, box.upper, x))


KINDS: dict[str, tuple[Callable[[Tensor, float, Box, torch.Generator], Tensor], float]] = {
    "white": (_white, math.inf),
    "salt_pepper": (_salt_pepper, 1.0),
}


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((logits_of(model, x, y).argmax(dim=1) == y).double().mean())


def _sweep(
    perturbation: str,
    sizes: tuple[float, ...],
    measure: Callable[[float, torch.Generator], float],
    n: int,
    *,
    draws: int,
    seed: int,
    confidence: float,
    options: dict[str, Any],
) -> SweepResult:
    """Average the accuracy over the draws at each level; the interval counts sequences as trials, not draws."""
    draws, generator = check_int("draws", draws), torch.Generator().manual_seed(check_int("seed", seed, 0))
    mean, spread = [], []
    for level in sizes:
        scores = torch.tensor(
            [measure(level, generator) for _ in range(draws if level > 0 else 1)], dtype=torch.float64
        )
        mean.append(float(scores.mean()))
        spread.append(float(scores.std(correction=1)) if len(scores) > 1 else 0.0)
    more: dict[str, Any] = {"sizes": sizes, "seed": seed, "draws": draws, "spread": tuple(spread), "options": options}
    confidence = check_confidence(confidence)
    return SweepResult.of_shares(mean, n, confidence, perturbation=perturbation, norm=None, axis="level", **more)


def noise_sweep(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    kind: str = "white",
    levels: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    draws: int = 5,
    bounds: Bounds = (0.0, 1.0),
    clip: bool = False,
    mask: Tensor | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> SweepResult:
    """Measure the accuracy under input noise over a grid of levels.

    ``white``: ``x + N(0, level^2)`` on every entry. ``salt_pepper``: each entry, with probability ``level``, is set to
    its lower or its upper bound.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``.
        y: ``(batch,)`` class labels.
        kind: ``"white"`` or ``"salt_pepper"``.
        levels: standard deviations, or shares of the entries (at most 1); 0 gives the clean accuracy. The default is
            for inputs in [0, 1].
        draws: number of independent noise samples per level.
        bounds: pair of numbers or of tensors that broadcast to ``x``, for salt and pepper and for ``clip``.
        clip: clip inputs with white noise to the bounds.
        mask: boolean, broadcasts to ``x``: true where there is noise; ``None``: everywhere but in padding.
        seed: seed of the noise.
        confidence: confidence level of the intervals, over the sequences (the spread of the draws is separate).

    Returns:
        The sweep.

    Raises:
        ConfigurationError: an unknown kind, or invalid input.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> x, y = torch.full((6, 1, 1), 0.5), torch.zeros(6, dtype=torch.long)
    >>> sweep = noise_sweep(model, x, y, kind="salt_pepper", levels=[0, 0.5])
    >>> sweep.frame()["level"].tolist()
    [0.0, 0.5]
    """
    disturb, largest = KINDS[as_choice("kind", kind, KINDS)]
    grid = check_levels("levels", levels, largest)
    x, y = check_labelled(model, x, y)
    bounded, mask = kind == "salt_pepper" or clip, masked_padding(model, x, mask)
    box, free = free_box(x, bounds if bounded else None, mask)
    if bounded and not (torch.isfinite(box.lower) & torch.isfinite(box.upper)).all():
        raise ConfigurationError(f"{kind} noise needs finite bounds: pass bounds=(lower, upper) of the data")

    def measure(level: float, generator: torch.Generator) -> float:
        noisy = disturb(x, level, box, generator)
        noisy = box.clip(noisy) if clip else noisy
        return _accuracy(model, noisy if mask is None else torch.where(free, noisy, x), y)

    options = {"clip": bool(clip)}
    with untouched(model):
        return _sweep(kind, grid, measure, len(x), draws=draws, seed=seed, confidence=confidence, options=options)


def parameter_noise_sweep(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    levels: Sequence[float],
    relative: bool = True,
    parameters: str | Sequence[str] = "all",
    draws: int = 5,
    seed: int = 0,
    confidence: float = 0.95,
) -> SweepResult:
    """Measure the accuracy under white noise on the parameters: ``theta + level * s * N(0, I)``.

    ``s`` is the root mean square of each tensor (``relative``) or 1. The noise is added to a copy of the model. If the
    network diverges with it, answers that are not finite count as wrong.

    Args:
        model: ``model(x) -> logits (batch, classes)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``.
        y: ``(batch,)`` class labels.
        levels: sizes; 0 gives the clean accuracy.
        relative: measure the level in units of each tensor's root mean square.
        parameters: ``"all"`` that require a gradient, ``"recurrent"``, or a list of names.
        draws: independent noises per level.
        seed: seed of the noise.
        confidence: confidence level of the intervals.

    Returns:
        The sweep.

    Raises:
        ConfigurationError: invalid input.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    >>> x, y = torch.ones(6, 1, 1), torch.zeros(6, dtype=torch.long)
    >>> parameter_noise_sweep(model, x, y, levels=[0, 0.1]).sizes
    (0.0, 0.1)
    """
    grid = check_levels("levels", levels)
    x, y = check_labelled(model, x, y)
    with untouched(model):
        twin, shake = shaken(model, parameters, relative)

        def measure(level: float, generator: torch.Generator) -> float:
            shake(level, generator)
            try:
                return _accuracy(twin, x, y)
            except NonFiniteError:
                if level == 0:
                    raise
            with torch.no_grad():
                logits = two_logits(twin(x), len(x))
            return float(((logits.argmax(dim=1) == y) & torch.isfinite(logits).all(dim=1)).double().mean())

        options = {"relative": relative}
        return _sweep(
            "parameters", grid, measure, len(x), draws=draws, seed=seed, confidence=confidence, options=options
        )


def shaken(
    model: nn.Module, parameters: str | Sequence[str] = "all", relative: bool = True
) -> tuple[nn.Module, Callable[[float, torch.Generator], None]]:
    """Return a copy of a model, and a function that sets its parameters to the model's plus white noise of a level.

    Args:
        model: the model; it is not changed.
        parameters: ``"all"`` that require a gradient, ``"recurrent"``, or a list of names.
        relative: measure the level in units of each tensor's root mean square.

    Returns:
        The copy, and ``shake(level, generator)``.

    Example:
        >>> twin, shake = shaken(nn.Linear(1, 1))
        >>> before = twin.weight.item()
        >>> shake(0.5, torch.Generator().manual_seed(0))
        >>> twin.weight.item() == before
        False
    """
    chosen = select_parameters(model, parameters)
    twin = copy.deepcopy(model)
    moved = {name: p for name, p in twin.named_parameters() if name in chosen}

    def shake(level: float, generator: torch.Generator) -> None:
        with torch.no_grad():
            for name, target in moved.items():
                original = chosen[name]
                scale = float(original.double().square().mean().sqrt()) if relative else 1.0
                noise = torch.randn(original.shape, generator=generator, dtype=torch.float64)
                target.copy_(original + (level * scale * noise).to(original.device, original.dtype))

    return twin, shake
