r"""Recurrent layer defined by a step function :math:`h^+ = f(x, h)`.

What every analyzer of hidden states asks of a layer (a walk over a sequence, a step, Jacobians) follows from the step.
What a proof needs, the system behind it, is read from the step while it runs (``adapters/steps.py``); a step that no
criterion is about becomes an ``OpaqueMap``, of which ``certify`` says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from .adapters.steps import read_step
from .options import positive_int
from .recurrent import RecurrentLayer
from .tensors import state_leaves

Step = Callable[[Any, Tensor, Any], Any]


def square_blocks(held: nn.Module, size: int) -> dict[str, Tensor]:
    """Return the ``(n, n)`` parameters and buffers of a module, and the blocks of those with ``k n`` rows, by name.

    Example:
        >>> list(square_blocks(nn.GRUCell(2, 3), 3))
        ['weight_hh.0', 'weight_hh.1', 'weight_hh.2']
    """
    found: dict[str, Tensor] = {}
    for name, value in (*held.named_parameters(), *held.named_buffers()):
        if value.dim() != 2 or value.shape[1] != size or value.shape[0] % size or not value.is_floating_point():
            continue
        blocks = value.split(size)
        found.update({name if len(blocks) == 1 else f"{name}.{k}": block for k, block in enumerate(blocks)})
    return found


class StepLayer(RecurrentLayer):
    """Recurrent layer of one function: ``h+ = step(x, h)``.

    Args:
        step: ``(x (batch, p), h (batch, n)) -> next h``; with ``held`` it gets the module first. A module is a step,
            too, called as ``step(x, h)``; it is then what is held.
        input_size: ``p``.
        hidden_size: ``n``.
        held: the module whose weights the step uses, or a mapping of names to tensors and modules, which are trained
            and moved with the layer; the step gets it as its first argument.
        initial: ``(held, x (batch, time, p)) -> state`` before the first step; zero by default. A state may be a tuple
            of tensors, whose first is ``h``.
        matrices: ``(held) -> {name: (n, n) tensor}``, whose spectra are recorded; by default the square parameters and
            buffers of ``held``, and the square blocks of those with ``k n`` rows.
        name: name in reports.

    Raises:
        ConfigurationError: no function, a size that is no positive integer, or something held that is no tensor.

    Example:
        >>> import torch
        >>> from stability import certify
        >>> _ = torch.manual_seed(0)
        >>> W, U = 0.5 * torch.eye(3), torch.nn.Linear(2, 3)
        >>> layer = StepLayer(lambda own, x, h: torch.tanh(h @ own.W + own.U(x)), 2, 3, held={"W": W, "U": U})
        >>> layer(torch.zeros(4, 5, 2))[0].shape
        torch.Size([4, 5, 3])
        >>> str(certify(layer).verdict)
        'certified'
    """

    def __init__(
        self,
        step: Callable[..., Any],
        input_size: int,
        hidden_size: int,
        *,
        held: nn.Module | Mapping[str, Any] | None = None,
        initial: Callable[[Any, Tensor], Any] | None = None,
        matrices: Callable[[Any], Mapping[str, Tensor]] | None = None,
        name: str = "",
    ) -> None:
        super().__init__(positive_int("input_size", input_size), positive_int("hidden_size", hidden_size))
        for what, value in (("step", step), ("initial", initial), ("matrices", matrices)):
            if not callable(value) and not (value is None and what != "step"):
                raise ConfigurationError(f"{what} must be a function, got {type(value).__name__}")
        step, held, self._bare = _stepping(step, held)
        _check_call(step, 2 if self._bare else 3)
        self.held = held if isinstance(held, nn.Module) else _holder(held or {})
        self._step, self._initial, self._matrices = step, initial, matrices
        self.name = name or (type(held).__name__ if isinstance(held, nn.Module) else "step")
        self.layer_name = self.name

    def prepare(self) -> None:
        """Return None: the step needs no preparation."""

    def drive(self, x: Tensor, prepared: Any) -> Tensor:
        """Return the inputs themselves."""
        return x

    def initial_state(self, x: Tensor, prepared: Any) -> Any:
        """Return the result of ``initial``, or zero."""
        return super().initial_state(x, prepared) if self._initial is None else self._initial(self.held, x)

    def transition(self, drive: Tensor, state: Any, prepared: Any = None) -> Any:
        """Run one step of the function.

        Raises:
            DimensionError: a next state of another shape than the state.
            ConfigurationError: no tensor comes out.
        """
        next_state = self._step(drive, state) if self._bare else self._step(self.held, drive, state)
        leaves, came = state_leaves(state), state_leaves(next_state)
        for before, now in zip(leaves, came):
            if not isinstance(now, Tensor):
                raise ConfigurationError(f"the step of {self.name} must return a tensor, got a {type(now).__name__}")
            if now.shape != before.shape:
                raise DimensionError(f"what the step of {self.name} gives", tuple(before.shape), tuple(now.shape))
        if len(leaves) != len(came):
            raise ConfigurationError(
                f"the step of {self.name} must return {len(leaves)} tensors, got {len(came)}: return the next state "
                "alone"
            )
        return next_state

    def hidden(self, state: Any) -> Tensor:
        """Return the state, or its first tensor."""
        return state_leaves(state)[0]

    def matrices(self) -> dict[str, Tensor]:
        """Return the matrices whose spectra are recorded, see above."""
        if self._matrices is not None:
            return dict(self._matrices(self.held))
        return square_blocks(self.held, self.hidden_size)

    def config(self) -> dict[str, Any]:
        """Raise an error: no file of weights stores a function.

        Raises:
            ConfigurationError: always; the text names the alternative.
        """
        raise ConfigurationError(
            f"{self.name} is defined by a function, which a weight file cannot store: use package.module:factory"
        )

    def driven(self, continuous: bool = False) -> Any:
        """Return the subject read from the step: a network, a system, or an ``OpaqueMap`` with the obstacle."""
        self.refuse_equation(continuous)
        return read_step(self, self.name)


def _stepping(step: Callable[..., Any], held: Any) -> tuple[Callable[..., Any], Any, bool]:
    """Return the step function, the held modules, and True if the step takes ``(x, h)`` alone; a module holds itself.

    Raises:
        ConfigurationError: a module that cannot be called.
    """
    if not isinstance(step, nn.Module) or not (held is None or held is step):
        return step, held, held is None
    if type(step).forward is nn.Module.forward:
        name = type(step).__name__
        raise ConfigurationError(
            f"step is a {name}, which has no forward(x, h): pass its method, as "
            f"StepLayer(lambda own, x, h: own.step(x, h), ..., held=module), or use register_cell({name})"
        )
    return lambda module, x, h: module(x, h), step, False


def _check_call(step: Callable[..., Any], count: int) -> None:
    """Raise an error for a function that does not take a step's arguments.

    Raises:
        ConfigurationError: another signature.
    """
    if not callable(step):
        return
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):  # a function of C says nothing
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        arguments = "(x, h)" if count == 2 else "(held, x, h), since something is held"
        raise ConfigurationError(f"the step is called as step{arguments}, and takes {signature}: {error}") from error


def _holder(values: Mapping[str, Any]) -> nn.Module:
    held = nn.Module()
    for name, value in values.items():
        if isinstance(value, (nn.Module, nn.Parameter)):
            setattr(held, name, value)
        elif isinstance(value, Tensor):
            held.register_buffer(name, value)
        else:
            raise ConfigurationError(f"held[{name!r}] must be a tensor, a parameter or a module, got {value!r:.60}")
    return held
