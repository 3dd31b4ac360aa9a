"""Hessian of a loss as a linear operator: products with vectors, never a matrix.

A product is the derivative of the gradient's graph (double backward).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, UnsupportedError

from ...models.wrapped import two_logits
from ..guard import as_tensor, check_dense, check_int, check_kind, check_model, untouched
from .lanczos import Krylov, lanczos, random_direction

LossFunction = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of logits ``(batch, classes)`` or ``(batch, time, classes)`` for integer labels.

    One logit ``z`` a sequence stands for the two logits ``(0, z)``: this is binary cross entropy.

    Raises:
        ConfigurationError: floating-point targets (pass ``loss=`` for a regression), or shapes that do not
            fit.
    """
    if targets.is_floating_point():
        raise ConfigurationError("floating-point targets need a loss: pass loss=, for example task.loss")
    outputs = two_logits(outputs, len(targets))
    if outputs.shape[:-1] != targets.shape:
        raise ConfigurationError(
            f"cross entropy expects logits (..., classes) and labels (...), got {tuple(outputs.shape)} and "
            f"{tuple(targets.shape)}: pass loss="
        )
    classes = outputs.shape[-1]
    low, high = int(targets.min()), int(targets.max())
    if not 0 <= low <= high < classes:
        raise ConfigurationError(f"labels must lie in [0, {classes - 1}], got {low} to {high}")
    return nn.functional.cross_entropy(outputs.reshape(-1, classes), targets.reshape(-1).long())


def _recurrent(model: nn.Module) -> list[str]:
    """Return the names of the parameters that form the recurrent matrices."""
    identities: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            identities |= {id(p) for name, p in module.named_parameters(recurse=False) if "weight_hh" in name}
        elif callable(getattr(module, "matrices", None)):
            realised: dict[str, Any] = cast(Any, module).matrices()
            tensors = [m for m in realised.values() if isinstance(m, Tensor) and m.requires_grad]
            trainable = [p for p in module.parameters() if p.requires_grad]
            if tensors and trainable:
                parts = [(torch.view_as_real(m) if m.is_complex() else m).sum() for m in tensors]
                used = torch.autograd.grad(torch.stack(parts).sum(), trainable, allow_unused=True)
                identities |= {id(p) for p, g in zip(trainable, used) if g is not None}
    return [name for name, p in model.named_parameters() if id(p) in identities]


def select_parameters(model: nn.Module, parameters: str | Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of the Hessian by name.

    Args:
        model: any module.
        parameters: ``"all"`` that require a gradient; ``"recurrent"``, those that the recurrent matrices
            are made of; or a list of names as in ``model.named_parameters()``.

    Raises:
        ConfigurationError: an unknown word or name, or nothing selected.
        UnsupportedError: ``"recurrent"`` for a module with unknown recurrent matrices.
    """
    named = dict(model.named_parameters())
    if parameters == "all":
        chosen = [name for name, p in named.items() if p.requires_grad]
    elif parameters == "recurrent":
        with torch.enable_grad():
            chosen = _recurrent(model)
        if not chosen:
            raise UnsupportedError(
                f"{type(model).__name__} has no list of recurrent parameters: pass their names as parameters=[...]"
            )
    elif isinstance(parameters, str) or not isinstance(parameters, Sequence):
        raise ConfigurationError(f"parameters must be 'all', 'recurrent' or a list of names, got {parameters!r}")
    else:
        chosen = list(dict.fromkeys(parameters))
        unknown = [name for name in chosen if name not in named]
        if unknown:
            raise ConfigurationError(f"no parameters {unknown}; the model has {sorted(named)}")
    selected = {name: named[name] for name in chosen if named[name].numel()}
    if not selected:
        raise ConfigurationError("no parameter selected: the model has none that requires a gradient")
    if any(p.is_complex() for p in selected.values()):
        raise UnsupportedError("Hessians are taken over real parameters; store complex ones as pairs of real ones")
    return selected


def batches_of(x: Any, y: Any, batch_size: int | None) -> list[tuple[Tensor, Tensor]] | Iterable[Any]:
    """Split ``(x, y)`` into minibatches; a loader (``y=None``) is returned unchanged.

    Raises:
        NonFiniteError: inputs that are not finite.
        ConfigurationError: no dense tensors and no loader.
        DimensionError: different lengths, or no sample at all.
    """
    if y is None:
        if isinstance(x, Tensor) or not isinstance(x, Iterable) or iter(x) is x:
            raise ConfigurationError("without y, x must be a loader of (x, y) batches that can be iterated repeatedly")
        return x
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise ConfigurationError(f"x and y must be tensors, got {type(x).__name__} and {type(y).__name__}")
    check_dense("x", x)
    check_dense("y", y)
    if x.dim() == 0 or y.dim() == 0 or len(x) != len(y) or 0 in x.shape:
        raise DimensionError("y", f"({len(x) if x.dim() else 0}, ...)", tuple(y.shape), "one target per sequence of x")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise NonFiniteError("x", "clean the data first")
    size = len(x) if batch_size is None else check_int("batch_size", batch_size)
    return list(zip(x.detach().split(size), y.detach().split(size)))


class HessianOperator:
    """Hessian ``v -> H v`` of a loss, ``H = d^2 loss / d theta^2``; ``theta`` joins the selected parameters.

    The loss is a mean over samples: over several minibatches their products are averaged with the numbers
    of samples as weights. With one batch the graph of the gradient is kept, so a product costs one backward
    pass. Never touches ``.grad``.

    Memory: the graph of the gradient of one batch.

    Args:
        model: in the mode in which it is to be judged (see :func:`~stability.analysis.guard.untouched`).
        batches: list or loader of ``(x, y)``.
        loss: ``(outputs, targets) -> scalar``, a mean over the batch.
        parameters: real parameters by name.

    Raises:
        ConfigurationError: an empty loader, or a loss that is no scalar or does not depend on the parameters.
        UnsupportedError: two passes disagree (dropout in use, noise, shuffled augmentation).
        NonFiniteError: the loss is NaN or infinite.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Iterable[tuple[Tensor, Tensor]],
        loss: LossFunction,
        parameters: dict[str, nn.Parameter],
    ) -> None:
        self.model, self.batches, self.loss_function = model, batches, loss
        self.names = list(parameters)
        self.parameters = list(parameters.values())
        for p in self.parameters:
            p.requires_grad_(True)
        self.size = sum(p.numel() for p in self.parameters)
        self.matvecs = 0
        self.loss, self.gradient = self._check_deterministic()
        single = isinstance(batches, list) and len(batches) == 1
        self._graph = self._gradient_graph(*batches[0])[1] if single else None  # type: ignore[index]

    @property
    def precision(self) -> float:
        """Machine epsilon of the coarsest dtype among the parameters."""
        return max(torch.finfo(p.dtype).eps for p in self.parameters)

    def krylov(self, steps: int, rng: np.random.Generator, tol: float = 0.0) -> Krylov:
        """Run ``lanczos`` from a random direction; residuals below the parameters' precision count as noise."""
        start = random_direction(self.size, rng)
        return lanczos(self.matvec, start, steps, tol=tol, noise=10 * self.precision)

    def _gradient_graph(self, x: Tensor, y: Tensor, again: bool = True) -> tuple[Tensor, list[Tensor]]:
        value = self.loss_function(self.model(x), y)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ConfigurationError(f"the loss must be a scalar tensor (a mean over the batch), got {shape}")
        if not torch.isfinite(value).all():
            raise NonFiniteError("the loss", "the model diverges on this data")
        if not value.requires_grad:
            raise ConfigurationError("the loss does not depend on the selected parameters")
        gradients = torch.autograd.grad(
            value.sum(), self.parameters, create_graph=again, allow_unused=True, materialize_grads=True
        )
        return value.detach(), list(gradients)

    def _passes(self) -> tuple[float, NDArray[np.float64]]:
        total, count, flat = 0.0, 0, np.zeros(self.size)
        for x, y in self.batches:
            check_kind(self.model, x)
            value, gradients = self._gradient_graph(x, y, again=False)
            total += float(value) * len(x)
            flat += self._flatten(gradients) * len(x)
            count += len(x)
        if count == 0:
            raise ConfigurationError("the loader holds no sample")
        return total / count, flat / count

    def _check_deterministic(self) -> tuple[float, NDArray[np.float64]]:
        (loss, gradient), (again, gradient_again) = self._passes(), self._passes()
        tolerance = 100 * self.precision
        scale = max(float(np.abs(gradient).max()), abs(loss) * self.precision)
        if abs(loss - again) > tolerance * abs(loss) or np.abs(gradient - gradient_again).max() > tolerance * scale:
            raise UnsupportedError(
                "two passes over the same data disagree, so there is no one Hessian: switch off dropout and "
                "noise inside forward, random augmentation and drop_last of a shuffled loader"
            )
        return loss, gradient

    @staticmethod
    def _flatten(tensors: Iterable[Tensor]) -> NDArray[np.float64]:
        parts = [t.detach().to("cpu", torch.float64).reshape(-1) for t in tensors]
        return torch.cat(parts).numpy()

    def unflatten(self, v: NDArray[np.float64]) -> list[Tensor]:
        """Split ``(n,)`` into tensors of the parameters' shapes, dtypes and devices."""
        pieces = torch.from_numpy(np.ascontiguousarray(v)).split([p.numel() for p in self.parameters])
        return [piece.reshape(p.shape).to(p.device, p.dtype) for piece, p in zip(pieces, self.parameters)]

    def _product(self, gradients: list[Tensor], direction: list[Tensor], keep: bool) -> NDArray[np.float64]:
        live = [(g, d) for g, d in zip(gradients, direction) if g.requires_grad]
        if not live:
            return np.zeros(self.size)
        products = torch.autograd.grad(
            [g for g, _ in live],
            self.parameters,
            grad_outputs=[d for _, d in live],
            retain_graph=keep,
            allow_unused=True,
            materialize_grads=True,
        )
        return self._flatten(products)

    def matvec(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``H v`` for ``v (n,)`` float64, computed in the parameters' own precision."""
        self.matvecs += 1
        direction = self.unflatten(v)
        with torch.enable_grad():
            if self._graph is not None:
                return self._product(self._graph, direction, keep=True)
            total, count = np.zeros(self.size), 0
            for x, y in self.batches:
                gradients = self._gradient_graph(x, y)[1]
                total += self._product(gradients, direction, keep=False) * len(x)
                count += len(x)
        return total / count

    def dense(self) -> NDArray[np.float64]:
        """Return the symmetrised matrix ``(n, n)`` from n products."""
        columns = np.stack([self.matvec(v) for v in np.eye(self.size)])
        return (columns + columns.T) / 2


@contextmanager
def hessian_of(
    model: nn.Module, x: Any, y: Any, loss: LossFunction | None, parameters: str | Sequence[str], batch_size: int | None
) -> Iterator[HessianOperator]:
    """Yield the Hessian of a loss on given data, cross entropy by default; the model is restored afterwards.

    Args:
        model: run in evaluation mode.
        x: sequences, or a loader.
        y: targets.
        loss: ``(outputs, targets) -> scalar``.
        parameters: see ``select_parameters``.
        batch_size: see ``batches_of``.

    Yields:
        The operator.
    """
    x, y = as_tensor(model, x), torch.from_numpy(y) if isinstance(y, np.ndarray) and y.dtype.kind in "iuf" else y
    batches = batches_of(x, y, batch_size)
    with untouched(check_model(model)):
        yield HessianOperator(model, batches, loss or cross_entropy, select_parameters(model, parameters))
