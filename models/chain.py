r"""Networks with plain layers before and behind their recurrent part, as stacks with memoryless layers.

``nn.Linear`` with an activation behind it is the map :math:`h^+ = \phi(M x + c)`, a recurrent layer whose next state
does not depend on the one before. What stands between the layers is found by running the module once and looking at
what each of them gets: what the one before it gave, or an activation of it. The result is no claim: the caller runs
the module beside what was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.systems.classifier import REDUCTIONS, Classifier
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, LureSystem

from .adapters.inspection import twin
from .adapters.torch_modules import as_array
from .wrapped import two_rows

_ACTIVATIONS = {"identity": lambda z: z, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
_SCALES, _STEPS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4), 5
"""Scales and length of random sequences; on small inputs a ReLU with a large bias looks like the identity."""
_CLOSE = 1e-10  # relative tolerance for equal values in float64


@dataclass(frozen=True, eq=False)
class _Call:
    """Call of a layer: its path in the module, its input and its output."""

    path: str
    input: Tensor
    got: Tensor


def chain(module: nn.Module, path: str, subject: Any) -> list[Classifier]:
    """Return candidate classifiers for a module whose layers form one chain with the recurrent part.

    Args:
        module: a user's module, ``(batch, time, features)`` to logits ``(batch, classes)``.
        path: path of its recurrent part.
        subject: system that the part runs.

    Returns:
        The classifier of a ``LayerStack`` with a layer for each ``nn.Linear`` but the last, which is the head; with
        either reduction where the head answers at every step.

    Raises:
        UnsupportedError: the module does not run, or its layers are not in one line: an activation that is not known
            here (identity, ReLU, tanh, sigmoid), a norm, a sum of several layers.

    Example:
        >>> from stability.models.adapters.modules import recurrent_subject
        >>> class Own(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.first, self.rnn, self.out = nn.Linear(2, 3), nn.GRU(3, 4, batch_first=True), nn.Linear(4, 5)
        ...     def forward(self, x):
        ...         return self.out(self.rnn(torch.relu(self.first(x)))[0].mean(1))
        >>> own = Own().double()
        >>> (found,) = chain(own, "rnn", recurrent_subject(own.rnn))
        >>> found.recurrent.levels, found.recurrent.layers[0].activation, found.reduction
        (2, 'relu', 'mean')
    """
    calls = _calls(module, path)
    paths = [call.path for call in calls]
    if paths.count(path) != 1 or len(set(paths)) != len(paths) or paths[-1:] == [path]:
        raise UnsupportedError(f"its layers are called in the order {', '.join(paths)}")
    layers, reduction, at = list[Any](), None, paths.index(path)
    for k, (call, reader) in enumerate(pairwise(calls)):
        between, pooled = _between(call, reader, may_pool=k >= at and reduction is None)
        if k == at and between != "identity":
            raise UnsupportedError(f"{reader.path} reads {between} of what {path} gives")
        if pooled == "mean" and k + 2 < len(calls):
            raise UnsupportedError(f"{reader.path} reads a mean over the steps, and another layer reads {reader.path}")
        if k == at:
            layers += subject.layers if isinstance(subject, LayerStack) else [subject]
        else:
            layers.append(_static(module.get_submodule(call.path), between, call.path))
        reduction = pooled or reduction
    network = LayerStack(layers, name="layers") if len(layers) > 1 else layers[0]
    head = module.get_submodule(paths[-1])
    weight = as_array(head.weight, f"{paths[-1]}.weight")
    bias = None if head.bias is None else as_array(head.bias, f"{paths[-1]}.bias")
    return [
        Classifier(network, *two_rows(weight, bias), each)
        for each in (REDUCTIONS if reduction is None else (reduction,))
    ]


def _calls(module: nn.Module, path: str) -> list[_Call]:
    """Return the calls of ``nn.Linear`` and of the recurrent part in order, on random float64 sequences."""
    runs, calls = twin(module).to(device="cpu", dtype=torch.float64).eval(), list[_Call]()
    inside = {id(part) for part in runs.get_submodule(path).modules()}

    def heard(name: str) -> Any:
        def hear(part: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            out = out[0] if isinstance(out, tuple) and out else out
            if not (args and isinstance(args[0], Tensor) and isinstance(out, Tensor)):
                raise UnsupportedError(f"{name} must be called with one tensor")
            calls.append(_Call(name, args[0].detach(), out.detach()))

        return hear

    watched = {path: runs.get_submodule(path)}
    watched |= {n: m for n, m in runs.named_modules() if isinstance(m, nn.Linear) and id(m) not in inside}
    features = _features(runs, path, watched)
    for name, part in watched.items():
        part.register_forward_hook(heard(name))
    scales = torch.tensor(_SCALES, dtype=torch.float64)[:, None, None]
    x = scales * torch.randn(
        len(_SCALES), _STEPS, features, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    try:
        with torch.no_grad():
            runs(x)
    except UnsupportedError:
        raise
    except (Exception, SystemExit) as error:  # a network of the user's own may raise anything
        line = " ".join(str(error).split())[:160]
        raise UnsupportedError(
            f"it does not take sequences {tuple(x.shape)} in float64: {type(error).__name__}: {line}"
        ) from error
    return calls


def _features(runs: nn.Module, path: str, watched: dict[str, nn.Module]) -> int:
    """Return the number of inputs of the first layer called."""
    names = [name for name in dict(runs.named_modules()) if name in watched]
    part = watched[names[0]]
    size = part.in_features if isinstance(part, nn.Linear) else getattr(watched[path], "input_size", None)
    if not isinstance(size, int):
        raise UnsupportedError(f"the number of input features of {path} is unknown")
    return size


def _static(part: Any, phi: str, path: str) -> DrivenSystem:
    """Return the memoryless layer ``h+ = phi(M x + c)``."""
    weight = as_array(part.weight, f"{path}.weight")
    bias = None if part.bias is None else as_array(part.bias, f"{path}.bias")
    n = len(weight)
    system = LureSystem(np.zeros((n, n)), np.eye(n), np.zeros((n, n)), None, activation(phi).slope, 1.0)
    return DrivenSystem(system, phi, weight, bias, name=path)


def _between(call: _Call, later: _Call, *, may_pool: bool) -> tuple[str, str | None]:
    """Return the activation between two calls, and the reduction over time if there is one.

    Raises:
        UnsupportedError: something else stands between them.
    """
    for name, function in _ACTIVATIONS.items():
        value = function(call.got)
        for whole in (value, value.transpose(0, 1)) if value.ndim == 3 else (value,):
            if _same(whole, later.input):
                return name, None
            if may_pool and whole.ndim == 3:
                pools = {"last": whole[:, -1], "mean": whole.mean(dim=1)}
                pooled = next((each for each in REDUCTIONS if _same(pools[each], later.input)), None)
                if pooled is not None:
                    return name, pooled
    raise UnsupportedError(
        f"{later.path} must read the output of {call.path}, its ReLU, tanh or sigmoid, its last step or its mean "
        "over the steps"
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= _CLOSE * (1.0 + b.abs().max()))
