r"""Bound on the error of one run of a gated linear layer, from the gates and residuals of that run.

A layer ``h+ = M_t h + b_t`` with float64 gates is run beside its run ``y`` in a given arithmetic. With the residual
:math:`r_t = y_{t+1} - M_t y_t - b_t` the error obeys :math:`|e_{t+1}| \le |M_t| |e_t| + |r_t|`: entry by entry, or for
every column of a delta rule's state. With noise shaping :math:`g = e + f` does, with the term :math:`(I - M_t) f_t` of
the residual ``f`` of the stored state. Gates, keys and drives as the run computes them are part of the residual.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability import ExecutionModel
from stability.errors import UnsupportedError
from stability.search.as_it_runs import as_model

from ...models.gated_linear.block import GatedLinearBlock
from ...models.tensors import check_sequence, state_leaves
from ..drawn import Curve
from ..results import Record
from .arithmetic import StateRounding, runnable

ROUNDING = 1e-14
"""Rounding errors of a step in float64 over the sizes of state and drive: 45 roundings."""


@dataclass(frozen=True, eq=False)
class GatedRun(Record):
    """Run of a gated linear layer in a given arithmetic beside one in float64, on the same inputs of its mixer.

    Attributes:
        distance: ``(time, units)`` Euclidean distance of the state of every channel or head, after each step.
        bound: ``(time, units)`` its bound, from the run in the given arithmetic alone. Gates in float64 count as exact.
            Infinite from the step on at which numbers exceed the format.
        ratio: median over the units of the largest bound over the largest distance.
        relative: median over the units of the largest distance over the largest norm of a state.
    """

    curve = Curve("step", ("bound", "distance"), words="distance to the run in float64", log=True)

    distance: np.ndarray = field(repr=False)
    bound: np.ndarray = field(repr=False)
    ratio: float
    relative: float


def gated_run(layer: GatedLinearBlock, x: Tensor, arithmetic: str | ExecutionModel, *, seed: int = 0) -> GatedRun:
    """Run a gated linear layer step by step in a given arithmetic, and bound the error of this run.

    Args:
        layer: the layer; its mixer runs in the given arithmetic, its norm too.
        x: ``(time, features)``, one sequence of inputs.
        arithmetic: a format such as ``"float32"`` or ``"int8:64"``, or an ``ExecutionModel``.
        seed: seed of stochastic rounding.

    Returns:
        Measured distance of the states to a run in float64, and its bound.

    Raises:
        UnsupportedError: a layer of another kind, or with a complex state; arithmetic that cannot be run here.
        ConfigurationError: ``x`` is no floating-point tensor.
        DimensionError: ``x`` has another shape, or is empty.

    Example:
        >>> from stability.models import Mamba2
        >>> _ = torch.manual_seed(0)
        >>> run = gated_run(Mamba2(2, 8), torch.randn(50, 2), ExecutionModel("int8", rounding="feedback"))
        >>> bool((run.distance <= run.bound).all()), run.ratio < 3.0
        (True, True)
    """
    if not isinstance(layer, GatedLinearBlock) or getattr(layer.mixer, "complex_state", False):
        raise UnsupportedError(f"a gated linear layer with a real state is needed, got {type(layer).__name__}")
    x = check_sequence(x, layer.input_size, "(time, input)")
    model = as_model(arithmetic, layer)
    dtype = runnable(model)
    narrow, wide = copy.deepcopy(layer).to(dtype).eval(), copy.deepcopy(layer).double().eval()
    with torch.no_grad():
        u = narrow.norm(narrow.encoder(x.unsqueeze(0).to(dtype)))
        walk = _Walk(narrow.mixer, wide.mixer, u, StateRounding(model, seed))
        found = [walk.step(t) for t in range(len(x))]
    distance, bound, size = (torch.stack(parts).numpy() for parts in zip(*found))
    bound = np.where(np.isfinite(bound), bound * (1.0 + 1e-9), np.inf)
    most, largest = distance.max(axis=0), size.max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = bound.max(axis=0) / most, most / largest
    ratio, relative = (float(np.median(x[~np.isnan(x)])) if not np.isnan(x).all() else np.nan for x in shares)
    return GatedRun(distance, bound, ratio, relative)


class _Walk:
    """Run of a mixer in narrow arithmetic, the run in float64, and the bound of their distance."""

    def __init__(self, narrow: Any, wide: Any, u: Tensor, rounding: StateRounding) -> None:
        self.narrow, self.wide, self.rounding = narrow, wide, rounding
        self.shaped, self.delta = rounding.model.rounding == "noise_shaping", getattr(wide, "delta_rule", False)
        self.projected, self.exact = narrow.project(u), wide.project(u.double())
        self.state, self.true = narrow.initial_state(self.projected), wide.initial_state(self.exact)
        self.decay = wide.decays(self.exact, self.true)[0].exp()[0]
        zeros = _entries(self.true)
        self.residual, self.error = zeros, self._size(zeros)

    def _size(self, part: Tensor) -> Tensor:
        """Return absolute values of entries, or norms of columns."""
        return part.norm(dim=-2) if self.delta else part.abs()

    def step(self, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return distance, bound and size of the state of every unit after the next step."""
        drive, true = self.exact[:, t], self.true
        entered = _entries(self.state).double()
        moved = self.narrow.advance(self.projected[:, t], self.state)
        z = _entries(moved)
        z = z + self.residual.to(z.dtype) if self.shaped else z
        stored, acting = (part.reshape(z.shape) for part in self.rounding(z.flatten(1)))
        residual = (z - stored if self.shaped else stored - acting).double()
        addend, same = (
            _entries(self.wide.advance(drive, _with(true, h))) for h in (torch.zeros_like(entered), entered)
        )
        if self.delta:
            decay = self.decay[t][None, :, None]
        else:
            decay = _entries(self.wide.advance(drive, _with(true, torch.ones_like(entered)))) - addend
        error = decay * self.error
        if self.shaped:
            kept = _entries(self.wide.advance(drive, _with(true, self.residual))) - addend
            pushed, old = self._size(self.residual - kept), self._size(self.residual)
            error, before = error + pushed, self.error
            if self.delta:  # the bound of the theorem for rates of at most one
                worst = torch.maximum(
                    decay * before + (1 - decay) * old, (old**2 + before**2 * decay / (2 - decay)).sqrt()
                )
                error = torch.minimum(error, worst)
            error = error + self._size(stored.double() + residual - same - self.residual)
        else:
            error = error + self._size(acting.double() - same)
        error = error + ROUNDING * self._size(same.abs() + addend.abs() + entered.abs())
        self.error, self.residual = error, residual
        self.state, self.true = _with(moved, acting), self.wide.advance(drive, true)
        exact = _entries(self.true)
        parts = (stored.double() - exact, error + self._size(residual), exact)
        distance, bound, size = (part[0].flatten(1).norm(dim=1) if part.dim() > 2 else part[0].abs() for part in parts)
        return distance, bound, size


def _entries(state: Any) -> Tensor:
    return state_leaves(state)[0]


def _with(state: Any, h: Tensor) -> Any:
    """Return a state with other entries ``h``."""
    return h if isinstance(state, Tensor) else (h, *state[1:])
