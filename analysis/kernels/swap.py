"""The door: inside it, a model runs on kernels whose second derivatives are written out, wherever there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...models.lure import LureLayer
from ...models.recurrent import RecurrentLayer
from ...models.tensors import check_sequence
from .convolution import Window, convolution
from .lstm import lstm_states
from .lure import Map, lure_states

_STEPPED = (
    "forward",
    "walk",
    "begin",
    "initial_state",
    "output",
    "emit",
    "hidden",
    "prepare",
    "drive",
    "transition",
    "_field",
)


def _plain(layer: LureLayer) -> bool:
    """Whether nothing of how the layer runs is another class's than those that the kernel stands for."""
    own = type(layer)
    base = all(getattr(own, name) is getattr(LureLayer, name) for name in _STEPPED)
    return base and (layer.time_step is None or layer.integrator == "euler") and "forward" not in vars(layer)


def _lure_forward(layer: LureLayer, mode: _Swapped) -> Callable[..., tuple[Tensor, Tensor]]:
    """``layer.forward`` on the kernel."""

    def forward(x: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        check_sequence(x, layer.input_size)
        if torch.is_autocast_enabled(x.device.type):
            return RecurrentLayer.forward(layer, x, state)
        mode.used = True
        prepared, start = layer.begin(x, state)
        drive = layer.drive(x.transpose(0, 1).contiguous(), prepared)
        A, B, W = (cast(Any, None if M is None else M.mT) for M in prepared)
        kind = Map(layer.activation)
        if layer.time_step is not None:
            kind = Map(layer.activation, 1, layer.dt)
            A, B = (None if M is None else layer.dt * M for M in (A, B))
        states = lure_states(kind, drive, start, W, A, B)
        return states.transpose(0, 1), states[-1]

    return forward


def _lstm(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """``torch.lstm`` on whole sequences by the kernel; whatever else it is called with, as it is."""
    names = ("input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
    if options or len(args) != len(names) or isinstance(args[1], Tensor):  # packed sequences
        return original(*args, **options)
    x, (h0, c0), weights, has_biases, layers, dropout, training, both, batch_first = args
    size = 4 if has_biases else 2
    directions = 2 if both else 1
    if (training and dropout) or len(weights) != size * layers * directions or torch.is_autocast_enabled(x.device.type):
        return original(*args)
    x = x.transpose(0, 1).contiguous() if batch_first else x
    last_h, last_c = [], []
    for layer in range(layers):
        outputs = []
        for k in range(layer * directions, (layer + 1) * directions):
            w, R, *biases = weights[size * k : size * (k + 1)]
            source = x.flip(0) if k % directions else x
            drive = nn.functional.linear(source, w, biases[0] + biases[1] if biases else None)
            h, c = lstm_states(drive, h0[k], c0[k], R)
            last_h.append(h[-1])
            last_c.append(c[-1])
            outputs.append(h.flip(0) if k % directions else h)
        x = torch.cat(outputs, dim=2) if both else outputs[0]
    return (x.transpose(0, 1) if batch_first else x), torch.stack(last_h), torch.stack(last_c)


def _convolution(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """``torch.conv1d``, ``conv2d`` and ``conv3d`` of batches with a padding in numbers."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1, **dict(zip(names, args)), **options}
    x, w = given["input"], given["weight"]
    axes = w.dim() - 2
    if x.dim() != w.dim() or isinstance(given["padding"], str) or torch.is_autocast_enabled(x.device.type):
        return original(*args, **options)
    sizes = [given[name] for name in ("stride", "padding", "dilation")]
    stride, padding, dilation = (
        tuple(v) * (1 if len(v) == axes else axes) if isinstance(v, (tuple, list)) else (v,) * axes for v in sizes
    )
    return convolution(x, w, given["bias"], Window(stride, padding, dilation, given["groups"]))


class _Swapped(TorchFunctionMode):
    """Calls of ``torch`` for which there is a kernel go to it."""

    kernels: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.lstm: _lstm,
        **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
    }

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kernel = self.kernels.get(func)
        if kernel is None:
            return func(*args, **(kwargs or {}))
        self.used = True
        return kernel(func, *args, **(kwargs or {}))


@contextmanager
def written_out(model: nn.Module) -> Iterator[_Swapped]:
    """Inside, what has a kernel of its own runs on it: equal to rounding, twice differentiable, without a graph a step.

    Kernels stand for the layers ``phi(W h + U x + b)`` (maps and forward Euler), ``torch.nn.LSTM`` and convolutions.

    Args:
        model: any module, which is left as it was.

    Yields:
        What tells by ``used`` whether a kernel ran.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer, x = ElmanRNN(2, 3), torch.ones(1, 4, 2)
        >>> with written_out(layer) as kernels:
        ...     same = torch.allclose(layer(x)[0], layer.states(x))
        >>> same, kernels.used
        (True, True)
    """
    swapped = [m for m in model.modules() if isinstance(m, LureLayer) and _plain(m)]
    mode = _Swapped()
    try:
        for layer in swapped:
            layer.forward = _lure_forward(layer, mode)  # type: ignore[method-assign]
        with mode:
            yield mode
    finally:
        for layer in swapped:
            vars(layer).pop("forward", None)
