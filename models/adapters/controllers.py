"""Controllers of feedback loops: modules, layers with read-outs, and model files, as layers in series."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from stability.conversion.feedback import ANY_STEP, Component
from stability.errors import ConfigurationError, DisagreementError, UnsupportedError
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.relu_channels import relu_system

from ..classifier import by_parts
from ..classifier_network import ClassifierNetwork
from ..linear import LinearLayer, input_output
from ..network import SequenceModel
from ..recurrent import RecurrentLayer
from ..sources import load_subject
from ..stack import Stack
from .cross_check import run_subject, samples
from .inspection import refuse_altered, twin
from .modules import is_recurrent, recurrent_subject
from .torch_modules import as_array

ACTIVATIONS = {nn.Tanh: ["tanh"], nn.ReLU: ["relu"], nn.Sigmoid: ["sigmoid"], nn.Identity: [], nn.Dropout: []}
"""Names of the activations of memoryless modules; dropout is off in a controller."""


def read_controller(value: Any) -> list[Any]:
    """Return a controller as layers in series, see ``stability.conversion.subjects.register_controller``.

    Args:
        value: a recurrent module or layer, ``nn.Sequential`` of these and of ``nn.Linear`` and activations, a
            ``SequenceModel``, a module of one's own with one recurrent part and ``nn.Linear`` around it, or the path
            of a model file; or a read-out of reservoirpy.

    Raises:
        ConfigurationError: a read-out of the mean over time.
        UnsupportedError: another module, or a file of which only the recurrent part is read, without its name.
        DisagreementError: a module of one's own computes other outputs than its parts in series.

    Example:
        >>> layers = read_controller(nn.Sequential(nn.RNN(2, 4), nn.Linear(4, 1)))
        >>> layers[0].states, layers[1].parts["yu"].shape
        (4, (1, 4))
    """
    if hasattr(value, "Wout"):
        return [_linear(value.Wout.T, value.bias)]
    if not isinstance(value, nn.Module):
        source = load_subject(value)
        if source.module is not None:
            return read_controller(source.module)
        part, name = source.info.get("part"), str(value)
        if (part or "no_network" in source.info) and "#" not in name:
            raise UnsupportedError(
                f"only the recurrent part of {name} is read: give it and the layers around it, [FILE#{part}, K]"
            )
        return [source.subject]
    if type(value) in ACTIVATIONS:
        return ACTIVATIONS[type(value)]
    if isinstance(value, nn.Linear):
        refuse_altered(value, nn.Linear)
        return [_linear(as_array(value.weight), 0.0 if value.bias is None else as_array(value.bias))]
    if isinstance(value, (nn.Sequential, Stack)):
        parts: Any = value.parts if isinstance(value, Stack) else value
        return [layer for part in parts for layer in read_controller(part)]
    if isinstance(value, SequenceModel):
        refuse_altered(value, SequenceModel)
        if value.reduction == "mean":
            raise ConfigurationError("a controller gives an output at each step: use reduction='all' instead of 'mean'")
        return [*read_controller(value.layer), *read_controller(value.head)]
    return _read_recurrent(value) if is_recurrent(value) else _read_own_module(value)


def _read_recurrent(module: nn.Module) -> list[Any]:
    """Return a recurrent layer; a network from a file comes with its head, a linear layer with its output."""
    if isinstance(module, ClassifierNetwork):
        return _read_classifier(module.subject)
    subject = recurrent_subject(module)
    if isinstance(module, LinearLayer):
        return [(*input_output([module]), ANY_STEP)]
    if isinstance(module, RecurrentLayer) and not module.outputs_hidden:
        raise UnsupportedError(f"the output of {type(module).__name__} is not its state, which is not supported here")
    return [relu_system(subject) if isinstance(subject, PairwiseSystem) else subject]


def _linear(weight: np.ndarray, bias: Any) -> Component:
    """Return the linear layer ``y = weight u + bias``."""
    return Component({"yu": weight, "y1": np.zeros((len(weight), 1)) + np.reshape(bias, (-1, 1))})


def _read_classifier(network: Classifier) -> list[Any]:
    """Return recurrent layers and head; the zero row in front of a single output is left out."""
    single = len(network.weight) == 2 and not network.weight[0].any() and not network.bias[0]
    return [*network.layers, _linear(network.weight[single:], network.bias[single:])]


def _read_own_module(module: nn.Module) -> list[Any]:
    """Return the parts of a user's module, after a comparison with the module's outputs on random sequences."""
    network, name = by_parts(module)[0], type(module).__name__
    x, states = samples(network.recurrent, 6)
    outputs, _ = run_subject(network.recurrent, x, [np.zeros_like(state) for state in states])
    layers = _read_classifier(network)
    expected = outputs @ layers[-1].parts["yu"].T + layers[-1].parts["y1"][:, 0]
    for axes in ((1, 0, 2), (0, 1, 2)):  # the first axis of the module's sequences is the batch or the time
        with torch.no_grad():
            got: Any = twin(module).double().eval()(torch.tensor(x.transpose(axes).copy()))
        got = got[0] if isinstance(got, tuple) else got
        wanted = expected.transpose(axes) if got.dim() == 3 else expected[-1]
        if tuple(got.shape) == wanted.shape and np.allclose(got.numpy(), wanted, rtol=1e-8, atol=1e-8):
            break
    else:
        raise DisagreementError(
            f"{name} computes other outputs than its recurrent part and its linear layers in series: give these as "
            "nn.Sequential(recurrent, linear)"
        )
    return layers
