"""One step of a layer as a program of ``torch.export``, and such a program as a layer again."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, UnsupportedError

from .adapters.inspection import twin
from .recurrent import RecurrentLayer
from .step_layer import StepLayer


class _Step(nn.Module):
    """``(x, h) -> next h`` of a layer whose state is one tensor."""

    def __init__(self, layer: RecurrentLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        prepared = self.layer.prepare()
        return self.layer.transition(self.layer.drive(x, prepared), h, prepared)


def export_step(layer: RecurrentLayer, path: str | Path) -> Path:
    """Write one step of a layer, ``(x (batch, p), h (batch, n)) -> next h``, by ``torch.export``.

    Args:
        layer: a layer whose state is one real tensor ``(batch, n)``; it is written in float64.
        path: of the file, ``.pt2``.

    Returns:
        The path.

    Raises:
        UnsupportedError: a state of several tensors or of complex numbers, or a layer that ``torch.export`` refuses.

    Example:
        >>> from stability.models import LSTM
        >>> export_step(LSTM(2, 3), "unused.pt2")
        Traceback (most recent call last):
        ...
        stability.errors.UnsupportedError: the state of this LSTM is no one real tensor (batch, n)
    """
    layer = twin(layer).to(device="cpu", dtype=torch.float64).eval()
    like = next(layer.parameters())
    x = torch.zeros(2, layer.input_size, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        state = layer.begin(x[:, None])[1]
    if not isinstance(state, Tensor) or state.is_complex() or state.dim() != 2:
        raise UnsupportedError(f"the state of this {type(layer).__name__} is no one real tensor (batch, n)")
    with torch.no_grad():  # drive() is for whole sequences: of a single step it must mean the same
        x, state = torch.rand_like(x), torch.rand_like(state)
        if not torch.allclose(_Step(layer)(x, state), layer.step(x, state)[1], rtol=1e-4, atol=1e-6):
            raise UnsupportedError(f"a {type(layer).__name__} drives a single step in another way than a sequence")
    batch = torch.export.Dim("batch", min=1)
    try:
        program = torch.export.export(_Step(layer), (x, state.detach()), dynamic_shapes=({0: batch}, {0: batch}))
        torch.export.save(program, path)
    except Exception as error:
        line = " ".join(str(error).split())[:160]
        raise UnsupportedError(f"torch.export does not take this {type(layer).__name__}: {line}") from error
    return Path(path)


def exported_step(program: Any) -> StepLayer:
    """A program of ``torch.export`` that is one step, as a layer: certified, tracked and measured like all others.

    Args:
        program: ``torch.export.ExportedProgram`` of ``(x (batch, p), h (batch, n)) -> next h``, or the path of a saved
            one. A saved program is read by ``torch.export.load``: read files of your own only.

    Returns:
        The layer; its system is read from the program while it runs.

    Raises:
        ConfigurationError: no such program.

    Example:
        >>> import tempfile
        >>> from stability import certify
        >>> from stability.models import ContractingRNN
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     layer = exported_step(export_step(ContractingRNN(2, 3), folder + "/step.pt2"))
        >>> str(certify(layer, rate="any").verdict)
        'certified'
    """
    if isinstance(program, (str, Path)):
        try:
            program = torch.export.load(program)
        except Exception as error:
            line = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise ConfigurationError(f"{program} is no program of torch.export: {line}") from error
    if not isinstance(program, torch.export.ExportedProgram):
        raise ConfigurationError(f"expected a program of torch.export or its path, got {type(program).__name__}")
    names = set(program.graph_signature.user_inputs)
    shapes = [tuple(n.meta["val"].shape) for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    if len(shapes) != 2 or any(len(shape) != 2 for shape in shapes):
        raise ConfigurationError(
            f"a step takes x (batch, p) and h (batch, n); this program takes {', '.join(map(str, shapes)) or 'nothing'}"
        )
    held = program.module()
    for part in held.modules():  # torch's own, made just now: they check shapes, and keep its books
        part._forward_pre_hooks.clear()
        part._forward_hooks.clear()
    return StepLayer(_run, int(shapes[0][1]), int(shapes[1][1]), held=held, name="exported step")


def _run(held: Any, x: Tensor, h: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's about its own trees
        return held(x, h)
