"""Decomposition of a model into the recurrent part and the linear head that gain bounds need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from stability.certificate import Certificate
from stability.errors import ConfigurationError, DisagreementError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, PairwiseSystem

from ...models.classifier import classifier
from ...models.deep import DeepNetwork, why_without_gain
from ...models.network import SequenceModel
from ...models.recurrent import RecurrentLayer
from ...models.tensors import to_numpy
from ...models.wrapped import TwoLogits, two_rows

Array = NDArray[np.float64]
GIVEN = "; a gain that you proved yourself can be passed to certified_radius as gain="


@dataclass(frozen=True, eq=False)
class Network:
    """Recurrent part and linear head on the last or mean state, for gain bounds.

    Attributes:
        subject: the recurrent part.
        head: ``(k, n)``.
        reduction: ``last``, ``mean`` or ``all``.
        layer: the toolkit's layer that runs the subject, or ``None``.
    """

    subject: DrivenSystem | PairwiseSystem
    head: Array
    reduction: str
    layer: RecurrentLayer | None = None

    def witness(self, certificate: Any) -> Mapping[str, Any] | None:
        """Return a metric and a rate, from the certificate or from the layer's proof by construction."""
        layer_proof = None if self.layer is None else self.layer.witness()
        if certificate is None:
            return layer_proof
        if not isinstance(certificate, Certificate):
            raise ConfigurationError(f"certificate must be a Certificate, got {type(certificate).__name__}")
        proof = certificate.claim.proof
        if certificate.verdict is not Verdict.CERTIFIED or proof is None:
            return None
        return proof.data if proof.kind == "multiplier_lmi" else layer_proof  # other proofs have no metric


def network_of(model: nn.Module, every_step: bool = False) -> Network:
    """Return the recurrent part and the head behind a model's logits.

    Args:
        model: a ``SequenceModel``, or a user's module with one recurrent part and one linear head.
        every_step: whether the model has logits at every step.

    Returns:
        The parts of the model.

    Raises:
        UnsupportedError: another kind of model.

    Example:
        >>> from stability.models import ElmanRNN
        >>> network_of(SequenceModel(ElmanRNN(2, 4), 3, reduction="mean")).reduction
        'mean'
    """
    model = model.model if isinstance(model, TwoLogits) else model
    if isinstance(model, DeepNetwork):
        raise UnsupportedError((why_without_gain(model) or "a deep network has its gain from its blocks alone") + GIVEN)
    if not isinstance(model, SequenceModel):
        return _of_ones_own(model, every_step)
    name = type(model.layer).__name__
    if not isinstance(model.layer, RecurrentLayer):
        raise UnsupportedError(f"the layer {name} of this model is no known recurrent layer{GIVEN}")
    subject = _with_slopes(model.layer.driven())
    if (model.reduction == "all") is not every_step or not model.layer.outputs_hidden:
        raise UnsupportedError(f"the logits are no linear function of the last (or mean) state{GIVEN}")
    return Network(subject, two_rows(to_numpy(model.head.weight), None)[0], model.reduction, model.layer)


def _of_ones_own(model: nn.Module, every_step: bool) -> Network:
    """Find one recurrent part and its linear head in a user's module, and check them against it."""
    name = type(model).__name__
    if every_step:
        raise UnsupportedError(f"{name} is no SequenceModel, which logits at every step need{GIVEN}")
    try:
        read = classifier(model)
    except (UnsupportedError, DisagreementError) as error:
        raise UnsupportedError(f"{error}{GIVEN}") from error
    return Network(_with_slopes(read.recurrent), read.weight, read.reduction)


def _with_slopes(subject: Any) -> DrivenSystem | PairwiseSystem:
    if isinstance(subject, (DrivenSystem, PairwiseSystem)):
        return subject
    what = "no gain to the logits is proved for LSTM, GRU and other gated layers"
    if isinstance(subject, LayerStack):
        what = "gains of layers on top of each other are not combined here (`stability radius` follows single inputs)"
    raise UnsupportedError(what + GIVEN)
