"""Recurrent layers of a model: their paths, matrices, inputs, states and step Jacobians.

All analyzers of hidden states use this module, so that measurements agree for all layers, ``torch.nn``'s included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from stability.errors import ConfigurationError, UnsupportedError

from ..models.adapters.modules import foreign_layer, is_foreign_cell
from ..models.cells import cell_of
from ..models.deep import DeepNetwork
from ..models.elman import ElmanRNN
from ..models.gated import GRU, LSTM
from ..models.network import SequenceModel
from ..models.recurrent import RecurrentLayer
from ..models.tensors import check_sequence, state_leaves
from .guard import answer, as_tensor, check_dense, check_model, check_real_sequences

GATE_LETTERS = {3: "rzn", 4: "ifgo"}  # the order of the blocks in torch.nn's weight_hh


def recurrent_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the outermost recurrent modules of a model, with their paths (``""`` for the model itself).

    Args:
        model: any module; found are ``RecurrentLayer`` s, ``torch.nn``'s recurrent modules and cells,
            classes registered by ``register_cell`` or ``register_adapter``, and modules with a 2-D parameter
            ``weight_hh``.

    Returns:
        Pairs of path and module, in the order of definition; empty when there is none.

    Example:
        >>> [name for name, _ in recurrent_layers(nn.Sequential(nn.Linear(2, 2), nn.RNN(2, 3)))]
        ['1']
    """

    def walk(path: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
        weight = getattr(module, "weight_hh", None)
        known = isinstance(module, (RecurrentLayer, nn.RNNBase, nn.RNNCellBase)) or is_foreign_cell(module)
        if known or (isinstance(weight, Tensor) and weight.dim() == 2):
            return [(path, module)]
        inner = [walk(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
        return [pair for pairs in inner for pair in pairs]

    return walk("", model)


def recurrent_matrices(module: nn.Module) -> dict[str, Tensor]:
    """Return the square recurrent matrices of one recurrent module by name.

    Args:
        module: a result of ``recurrent_layers``.

    Returns:
        ``A``, ``W`` and so on for layers of the toolkit; ``weight_hh_l0`` for ``torch.nn.RNN``; one matrix for each
        gate, such as ``weight_hh_l0.f``, for LSTM and GRU.

    Example:
        >>> list(recurrent_matrices(nn.GRU(2, 3)))
        ['weight_hh_l0.r', 'weight_hh_l0.z', 'weight_hh_l0.n']
    """
    if isinstance(module, RecurrentLayer):
        return module.matrices()
    if is_foreign_cell(module):
        return _foreign_matrices(module)
    out: dict[str, Tensor] = {}
    for name, weight in module.named_parameters(recurse=False):
        if not name.startswith("weight_hh") or weight.dim() != 2:
            continue
        blocks = weight.shape[0] // weight.shape[1]
        if blocks == 1:
            out[name] = weight
        elif weight.shape[0] == blocks * weight.shape[1]:
            letters = GATE_LETTERS.get(blocks, [str(i) for i in range(blocks)])
            out.update({f"{name}.{letter}": block for letter, block in zip(letters, weight.chunk(blocks))})
    return out


def _foreign_matrices(module: nn.Module) -> dict[str, Tensor]:
    try:
        return foreign_layer(module).matrices()
    except UnsupportedError:  # its adapter defines no step
        return {}


def as_layer(module: nn.Module, *, shared: bool = False) -> RecurrentLayer:
    """Return a recurrent module as a ``RecurrentLayer``: itself, or a new one with a ``torch.nn`` module's weights.

    Args:
        module: a ``RecurrentLayer``; ``torch.nn.RNN`` (one layer), ``LSTM``, ``GRU`` or ``RNNCell``.
        shared: use the module's own tensors instead of copies, so that gradients reach them.

    Returns:
        The layer, for inputs ``(batch, time, features)`` whatever ``batch_first`` is.

    Raises:
        UnsupportedError: any other module, two directions, a projection, or several layers of
            ``torch.nn.RNN``.
    """
    if isinstance(module, RecurrentLayer):
        return module
    if is_foreign_cell(module):
        return foreign_layer(module)
    if isinstance(module, nn.RNNBase) and (module.bidirectional or module.proj_size):
        raise UnsupportedError("a bidirectional or projected network has no single map from one state to the next")
    if isinstance(module, (nn.LSTM, nn.GRU)):
        gates = LSTM if isinstance(module, nn.LSTM) else GRU
        layer = _bare(gates, module, num_layers=module.num_layers)
        rnn: nn.Module = layer.rnn
        for name, _ in list(rnn.named_parameters()):
            _lend(rnn, name, getattr(module, name, None), shared)
        return layer
    if isinstance(module, nn.RNNCell) or (isinstance(module, nn.RNN) and module.num_layers == 1):
        end = "" if isinstance(module, nn.RNNCell) else "_l0"
        layer = _bare(ElmanRNN, module, activation=str(module.nonlinearity))
        biases = (getattr(module, f"bias_ih{end}") + getattr(module, f"bias_hh{end}")) if module.bias else None
        for name, value in (("weight_ih", getattr(module, f"weight_ih{end}")), ("bias", biases)):
            _lend(layer, name, value, shared)
        _lend(layer, "weight_hh", getattr(module, f"weight_hh{end}"), shared)
        return layer
    raise UnsupportedError(
        f"{type(module).__name__} is no known recurrent layer: register it with stability.models.register_cell"
    )


def _bare(kind: type, module: Any, **options: Any) -> Any:
    """Return a layer with the sizes, device and dtype of a ``torch.nn`` module and all parameters zero."""
    with torch.random.fork_rng(devices=[]):
        layer = kind(module.input_size, module.hidden_size, **options)
    like = next(module.parameters())
    layer.to(like.device, like.dtype)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _lend(module: nn.Module, name: str, value: Tensor | None, shared: bool) -> None:
    """Set a parameter to a tensor or its copy; a missing bias keeps the zeros."""
    if value is None:
        return
    delattr(module, name)  # a tensor that a parametrization computes is no parameter and cannot replace one
    setattr(module, name, value if shared else nn.Parameter(value.detach().clone()))


def only_layer(model: nn.Module, part: str | None = None) -> RecurrentLayer:
    """Return the only recurrent layer of a model; all layers of a deep network count as one.

    Args:
        model: any module.
        part: the path of the layer, where there are several.

    Raises:
        ConfigurationError: not a module, or no recurrent layer at ``part``.
        UnsupportedError: no recurrent layer, or several without ``part``.
    """
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, DeepNetwork) and part is None:
        return model.recurrence()
    return as_layer(_named(model, part)[1])


def _named(model: nn.Module, part: str | None) -> tuple[str, nn.Module]:
    layers = recurrent_layers(model)
    names = ", ".join(name for name, _ in layers) or "none"
    if part is not None:
        if part not in dict(layers):
            raise ConfigurationError(f"{type(model).__name__} has no recurrent layer {part!r}; it has {names}")
        return part, dict(layers)[part]
    if len(layers) != 1:
        one = f"; name one with part={layers[0][0]!r} in Python" if layers else ""
        raise UnsupportedError(
            f"{type(model).__name__} must have exactly one recurrent layer, it has {len(layers)}: {names}{one}"
        )
    return layers[0]


def after_sequences(model: nn.Module, x: Any, part: str | None = None) -> tuple[RecurrentLayer, Any, list[Tensor], Any]:
    """Run a float64 copy of a layer through its input sequences; call it without gradients.

    Args:
        model: a recurrent layer, or a model that contains one.
        x: ``(batch, time, features)``, inputs of the model.
        part: path of the layer, if there are several.

    Returns:
        The layer, the result of its ``prepare``, the drive of every step, and the state after the last step.

    Raises:
        ConfigurationError: not a model, or not a dense real floating-point tensor.
        DimensionError: a wrong shape.
        NonFiniteError: weights or input that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> with torch.no_grad():
        ...     layer, _, drives, state = after_sequences(nn.GRU(2, 3, batch_first=True), torch.zeros(4, 5, 2))
        >>> len(drives), flat_state(state).shape
        (5, torch.Size([4, 3]))
    """
    layer = copy.deepcopy(only_layer(check_model(model), part)).double().eval()
    x = check_sequence(check_real_sequences(layer_inputs(model, x, part)).double(), layer.input_size)
    with torch.backends.cudnn.flags(enabled=False):
        prepared, state = layer.begin(x)
        drives = list(layer.drive(x, prepared).unbind(1))
        for drive in drives:
            state = layer.transition(drive, state, prepared)
    return layer, prepared, drives, state


def watch(model: nn.Module, part: nn.Module, see: Callable[[Any], Any], batches: Iterable[Tensor]) -> None:
    """Run a model on batches and pass the first argument of every call of one part to ``see``.

    Raises:
        ConfigurationError: a model that cannot run on these batches.
    """

    def look(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        see(next(iter((*arguments, *keywords.values())), None))

    handle = part.register_forward_pre_hook(look, with_kwargs=True)
    cell = cell_of(part)
    method = "" if cell is None or cell.method == "forward" else cell.method
    run = getattr(part, method, None)

    def seen(*arguments: Any, **keywords: Any) -> Any:  # hooks miss a step that is called by its name
        assert run is not None
        look(part, arguments, keywords)
        return run(*arguments, **keywords)

    try:
        if run is not None:
            vars(part)[method] = seen
        for batch in batches:
            answer(model, batch, type(model).__name__)
    finally:
        handle.remove()
        vars(part).pop(method, None)


def layer_inputs(model: nn.Module, x: Any, part: str | None = None) -> Any:
    """Return the sequences that ``only_layer`` of a model reads when the model runs on ``x``.

    Args:
        model: a recurrent layer, or a model that contains one.
        x: inputs of the model, ``(batch, time, features)``; token numbers for a model with an embedding.
        part: path of the layer, if there are several.

    Returns:
        ``(batch, time, layer's input_size)``; ``x`` itself if no other module precedes the layer. In a packed sequence
        the last step of each shorter one is repeated.

    Raises:
        UnsupportedError: a layer that does not run exactly once.
        ConfigurationError: a model that cannot run on ``x``.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.GRU(3, 4, batch_first=True))
        >>> layer_inputs(model, torch.zeros(5, 7, 2)).shape
        torch.Size([5, 7, 3])
    """
    x = as_tensor(model, x)
    if part is None and (isinstance(model, SequenceModel | DeepNetwork) or len(recurrent_layers(model)) != 1):
        return x
    path, module = _named(model, part)
    if not path:
        return x
    if isinstance(x, Tensor):
        check_dense("x", x)
    seen: list[Any] = []
    watch(model, module, seen.append, [x])
    if (
        (isinstance(module, nn.RNNCellBase) or is_foreign_cell(module))
        and seen
        and all(isinstance(u, Tensor) and u.dim() == 2 for u in seen)
    ):
        return torch.stack(seen, dim=1).detach()
    u = seen[0] if len(seen) == 1 else None
    if isinstance(u, PackedSequence):
        u, lengths = pad_packed_sequence(u, batch_first=True)
        indices = torch.minimum(torch.arange(u.shape[1]), lengths[:, None] - 1).to(u.device)
        u = u.gather(1, indices[:, :, None].expand_as(u))
    elif isinstance(u, Tensor) and u.dim() == 3 and not getattr(module, "batch_first", True):
        u = u.transpose(0, 1)
    if not isinstance(u, Tensor) or u.dim() != 3:
        raise UnsupportedError(
            f"{type(model).__name__} runs its recurrent layer {path} {_times(len(seen))}, or on something else "
            "than sequences (batch, time, features): measure the layer itself, on the sequences that it reads"
        )
    return u.detach()


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _rebuild(template: Any, parts: list[Tensor]) -> Any:
    if isinstance(template, Tensor):
        return parts.pop(0)
    inner = [_rebuild(part, parts) for part in template]
    return type(template)(*inner) if hasattr(template, "_fields") else type(template)(inner)


def flat_state(state: Any) -> Tensor:
    """Return a state as real row vectors ``(batch, n)``, with the real and imaginary parts of complex entries."""
    rows = [torch.view_as_real(t) if t.is_complex() else t for t in state_leaves(state)]
    return torch.cat([t.reshape(t.shape[0], -1) for t in rows], dim=1)


def shaped_state(flat: Tensor, template: Any) -> Any:
    """Invert ``flat_state`` for any batch, in the shapes of ``template``."""
    parts, start = [], 0
    for t in state_leaves(template):
        size = t[0].numel() * (2 if t.is_complex() else 1)
        piece = flat[:, start : start + size]
        start += size
        shape = (flat.shape[0], *t.shape[1:])
        parts.append(torch.view_as_complex(piece.reshape(*shape, 2)) if t.is_complex() else piece.reshape(shape))
    return _rebuild(template, parts)


def step_jacobians(layer: RecurrentLayer, drive: Tensor, state: Any, prepared: Any) -> tuple[Tensor, Any]:
    """Return the derivatives of the next state by the state, in closed form if the layer has one.

    Otherwise one batched backward pass gives all rows: every state is repeated once for each of its ``n`` entries, and
    the pass starts from the identity. Unlike ``vmap`` this works for every module, ``torch.nn``'s kernels included.

    Args:
        layer: a recurrent layer.
        drive: ``(batch, ...)`` of one step.
        state: the state before it.
        prepared: result of ``layer.prepare()``.

    Returns:
        Jacobians ``(batch, n, n)`` over real state vectors, and the next state.
    """
    flat = flat_state(state).detach()
    batch, n = flat.shape
    with torch.enable_grad():
        repeated = flat.repeat_interleave(n, dim=0).requires_grad_()
        next_state = layer.transition(drive.repeat_interleave(n, dim=0), shaped_state(repeated, state), prepared)
        image = flat_state(next_state)
        rows = torch.eye(n, dtype=image.dtype, device=image.device).repeat(batch, 1)
        (jacobian,) = torch.autograd.grad(image, repeated, rows)
    following = shaped_state(image.detach()[::n], state)
    return jacobian.reshape(batch, n, n), following


def push_frame(layer: RecurrentLayer, drive: Tensor, state: Any, prepared: Any, frame: Tensor) -> tuple[Tensor, Any]:
    """Return the images of directions under the Jacobian of one step, ``J_t Q``, and the next state, with graphs.

    The product is computed without the matrix: the backward pass is linear in the vector that it starts from, and its
    derivative by that vector is ``J_t``.

    Args:
        layer: a recurrent layer.
        drive: ``(batch, ...)`` of one step.
        state: the state before it.
        prepared: result of ``layer.prepare()``.
        frame: ``(batch, n, k)``, over real state vectors.

    Returns:
        ``(batch, n, k)``, and the next state.
    """
    flat = flat_state(state)
    (batch, n), k = flat.shape, frame.shape[-1]
    with torch.enable_grad():
        repeated = flat.repeat_interleave(k, dim=0)
        if not repeated.requires_grad:
            repeated.requires_grad_()
        next_state = layer.transition(drive.repeat_interleave(k, dim=0), shaped_state(repeated, state), prepared)
        image = flat_state(next_state)
        start = torch.zeros_like(image, requires_grad=True)
        (back,) = torch.autograd.grad(image, repeated, start, create_graph=True)
        rows = frame.mT.reshape(batch * k, n)
        (pushed,) = torch.autograd.grad(back, start, rows, create_graph=True, materialize_grads=True)
    return pushed.reshape(batch, k, n).mT, shaped_state(image[::k], state)
