"""Conversion of trained modules to subjects of claims: ``torch.nn``, containers, and classes registered by a user.

Importing ``stability.models`` registers these conversions for ``stability.certify``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.linalg import block_diag
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.conversion.parts import subject_as_part, with_ending
from stability.conversion.subjects import as_subject, register_converter
from stability.errors import ConfigurationError, DisagreementError, NonFiniteError, UnsupportedError
from stability.kernel.format.serialization import is_subject
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.opaque import OpaqueMap
from stability.kernel.systems.parts import COMPUTED
from stability.systems import DrivenSystem, GatedLinearLayer, LureSystem

from ..cells import CELLS, cell_of
from ..deep import DeepNetwork
from ..embedding import BehindEmbedding
from ..gated_linear.block import GatedLinearBlock
from ..network import SequenceModel
from ..options import TORCH_ACTIVATIONS
from ..recurrent import RecurrentLayer
from ..stack import Stack
from ..step_layer import StepLayer
from .cross_check import checked_block, cross_check_layer, cross_check_step
from .inspection import computes_weights, refuse_altered, with_current_weights
from .quantized import is_quantized
from .state_dicts import liquid_cell
from .torch_modules import is_torch_recurrent, torch_kind, torch_subject

Subject = Any
_OURS = "stability.models."
Step = Callable[[Any, Tensor, Tensor], Tensor]
_ADAPTERS: dict[type, tuple[Callable[[Any], Subject], Step | None]] = {}


def register_adapter(
    kind: type, *, step: Step | None = None, replace: bool = False
) -> Callable[[Callable[[Any], Subject]], Callable[[Any], Subject]]:
    """Register a user's module class: ``register_adapter(MyRNN)(function)``, or as a decorator.

    Args:
        kind: the class; instances of subclasses that run the same methods are accepted too.
        step: ``(module, x (batch, p), h (batch, n)) -> next h``, one step of the module. ``certify`` compares it with
            the system, on a copy in float64, and refuses a module whose numbers differ.
        replace: whether to replace an earlier function for the same class.

    Returns:
        A decorator for the function that turns such a module into a ``LureSystem``, ``DrivenSystem``,
        ``GatedCell`` or ``LayerStack``.

    Raises:
        ConfigurationError: not a class, not a function, or the class is registered already.

    Example:
        >>> import torch
        >>> from stability.models import from_rows
        >>> class Leaky(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.W = nn.Parameter(0.5 * torch.eye(2))
        ...     def forward(self, x, h):  # row vectors: h @ W
        ...         return 0.9 * h + 0.1 * torch.tanh(h @ self.W + x)
        >>> @register_adapter(Leaky, step=lambda m, x, h: m(x, h))
        ... def leaky(m):
        ...     W, n = from_rows(m.W), m.W.shape[0]
        ...     return DrivenSystem(LureSystem(0.9 * np.eye(n), 0.1 * np.eye(n), W, dt=1.0), "tanh", np.eye(n))
        >>> lure_system(Leaky()).A[0, 0]
        np.float64(0.9)
    """
    if not isinstance(kind, type):
        raise ConfigurationError(f"register_adapter needs a class, got a {type(kind).__name__}")
    if step is not None and not callable(step):
        raise ConfigurationError(f"step must be a function (module, x, h) -> next h, got a {type(step).__name__}")

    def register(function: Callable[[Any], Subject]) -> Callable[[Any], Subject]:
        if not callable(function):
            raise ConfigurationError(f"the adapter must be a function of the module, got a {type(function).__name__}")
        if kind in _ADAPTERS and not replace and _ADAPTERS[kind] != (function, step):
            raise ConfigurationError(f"{kind.__qualname__} already has an adapter: use replace=True to replace it")
        known = kind in _ADAPTERS
        _ADAPTERS[kind] = (function, step)
        if not known:
            register_converter(kind, recurrent_subject)
        return function

    return register


def lure_system(module: Any) -> LureSystem:
    """Return the Lur'e system of a layer, of ``torch.nn.RNN`` or ``RNNCell``, or of a registered module.

    Several layers of a ``torch.nn.RNN`` become one system: the weights from the layer below are entries of ``D``. Two
    directions become the two blocks of one system, each in its own running direction.

    Args:
        module: the module, or a container with exactly one such part.

    Returns:
        The system.

    Raises:
        UnsupportedError: no system is known, or it is not a Lur'e system (LSTM and GRU: use ``certify(module)``).

    Example:
        >>> lure_system(nn.RNN(3, 5, num_layers=2)).states
        10
    """
    subject = as_subject(module)
    if isinstance(subject, DrivenSystem):
        return subject.system
    if isinstance(subject, LureSystem):
        return subject
    if isinstance(subject, LayerStack) and all(isinstance(part, DrivenSystem) for part in subject.layers):
        return _joint(subject)
    if isinstance(subject, OpaqueMap):
        raise UnsupportedError(f"no system was read from the step of {subject.name}: {subject.why}")
    what = "a stack with gated layers" if isinstance(subject, LayerStack) else "an LSTM or GRU"
    what = "a gated linear layer" if isinstance(subject, GatedLinearLayer) else what
    raise UnsupportedError(f"{what} has no Lur'e system: use certify(module) instead")


def recurrent_subject(module: Any) -> Subject:
    """Return the subject of claims about one recurrent module.

    Raises:
        UnsupportedError: no system is known for the module.
    """
    for kind in type(module).__mro__:
        if kind in _ADAPTERS:
            return _adapted(module, kind)
        if kind in CELLS:
            return _driven(CELLS[kind].layer(module))
    if callable(getattr(module, "driven", None)):
        return with_origin(module, _driven(module))
    if is_torch_recurrent(module):
        return with_origin(module, torch_subject(module))
    raise UnsupportedError(f"no system is known for a {type(module).__module__}.{type(module).__qualname__}")


def with_origin(module: Any, subject: Subject) -> Subject:
    """Return a module's subject, noting where its weights are computed from the module's parameters."""
    computed = isinstance(module, nn.Module) and not isinstance(subject, GatedLinearLayer) and computes_weights(module)
    return with_ending(subject, COMPUTED) if computed else subject


def _adapted(module: Any, kind: type) -> Subject:
    """Return the result of a user's adapter, for a module that runs its class's own methods."""
    function, step = _ADAPTERS[kind]
    if not isinstance(module, nn.Module):
        return function(module)
    refuse_altered(module, kind)
    subject = function(with_current_weights(module))
    if step is not None:
        cross_check_step(step, module, subject)
    return subject


def _driven(module: Any) -> Subject:
    """Return a layer's ``driven`` system, cross-checked against its run."""
    if isinstance(module, SequenceModel) and type(module).driven is SequenceModel.driven:
        subject = _driven(module.layer)
        altered, name = _is_altered(module, SequenceModel), type(module).__name__
        return subject_as_part(subject, "layer", name) if altered else subject
    refuse_altered_layer(module)
    inner = module.parts[0] if isinstance(module, Stack) and len(module.parts) == 1 else module
    if isinstance(inner, GatedLinearBlock):
        return checked_block(inner).gated_linear()
    subject = module.driven()
    if isinstance(module, RecurrentLayer) and not isinstance(module, StepLayer) and not isinstance(subject, OpaqueMap):
        cross_check_layer(module, subject)  # also for classes of this package: an attribute may have been overwritten
    return subject


def _is_altered(module: nn.Module, kind: type) -> bool:
    """Return True if hooks or wrappers around a layer may change its map, such as an output fed back."""
    try:
        refuse_altered(module, kind)
    except UnsupportedError:
        return True
    return False


def refuse_altered_layer(module: Any) -> None:
    """Raise an error for a layer, or one inside it, that differs from the class that wrote its ``driven``.

    Raises:
        UnsupportedError: an overridden method, a hook.
    """
    for part in module.modules() if isinstance(module, nn.Module) else ():
        if isinstance(part, RecurrentLayer):
            known = next(c for c in type(part).__mro__ if "driven" in vars(c) or c.__module__.startswith(_OURS))
            if known is not RecurrentLayer:  # its ``driven`` claims nothing about the layer
                refuse_altered(part, known)
        elif is_torch_recurrent(part) and not is_quantized(part):
            refuse_altered(part, torch_kind(part))


def is_foreign_cell(module: Any) -> bool:
    """Return True for a class registered by ``register_adapter`` or ``register_cell``."""
    return isinstance(module, (*_ADAPTERS, *CELLS))


def foreign_layer(module: nn.Module) -> StepLayer:
    """Return a registered user module as a layer that runs the user's step with the module's own tensors.

    Args:
        module: one for which ``is_foreign_cell`` holds.

    Returns:
        The layer. If the adapter has no ``step``, its system runs in place of the module.

    Raises:
        UnsupportedError: an adapter without ``step`` whose system cannot be run by torch.
    """
    cell = cell_of(module)
    if cell is not None:
        return cell.layer(module)
    function, step = next(_ADAPTERS[kind] for kind in type(module).__mro__ if kind in _ADAPTERS)
    subject = function(with_current_weights(module))
    inputs = getattr(subject, "inputs", None)
    if inputs is None:
        raise UnsupportedError(
            f"the adapter of {type(module).__name__} returns a system without inputs, which cannot be run "
            "on data: define the step with stability.models.register_cell"
        )
    if step is not None:
        return StepLayer(step, inputs, subject.states, held=module)
    if not isinstance(subject, DrivenSystem) or subject.activation not in TORCH_ACTIVATIONS or subject.system.D.any():
        raise UnsupportedError(
            f"the adapter of {type(module).__name__} defines no step, and torch cannot run its system: use "
            "register_adapter(..., step=...)"
        )
    return StepLayer(partial(_system_step, subject), inputs, subject.states, held=module)


def _system_step(subject: DrivenSystem, module: nn.Module, x: Tensor, h: Tensor) -> Tensor:
    """Run one step of a network, in the precision and on the device of its state."""
    system = subject.system
    arrays = (system.A, system.B, system.C, subject.E, subject.b, subject.F)
    A, B, C, E, b, F = (torch.tensor(value).to(h) for value in arrays)
    return h @ A.T + TORCH_ACTIVATIONS[subject.activation](h @ C.T + x @ E.T + b) @ B.T + x @ F.T


def is_recurrent(module: Any) -> bool:
    """Return True if ``recurrent_subject`` accepts the module."""
    recognized = is_foreign_cell(module) or callable(getattr(module, "driven", None))
    return recognized or is_torch_recurrent(module)


def recurrent_parts(module: nn.Module) -> dict[str, Subject]:
    """Return all recurrent parts of a module by path.

    Args:
        module: any module.

    Returns:
        Subjects by path, as in ``module.get_submodule(path)``; the module itself has the path ``""``. Empty where
        there is none.

    ``subject.part`` is the path, empty for the module itself, and claims about the subject name it.

    Raises:
        UnsupportedError: a recurrent part that has no subject; the message names it and gives the reason.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.RNN(3, 5), nn.Linear(5, 2))
        >>> list(recurrent_parts(net))
        ['1']
    """
    out, visible, name = {}, dict[str, str](), type(module).__name__
    if isinstance(module, BehindEmbedding):  # the user's own network inside, by its own name and paths
        name, visible = type(module.model).__name__, {path: path.removeprefix("model.") for path, _ in _walk(module)}
    for path, part in _walk(module):
        try:
            subject = recurrent_subject(part)
            out[path] = subject_as_part(subject, visible.get(path, path), name) if path else subject
        except (UnsupportedError, NonFiniteError, DisagreementError) as error:
            raise type(error)(f"{path or type(part).__name__}: {error}") from error
    return out


def certify_all(module: nn.Module, **options: Any) -> dict[str, Certificate]:
    """Certify each recurrent part of a module.

    Args:
        module: any module.
        **options: passed on to ``stability.certify``.

    Returns:
        Certificates by path.

    Raises:
        UnsupportedError: no recurrent part, or one without subject.

    Example:
        >>> rnn = nn.RNN(2, 3)
        >>> _ = nn.init.eye_(rnn.weight_hh_l0).data.mul_(0.5)
        >>> parts = certify_all(nn.ModuleDict({"encoder": rnn, "head": nn.Linear(3, 1)}))
        >>> {path: str(certificate.claim.verdict) for path, certificate in parts.items()}
        {'encoder': 'certified'}
    """
    from stability.certification import certify

    return {path: certify(subject, **options) for path, subject in _parts_of(module).items()}


def _walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the outermost recurrent modules; a module used twice is yielded once."""
    seen: set[int] = set()
    stack = [("", module)]
    while stack:
        where, part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, nn.ModuleDict | nn.ModuleList) or not is_recurrent(part):
            children = [(f"{where}.{name}" if where else name, child) for name, child in part.named_children()]
            stack.extend(reversed(children))
        else:
            yield where, part


def _joint(stack: LayerStack) -> LureSystem:
    """Return a stack of plain maps ``h+ = phi(W h + U below + ...)`` as one system."""
    layers = stack.layers
    if stack.directions == 2 and stack.levels > 1:
        raise UnsupportedError("a bidirectional network has no single Lur'e system: use certify(module)")
    systems = [layer.system for layer in layers]
    for layer, system in zip(layers, systems):
        if system.A.any() or layer.F.any() or system.D.any() or not np.array_equal(system.B, np.eye(system.states)):
            raise UnsupportedError("only layers of the form h+ = phi(W h + U x + b) are joined to one Lur'e system")
    C, offsets = (block_diag(*(system.C for system in systems)), np.cumsum([0, *(system.states for system in systems)]))
    A, D = np.zeros_like(C), np.zeros_like(C)
    for k, layer in enumerate(layers):
        at = [int(j) for j in stack.layers_read_by(k)]
        if at:
            D[offsets[k] : offsets[k + 1], offsets[at[0]] : offsets[at[-1] + 1]] = layer.E
    alpha, beta = (np.concatenate([getattr(system, side) for system in systems]) for side in ("alpha", "beta"))
    return LureSystem(A, np.eye(len(A)), C, D, (alpha, beta), systems[0].dt)


def _parts_of(module: nn.Module) -> dict[str, Subject]:
    """Return the recurrent parts of a module; raise an error if there are none."""
    parts = recurrent_parts(module)
    if parts:
        return parts
    liquid = liquid_cell(module.state_dict())
    if liquid is not None:
        raise UnsupportedError(f"a {type(module).__module__}.{type(module).__qualname__} is {liquid}")
    raise UnsupportedError(
        f"a {type(module).__module__}.{type(module).__qualname__} has no known recurrent part: add an adapter for your "
        "own class with stability.models.register_adapter(YourClass)(function)"
    )


def _container(module: nn.Module) -> Subject:
    if isinstance(module, DeepNetwork) and module.prescribes_gain:
        return with_origin(module, module.residual())
    parts = _parts_of(module)
    if len(parts) > 1 and isinstance(module, DeepNetwork):
        return with_origin(module, module.side_by_side())
    if len(parts) > 1:
        raise UnsupportedError(
            f"{type(module).__name__} has {len(parts)} recurrent parts ({', '.join(parts)}), and how they are "
            f"connected is not known: certify each with stability.models.certify_all(model), or one with "
            f"certify(model.get_submodule({next(iter(parts))!r})); on the command line it is MODEL#{next(iter(parts))}"
        )
    return next(iter(parts.values()))


def _is_container(value: Any) -> bool:
    plain = isinstance(value, nn.Module) and not is_subject(value)
    return plain and not is_recurrent(value)


register_converter(_is_container, _container)
register_converter(is_torch_recurrent, recurrent_subject)
register_converter(lambda value: cell_of(value) is not None, recurrent_subject)
register_converter(lambda value: isinstance(value, (RecurrentLayer, SequenceModel)), recurrent_subject)
