"""Number of free parameters: those that training can move and that the model depends on."""

from __future__ import annotations

from torch import nn


def free_parameters(model: nn.Module) -> int:
    r"""Count the trained numbers of a model, except those without effect on its function.

    A module may store more than it uses: the ``m`` reflection vectors of an orthogonal matrix have
    :math:`m (m - 1) / 2` zeros above the diagonal, of ``M - M^T`` only :math:`n (n - 1) / 2` entries are independent.
    Such a module says so in an attribute ``idle_parameters``; the gradient along these directions is zero. Frozen
    parameters do not count; shared parameters count once.

    Args:
        model: any module.

    Returns:
        How many.

    Example:
        >>> from stability.models import HouseholderRNN, SequenceModel
        >>> free_parameters(SequenceModel(HouseholderRNN(49, 512, reflections=510), 49))
        182574
    """
    stored = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return stored - sum(int(getattr(module, "idle_parameters", 0)) for module in model.modules())
