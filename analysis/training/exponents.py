r"""Lyapunov exponents as a differentiable function of the weights, through the gradient of QR.

:math:`Q_{t+1} R_{t+1} = J_t Q_t` with ``diag(R) > 0``; the finite-time exponents are the means of
:math:`\log R_{ii}`. The states, the Jacobians along them and the QR factorization (Roberts and Roberts;
``stability.models.qr``) are differentiable with respect to the weights; the last one includes the rotation of the
frame. So a network can be trained towards a given exponent (Engelken, "Gradient flossing: improving gradient descent
through dynamic control of Jacobians", NeurIPS 2023, does so with zero as the target).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, NonFiniteError, RankError, UnsupportedError

from ...models.deep import DeepNetwork
from ...models.factorizations import qr
from ...models.recurrent import RecurrentLayer
from ...models.tensors import check_sequence
from ..guard import as_tensor, check_dense, check_int, check_model, check_real_sequences
from ..unroll import as_layer, flat_state, layer_inputs, push_frame, recurrent_layers

SEQUENCES, STEPS = 8, 50
"""Sequences of a batch and time steps in the penalty; each sequence costs several passes over time."""


def finite_time_exponents(
    model: nn.Module, x: Tensor, k: int = 1, *, skip: int | None = None, seed: int = 0, per_time: bool = False
) -> Tensor:
    r"""Compute the ``k`` first finite-time Lyapunov exponents of each trajectory, differentiably.

    .. math:: \lambda_i = \frac{1}{T - s} \sum_{t > s} \log (R_t)_{ii}, \qquad Q_t R_t = J_t Q_{t-1}

    The computation is in the dtype of the layer and starts from a random frame, which needs no matrices;
    ``lyapunov_exponents(..., start="random")`` measures the same in float64, with errors and without a graph. By
    default that function starts from the directions that grow most: over few steps its exponent is larger, over many
    it is the same.

    Args:
        model: a recurrent layer, or a model that contains one (``torch.nn.RNN`` of one layer, ``LSTM``, ``GRU`` and
            ``RNNCell`` included). The exponents are the layer's: the modules before it produce its data, and no
            gradient reaches them. Or a ``DeepNetwork`` in evaluation mode: norms with their running statistics.
        x: ``(batch, time, features)``, inputs of the model; one trajectory per sequence, from the layer's own initial
            state.
        k: number of exponents; for all ``n`` their sum is the mean of ``log |det J_t|``.
        skip: first steps ``s`` to leave out, in which the frame aligns with its directions; a tenth by default.
        seed: seed of the initial frame.
        per_time: per unit of time instead of per step, for layers that integrate a differential equation.

    Returns:
        ``(batch, k)``, in the order of the frame (the largest first in the long run).

    Raises:
        ConfigurationError: bad options, or a unit of time where steps have none.
        DimensionError: a wrong shape.
        NonFiniteError: states that are not finite.
        RankError: a Jacobian is singular: an exponent is ``-inf`` and has no derivative.
        UnsupportedError: a model without exactly one recurrent layer that runs forward.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer = ElmanRNN(1, 4)
        >>> exponent = finite_time_exponents(layer, torch.zeros(2, 30, 1)).mean()
        >>> exponent.backward()
        >>> layer.weight_hh.grad.shape
        torch.Size([4, 4])
    """
    layer = _own_layer(check_model(model))
    x = check_sequence(check_real_sequences(layer_inputs(model, x)), layer.input_size)
    batch, steps = x.shape[:2]
    skip = steps // 10 if skip is None else check_int("skip", skip, 0)
    if skip >= steps:
        raise ConfigurationError(f"skip must be less than the {steps} time steps, got {skip}")
    if per_time and layer.time_step is None:
        raise ConfigurationError(f"the steps of {type(layer).__name__} have no duration: leave per_time out")
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        prepared, state = layer.begin(x)
        like = flat_state(state)
        n = like.shape[1]
        if not 1 <= check_int("k", k) <= n:
            raise ConfigurationError(f"k must be at most {n}, the size of the state, got {k}")
        generator = torch.Generator().manual_seed(check_int("seed", seed, 0))
        drawn = torch.randn(batch, n, k, generator=generator, dtype=torch.float64)
        frame = torch.linalg.qr(drawn)[0].to(like)
        total = like.new_zeros(batch, k)
        for t, drive in enumerate(layer.drive(x, prepared).unbind(1)):
            pushed, state = push_frame(layer, drive, state, prepared, frame)
            frame, triangle = _factors(pushed, t)
            if t >= skip:
                total = total + triangle.diagonal(dim1=-2, dim2=-1).log()
    if not bool(torch.isfinite(flat_state(state)).all() & torch.isfinite(total).all()):
        raise NonFiniteError("the states along these sequences", "the network diverges on this input")
    mean = total / (steps - skip)
    return mean / layer.time_step if per_time and layer.time_step is not None else mean


def lyapunov_penalty(model: nn.Module, x: Tensor, target: float, *, seed: int = 0) -> Tensor:
    r"""Return the squared distance of the largest exponent from a target: :math:`(\bar\lambda_1 - \lambda^*)^2`.

    The exponent, per step, is the mean over the first 8 sequences of ``x`` and their first 50 steps.

    Args:
        model: see ``finite_time_exponents``.
        x: ``(batch, time, features)``.
        target: target exponent, per step.
        seed: seed of the initial frame.

    Returns:
        A differentiable scalar, to be added to a training loss.

    Raises:
        ConfigurationError: no dense tensor.
        UnsupportedError: a model without exactly one recurrent layer that runs forward; and what else
            ``finite_time_exponents`` raises.

    Example:
        >>> from stability.models import RotRNN
        >>> layer = RotRNN(1, 2, heads=1)
        >>> fill = torch.nn.init.constant_(layer.gamma_log, 0.0)  # the damping is 1/e: one unit a step
        >>> round(float(lyapunov_penalty(layer, torch.zeros(3, 20, 1), -1.5).detach()), 4)
        0.25
    """
    x = as_tensor(check_model(model), x)
    if not isinstance(x, Tensor):
        raise ConfigurationError(f"x must be a tensor (batch, time, features), got {type(x).__name__}")
    check_dense("x", x)
    return (finite_time_exponents(model, x[:SEQUENCES, :STEPS], seed=seed).mean() - target).square()


def _own_layer(model: nn.Module) -> RecurrentLayer:
    """Return the only recurrent layer; for a ``torch.nn`` module a layer that shares its parameters."""
    if isinstance(model, DeepNetwork):
        return model.recurrence()
    layers = recurrent_layers(model)
    if len(layers) == 1 and not getattr(layers[0][1], "bidirectional", False):
        return as_layer(layers[0][1], shared=True)
    what = ", ".join(f"{name or 'itself'} ({type(layer).__name__})" for name, layer in layers) or "none"
    raise UnsupportedError(
        "exponents are differentiable for one recurrent layer that runs forward, such as ElmanRNN or torch.nn.LSTM, "
        f"and for DeepNetwork; "
        f"{type(model).__name__} has: {what}"
    )


def _factors(pushed: Tensor, step: int) -> tuple[Tensor, Tensor]:
    try:
        return qr(pushed)
    except NonFiniteError as error:
        raise NonFiniteError(f"the frame after {step + 1} steps", "the network diverges on this input") from error
    except RankError as error:
        raise RankError(
            f"after {step + 1} steps the Jacobian is singular: an exponent is -inf and has no derivative ({error})"
        ) from error
