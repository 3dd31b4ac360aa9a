r"""Training under a bound on the incremental gain: weights are projected, and the gain is proved.

For :math:`h^+ = \phi(W h + V x + b)` with slopes in [-1, 1], :math:`|[W\; V / g]| \le 1` gives
:math:`|d_{t+1}|^2 \le |d_t|^2 + g^2 |u_t|^2` for the difference of two runs from one state whose inputs differ by
``u``: the state moves by at most :math:`g |u|_2` at any time. The nearest weights of that kind have the singular
values of :math:`[W\; V/g]` cut at one; plain networks are projected so after every step. ``BoundedGainRNN`` has them
all at one, without a projection.

The gain of any other Lur'e layer is proportional to its input weights, and finite where it contracts. After every epoch
it is computed and proved by the multiplier inequality, and the input weights are scaled to it; in between their norm is
held at what the gain at the epoch's start allows. A Lipschitz RNN is pulled after every step towards
:math:`A = -a I, W = -\gamma I`, on a straight line and about as little as its contraction gap asks; a margin penalty
leaves less to pull.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.search.gains.gain import Gain
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stored_gain import weight_norm_gain

from ...models.contracting import ContractingRNN
from ...models.elman import ElmanRNN
from ...models.lipschitz import LipschitzRNN
from ...models.lure import LureLayer
from ..unroll import as_layer, recurrent_layers

ROOM = 1e-5
"""Distance below one, for rounding in float32 and in the proof."""
LEAST_GAP = 1e-3
"""Contraction gap after a pull, a rate per unit of time."""
TRIES, BISECTIONS = 4, 3  # scalings of the input weights before an error; bisection steps on the line of a pull


def is_plain(layer: nn.Module) -> bool:
    """Return True for a layer ``h+ = phi(W h + V x + b)`` with both matrices as parameters: Elman, ``torch.nn``'s."""
    one_way = type(layer) is nn.RNN and layer.num_layers == 1 and not layer.bidirectional
    return isinstance(layer, ElmanRNN) or type(layer) is nn.RNNCell or one_way


def plain_weights(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the parameters ``W (n, n)`` and ``V (n, p)`` of a plain recurrent layer."""
    end = "_l0" if isinstance(layer, nn.RNN) else ""
    return getattr(layer, f"weight_hh{end}"), getattr(layer, f"weight_ih{end}")


def _held(model: nn.Module) -> nn.Module:
    """Return the only recurrent layer of a model, if its gain can be bounded."""
    layers = [layer for _, layer in recurrent_layers(model)]
    if len(layers) != 1:
        raise UnsupportedError(f"gain_target needs one recurrent layer, the model has {len(layers)}")
    layer = layers[0]
    if not is_plain(layer) and not (isinstance(layer, LureLayer) and isinstance(layer.weight_ih, nn.Parameter)):
        raise UnsupportedError(
            "gain_target projects the weights of torch.nn.RNN and RNNCell of one layer, of ElmanRNN, LipschitzRNN, "
            f"ContractingRNN and other Lur'e layers, not of a {type(layer).__name__}: BoundedGainRNN has its gain by "
            "construction"
        )
    return layer


@torch.no_grad()
def project_gain(model: nn.Module, target: float) -> None:
    """Project the weights onto those with a gain from inputs to states of at most ``target``, in place.

    Args:
        model: with one plain recurrent layer; of another layer nothing is changed, see ``scale_to_gain``.
        target: ``g``.

    Raises:
        UnsupportedError: another model.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer = ElmanRNN(2, 4)
        >>> project_gain(layer, 0.1)
        >>> K = torch.cat([layer.weight_hh, layer.weight_ih / 0.1], dim=1)
        >>> bool(torch.linalg.matrix_norm(K, 2) < 1.0)
        True
    """
    layer = _held(model)
    if not is_plain(layer):
        return
    W, V = plain_weights(layer)
    left_vectors, sizes, right = torch.linalg.svd(torch.cat([W, V / target], dim=1).double(), full_matrices=False)
    if sizes[0] > 1.0 - ROOM:
        K = (left_vectors * sizes.clamp(max=1.0 - ROOM)) @ right
        W.copy_(K[:, : len(W)])
        V.copy_(target * K[:, len(W) :])


@torch.no_grad()
def scale_to_gain(model: nn.Module, target: float) -> float:
    """Scale the input weights of a layer until its gain from inputs to states is proved to be at most ``target``.

    Args:
        model: with one recurrent layer; a plain one is left to ``project_gain``.
        target: ``g``.

    Returns:
        The factor by which the input weights could still grow, one or more; infinite for a plain layer.

    Raises:
        UnsupportedError: a layer that no weights make contracting, or whose gain is not proved all the same.

    Example:
        >>> from stability.models import LipschitzRNN
        >>> layer = LipschitzRNN(2, 4, gamma=0.5, dt=0.1)
        >>> scale_to_gain(layer, 0.01) >= 1.0, proved_gain(layer, 0.01).value <= 0.01
        (True, True)
    """
    layer = _held(model)
    if is_plain(layer):
        return math.inf
    assert isinstance(layer, LureLayer)
    if not isinstance(layer, ContractingRNN):
        pull_to_contraction(layer)
    for _ in range(TRIES):
        gain = _gain_of(layer).value
        if gain <= target:
            return target / max(gain, 1e-300)
        layer.weight_ih.mul_(target / gain * (1.0 - ROOM) if math.isfinite(gain) else 1.0)
    raise UnsupportedError(f"no gain of the {type(layer).__name__} from inputs to states is proved over every horizon")


def _gain_of(layer: LureLayer) -> Gain:
    return incremental_gain(layer.driven(), measure="final")


@torch.no_grad()
def pull_to_contraction(layer: nn.Module) -> float:
    """Move the weights of a Lipschitz RNN to nearby weights with a positive contraction gap.

    Args:
        layer: a layer whose ``A`` has a symmetric part.

    Returns:
        The share of the way that was gone, on the straight line to ``A = -a I, W = -gamma I``.

    Raises:
        UnsupportedError: a layer that does not contract there, or has no such line.

    Example:
        >>> from stability.models import LipschitzRNN
        >>> layer = LipschitzRNN(2, 4, gamma=0.1, dt=0.1, init_std=2.0)
        >>> bool(layer.contraction_gap() < 0), 0 < pull_to_contraction(layer) < 1, bool(layer.contraction_gap() > 0)
        (True, True, True)
    """
    if not isinstance(layer, LipschitzRNN) or layer.beta[0] == 1.0 or layer.alpha == 0.0:
        raise UnsupportedError(
            f"no weights are known here at which this {type(layer).__name__} contracts, so that its gain over every "
            "horizon is not bounded: take LipschitzRNN with beta below 1, ContractingRNN or BoundedGainRNN"
        )
    M_A, M_W = layer.M_A.clone(), layer.M_W.clone()
    a = 0.5 * min(max(1.0, 4.0 * layer.gamma[1]), 1.0 / layer.dt)
    end = (layer.gamma[0] - a / layer.alpha) / (2.0 * (1.0 - layer.beta[0])) * torch.eye(len(M_A)).to(M_A)

    def gap(share: float) -> float:
        layer.M_A.copy_((1.0 - share) * M_A + share * end)
        layer.M_W.copy_((1.0 - share) * M_W)
        return float(layer.contraction_gap()) - LEAST_GAP

    now = gap(0.0)
    if now >= 0.0:
        return 0.0
    then = gap(1.0)
    if not then > 0.0:
        raise UnsupportedError(f"with gamma {layer.gamma} this layer does not contract: use a smaller gamma for W")
    share = min(1.0, -now / (then - now) * (1.0 + 1e-6))  # enough for Euler's method, whose gap is concave on the line
    low, high = (0.0, share) if gap(share) >= 0.0 else (share, 1.0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gap(middle) >= 0.0 else (middle, high)
    gap(high)
    return high


class HeldGain:
    """Bound on a model's gain during training, enforced before, during and after each epoch.

    Args:
        model: with one recurrent layer.
        target: the gain from inputs to states.

    Raises:
        UnsupportedError: a model that cannot be held to it.
    """

    def __init__(self, model: nn.Module, target: float) -> None:
        self.model, self.target, self.largest = model, target, math.inf
        self.after_step()
        self.after_epoch()

    @torch.no_grad()
    def before_epoch(self) -> None:
        """Compute the largest norm of the input weights until the next proof of the gain."""
        room = scale_to_gain(self.model, self.target)
        layer = _held(self.model)
        self.largest = math.inf if is_plain(layer) else room * float(torch.linalg.matrix_norm(layer.weight_ih, 2))  # type: ignore[arg-type]

    @torch.no_grad()
    def after_step(self) -> None:
        """Project a plain layer onto the gain; pull another layer to contraction and limit its input weights."""
        project_gain(self.model, self.target)
        layer = _held(self.model)
        if isinstance(layer, LipschitzRNN):
            pull_to_contraction(layer)
        if math.isfinite(self.largest):
            weight: Tensor = layer.weight_ih  # type: ignore[assignment]
            weight.mul_(min(1.0, self.largest / max(float(torch.linalg.matrix_norm(weight, 2)), 1e-30)))

    def after_epoch(self) -> None:
        """Scale the input weights until the gain is proved."""
        scale_to_gain(self.model, self.target)


def proved_gain(model: nn.Module, target: float) -> Gain:
    """Prove the gain of a model with one recurrent layer; infinite if there is no proof.

    Args:
        model: trained with ``gain_target``.
        target: ``g``; the norms of a plain layer must prove this bound, other layers prove their smallest one.

    Raises:
        UnsupportedError: another model.
    """
    layer = _held(model)
    if is_plain(layer):
        return weight_norm_gain(as_layer(layer).driven(), target)
    assert isinstance(layer, LureLayer)
    return _gain_of(layer)
