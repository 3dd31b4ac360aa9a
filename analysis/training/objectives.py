r"""Training objectives on a batch: the task's loss or one for certified radii, on clean or perturbed inputs.

With ``z`` the logits, ``y`` the class, ``t`` the temperature, and ``d_ij = g |w_i - w_j|`` what a unit of the input's
l2 norm can move the difference of two logits (``g`` the gain that the layer prescribes, ``w`` the rows of the head),

=================  ====================================================================================================
``task``           the cross entropy of ``t z``: a large ``t`` asks for no larger logits once a class is won
``margin``         the mean of ``max(0, eps - r)``, ``r = min_j (z_y - z_j) / d_yj`` the certified radius
``certified``      the cross entropy of ``t (z_j + eps d_yj)``: of the worst logits within the radius ``eps``
=================  ====================================================================================================

Sources: L. Bethune et al., "Pay attention to your loss" (NeurIPS 2022), for the temperature; Y. Tsuzuku, I. Sato, M.
Sugiyama, "Lipschitz-margin training" (NeurIPS 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stability.certification import certify
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.opaque import OpaqueMap

from ...models.deep import DeepNetwork
from ...models.deep_gain import deep_reach
from ...models.network import SequenceModel
from ..attacks.gradient import pgd
from ..tasks import Task
from .gains import HeldGain
from .settings import Aim

STEPS = 5
"""Gradient steps of the attack in adversarial training."""


class Objective:
    """Loss of a batch, and the perturbed inputs at which it is evaluated.

    Args:
        model: the trained model.
        task: task with the default loss.
        aim: aims of training.

    Raises:
        ConfigurationError: an objective about classes on a task that has none for whole sequences.
        UnsupportedError: one about radii for a network whose gain is not prescribed, or ``until_certified`` for gates.

    Example:
        >>> from stability.analysis import make_task
        >>> from stability.models import BoundedGainRNN
        >>> task = make_task("digits", limit=20, test_limit=10)
        >>> model = SequenceModel(BoundedGainRNN(task.input_size, 8), task.output_size)
        >>> x, y = task.train
        >>> losses = [Objective(model, task, Aim(temperature=t)).loss(model(x), y).item() for t in (1.0, 0.5)]
        >>> losses[0] == task.loss(model(x), y).item(), losses[0] == losses[1]
        (True, False)
    """

    def __init__(self, model: nn.Module, task: Task, aim: Aim) -> None:
        self.model, self.task, self.aim = model, task, aim
        about_classes = aim.objective != "task" or aim.adversarial
        if (about_classes and not task.labels_sequences) or (aim.temperature != 1.0 and task.kind != "classes"):
            raise ConfigurationError(
                f"temperature, adversarial and the objective {aim.objective} need classes, and the targets "
                f"of task {task.name!r} are not one class for each sequence"
            )
        self._loss = _LOSSES[aim.objective]
        if aim.objective != "task":
            reach(model)  # refused here as well
        if aim.until_certified:
            _check_certifiable(model)
        target = aim.gain_target
        self.held = None if target is None else HeldGain(model, target)

    def inputs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return inputs ``(batch, time, features)`` to train on: with noise, then attacked on the present model.

        Both draw from torch's generator, which training seeds for every epoch.
        """
        aim = self.aim
        if aim.input_noise:
            x = x + aim.input_noise * torch.randn_like(x)
        if aim.adversarial:
            seed = int(torch.randint(2**31, ()))
            bounds = None if aim.input_noise else self.task.bounds  # noise may have left them
            asked: dict[str, Any] = {"epsilon": aim.adversarial, "norm": "l2", "steps": STEPS, "bounds": bounds}
            x = pgd(self.model, x, y, seed=seed, **asked).adversarial
        return x

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar, from the outputs at its inputs."""
        return self._loss(self, outputs, y)

    def before_epoch(self) -> None:
        """Prepare the weights before the first step of an epoch."""
        if self.held is not None:
            self.held.before_epoch()

    def after_step(self) -> None:
        """Enforce the constraints on the weights before training and after every step."""
        if self.held is not None:
            self.held.after_step()

    def after_epoch(self) -> None:
        """Enforce the constraints on the weights after an epoch, with the gain proved."""
        if self.held is not None:
            self.held.after_epoch()

    def is_reached(self) -> bool:
        """Return True if training is to end once the network is certified, and it is."""
        if not self.aim.until_certified:
            return False
        return certify(self.model, rate="any", refute=False).verdict is Verdict.CERTIFIED

    def scaled(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the task's loss of ``t z``."""
        t = self.aim.temperature
        return self.task.loss(z if t == 1.0 else t * z, y)

    def radii(self, z: Tensor, y: Tensor) -> Tensor:
        """Return certified radii ``(batch,)``; for misclassified sequences the negative missing distance."""
        is_label = functional.one_hot(y, z.shape[1]).bool()
        gaps = (z.gather(1, y[:, None]) - z) / reach(self.model)[y].clamp(min=1e-12)
        return gaps.masked_fill(is_label, float("inf")).amin(dim=1)


def _check_certifiable(model: nn.Module) -> None:
    """Raise an error for a network that no training certifies under every input.

    Raises:
        UnsupportedError: gates, or a step that no criterion is about.
    """
    subject = as_subject(model)
    without_proof = (GatedCell, GatedLinearLayer, OpaqueMap)
    if any(isinstance(part, without_proof) for part in getattr(subject, "layers", (subject,))):
        raise UnsupportedError(
            "until_certified asks for contraction under every input, which no criterion proves for LSTM, GRU and gated "
            "linear layers: leave it out and certify for inputs in a range (--input-box), or train a layer on the same "
            "data that is certified whatever its weights, --model bounded_gain or --model contracting"
        )


def reach(model: nn.Module) -> Tensor:
    """Return ``(classes, classes)``: the gain from the input's l2 norm to each difference of two logits.

    Args:
        model: a ``SequenceModel`` with a layer that prescribes its gain, with logits at the last step or of the mean;
            or a ``DeepNetwork`` of such layers, see ``models.deep_gain``.

    Returns:
        ``g |w_i - w_j|``, differentiable; zero on the diagonal.

    Raises:
        UnsupportedError: another model.
    """
    if isinstance(model, DeepNetwork):
        return deep_reach(model)
    gain = getattr(model.layer, "prescribed_gain", None) if isinstance(model, SequenceModel) else None
    if not isinstance(model, SequenceModel) or gain is None or model.reduction == "all":
        raise UnsupportedError(
            "an objective about radii needs a network whose gain is prescribed (bounded_gain) under a linear head: "
            "take the objective task for others"
        )
    w = model.head.weight
    squares = (w[:, None] - w[None]).square().sum(dim=2)
    apart = squares > 0
    return gain * torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)


def _margin(self: Objective, z: Tensor, y: Tensor) -> Tensor:
    return torch.relu(self.aim.target_radius - self.radii(z, y)).mean()


def _certified(self: Objective, z: Tensor, y: Tensor) -> Tensor:
    return self.scaled(z + self.aim.target_radius * reach(self.model)[y], y)


_LOSSES: dict[str, Callable[[Objective, Tensor, Tensor], Tensor]] = {
    "task": Objective.scaled,
    "margin": _margin,
    "certified": _certified,
}
