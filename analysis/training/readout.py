r"""Linear read-outs by least squares: the head of a network is solved for, its recurrent layer stays fixed.

With the rows :math:`\varphi_i = (\text{what the head reads}, 1)` of all sequences (and steps) and targets ``y``

.. math:: \min_w \; \sum_i |\varphi_i w - y_i|^2 + \mu |w|^2

by QR, block by block: the triangle so far is stacked on the next rows and factorized again, so that memory holds
``n^2`` numbers however many rows there are, and no normal equations square the condition number. The last triangle is
solved by ``lstsq``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, RankError, UnsupportedError

from ...models.factorizations import lstsq, qr
from ...models.network import SequenceModel, over_time
from ..guard import check_int, check_model, check_number, in_evaluation
from ..results import Record
from ..tasks import Task
from .measured import evaluate


@dataclass(frozen=True)
class Readout(Record):
    """Result of solving for a read-out.

    Attributes:
        rows: equations: sequences, or sequences times steps.
        features: unknowns for each output, the constant included.
        residual: root mean square error on the training rows.
        condition: largest over smallest diagonal entry of the last triangle, a lower bound of its condition number.
        train_metric: metric of the task on the training sequences, with the new head.
        test_metric: likewise, on sequences never fitted to.
    """

    rows: int
    features: int
    residual: float
    condition: float
    train_metric: float
    test_metric: float


def fit_readout(
    model: nn.Module, task: Task, *, ridge: float = 1e-6, washout: int = 0, batch_size: int = 256
) -> Readout:
    r"""Solve for the head of a network by least squares, with its recurrent layer fixed.

    The answer of an echo state network (Jaeger 2001); any ``SequenceModel`` has one, trained or not. Classes are
    fitted as 0 and 1.

    Args:
        model: a ``SequenceModel``; its head is changed in place.
        task: task with the training sequences to fit.
        ridge: ``mu``, times the number of rows: at 0 the features must be linearly independent.
        washout: steps at the beginning that do not count, for tasks with a target at every step.
        batch_size: sequences at a time.

    Returns:
        The figures.

    Raises:
        UnsupportedError: another model: it has no one linear head.
        ConfigurationError: a bad option.
        RankError: dependent features without a ridge.
        DimensionError: a model that does not fit the task.

    Example:
        >>> from stability.analysis import make_task
        >>> from stability.models import EchoStateRNN
        >>> task = make_task("digits", size=14, limit=300, test_limit=100)
        >>> _ = torch.manual_seed(0)
        >>> model = SequenceModel(EchoStateRNN(task.input_size, 50), task.output_size)
        >>> fit_readout(model, task).test_metric > 0.5
        True
    """
    if not isinstance(check_model(model), SequenceModel):
        raise UnsupportedError(
            f"a read-out is solved for a SequenceModel, a layer with a linear head; got {type(model)}"
        )
    assert isinstance(model, SequenceModel)
    ridge, washout = check_number("ridge", ridge), check_int("washout", washout, 0)
    every = model.reduction == "all"
    if washout and (not every or washout >= task.steps):
        raise ConfigurationError(f"washout needs a task with a target at every step; got washout={washout}")
    x, y = task.train
    like = model.head.weight
    with torch.no_grad():
        task.loss(model(x[:1].to(like)), y[:1].to(like.device))  # a model that does not fit is refused here
        R, c, square, rows = _triangle(model, task, ridge, washout, check_int("batch_size", batch_size))
        try:
            w = lstsq(R, c)
        except RankError as error:
            raise RankError(f"the head's inputs are linearly dependent ({error}): use a ridge > 0") from error
        model.head.weight.copy_(w[:-1].T)
        model.head.bias.copy_(w[-1])
        size = R.diagonal().abs()
    residual = (square - c.square().sum()).clamp_min(0.0) / (rows * c.shape[1])
    return Readout(
        rows=rows,
        features=len(R),
        residual=float(residual.sqrt()),
        condition=float(size.max() / size.min()),
        train_metric=evaluate(model, x.to(like), y.to(like.device), task)[1],
        test_metric=evaluate(model, task.test[0].to(like), task.test[1].to(like.device), task)[1],
    )


def _triangle(
    model: SequenceModel, task: Task, ridge: float, washout: int, batch_size: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return ``R (n, n)`` and ``c = Q^T y`` of all rows, ``|y|^2`` and the number of rows, in double precision."""
    n = model.head.in_features + 1
    like = model.head.weight
    R, c = torch.zeros(0, n).to(like).double(), torch.zeros(0, task.output_size).to(like).double()
    square, rows = torch.zeros(()).to(like).double(), 0
    waiting: list[tuple[Tensor, Tensor]] = []
    total = len(task.train[0]) * (task.steps - washout if model.reduction == "all" else 1)
    if ridge > 0.0:
        R, c = (ridge * total) ** 0.5 * torch.eye(n).to(R), torch.zeros(n, task.output_size).to(c)
    with in_evaluation(model):
        for xb, yb in zip(task.train[0].split(batch_size), task.train[1].split(batch_size)):
            phi, target = _rows(model, task, xb.to(like), yb.to(like.device), washout)
            square, rows = square + target.square().sum(), rows + len(phi)
            waiting.append((phi, target))
            if len(R) + sum(len(p) for p, _ in waiting) >= 2 * n:
                R, c = _reduced(R, c, waiting)
                waiting.clear()
    return (*_reduced(R, c, waiting), square, rows)


def _rows(model: SequenceModel, task: Task, x: Tensor, y: Tensor, washout: int) -> tuple[Tensor, Tensor]:
    """Return the features ``phi (k, n)`` and targets ``(k, outputs)``."""
    read = over_time(model.layer(x)[0], model.reduction)
    target = nn.functional.one_hot(y, task.output_size) if task.kind == "classes" else y
    if model.reduction == "all":
        read, target = read[:, washout:].flatten(0, 1), target[:, washout:].flatten(0, 1)
    return torch.cat([read.double(), read.new_ones(len(read), 1).double()], dim=1), target.double()


def _reduced(R: Tensor, c: Tensor, more: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the triangle of the rows so far and of further rows."""
    stacked = torch.cat([R, *(phi for phi, _ in more)])
    targets = torch.cat([c, *(target for _, target in more)])
    if len(stacked) < stacked.shape[1]:
        raise RankError(f"{len(stacked)} equations for {stacked.shape[1]} unknowns: use more sequences, or a ridge > 0")
    try:
        Q, triangle = qr(stacked)
    except RankError as error:
        raise RankError(f"the head's inputs are linearly dependent ({error}): use a ridge > 0") from error
    return triangle, Q.mT @ targets
