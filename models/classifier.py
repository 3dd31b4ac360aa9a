"""Conversion of a network with logits to a ``Classifier``, the subject of claims about one decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from stability.errors import DisagreementError, UnsupportedError
from stability.kernel.systems.classifier import REDUCTIONS, Classifier
from stability.systems import DrivenSystem, LureSystem

from .adapters.cross_check import samples
from .adapters.inspection import refuse_altered, twin
from .adapters.modules import recurrent_parts, recurrent_subject, with_origin
from .adapters.torch_modules import as_array, is_torch_recurrent
from .chain import chain
from .classifier_network import ClassifierNetwork
from .deep import DeepNetwork
from .embedding import BehindEmbedding
from .linear import LinearLayer, input_output
from .network import SequenceModel
from .stack import Stack
from .tensors import state_leaves
from .wrapped import TwoLogits, two_logits, two_rows

Run = Callable[[torch.Tensor], torch.Tensor] | nn.Module
LENGTHS = (1, 4, 33)
"""Lengths of the random sequences of the cross-check."""
_LARGE_SCALES = (0.0, 0.1, 1.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
"""Scales of the samples for user modules, large enough to reveal ReLU6 and clipping."""
ROUNDING = 1e-8
"""Allowed difference of logits in float64, relative to the largest logit."""
_PERTURBATION = 1e-12
"""Relative input perturbation whose effect on the logits is also allowed as rounding."""


def classifier(module: Any) -> Classifier:
    """Return the classifier that a module runs: recurrent part, initial state, and linear head.

    Supported are a ``SequenceModel`` with a layer that has a system (including linear layers and stacks), a network
    from an ONNX file, and a user's module with one recurrent part and one ``nn.Linear`` after it, or several before and
    after it (``stability.models.chain``). The module and the classifier are run in float64 on random sequences, and
    the classifier is refused if the logits differ. User modules are also compared on inputs of sizes up to 1e4, on long
    sequences, and on single sequences. They may still differ elsewhere; ``stability.models.packed.reading`` compares
    them on the data, too, and handles networks that pack their sequences.

    Args:
        module: the network, ``(batch, time, features)`` to logits ``(batch, classes)``; one logit ``z`` is read as the
            two logits ``(0, z)``; a ``Classifier`` is returned unchanged.

    Returns:
        The classifier, with the weights as they are stored.

    Raises:
        UnsupportedError: a network whose logits are not known to come from a recurrent part and a linear head.
        DisagreementError: the module and its subject differ, for example by a non-zero initial state.

    Example:
        >>> from stability.models import LSTM
        >>> classifier(SequenceModel(LSTM(2, 4), 3, reduction="mean")).classes
        3
        >>> class Own(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rnn, self.out = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)
        ...     def forward(self, x):
        ...         return self.out(self.rnn(x)[0][:, -1])
        >>> classifier(Own()).reduction
        'last'
    """
    if isinstance(module, Classifier):
        return module
    if isinstance(module, TwoLogits):
        return classifier(module.model)
    if not isinstance(module, nn.Module):
        raise UnsupportedError(
            f"a {type(module).__name__} returns no logits: pass a network with a classification head"
        )
    if isinstance(module, ClassifierNetwork):
        refuse_altered(module, ClassifierNetwork)
        network = module.subject
    elif isinstance(module, DeepNetwork):
        raise UnsupportedError(
            "certified radii are not available for deep networks with normalization between their layers"
        )
    elif isinstance(module, SequenceModel):
        refuse_altered(module, SequenceModel)
        network = _of_sequence_model(module)
    else:
        return _agreeing_far(module, _agreeing(module, by_parts(module)))
    return _agreeing(module, [network])[0]


def _agreeing_far(module: nn.Module, candidates: Sequence[Classifier]) -> Classifier:
    """Return the first classifier that also agrees with the module on large inputs and long sequences.

    Near zero several may agree: if no ReLU is active, means and last outputs are equal.
    """
    *others, last = candidates
    for read in others:
        with suppress(DisagreementError):
            return agrees_far(module, read)
    return agrees_far(module, last)


def agrees_far(module: Run, read: Classifier, lengths: Sequence[int] = LENGTHS) -> Classifier:
    """Check that a classifier has the network's logits on random inputs of sizes up to 1e4; return it.

    Args:
        module: see ``agree_on``.
        read: the classifier.
        lengths: numbers of steps.

    Raises:
        DisagreementError: the logits differ.
        UnsupportedError: the network does not accept the inputs.

    Example:
        >>> from stability.models import GRU
        >>> network = SequenceModel(GRU(2, 4), 3)
        >>> agrees_far(network.double(), classifier(network)).classes
        3
    """
    for steps in lengths:
        x = np.swapaxes(samples(read.recurrent, steps, _LARGE_SCALES)[0], 0, 1)
        agree_on(module, read, x)
        agree_on(module, read, x[3:4])
    return read


def agree_on(module: Run, read: Classifier, x: np.ndarray) -> None:
    """Check on given inputs that a module and the classifier read from it agree.

    Args:
        module: the module, which is copied and run in float64; or a function of sequences in float64.
        read: the classifier.
        x: ``(batch, time, features)``.

    Raises:
        DisagreementError: the logits of a sequence differ by more than rounding.
        UnsupportedError: the module does not accept the inputs.

    Example:
        >>> class Clipping(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rnn, self.out = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)
        ...     def forward(self, x):
        ...         return self.out(self.rnn(x.clamp(-50, 50))[0][:, -1])
        >>> classifier(Clipping())
        Traceback (most recent call last):
        ...
        stability.errors.DisagreementError: ...
    """
    x = np.ascontiguousarray(x)
    run = twin(module).to("cpu", torch.float64).eval() if isinstance(module, nn.Module) else module
    logits, expected = _logits(run, x), read.logits(x)
    if logits.shape != expected.shape:
        raise DisagreementError(f"{type(module).__name__} returns logits {logits.shape} for sequences {x.shape}")
    signs = np.where(np.random.default_rng(0).random(x.shape) < 0.5, -1.0, 1.0)
    sensitivity = np.abs(read.logits(x + _PERTURBATION * signs * (1.0 + np.abs(x))) - expected)
    error = (np.abs(logits - expected) - sensitivity).max(axis=1) / (1.0 + np.abs(expected).max(axis=1))
    wrong = np.flatnonzero(~(error <= ROUNDING))
    if len(wrong):
        k = wrong[0]
        raise DisagreementError(
            f"the logits of this {type(module).__name__} are those of its recurrent part and its linear layers near "
            f"zero, but not everywhere: the relative difference is {error[k]:.1e} for a sequence of {x.shape[1]} steps "
            f"with entries up to {np.abs(x[k]).max():.3g}. Does the network clip values, use ReLU6, or cut sequences?"
        )


def _of_sequence_model(model: SequenceModel) -> Classifier:
    name = type(model.layer).__name__
    if model.reduction not in REDUCTIONS:
        raise UnsupportedError("expected one class for each sequence, got logits for each step")
    if model.layer.bidirectional:
        raise UnsupportedError(f"{name} is bidirectional: certified radii need a network with one direction")
    with torch.no_grad():
        reference = model.head.weight
        probe = torch.zeros(1, 1, model.input_size, dtype=reference.dtype, device=reference.device)
        leaves = [leaf[0].reshape(-1) for leaf in state_leaves(model.layer.begin(probe)[1])]
    weight, bias = two_rows(as_array(model.head.weight, "head.weight"), as_array(model.head.bias, "head.bias"))
    layers = [model.layer] if isinstance(model.layer, LinearLayer) else list(getattr(model.layer, "layers", ()))
    if layers and isinstance(model.layer, LinearLayer | Stack) and all(isinstance(p, LinearLayer) for p in layers):
        network, outputs = _with_outputs(layers)
        network = with_origin(model.layer, network)
        head = np.hstack([np.zeros((len(weight), outputs)), weight]), bias, model.reduction
        return Classifier(network, *head, start=_start(leaves, network.states, name))
    if not model.layer.outputs_hidden and not isinstance(model.layer, Stack):  # a stack's driven() asks each layer
        raise UnsupportedError(f"the outputs of {name} are not part of its state: certified radii are not available")
    network = recurrent_subject(model.layer)
    return Classifier(network, weight, bias, model.reduction, start=_start(leaves, network.states, name))


def _start(tensors: Sequence[torch.Tensor], states: int, name: str) -> np.ndarray | None:
    """Return the initial states of all layers in order; linear layers get zeros for their outputs."""
    if not any(bool(leaf.any()) for leaf in tensors):
        return None
    parts = [as_array(leaf, "the initial state") for leaf in tensors]
    initial = np.concatenate(parts) if not any(leaf.is_complex() for leaf in tensors) else np.zeros(states + 1)
    if len(initial) > states:
        raise UnsupportedError(f"the initial state of this {name} has no known counterpart in its system")
    return np.concatenate([initial, np.zeros(states - len(initial))])


def _with_outputs(layers: list[Any]) -> tuple[DrivenSystem, int]:
    """Return linear layers as one linear system whose last states are their outputs, and the number of other states."""
    A, F, C, D = input_output(layers)
    n, q = len(A), len(C)
    both = np.block([[A, np.zeros((n, q))], [C, np.zeros((q, q))]])
    no_channels = np.zeros((0, F.shape[1]))
    name = type(layers[0]).__name__
    return DrivenSystem(LureSystem.linear(both, dt=1.0), "identity", no_channels, None, np.vstack([F, D]), name), n


def by_parts(module: nn.Module) -> list[Classifier]:
    """Return candidate classifiers with one recurrent part, one linear layer, and either reduction.

    Args:
        module: a user's module.

    Returns:
        The classifiers, not yet compared with the module.

    Raises:
        UnsupportedError: a module with other parts.
    """
    parts = recurrent_parts(module)
    inside = {id(m) for path in parts for m in module.get_submodule(path).modules()}
    heads = [m for m in module.modules() if isinstance(m, nn.Linear) and id(m) not in inside]
    if len(parts) != 1 or not heads or list(parts) == [""]:
        raise UnsupportedError(_unknown(module, f"{len(parts) or 'no'} recurrent parts", len(heads)))
    ((path, subject),) = parts.items()
    if not is_torch_recurrent(module.get_submodule(path)) and not hasattr(subject, "advance"):
        raise UnsupportedError(f"{path} of this {type(module).__name__} has no step that can be traced")
    if len(heads) > 1:
        try:
            return chain(module, path, subject)
        except UnsupportedError as error:
            raise UnsupportedError(_unknown(module, "one recurrent part", len(heads), str(error))) from error
    (head,) = heads
    weight = as_array(head.weight, "the head's weight")
    bias = None if head.bias is None else as_array(head.bias, "the head's bias")
    return [Classifier(subject, *two_rows(weight, bias), reduction) for reduction in REDUCTIONS]


def _unknown(module: nn.Module, parts: str, linear: int, reason: str = "") -> str:
    """Return the message that a module cannot be read as a classifier."""
    found = f"{parts} and {linear} linear layers" + (f": {reason}" if reason else "")
    return (
        f"a {type(module).__name__} cannot be read as a classifier ({found}): supported are one recurrent part and one "
        "nn.Linear after it, and further nn.Linear before or after it, with nothing, ReLU, tanh or sigmoid between "
        "them; or use stability.models.SequenceModel(layer, classes)"
    )


def _agreeing(module: nn.Module, candidates: Sequence[Classifier]) -> list[Classifier]:
    """Return the classifiers with the module's logits on random sequences of several lengths; at least one.

    Raises:
        DisagreementError: no classifier agrees.
    """
    good, errors = list[Classifier](), list[DisagreementError]()
    runs = ClassifierNetwork(module.subject) if isinstance(module, ClassifierNetwork) else module  # without its graph
    for each in candidates:
        try:
            for steps in LENGTHS[:2]:
                agree_on(runs, each, np.swapaxes(samples(each.recurrent, steps)[0], 0, 1))
            good.append(each)
        except DisagreementError as error:
            errors.append(error)
    if good:
        return good
    raise DisagreementError(
        f"the logits of this {type(module).__name__} are not those of its recurrent part and its linear head. Is there "
        "a norm or an activation between them, a non-zero initial state, or does the head read another step? "
        f"({errors[-1]})"
    )


def _logits(module: Run, x: np.ndarray) -> np.ndarray:
    try:
        with torch.no_grad():
            out = two_logits(module(torch.tensor(x)), len(x))
    except (Exception, SystemExit) as error:  # a user's network may raise anything
        line = next((part.strip() for part in str(error).splitlines() if part.strip()), "")[:160]
        name = type(module).__name__
        if isinstance(module, BehindEmbedding) and module.nearest:
            raise UnsupportedError(
                f"{type(module.model).__name__} uses its tokens for more than their embedding (for a mask, or to pack "
                "its sequences), so that it is not defined for other vectors; radii of single inputs are available"
            ) from error
        raise UnsupportedError(f"{name} does not take {x.shape} in float64: {type(error).__name__}: {line}") from error
    if not isinstance(out, torch.Tensor):
        raise UnsupportedError(f"{type(module).__name__} returns a {type(out).__name__} instead of logits")
    return out.detach().double().cpu().numpy()
