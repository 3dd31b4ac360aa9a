r"""Margins of stability criteria for layers: recorded numbers, and a differentiable contraction gap.

The differentiable one is the contraction gap, a sufficient condition in operator norms for the map that runs,
with ``M`` the slope of the activation:

- forward Euler: :math:`(1 - \|I + dt A\| - dt M \|W\|) / dt`, which tends to Theorem 1(a)'s margin
  :math:`-\lambda_{\max}(A_s) - M \|W\|` for small steps;
- explicit midpoint: the same with the norms of its two stages;
- a discrete layer :math:`h^+ = \phi(W h + \dots)`: :math:`1 - M \|W\|`.

A positive gap means contraction with ``P = I`` (computed in the layer's own precision; ``certify`` proves it); the
multiplier criterion finds every such layer, and many more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from stability.certificate import Finding
from stability.errors import NonFiniteError, UnsupportedError
from stability.kernel.arithmetic.activations import activation as lookup
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.small_gain import circle_criterion
from stability.search.criteria.theorem1 import theorem1
from stability.systems import LureSystem

from ...models.continuous import ContinuousRNN
from ...models.options import no_contraction_gap
from ...models.recurrent import RecurrentLayer
from ...models.tensors import to_numpy
from ..unroll import as_layer, recurrent_layers, recurrent_matrices

THEOREM1 = ("theorem1a", "theorem1b_published", "theorem1b_sound")


def _theorem1(layer: nn.Module) -> dict[str, float]:
    if not isinstance(layer, ContinuousRNN):
        raise UnsupportedError(
            f"theorem 1 is about dh/dt = A h + phi(W h + ...), and {type(layer).__name__} integrates no such equation"
        )
    matrices = {name: to_numpy(value) for name, value in layer.matrices().items()}
    if not all(np.isfinite(value).all() for value in matrices.values()):
        return dict.fromkeys(THEOREM1, math.nan)
    W = matrices["W"]
    result = theorem1(matrices.get("A", np.zeros_like(W)), W, M=lookup(layer.activation).slope[1])
    findings = dict(zip(THEOREM1, (result.a, result.b_published, result.b_sound), strict=True))
    return {name: math.nan if f.margin is None else f.margin for name, f in findings.items()}


def _of_system(name: str, criterion: Callable[[LureSystem], Finding], layer: nn.Module) -> dict[str, float]:
    single = as_layer(layer)
    try:
        margin = criterion(single.lure()).margin
    except NonFiniteError:  # weights that have diverged
        margin = None
    return {name: math.nan if margin is None else margin}


def _gap(layer: nn.Module) -> dict[str, float]:
    try:
        return {"contraction_gap": float(contraction_gap(layer).detach())}
    except torch.linalg.LinAlgError:  # weights that have diverged
        return {"contraction_gap": math.nan}


MARGINS: dict[str, Callable[[nn.Module], dict[str, float]]] = {
    "theorem1": _theorem1,
    "gap": _gap,
    "small_gain": partial(_of_system, "small_gain", circle_criterion),
    "multiplier": partial(_of_system, "multiplier", partial(multiplier_criterion, rate="any", solver="riccati")),
}


def why_no_margin(name: str, layer: nn.Module) -> str | None:
    """Return the reason why a criterion has no margin for a kind of layer; ``None`` if it has one.

    Args:
        name: a key of ``MARGINS``.
        layer: a recurrent module.

    Example:
        >>> why_no_margin("gap", nn.RNN(2, 3)) is None, why_no_margin("theorem1", nn.GRU(2, 3))[:14]
        (True, 'theorem 1 is a')
    """
    try:
        if name in ("small_gain", "multiplier"):
            as_layer(layer).lure()  # whether there is a system; the criterion itself would cost more
        else:
            MARGINS[name](layer)
    except UnsupportedError as error:
        return str(error)
    except NonFiniteError:
        return None
    return None


def layer_margins(layer: nn.Module, names: Sequence[str]) -> dict[str, float]:
    """Return the margins of the named criteria for one layer, positive where they hold.

    Args:
        layer: a recurrent module.
        names: keys of ``MARGINS``.

    Returns:
        Margins by criterion, NaN where the present weights have none; criteria that are not about such a layer are
        left out (``why_no_margin`` says why).
    """
    out: dict[str, float] = {}
    for name in names:
        if why_no_margin(name, layer) is None:
            out.update(MARGINS[name](layer))
    return out


def contraction_gap(layer: nn.Module) -> Tensor:
    """Return the differentiable contraction gap of a layer; positive if the map that runs contracts.

    Args:
        layer: a layer with a linear part (Lipschitz RNN), an Elman RNN, or ``torch.nn.RNN``.

    Returns:
        A scalar: a rate per unit of time, or per step for discrete layers.

    Raises:
        UnsupportedError: a layer that contracts for no weights, or without a known bound.

    Example:
        >>> from stability.models import LipschitzRNN
        >>> eye = torch.eye(2, dtype=torch.float64)
        >>> layer = LipschitzRNN.from_matrices(-2 * eye, 0.5 * eye, eye, dt=0.1)
        >>> round(float(contraction_gap(layer).detach()), 12)
        1.5
    """  # noqa: DOC501 - made by a function
    if isinstance(layer, (nn.RNN, nn.RNNCell)):  # several layers too, which are no map from one state to the next
        gaps = [1 - torch.linalg.matrix_norm(W, 2) for W in recurrent_matrices(layer).values()]
        return torch.stack(gaps).min()
    if not isinstance(layer, RecurrentLayer):
        raise no_contraction_gap(layer)
    return layer.contraction_gap()


def margin_penalty(model: nn.Module, target: float = 0.0) -> Tensor:
    """Return the sum of the shortfalls of the layers' contraction gaps from a target.

    Args:
        model: any module with recurrent layers.
        target: the gap to reach.

    Returns:
        A differentiable scalar ``sum_layers max(0, target - gap)``, to be added to a training loss.

    Raises:
        UnsupportedError: no recurrent layer, or one without a gap.

    Example:
        >>> layer = nn.RNN(1, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight_hh_l0, 1.5)
        >>> float(margin_penalty(layer, target=0.25).detach())
        0.75
    """
    layers = recurrent_layers(model)
    if not layers:
        raise UnsupportedError(f"{type(model).__name__} has no recurrent layer")
    return torch.stack([torch.relu(target - contraction_gap(layer)) for _, layer in layers]).sum()
