"""Perturbation sizes in a separate unit for each feature, by rescaling the inputs before an attack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from ...models.packed import Reading
from ...models.wrapped import scaled
from ..guard import check_labelled
from .padding import own_steps_of

F = TypeVar("F", bound=Callable[..., Any])


def deviations(model: nn.Module, x: Tensor, own_steps: Tensor | None = None) -> Tensor:
    """Return the standard deviation of each feature over all sequences and their own steps, 0 for constant features.

    Args:
        model: see ``own_steps_of``.
        x: ``(n, time, features)``.
        own_steps: ``(n, time)``: True at own steps; ``None``: see ``own_steps_of``.
    """
    own_steps = own_steps_of(model, x) if own_steps is None else own_steps
    rows = x.flatten(0, 1) if own_steps is None else x[own_steps]
    constant = rows.amin(0) == rows.amax(0)
    return rows.double().std(0, correction=0).masked_fill(constant, 0.0).to(x)


def constant_words(scale: Tensor) -> str:
    """Return the note about features that are excluded as constant; empty if there are none."""
    names = ", ".join(map(str, (scale == 0).nonzero()[:, 0].tolist()))
    return names and f"features that are constant in the data stay unchanged (numbers count from 0): {names}"


def in_units(model: Any, x: Tensor, scale: Any, bounds: Any = None, mask: Any = None) -> tuple[Any, Tensor, Any, Any]:
    """Return a network, its inputs, their bounds and the mask, with features in units of ``scale``.

    Args:
        model: a module, or what ``stability.models.packed.reading`` gave.
        x: ``(n, time, features)``.
        scale: ``(features,)``; a feature with 0 may not change.
        bounds: bounds of the inputs.
        mask: mask of the inputs; ``None``: each sequence's own steps.

    Raises:
        DimensionError: another number of scales than of features.
        ConfigurationError: a scale that is negative or not finite.
    """
    scale = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
    if scale.shape != x.shape[2:]:
        raise DimensionError("scale", tuple(x.shape[2:]), tuple(scale.shape))
    if not bool(((scale >= 0) & torch.isfinite(scale)).all()):
        raise ConfigurationError(f"sizes of features must be finite and at least 0, got {scale.tolist()}")
    moving = scale > 0
    unit = torch.where(moving, scale, 1.0)
    ends = bounds and tuple(None if end is None else torch.as_tensor(end).to(x) / unit for end in bounds)
    if isinstance(model, Reading):
        mask = moving.expand(x.shape[1:]) if mask is None else moving & torch.as_tensor(mask)
        mask = None if bool(mask.all()) else mask
        return replace(model, subject=scaled(model.subject, unit)), x / unit, ends, mask
    real_steps = own_steps_of(model, x) if mask is None else None
    mask = torch.ones_like(moving) if mask is None else mask
    return scaled(model, unit), x / unit, ends, moving & (mask if real_steps is None else real_steps[:, :, None])


def multiples(sizes: Any) -> tuple[Any, Any]:
    """Return the factors of a list of parallel vectors, and their unit ``(features,)``; ``None`` without vectors.

    Raises:
        ConfigurationError: vectors that are no multiples of each other, or numbers other than 0 beside them.

    Example:
        >>> multiples([0, np.array([1.0, 100.0]), np.array([2.0, 200.0])])
        ([0.0, 1.0, 2.0], array([  1., 100.]))
    """
    vectors = [np.asarray(s, float) for s in sizes if np.ndim(s) == 1] if isinstance(sizes, (list, tuple)) else []
    unit = next((v for v in vectors if v.any()), None)
    if unit is None:
        return sizes, None
    factors = [float(np.asarray(s, float).max() / unit.max()) for s in sizes]
    if any(not np.allclose(np.asarray(s, float), f * unit) for s, f in zip(sizes, factors)):
        raise ConfigurationError("sizes with one entry for each feature must be multiples of one vector")
    return factors, unit


def per_feature(attack: F) -> F:
    """Decorate an attack to take ``epsilon (features,)``; the norms of its result are then in units of it."""

    @functools.wraps(attack)
    def run(model: nn.Module, x: Any, y: Any, *, epsilon: Any, **options: Any) -> Any:
        if np.ndim(epsilon) != 1:
            return attack(model, x, y, epsilon=epsilon, **options)
        x, y = check_labelled(model, x, y)
        settings = {"bounds": (0.0, 1.0), "mask": None, **options}
        inner, z, settings["bounds"], settings["mask"] = in_units(
            model, x, epsilon, settings["bounds"], settings["mask"]
        )
        result = attack(inner, z, y, epsilon=1.0, **settings)
        scale = torch.as_tensor(epsilon).to(x)
        moved = torch.where(result.adversarial == z, x, result.adversarial * scale)
        return replace(result, adversarial=moved)

    return run  # type: ignore[return-value]
