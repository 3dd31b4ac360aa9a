"""The door: inside it, a model runs on kernels whose second derivatives are written out, wherever there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.overrides import TorchFunctionMode

from ...models.gated import LSTM
from ...models.lure import LureLayer
from ...models.network import SequenceModel, over_time
from ...models.recurrent import RecurrentLayer
from ...models.tensors import check_sequence
from .back import Map
from .convolution import Window, convolution
from .lstm import cells, lstm_states
from .lure import lure_states
from .pieces import pooled, rectified
from .prefixes import Prefixes, apart, joined
from .products import rows

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

_WORST_CONDITION = 30.0
"""Of a ``B`` whose coordinates the states are computed in: what is lost there is a digit and a half at most."""


def plain_layer(layer: LureLayer) -> bool:
    """Whether nothing of how the layer runs is another class's than those that the kernel stands for."""
    own = type(layer)
    base = all(getattr(own, name) is getattr(LureLayer, name) for name in _STEPPED)
    return base and (layer.time_step is None or layer.integrator == "euler") and "forward" not in vars(layer)


def _read_by_a_head(model: SequenceModel) -> bool:
    """Whether a model is its layer, one output of it or their mean, and a head, and the layer has a kernel."""
    return plainly_read(model) and isinstance(model.layer, LureLayer) and plain_layer(model.layer)


def plainly_read(model: SequenceModel) -> bool:
    """Whether a model is its layer, one output of it or their mean, and a head, and nobody watches the layer."""
    layer = model.layer
    own = type(model).forward is SequenceModel.forward and "forward" not in vars(model) and model.reduction != "all"
    return own and not (layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def plain_lstm(layer: nn.Module) -> bool:
    """Whether a layer is ``torch.nn.LSTM`` of one layer and nothing else, and nobody watches it."""
    if type(layer) is not LSTM or layer.num_layers != 1:
        return False
    rnn = layer.rnn  # somebody may have put another one in its place
    if type_before_parametrizations(rnn) is not nn.LSTM or rnn.num_layers != 1:
        return False
    if not rnn.bias or rnn.bidirectional or rnn.proj_size or not rnn.batch_first or "transition" in vars(layer):
        return False
    watched = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in layer.modules())
    return not watched and not any("forward" in vars(part) for part in layer.modules())


class _Run(NamedTuple):
    """States of a layer on the kernel by rows, those of the last time, and the matrix still to be multiplied with."""

    tree: Prefixes
    states: Tensor
    last: Tensor
    B: Tensor | None

    def read(self, h: Tensor) -> Tensor:
        """The layer's state for ``h`` of the kernel's."""
        return h if self.B is None else h @ self.B.mT


def _run(layer: LureLayer, mode: _Swapped, x: Tensor, state: Any) -> _Run:
    """A layer on the kernel.

    In the coordinates ``h = B g`` the step has no ``B``: ``g+ = B^-1 A B g + phi(W B g + drive)``, a third fewer
    products. Where they would cost digits, the step stays as it is.
    """
    prepared, start = layer.begin(x, state)
    tree, given, (start,) = _rows_of(x, start)
    source = _source(given, layer.weight_ih, layer.bias)
    drive = source[0] @ source[1].mT if given.requires_grad else source
    mode.ran(len(given) * len(layer.weight_ih))
    A, B, W = (cast(Any, None if M is None else M.mT) for M in prepared)
    kind = Map(layer.activation)
    if layer.time_step is not None:
        kind = Map(layer.activation, 1, layer.dt)
        A, B = (None if M is None else layer.dt * M for M in (A, B))
    if B is None or not _is_well_conditioned(B):
        return _Run(tree, *lure_states(kind, drive, start, W, A, B, tree), None)
    wide = B.double()
    back = torch.linalg.inv(wide)
    A = None if A is None else (back @ A.double() @ wide).to(B.dtype)
    W = (W.double() @ wide).to(B.dtype)
    start = None if start is None else start @ back.mT.to(B.dtype)
    return _Run(tree, *lure_states(Map(kind.activation, kind.keep), drive, start, W, A, None, tree), B)


def _rows_of(x: Tensor, *start: Tensor) -> tuple[Prefixes, Tensor, list[Tensor | None]]:
    """Sequences as rows, those that begin alike from a zero start joined, and the start; ``None`` for zero."""
    at_rest = not any(part.requires_grad or part.any() for part in start)
    begins = [None if at_rest else part for part in start]
    if at_rest and not x.requires_grad:
        tree, given = joined(x)
        return tree, given, begins
    return apart(x.shape[1], len(x)), rows(x.transpose(0, 1)), begins


def _source(x: Tensor, U: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows and the matrix that gives ``U x + b`` of them in one product, with the bias as a column of ``U``."""
    return (x, U) if b is None else (torch.cat([x, x.new_ones(len(x), 1)], 1), torch.cat([U, b[:, None]], 1))


def _is_well_conditioned(B: Tensor) -> bool:
    sizes = torch.linalg.svdvals(B.detach().double())
    return bool(sizes[-1] * _WORST_CONDITION > sizes[0])


def _lure_forward(layer: LureLayer, mode: _Swapped) -> Callable[..., tuple[Tensor, Tensor]]:
    """``layer.forward`` on the kernel."""

    def forward(x: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        check_sequence(x, layer.input_size)
        if torch.is_autocast_enabled(x.device.type):
            return RecurrentLayer.forward(layer, x, state)
        run = _run(layer, mode, x, state)
        return run.tree.everywhere(run.read(run.states)).transpose(0, 1), run.tree.last(run.read(run.last))

    return forward


def _model_forward(model: SequenceModel, mode: _Swapped) -> Callable[[Tensor], Tensor]:
    """``model.forward`` with a layer on the kernel, of whose states only what the head reads is looked at."""

    def forward(x: Tensor) -> Tensor:
        layer = cast(LureLayer, model.layer)
        check_sequence(x, layer.input_size)
        if torch.is_autocast_enabled(x.device.type):
            return SequenceModel.forward(model, x)
        run = _run(layer, mode, x, None)
        if model.reduction == "last":
            return model.head(run.read(run.tree.last(run.last)))
        return model.head(run.read(over_time(run.tree.everywhere(run.states).transpose(0, 1), model.reduction)))

    return forward


def _cells_forward(model: SequenceModel, mode: _Swapped) -> Callable[[Tensor], Tensor]:
    """``model.forward`` of a head on the last state of an LSTM: no other state is put in its sequence's order."""

    def forward(x: Tensor) -> Tensor:
        layer = cast(LSTM, model.layer)
        check_sequence(x, layer.input_size)
        if torch.is_autocast_enabled(x.device.type):
            return SequenceModel.forward(model, x)
        rnn: Any = layer.rnn
        tree, given, (h, c) = _rows_of(x, *(part for part in layer.begin(x, None)[1]))
        into = _source(given, rnn.weight_ih_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0)
        mode.ran(len(given) * len(rnn.weight_hh_l0))
        last = cells(into[0] @ into[1].mT if given.requires_grad else into, h, c, rnn.weight_hh_l0, tree)[2]
        return model.head(tree.last(last))

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
            tree, given, (h, c) = _rows_of(source.transpose(0, 1), h0[k], c0[k])
            into = _source(given, w, biases[0] + biases[1] if biases else None)
            h, c = lstm_states(into[0] @ into[1].mT if given.requires_grad else into, h, c, R, tree)
            last_h.append(tree.last(h[-tree.sizes[-1] :]))
            last_c.append(tree.last(c[-tree.sizes[-1] :]))
            h = tree.everywhere(h)
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


def _relu(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """ReLU of images in floating point, unless it overwrites what it is given; not of a state, step by step."""
    inplace = options.get("inplace", len(args) > 1 and args[1])
    given = args[0] if args else options.get("input")
    if inplace or not isinstance(given, Tensor) or not given.is_floating_point() or given.dim() < 3:
        return original(*args, **options)
    return rectified(given)


def _max_pool(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Pooling of floating-point images by the largest, where nobody asks for its place."""
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given = {"stride": None, **dict(zip(names, args)), **options}
    x, wide = given["input"], given.pop("return_indices", False)
    if wide or not x.is_floating_point() or set(given) - set(names) or given["stride"] in ([], ()):
        return original(*args, **options)
    return pooled(x, *(given[name] for name in names[1:6] if name in given))


class _Swapped(TorchFunctionMode):
    """Calls of ``torch`` for which there is a kernel go to it."""

    kernels: ClassVar[dict[Any, Callable[..., Any]]] = {
        torch.lstm: _lstm,
        **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
        **dict.fromkeys((torch.relu, Tensor.relu, nn.functional.relu), _relu),
        **dict.fromkeys((torch.max_pool2d, nn.functional.max_pool2d), _max_pool),
    }

    def __init__(self) -> None:
        super().__init__()
        self.used, self.together, self.numbers = False, True, 1

    def ran(self, numbers: int) -> None:
        """A kernel that takes several directions at once ran, with so many numbers for all times."""
        self.used, self.numbers = True, max(self.numbers, numbers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kernel = self.kernels.get(func)
        if kernel is None:
            return func(*args, **(kwargs or {}))
        self.used, self.together = True, self.together and kernel is _lstm
        return kernel(func, *args, **(kwargs or {}))


@contextmanager
def written_out(model: nn.Module) -> Iterator[_Swapped]:
    """Inside, what has a kernel of its own runs on it: equal to rounding, twice differentiable, without a graph a step.

    Kernels stand for the layers ``phi(W h + U x + b)`` (maps and forward Euler), ``torch.nn.LSTM``, convolutions, and
    ReLU and pooling of images by the largest.

    Args:
        model: any module, which is left as it was.

    Yields:
        What tells by ``used`` whether a kernel ran, by ``together`` whether only such ran as take several directions at
        once, and by ``numbers`` how much the largest of these keeps of a direction, as an array.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer, x = ElmanRNN(2, 3), torch.ones(1, 4, 2)
        >>> with written_out(layer) as kernels:
        ...     same = torch.allclose(layer(x)[0], layer.states(x))
        >>> same, kernels.used
        (True, True)
    """
    mode = _Swapped()
    forwards: dict[nn.Module, Any] = {
        m: _model_forward(m, mode) for m in model.modules() if isinstance(m, SequenceModel) and _read_by_a_head(m)
    }
    forwards |= {
        m: _cells_forward(m, mode)
        for m in model.modules()
        if isinstance(m, SequenceModel) and plainly_read(m) and m.reduction == "last" and plain_lstm(m.layer)
    }
    forwards |= {m: _lure_forward(m, mode) for m in model.modules() if isinstance(m, LureLayer) and plain_layer(m)}
    try:
        for module, forward in forwards.items():
            module.forward = forward
        with mode:
            yield mode
    finally:
        for module in forwards:
            vars(module).pop("forward", None)
