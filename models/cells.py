"""User-defined recurrent cells and their registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from stability.errors import ConfigurationError

from .options import made_with, positive_int
from .recurrent import LAYERS, register_layer
from .step_layer import StepLayer

Size = str | int | Callable[[Any], int]


@dataclass(frozen=True)
class Cell:
    """Description of a class of cells.

    Attributes:
        kind: the class.
        step: ``(module, x (batch, p), h (batch, n)) -> next h``.
        method: name of the method that is the step, if the step is a method; each call of it reads the input.
        input_size: ``p``: the name of an attribute, a number, or a function of the module.
        hidden_size: ``n``, given in the same way.
        initial: ``(module, x (batch, time, p)) -> state``; ``None``: zero.
        matrices: ``(module) -> {name: (n, n) tensor}``; ``None``: all square parameters of the module.
    """

    kind: type[nn.Module]
    step: Callable[[Any, Tensor, Any], Any]
    method: str
    input_size: Size
    hidden_size: Size
    initial: Callable[[Any, Tensor], Any] | None
    matrices: Callable[[Any], Mapping[str, Tensor]] | None

    def layer(self, module: nn.Module) -> StepLayer:
        """Return a module of this class as a layer with the module's own tensors."""
        sizes = (self._size(module, "input_size"), self._size(module, "hidden_size"))
        return StepLayer(self.step, *sizes, held=module, initial=self.initial, matrices=self.matrices)

    def _size(self, module: nn.Module, which: str) -> int:
        size = getattr(self, which)
        value = getattr(module, size, None) if isinstance(size, str) else size(module) if callable(size) else size
        if isinstance(size, str) and value is None:
            raise ConfigurationError(
                f"a {type(module).__name__} has no attribute {size!r}: use register_cell({self.kind.__name__}, "
                f"{which}=...), a name, a number or a function of the module"
            )
        return positive_int(f"{which} of {type(module).__name__}", value)


CELLS: dict[type, Cell] = {}


def register_cell(
    kind: type,
    *,
    step: str | Callable[[Any, Tensor, Any], Any] = "step",
    input_size: Size = "input_size",
    hidden_size: Size = "hidden_size",
    initial: Callable[[Any, Tensor], Any] | None = None,
    matrices: Callable[[Any], Mapping[str, Tensor]] | None = None,
    replace: bool = False,
) -> type:
    """Register a user's cell by its step, for certificates, spectra, norms, exponents, attacks and reports.

    If the step consists of affine maps and tanh, ReLU or sigmoid, its system is read from a run of it. A cell with a
    gate, a norm or a division is measured too, but ``certify`` is *inconclusive* and names the first such operation.
    ``register_adapter`` gives the system of a step that cannot be read.

    Args:
        kind: the class of ``torch.nn.Module``; subclasses are accepted too.
        step: ``(module, x (batch, p), h (batch, n)) -> next h``, or the name of a method ``(x, h) -> next h``
            (``"forward"`` if calling the module is its step).
        input_size: features ``p``: the name of an attribute, a number, or a function of the module.
        hidden_size: size ``n`` of the state, given in the same way.
        initial: ``(module, x (batch, time, p)) -> state`` before the first step; zero by default.
        matrices: ``(module) -> {name: (n, n) tensor}``, whose spectra are tracked; by default the square parameters and
            buffers, and the square blocks of those with ``k n`` rows.
        replace: whether to replace an earlier description of the class.

    Returns:
        The class itself, so that this is also a decorator.

    Raises:
        ConfigurationError: ``kind`` is not a class of modules, has no such method, or is registered already.

    Example:
        >>> import torch
        >>> class Normed(nn.Module):
        ...     input_size, hidden_size = 2, 4
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.W, self.norm = nn.Linear(6, 4), nn.LayerNorm(4)
        ...     def step(self, x, h):
        ...         return torch.tanh(self.norm(self.W(torch.cat([x, h], 1))))
        >>> cell = register_cell(Normed)()
        >>> from stability import certify
        >>> certify(cell).findings[0].detail
        'it contains the operation native_layer_norm'
        >>> from stability.analysis import norm_drift
        >>> norm_drift(cell, torch.ones(3, 5, 2)).mean.shape
        (1, 5)
    """
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        raise ConfigurationError(f"register_cell needs a subclass of torch.nn.Module, got a {type(kind).__name__}")
    method = step if isinstance(step, str) else ""
    if not callable(step) and not callable(getattr(kind, method, None)):
        raise ConfigurationError(f"{kind.__qualname__} has no method {step!r}: pass step=, a function (module, x, h)")
    if kind in CELLS and not replace:
        raise ConfigurationError(f"{kind.__qualname__} is already registered: use replace=True to replace it")
    run = step if callable(step) else lambda module, x, h: getattr(module, method)(x, h)
    CELLS[kind] = Cell(kind, run, method, input_size, hidden_size, initial, matrices)
    return kind


def cell_of(module: Any) -> Cell | None:
    """Return the description of a module's class or of one of its bases; ``None`` for unregistered classes."""
    return _cell_of_kind(type(module))


def _cell_of_kind(kind: type) -> Cell | None:
    return next((CELLS[base] for base in kind.__mro__ if base in CELLS), None)


def cell_layer(kind: Any) -> str | None:
    """Register a trainable layer for a class of cells ``kind(input_size, hidden_size, **options)``.

    Args:
        kind: a class, or any other object.

    Returns:
        The layer's name, which is that of the class; ``None`` for an unregistered class or another object.

    Raises:
        ConfigurationError: another layer has this name.
    """
    cell = _cell_of_kind(kind) if isinstance(kind, type) else None
    if cell is None:
        return None

    class CellLayer(StepLayer):
        """Layer made from the sizes and options of a cell."""

        made_of = (kind, cell)

        def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
            held = made_with(kind, f"cell {kind.__name__}", options, input_size, hidden_size)
            super().__init__(
                cell.step, input_size, hidden_size, held=held, initial=cell.initial, matrices=cell.matrices
            )
            self.options = options

        def config(self) -> dict[str, Any]:
            """Return sizes and options."""
            return {"input_size": self.input_size, "hidden_size": self.hidden_size, **self.options}

    known: Any = LAYERS.get(kind.__name__)
    if getattr(known, "made_of", None) != CellLayer.made_of:
        named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        register_layer(kind.__name__)(type(kind.__name__, (CellLayer,), named))
    return kind.__name__
