"""Detection of modules whose output is not determined by their class and weights; the error names the cause.

A subject read from weights is valid only if the module uses them as its class does: no overridden ``forward``, no hook
that changes outputs, no weight that is recomputed before each pass, no dropout.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from stability.errors import UnsupportedError

_REPARAMETRIZATIONS = (WeightNorm, BasePruningMethod, SpectralNorm)
_CALL_METHODS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__")
_STEP_METHODS = (
    *("forward", "step", "walk", "transition", "drive", "prepare", "output", "emit", "begin", "initial_state"),
    *("check_forward_args", "permute_hidden", "check_input", "check_hidden_size"),
    *("_update_flat_weights", "_init_flat_weights", "_weights_have_changed"),
)


def refuse_altered(module: nn.Module, kind: type) -> None:
    """Raise an error for a module that differs from its class, naming the alteration.

    Args:
        module: a recurrent module.
        kind: the class whose map is known; ``module`` is an instance of it, perhaps of a subclass.

    Raises:
        UnsupportedError: an overridden method, a forward hook, dropout that is switched on.
    """
    _refuse_overridden(module, kind)
    _refuse_swapped_weights(module)
    _refuse_hooks(module)
    refuse_dropout(module)


def _refuse_overridden(module: nn.Module, kind: type) -> None:
    cls = type(module)
    name = cls.__name__.removeprefix("Parametrized")
    for method in (*_STEP_METHODS, *_CALL_METHODS):
        known, inherited = getattr(kind, method, None), getattr(nn.Module, method, None)
        if method not in _CALL_METHODS and (known is None or known is inherited):
            continue  # the class does not define it
        if method in vars(module):
            raise UnsupportedError(f"{method} of this {name} was replaced on the instance: restore the method")
        if getattr(cls, method, None) is not known:
            raise UnsupportedError(
                f"{name} overrides {kind.__name__}.{method}, so its step is unknown: add an adapter with "
                f"stability.models.register_adapter({name})(function)"
            )


def _refuse_swapped_weights(module: nn.Module) -> None:
    """Raise an error if the list of weights that ``nn.RNN``, ``LSTM`` and ``GRU`` run differs from their parameters."""
    if not isinstance(module, nn.RNNBase) or parametrize.is_parametrized(module):
        return  # parametrize computes a new tensor at each access, so torch rebuilds the list at each pass
    named = [getattr(module, name, None) for name in module._flat_weights_names]
    known = [None if ref is None else ref() for ref in module._flat_weight_refs]
    rebuilt = any(a is not b for a, b in zip(named, known))
    if not rebuilt and any(a is not b for a, b in zip(named, module._flat_weights)):
        raise UnsupportedError(
            f"_flat_weights of this {type(module).__name__} was replaced: assign to module.weight_hh_l0"
        )


def _hooks(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield every hook that can change the result of a forward pass, with its submodule."""
    for path, part in module.named_modules():
        for hook in (*part._forward_pre_hooks.values(), *part._forward_hooks.values()):
            yield path, hook


def _refuse_hooks(module: nn.Module) -> None:
    for path, hook in _hooks(module):
        where = f" on {path}" if path else ""
        if isinstance(hook, SpectralNorm) and module.training:
            raise UnsupportedError(
                f"spectral_norm of {hook.name}{where} changes the weight at every forward pass in training mode: call "
                "module.eval() first"
            )
        if not isinstance(hook, _REPARAMETRIZATIONS):
            raise UnsupportedError(
                f"{type(module).__name__} has a forward hook{where} ({_hook_name(hook)}), which may change what it "
                "computes: remove the hook to certify the module without it"
            )
    for hook in (*torch_module._global_forward_pre_hooks.values(), *torch_module._global_forward_hooks.values()):
        raise UnsupportedError(f"a global forward hook ({_hook_name(hook)}) may change every module: remove it first")


def _hook_name(hook: Any) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


def refuse_dropout(module: nn.Module) -> None:
    """Raise an error for a module in training mode with dropout, which makes every step random.

    Raises:
        UnsupportedError: the message names the submodule with dropout.
    """
    for path, part in module.named_modules():
        rate, layers = getattr(part, "dropout", 0.0), getattr(part, "num_layers", 1)
        stacked = isinstance(rate, (int, float)) and rate > 0 and isinstance(layers, int) and layers > 1
        if part.training and (stacked or (isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0)):
            raise UnsupportedError(
                f"{path or type(module).__name__} is in training mode with dropout: two runs from one state differ. "
                "Call module.eval() to certify the network without dropout"
            )


def is_reparametrized(module: nn.Module) -> bool:
    """Return True if a weight is computed before use: by ``parametrize``, or by one of the older hooks."""
    hooked = any(isinstance(hook, _REPARAMETRIZATIONS) for _, hook in _hooks(module))
    return hooked or any(parametrize.is_parametrized(part) for part in module.modules())


def computes_weights(module: nn.Module) -> bool:
    """Return True if a recurrent matrix is computed from parameters; False if all are (views of) stored tensors."""
    matrices: dict[str, Tensor] = getattr(module, "matrices", dict)() if hasattr(module, "driven") else {}
    stored = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    return is_reparametrized(module) or any(m.untyped_storage().data_ptr() not in stored for m in matrices.values())


def with_current_weights(module: nn.Module) -> nn.Module:
    """Return the module with the weights of its next forward pass: a float64 copy if they are recomputed, else itself.

    ``torch.nn.utils.weight_norm``, ``spectral_norm`` and ``prune`` compute the weight before each forward
    pass; between passes the stored weight may be outdated. ``torch.nn.utils.parametrize`` computes it at each access.

    Raises:
        UnsupportedError: weights that change each time they are read, or a module that cannot be copied.
    """
    if not is_reparametrized(module):
        return module
    copy = twin(module).double()
    with torch.no_grad():
        for part in copy.modules():
            for hook in part._forward_pre_hooks.values():
                if isinstance(hook, _REPARAMETRIZATIONS):
                    hook(part, None)
            if parametrize.is_parametrized(part):
                for name in part.parametrizations:  # type: ignore[union-attr]
                    _refuse_changing_weight(part, str(name))
    return copy


def _refuse_changing_weight(part: nn.Module, name: str) -> None:
    first, second = getattr(part, name), getattr(part, name)
    if not torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)):
        raise UnsupportedError(
            f"{name} of this {type(part).__name__.removeprefix('Parametrized')} changes each time it is read "
            "(spectral_norm in training mode?): call module.eval() first"
        )


def twin(module: nn.Module) -> Any:
    """Return a deep copy that shares no tensor with the module, computed weights included.

    Raises:
        UnsupportedError: a module that cannot be copied.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in (*vars(part).values(), list(part.buffers(recurse=False))):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor) and not tensor.is_leaf:  # deepcopy refuses computed tensors
                    memo[id(tensor)] = tensor.detach().clone()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's about its own copies of exported programs
            return copy.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied, so that it cannot be run beside its system: "
            f"{type(error).__name__}: {str(error)[:120]}"
        ) from error
