"""System of a step function, read from one run: affine expressions follow every operation on states and inputs.

The step runs once, in float64, on arbitrary numbers. ``TorchDispatchMode`` reports each torch operation below autograd.
Affine operations and known activations are traced; any other one (a gate, a norm, a branch on a value) stops the trace
with its name. The resulting system is then cross-checked against the step from random states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stability.errors import DisagreementError, StabilityError, UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.systems.opaque import OpaqueMap

from ..affine import Affine, ChannelMap, added, divided, multiplied
from ..opaque import opaque_map
from ..readers.limits import LOOP_ENTRIES
from .cross_check import in_each_mode
from .inspection import refuse_altered, twin

Array = np.ndarray
_BATCH = 7
"""Number of sequences in the traced run; operations on this axis are checked, so an equal weight size is harmless."""
_SAME = ("alias", "detach", "clone", "lift_fresh", "contiguous", "expand", "view", "_unsafe_view", "reshape", "dropout")
_CHANNELS = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid"}


class StepModule(Protocol):
    """Module made of a step function and the module with the weights that it uses."""

    input_size: int
    hidden_size: int
    held: nn.Module

    def initial_state(self, x: Tensor, prepared: Any) -> Any:
        """Return the state before the first step."""
        ...

    def transition(self, drive: Tensor, state: Any, prepared: Any = None) -> Any:
        """Return the state after one step."""
        ...


class _Follower(TorchDispatchMode):
    """Dispatch mode that maps the tensors of a run to affine expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[int, Affine] = {}
        self.alive: list[Tensor] = []  # so that no identity is used twice
        self.channels: list[tuple[str, str, Affine]] = []
        self.spent = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return True, so that torch does not import its compiler (1.5 s)."""
        return False

    def begin(self, tensor: Tensor, name: str) -> None:
        """Register a tensor ``(batch, size)`` as a new variable."""
        self.keep(tensor, Affine(tensor.shape[-1], {name: np.eye(tensor.shape[-1])}))

    def keep(self, tensor: Tensor, value: Affine) -> None:
        """Register the expression of a tensor.

        Raises:
            UnsupportedError: expressions that take more room than is given to them, or a tensor of no rows.
        """
        self.spent += sum(m.size for m in value.terms.values())
        if self.spent > LOOP_ENTRIES:
            raise UnsupportedError(f"its coefficient matrices exceed {LOOP_ENTRIES} entries")
        if tuple(tensor.shape) != (_BATCH, value.size):
            raise UnsupportedError(f"expected one vector for each sequence, got shape {tuple(tensor.shape)}")
        self.values[id(tensor)] = value
        self.alive.append(tensor)

    def of(self, value: Any) -> Any:
        """Return the expression of a value, or the numbers of a constant."""
        if not isinstance(value, Tensor):
            return value
        known = self.values.get(id(value))
        return value.detach().double().cpu().numpy() if known is None else known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat = [part for a in (*args, *kwargs.values()) for part in (a if isinstance(a, (list, tuple)) else (a,))]
        if not any(isinstance(a, Tensor) and id(a) in self.values for a in flat):
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[-1]
        if func._schema.is_mutable:
            raise UnsupportedError(f"it changes a tensor in place ({name})")
        out = func(*args, **kwargs)
        value = self._followed(name, args, kwargs)
        for tensor, one in zip(out if isinstance(out, (list, tuple)) else [out], value):
            self.keep(tensor, one)
        return out

    def _followed(self, name: str, args: Any, kwargs: Any) -> list[Affine]:
        if name in _SAME:
            return [self.of(args[0])]
        if name in _CHANNELS or name == "leaky_relu":
            return [self._channel(name, *args)]
        if name in ("hardtanh", "clamp", "softshrink"):
            return [self._cut(name, *args, **kwargs)]
        if name == "_to_copy" and kwargs.get("dtype") in (None, torch.float64):
            return [self.of(args[0])]
        rule = _RULES.get(name)
        if rule is None:
            raise UnsupportedError(f"it contains the operation {name}")
        value = rule(*(_each(self.of, a) for a in args), **{k: self.of(v) for k, v in kwargs.items()})
        return value if isinstance(value, list) else [value]

    def _channel(self, name: str, tensor: Tensor, slope: float = 0.01) -> Affine:
        if name == "leaky_relu" and slope != ACTIVATIONS["leaky_relu"].slope[0]:
            raise UnsupportedError(f"it contains a leaky ReLU of slope {slope:g} instead of 0.1")
        return self._new(_CHANNELS.get(name, name), self.of(tensor))

    def _new(self, kind: str, z: Affine) -> Affine:
        variable = f"w{len(self.channels)}"
        self.channels.append((variable, kind, z))
        return Affine(z.size, {variable: np.eye(z.size)})

    def _cut(self, name: str, tensor: Tensor, *given: Any, **named: Any) -> Affine:
        """Express ``clip(z, a, b)`` as ``m + c sat((z - m) / c)``, and a soft threshold as a scaled dead zone."""
        if name == "softshrink":
            size = float([*given, *named.values(), 0.5][0])
            ends: Any = (-size, size)
        else:
            first = {"hardtanh": (-1.0, 1.0), "clamp": (None, None)}[name]
            ends = [named.get(key, at) for key, at in zip(("min", "max"), (*given, *first[len(given) :]))]
            ends = [named.get(f"{key}_val", at) for key, at in zip(("min", "max"), ends)]
        if not all(isinstance(end, (int, float)) for end in ends) or not ends[0] < ends[1]:
            raise UnsupportedError(f"it contains {name} with other bounds than two numbers")
        middle, half = 0.5 * (ends[0] + ends[1]), 0.5 * (ends[1] - ends[0])
        z = self.of(tensor)
        if middle:
            z = z.plus(Affine(z.size, {}, -middle))
        out = self._new("deadzone" if name == "softshrink" else "saturation", z.scaled(1.0 / half)).scaled(half)
        return out.plus(Affine(out.size, {}, middle)) if middle else out


def _each(of: Callable[[Any], Any], value: Any) -> Any:
    return [of(part) for part in value] if isinstance(value, (list, tuple)) else of(value)


def _mm(a: Any, b: Any) -> Affine:
    if not isinstance(a, Affine) or isinstance(b, Affine) or np.ndim(b) != 2:
        raise UnsupportedError("a product of two values that depend on state or input")
    return a.mapped(b.T)


def _rows(value: Affine, keep: Array) -> Affine:
    offset = np.broadcast_to(value.offset, (value.size,))[keep]
    return Affine(len(keep), {s: m[keep] for s, m in value.terms.items()}, offset)


def _select(value: Affine, dim: int, index: int) -> Affine:
    raise UnsupportedError("it selects single sequences or entries of the batch")


def _slice(value: Affine, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Affine:
    if dim not in (-1, 1):
        raise UnsupportedError("it takes some of the sequences apart")
    return _rows(value, np.arange(value.size)[slice(start, end, step)])


def _split(value: Affine, sizes: Any, dim: int = 0) -> list[Affine]:
    if dim not in (-1, 1):
        raise UnsupportedError("it takes some of the sequences apart")
    offsets = range(0, value.size, sizes) if isinstance(sizes, int) else np.cumsum([0, *sizes])[:-1]
    return [_rows(value, part) for part in np.split(np.arange(value.size), [int(e) for e in offsets][1:])]


def _cat(parts: list[Any], dim: int = 0) -> Affine:
    if dim not in (-1, 1) or not all(isinstance(part, Affine) for part in parts):
        raise UnsupportedError("it concatenates a tensor that depends on neither state nor input")
    offsets = np.cumsum([0, *(part.size for part in parts)])
    whole = Affine(int(offsets[-1]))
    for part, start in zip(parts, offsets):
        place = np.eye(int(offsets[-1]))[:, start : start + part.size]
        whole = whole.plus(part.mapped(place))
    return whole


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha=1.0: added(a, b, alpha),
    "sub": lambda a, b, alpha=1.0: added(a, b, -alpha),
    "rsub": lambda a, b, alpha=1.0: added(b, a, -alpha),
    "mul": multiplied,
    "div": divided,
    "neg": lambda a: a.scaled(-1.0),
    "mm": _mm,
    "matmul": _mm,
    "addmm": lambda bias, a, b, *, beta=1.0, alpha=1.0: added(_mm(a, b).scaled(alpha), bias, beta),
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "cat": _cat,
}
"""Affine operations of torch by their names below autograd."""


def read_step(layer: StepModule, name: str) -> Any:
    """Read the system that a step function runs.

    Args:
        layer: the step with its weights; it is copied, not touched.
        name: name in reports.

    Returns:
        A ``DrivenSystem``; a ``LureSystem`` where several kinds of activations meet, or something is added beside them;
        an ``OpaqueMap`` where the step is none of these, with the reason.

    Raises:
        UnsupportedError: hooks, replaced methods or dropout that is switched on.
    """
    refuse_altered(layer.held, type(layer.held))
    module: Any = layer
    copied = twin(module).to(device="cpu", dtype=torch.float64)
    try:
        read = _follow(copied)
    except UnsupportedError as error:
        return _opaque(layer, name, str(error))
    except StabilityError as error:
        return _opaque(layer, name, f"its step is no system: {error}")
    except Exception as error:  # noqa: BLE001 - a user's step may raise anything
        line = " ".join(str(error).split())[:160]
        return _opaque(layer, name, f"its step could not be followed in float64: {type(error).__name__}: {line}")

    def run(x: Array, states: list[Array]) -> tuple[None, list[Array]]:
        state: Any = torch.tensor(states[0])
        for row in torch.tensor(x):
            state = copied.transition(row, state)
        return None, [state.detach().numpy()]

    try:
        in_each_mode(layer.held, copied, run, read, f"the step of {name}")
    except DisagreementError as error:
        return _opaque(layer, name, f"what was followed is not all that the step does: {error}")
    return read.subject(name)


def _follow(layer: StepModule) -> ChannelMap:
    x = torch.linspace(-1.0, 1.0, _BATCH * layer.input_size, dtype=torch.float64).reshape(_BATCH, -1)
    h = layer.initial_state(x[:, None], None)
    if not isinstance(h, Tensor) or tuple(h.shape) != (_BATCH, layer.hidden_size):
        raise UnsupportedError("its state must be one vector for each sequence")
    h = torch.linspace(-0.9, 0.8, h.numel(), dtype=torch.float64).reshape(h.shape)
    with torch.no_grad(), _Follower() as follower:
        follower.begin(x, "x")
        follower.begin(h, "h")
        next_state = layer.transition(x, h)
        value = follower.values.get(id(next_state))
    if value is None:
        raise UnsupportedError("the traced step depends on neither state nor input")
    sizes = [("h", layer.hidden_size)], [("x", layer.input_size)]
    return ChannelMap.of(follower.channels, *sizes, [value])


def _opaque(layer: StepModule, name: str, why: str) -> OpaqueMap:
    return opaque_map(layer.held, layer.hidden_size, layer.input_size, why, name)
