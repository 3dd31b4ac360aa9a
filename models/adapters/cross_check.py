"""Cross-check of a module against the system read from it; a disagreement is an error.

A system is read from weights by their names, which does not show how the module uses them. The cross-check runs a
float64 copy of the module with its hooks and overridden methods, in its present mode and in evaluation mode, from
random states under random inputs. The system must give the same numbers up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from stability.errors import DisagreementError, StabilityError, UnsupportedError
from stability.kernel.systems.layer_stack import LayerStack

from ..gated_linear.block import GatedLinearBlock
from ..options import constructor_arguments
from ..recurrent import RecurrentLayer
from ..tensors import state_leaves
from .inspection import is_reparametrized, twin
from .quantized import is_quantized

Array = np.ndarray
Run = Callable[[Array, list[Array]], tuple[Array | None, list[Array]]]
_SCALES = (0.0, 0.1, 1.0, 1.0, 2.0, 5.0)
"""Scales of the samples of a batch: at zero only the bias acts, small inputs are nearly linear, large ones saturate."""
_QUANTIZED_SCALES = (0.0, 0.1, 0.3, 0.3, 0.5, 0.5)
"""Scales of samples for quantized modules, whose rounding error is relative to the largest entry of a batch."""
_RELATIVE = 1e-9  # allowed relative rounding of a float64 run
_ADVICE = (
    "Something else changes the map: a hook, an overridden method, stale or random weights. Register an adapter for "
    "your class by stability.models.register_adapter"
)
GRAPH_ADVICE = "The system read from the graph differs from what the graph computes, so that nothing can be certified"


def _layers(subject: Any) -> tuple[Any, ...]:
    return subject.layers if isinstance(subject, LayerStack) else (subject,)


def samples(subject: Any, steps: int, scales: Sequence[float] = _SCALES) -> tuple[Array, list[Array]]:
    """Return random inputs ``(steps, batch, p)`` and a random state ``(batch, n)`` per layer, from a fixed seed."""
    rng, scale = np.random.default_rng(0), np.array(scales)[:, None]
    x = rng.normal(size=(steps, len(scale), subject.inputs)) * scale
    return x, [rng.normal(size=(len(scale), layer.states)) * scale for layer in _layers(subject)]


def run_subject(subject: Any, x: Array, states: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Run a subject over a sequence, level by level, each direction in its own time.

    Args:
        subject: a discrete ``DrivenSystem``, ``GatedCell`` or ``LayerStack``.
        x: ``(time, batch, p)``.
        states: initial state ``(batch, n)`` of each layer.

    Returns:
        Outputs of the top level ``(time, batch, q)``, both directions side by side, and each layer's last state.
    """
    layers, directions = _layers(subject), getattr(subject, "directions", 1)
    signal, last = x, []
    for level in range(0, len(layers), directions):
        outputs = []
        for k in range(directions):
            layer, state, seen = layers[level + k], states[level + k], [x[0]] * len(x)
            for t in range(len(x)) if k == 0 else reversed(range(len(x))):
                state = layer.advance(state, signal[t])
                seen[t] = layer.output(state)
            outputs.append(np.stack(seen))
            last.append(state)
        signal = np.concatenate(outputs, axis=-1)
    return signal, last


def cross_check(module: nn.Module, subject: Any) -> None:
    """Run a recurrent module of ``torch.nn`` (a layer or a cell, any subclass) beside its subject.

    Args:
        module: the module; it is copied, not touched.
        subject: the system that was read from it.

    Raises:
        DisagreementError: they give different numbers.
        UnsupportedError: the module cannot be copied or run.
    """
    copied = twin(module).to(device="cpu", dtype=torch.float64)
    in_each_mode(module, copied, _runner(copied), subject, type(module).__name__)


def cross_check_step(step: Callable[..., Any], module: nn.Module, subject: Any) -> None:
    """Run a user's ``step(module, x, h) -> next h`` beside the subject of the user's adapter.

    Args:
        step: one step: ``x (batch, p)``, ``h (batch, n)`` to ``(batch, n)``.
        module: the module; it is copied, not touched.
        subject: system returned by the adapter.

    Raises:
        DisagreementError: they give different numbers.
        UnsupportedError: the step cannot be run.
    """
    if not hasattr(subject, "advance"):  # a system without an activation cannot be run
        return
    copied = twin(module).to(device="cpu", dtype=torch.float64)

    def run(x: Array, states: list[Array]) -> tuple[Array | None, list[Array]]:
        state = torch.tensor(np.concatenate(states, axis=-1))
        for row in torch.tensor(x):
            state = step(copied, row, state)
        offsets = np.cumsum([s.shape[-1] for s in states])[:-1]
        return None, np.split(state.detach().numpy(), offsets, axis=-1)

    in_each_mode(module, copied, run, subject, f"the step of {type(module).__name__}")


def checked_block(block: GatedLinearBlock) -> GatedLinearBlock:
    """Return a new block of the toolkit's own class with the tensors of a block, after running both.

    Raises:
        DisagreementError: they give different numbers.
        NonFiniteError: NaN or infinite weights.
        UnsupportedError: the block has other tensors than its class.
    """
    block.check_finite()
    kind: Any = next(c for c in type(block).__mro__ if c.__module__.startswith("stability.models."))
    copied = twin(block).to(device="cpu", dtype=torch.float64)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            fresh = kind(**{name: getattr(block, name) for name in constructor_arguments(kind)}).double()
            fresh.load_state_dict(copied.state_dict())
        except (AttributeError, RuntimeError, StabilityError) as error:
            text = f"this {type(block).__name__} does not have the tensors of its class: {str(error)[:200]}"
            raise UnsupportedError(text) from error
        torch.manual_seed(0)
        scales = torch.tensor(_SCALES, dtype=torch.float64)[:, None, None]
        x = torch.randn(len(_SCALES), 5, block.input_size, dtype=torch.float64) * scales
        ends = [_ends(part, x) for part in (copied, fresh)]
    if any(a.shape != b.shape or not torch.allclose(a, b, _RELATIVE, _RELATIVE) for a, b in zip(*ends, strict=True)):
        raise DisagreementError(f"{type(block).__name__} does not compute what its class computes. {_ADVICE}")
    return fresh


def _ends(block: GatedLinearBlock, x: torch.Tensor) -> list[torch.Tensor]:
    """Return outputs, states after each step of a loop, and the final state of a scan."""
    outputs, state = block(x)
    return [outputs, *(leaf for step in block.walk(x) for leaf in state_leaves(step.after)), *state_leaves(state)]


def cross_check_layer(layer: RecurrentLayer, subject: Any) -> None:
    """Run a layer of this toolkit, or a user's layer with the same interface, beside its ``driven`` system.

    Raises:
        DisagreementError: they give different numbers, or the state has another size than the system's.
        UnsupportedError: the layer cannot be copied or run.
    """
    if layer.bidirectional:  # such a layer takes no initial state
        return
    copied = twin(layer).to(device="cpu", dtype=torch.float64)
    sizes = [part.states for part in _layers(subject)]
    initial: list[Any] = []

    def parts(state: Any) -> list[Array]:
        flat = copied.system_state(state).numpy()
        if flat.shape[-1] != sum(sizes):
            raise DisagreementError(f"{type(layer).__name__} has {flat.shape[-1]} state entries, expected {sum(sizes)}")
        return np.split(flat, np.cumsum(sizes)[:-1], axis=-1)

    def start(x: Array) -> list[Array]:
        with torch.no_grad():
            initial[:] = [_random_like(copied(torch.tensor(x).transpose(0, 1))[1], torch.Generator().manual_seed(0))]
        return parts(initial[0])

    def run(x: Array, states: list[Array]) -> tuple[Array | None, list[Array]]:
        return None, parts(copied(torch.tensor(x).transpose(0, 1), initial[0])[1])

    in_each_mode(layer, copied, run, subject, type(layer).__name__, start=start)


def _random_like(state: Any, generator: torch.Generator) -> Any:
    if isinstance(state, (tuple, list)):
        return tuple(_random_like(leaf, generator) for leaf in state)
    scale = torch.tensor(_SCALES).reshape(-1, *[1] * (state.dim() - 1))
    return torch.randn(state.shape, dtype=state.dtype, generator=generator) * scale


def in_each_mode(
    module: nn.Module, copied: nn.Module, run: Run, subject: Any, who: str, start: Callable[..., Any] | None = None
) -> None:
    """Compare a run of the copy in its present mode, then in evaluation mode if it is in training mode.

    Args:
        module: the original module, whose dtype determines the allowed rounding.
        copied: its copy, which is run and left in evaluation mode.
        run: see ``compare``.
        subject: the module or system that was read.
        who: name in error messages.
        start: see ``compare``.

    Raises:
        DisagreementError: they give different numbers.
        UnsupportedError: the module cannot be run.
    """
    relative = _precision(module)
    if any(part.training for part in copied.modules()):
        compare(run, subject, f"{who} in training mode", relative=relative, start=start)
        copied.eval()
    compare(run, subject, f"{who} in evaluation mode", relative=relative, start=start)


def _precision(module: nn.Module) -> float:
    """Return the allowed relative rounding: that of float64, or of the dtype in which matrices are computed."""
    if not isinstance(module, RecurrentLayer) and not is_reparametrized(module):
        return _RELATIVE
    eps = [torch.finfo(p.dtype).eps for p in module.parameters() if p.is_floating_point()]
    return max(_RELATIVE, min(1e4 * max(eps, default=0.0), 0.05))


def compare(
    run: Run,
    subject: Any,
    who: str,
    *,
    relative: float = _RELATIVE,
    slack: float = 0.0,
    lengths: Sequence[int] = (1, 3),
    scales: Sequence[float] = _SCALES,
    start: Callable[[Array], list[Array]] | None = None,
    advice: str = _ADVICE,
) -> None:
    """Compare a module's run with its subject's, from random states under random inputs.

    Args:
        run: ``(x, states) -> (outputs or None, last states)`` of the module, like ``run_subject``.
        subject: the subject.
        who: name of the module in error messages.
        relative: allowed rounding error, relative to the largest number.
        slack: further allowed relative difference.
        lengths: numbers of steps.
        scales: scales of the samples of a batch.
        start: ``inputs -> one state per layer``, for modules that draw their own initial states.
        advice: end of the error message.

    Raises:
        DisagreementError: a difference above the allowed one; the message shows the largest.
        UnsupportedError: the module cannot be run.
    """
    for steps in lengths:
        x, states = samples(subject, steps, scales)
        states = states if start is None else start(x)
        with np.errstate(all="ignore"):
            outputs, last = run_subject(subject, x, states)
        theirs, end = _guarded(run, x, states, who)
        pairs = list(zip(end, last)) if theirs is None else [(theirs, outputs), *zip(end, last)]
        if len(end) != len(last) or any(np.shape(a) != np.shape(b) for a, b in pairs):
            shapes = [np.shape(a) for a, _ in pairs], [np.shape(b) for _, b in pairs]
            raise DisagreementError(f"{who} returns arrays of shapes {shapes[0]}, its system returns {shapes[1]}")
        allowed = slack + _rounding(subject, x, states, (outputs, last), relative)
        for actual, expected in pairs:
            _agree(np.asarray(actual), expected, allowed, f"{who} differs from its weights", steps, advice)


def _rounding(subject: Any, x: Array, states: list[Array], result: tuple[Array, list[Array]], relative: float) -> float:
    """Estimate the largest difference of two correct runs.

    It is ``relative`` plus 100 times the effect of relative perturbations of inputs and states by ``relative / 1000``.
    """
    rng = np.random.default_rng(1)

    def moved(array: Array) -> Array:
        return array * (1.0 + 1e-3 * relative * rng.normal(size=array.shape))

    with np.errstate(all="ignore"):
        outputs, last = run_subject(subject, moved(x), [moved(s) for s in states])
    pairs = [(result[0], outputs), *zip(result[1], last)]
    apart = max(float(np.abs(a - b).max()) for a, b in pairs)
    size = max(float(np.abs(a).max()) for a, _ in pairs)
    return relative * (1.0 + size) + 100.0 * apart


def _agree(actual: Array, expected: Array, allowed: float, what: str, steps: int, advice: str) -> None:
    apart = np.abs(actual - expected)
    if not (apart <= allowed).all():  # NaN is no agreement either
        worst = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
        raise DisagreementError(
            f"{what}: after {steps} step{'s' if steps > 1 else ''} from a random state it gives "
            f"{float(actual[worst])!r} where the system read from its weights gives {float(expected[worst])!r} "
            f"(rounding explains {allowed:.1e}). {advice}"
        )


def _guarded(run: Run, x: Array, states: list[Array], who: str) -> tuple[Array | None, list[Array]]:
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            return run(x, states)
    except StabilityError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit in a forward pass must not end the program
        raise UnsupportedError(f"{who} cannot be run: {type(error).__name__}: {str(error).strip()[:160]}") from error


def _runner(module: Any, dtype: torch.dtype = torch.float64) -> Run:
    """Return the run ``(x, states) -> (outputs, last states)`` of a layer or cell of ``torch.nn``."""
    lstm = isinstance(module, (nn.LSTM, nn.LSTMCell)) or (is_quantized(module) and "LSTM" in type(module).__name__)

    layered = hasattr(module, "num_layers")
    batch_first = layered and module.batch_first

    def run(x: Array, states: list[Array]) -> tuple[Array, list[Array]]:
        rows = torch.tensor(x, dtype=dtype)
        state: Any = torch.tensor(np.stack(states) if layered else states[0], dtype=dtype)
        state = tuple(t.contiguous() for t in state.chunk(2, -1)) if lstm else state
        if layered:
            outputs, state = module(rows.transpose(0, 1) if batch_first else rows, state)
            outputs = outputs.transpose(0, 1) if batch_first else outputs
        else:
            seen = []
            for row in rows:
                state = module(row, state)
                seen.append(state[0] if lstm else state)
            outputs = torch.stack(seen)
        last = (torch.cat(state, -1) if lstm else state).double().numpy()
        return outputs.double().numpy(), list(last) if layered else [last]

    return run


def _coarse(array: Array, rng: np.random.Generator) -> Array:
    """Perturb each entry independently by at most one step of an 8-bit grid up to the largest entry."""
    return array + rng.uniform(-1.0, 1.0, array.shape) * np.abs(array).max() / 127.0


def cross_check_quantized(module: Any, subject: Any) -> None:
    """Run a dynamically quantized module beside its subject for one step.

    The module rounds inputs and states to about 7 bits of their range. The allowed difference is four times the effect
    of such rounding on the subject.

    Raises:
        DisagreementError: the difference is larger.
        UnsupportedError: the module cannot be run.
    """
    x, states = samples(subject, 1, _QUANTIZED_SCALES)
    rng = np.random.default_rng(2)
    outputs, last = run_subject(subject, x, states)
    effect = 0.0
    for _ in range(4):
        other, end = run_subject(subject, _coarse(x, rng), [_coarse(state, rng) for state in states])
        effect = max(effect, *(float(np.abs(a - b).max()) for a, b in [(outputs, other), *zip(last, end)]))
    run = _runner(module, torch.float32)
    compare(run, subject, type(module).__name__, slack=1e-3 + 4.0 * effect, lengths=(1,), scales=_QUANTIZED_SCALES)
