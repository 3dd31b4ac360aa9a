r"""Norms of hidden states and of their gradients over time and depth.

:math:`\|h_t\|` along given sequences and beyond their end, per layer; beside it what theory expects and what a proof
allows (``envelope.py``), and :math:`\|\partial L / \partial s_t\|` for the complete state ``s_t``, which vanishes or
explodes with the products of the step Jacobians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.checks import as_choice

from ...models.deep import DeepNetwork
from ...models.network import over_time
from ...models.tensors import check_sequence, state_leaves
from ..drawn import Curve
from ..guard import check_batch, check_int, check_model, untouched
from ..results import Record
from ..unroll import flat_state, layer_inputs, only_layer
from .envelope import expected_rms, norm_bound

if TYPE_CHECKING:
    from ..campaign.work import Work

EXTENSIONS = ("repeat", "zero", "hold", "noise")
LOSS = "random projection of the last state"  # where no targets are given
NUMBERS = 2**27
"""Most entries of the extended sequences or of their hidden states: 1 GiB in float64."""
QUANTILES = {"q10": 0.1, "q50": 0.5, "q90": 0.9}


@dataclass(frozen=True, eq=False)
class NormDrift(Record):
    r"""Norms of hidden states over time, for each layer of a stack.

    The settled part of a curve is all but its first quarter (a state that starts at zero has to grow).

    Attributes:
        model: name for tables.
        mean: ``(layers, time)``, mean of ``|h_t|`` over the sequences.
        rms: ``(layers, time)``, root mean square of ``|h_t|`` over the sequences; at least the mean.
        quantiles: ``(layers, time, 3)``, its 10, 50 and 90 % quantiles.
        slope: ``(layers,)``, slope of ``log mean |h_t|`` per step over the settled part (least squares).
        drift: ``(layers,)``, ``log2(max / min)`` of the mean over the settled part: by how many doublings it varies.
        grad_norm: ``(time,)``, mean of ``|dL / ds_t|`` over the sequences, up to the end of the given sequences; NaN
            beyond.
        grad_slope: slope of its logarithm per step forward in time over the given sequences. Above 0 the norm is larger
            at later steps: gradients vanish on their way back to earlier ones. Below 0 they explode.
        expected: ``(time,)``, what theory expects of ``rms`` (RotRNN and LRU on white input), NaN where it expects
            nothing; or ``None``.
        envelope: ``(time,)``, a bound that a proof gives for ``|h_t|`` of every one of the sequences (certified
            contraction, orthogonal and linear maps); or ``None``.
        sources: descriptions of ``expected`` and ``envelope``, or the reason why one is missing.
        length: time steps of the given sequences; what follows is their continuation.
        extension: continuation of the sequences.
        loss: description of ``L``.
        sequences: number of sequences.
    """

    curve = Curve("t", ("q50", "expected", "envelope"), ("q10", "q90"), by="layer", words="norm of the state", log=True)

    model: str
    mean: np.ndarray = field(repr=False)
    rms: np.ndarray = field(repr=False)
    quantiles: np.ndarray = field(repr=False)
    slope: np.ndarray
    drift: np.ndarray
    grad_norm: np.ndarray = field(repr=False)
    grad_slope: float
    expected: np.ndarray | None = field(repr=False)
    envelope: np.ndarray | None = field(repr=False)
    sources: dict[str, str] = field(repr=False)
    length: int
    extension: str
    loss: str
    sequences: int

    @property
    def drift_index(self) -> float:
        """Largest ``drift`` of the layers, for rankings: 0 is a constant norm, 1 a factor of two."""
        return float(self.drift.max())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with ``drift_index``."""
        return {**super().to_dict(), "drift_index": self.drift_index if np.isfinite(self.drift_index) else None}

    def frame(self) -> pd.DataFrame:
        """Return one row per layer and step, ``t`` counts from 1: the columns of ``norms.csv``."""
        layers, steps = self.mean.shape
        nothing = np.full(steps, np.nan)
        shared = {
            "grad_norm": self.grad_norm,
            "expected": nothing if self.expected is None else self.expected,
            "envelope": nothing if self.envelope is None else self.envelope,
        }
        tables = []
        for layer in range(layers):
            head = {"model": self.model, "layer": layer, "t": np.arange(1, steps + 1)}
            columns = {
                "mean": self.mean[layer],
                "rms": self.rms[layer],
                **dict(zip(QUANTILES, self.quantiles[layer].T)),
            }
            tables.append(pd.DataFrame({**head, **columns, **shared}))
        return pd.concat(tables, ignore_index=True)


def extend(x: Tensor, factor: int, how: str = "repeat", seed: int = 0) -> Tensor:
    """Continue sequences to ``factor`` times their length.

    Args:
        x: ``(batch, time, features)``.
        factor: factor of the length, an integer >= 1.
        how: ``repeat`` the sequence, or go on with ``zero``, with its last input (``hold``), or with
            ``noise`` of each feature's mean and standard deviation.
        seed: seed of the noise.

    Returns:
        ``(batch, factor * time, features)``, the first ``time`` steps as given.

    Raises:
        ConfigurationError: an unknown way, or a factor that is none or makes more than 2^27 numbers.

    Example:
        >>> extend(torch.tensor([[[1.0], [2.0]]]), 2, "hold").flatten().tolist()
        [1.0, 2.0, 2.0, 2.0]
    """
    as_choice("extension", how, EXTENSIONS)
    if check_int("factor", factor) == 1:
        return x
    check_followed(x, factor)
    if how == "repeat":
        return x.repeat(1, factor, 1)
    shape = (x.shape[0], (factor - 1) * x.shape[1], x.shape[2])
    if how == "zero":
        rest = x.new_zeros(shape)
    elif how == "hold":
        rest = x[:, -1:].expand(shape)
    else:
        generator = torch.Generator().manual_seed(seed)
        flat = x.reshape(-1, x.shape[2])
        spread = flat.std(0) if len(flat) > 1 else torch.zeros_like(flat[0])
        rest = flat.mean(0) + spread * torch.randn(shape, generator=generator, dtype=x.dtype).to(x.device)
    return torch.cat([x, rest], dim=1)


def check_followed(x: Tensor, factor: int, model: nn.Module | None = None) -> None:
    """Raise an error, before memory is allocated, if extended sequences would be too large.

    Args:
        x: ``(batch, time, features)``.
        factor: factor of the length.
        model: model whose hidden states are also kept over all steps.

    Raises:
        ConfigurationError: more than 2^27 numbers, of the inputs or of the widest states.

    Example:
        >>> check_followed(torch.zeros(4, 10, 3), 1000)
    """
    names = ("hidden_size", "output_size", "input_size")
    sizes = [getattr(m, name, 0) for m in (model.modules() if model is not None else ()) for name in names]
    each = x.shape[0] * x.shape[1] * max(x.shape[2], *(size for size in sizes if isinstance(size, int)), 1)
    if check_int("factor", factor) > 1 and factor * each > NUMBERS:
        fits = f"a factor of at most {most}" if (most := NUMBERS // each) > 0 else "shorter sequences"
        raise ConfigurationError(
            f"{factor} times as long sequences need {factor * each:.2g} numbers for inputs or states; "
            f"the limit is 2^27: use {fits}, or fewer sequences"
        )


def norm_drift(
    model: nn.Module,
    x: Tensor,
    y: Tensor | None = None,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    factor: int = 1,
    extension: str = "repeat",
    certificate: Certificate | None = None,
    gradients: bool = True,
    name: str | None = None,
    seed: int = 0,
    part: str | None = None,
) -> NormDrift:
    """Measure norms of hidden states and of gradients over time; the model is restored afterwards.

    Args:
        model: a recurrent layer, or a model that holds one (``torch.nn``'s included); of a ``DeepNetwork`` each
            recurrent layer separately on its own inputs, without gradients, expected norms and envelope.
        x: ``(batch, time, features)``, inputs of the model; the layer is measured on its own inputs.
        y: targets; with them ``L`` is the loss of each sequence under the model's head.
        loss: ``loss(outputs, targets)``, such as ``task.loss``; needed with ``y``.
        factor: number of steps to run, in multiples of the given length.
        extension: continuation of the sequences, see ``extend``.
        certificate: certificate behind the envelope; by default the proof that the layer carries.
        gradients: whether to compute gradient norms; without ``y``, ``L`` is the inner product of the last
            state with a random unit vector, so that the norm at ``t`` is the factor by which a gradient has
            grown on its way back.
        name: for tables; by default the layer's name.
        seed: seed of noise and random vectors.
        part: the path of the layer, where the model holds several.

    Returns:
        The norms.

    Raises:
        ConfigurationError: bad options, a bad tensor, or more than 2^27 numbers in the sequences or their states.
        DimensionError: a wrong shape.
        NonFiniteError: weights, input or states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> from stability.models import ElmanRNN
        >>> result = norm_drift(ElmanRNN(2, 4), torch.ones(3, 8, 2), factor=2)
        >>> result.mean.shape, result.length, result.frame().columns[0]
        ((1, 16), 8, 'model')
    """
    deep = isinstance(check_model(model), DeepNetwork) and part is None
    layer: Any = model if deep else only_layer(model, part)
    if part is not None and y is not None:
        raise ConfigurationError("gradient norms need the whole network, got one part: leave the targets out")
    if deep and y is not None:
        raise ConfigurationError("gradient norms are not available for deep networks: leave the targets out")
    gradients = gradients and not deep
    x = check_sequence(check_batch(layer, x if deep else layer_inputs(model, x, part)), layer.input_size)
    if y is not None and (loss is None or not hasattr(model, "head")):
        raise ConfigurationError("targets need loss= (such as task.loss) and a SequenceModel with a head")
    if y is not None and len(y) != len(x):
        raise DimensionError("y", f"({len(x)}, ...)", tuple(y.shape), "one target per sequence of x")
    length = x.shape[1]
    check_followed(x, factor, layer)
    longer = extend(x, factor, extension, seed)
    with untouched(layer):
        with torch.no_grad():
            norms = _norms_over_depth(layer, longer) if deep else _norms(layer, longer)
        if not torch.isfinite(norms).all():
            t = int(torch.isfinite(norms).all(2).all(0).int().argmin())
            raise NonFiniteError(f"the hidden state after {t + 1} steps", "the network diverges on this input")
        grad = np.full(longer.shape[1], np.nan)
        if gradients:
            grad[:length] = _gradient_norms(model, layer, x, y, loss, seed)
    values = norms.cpu().numpy()
    mean = values.mean(2)
    settled = slice(mean.shape[1] // 4, None)
    steps = mean.shape[1]
    expected, allowed = None, None
    sources: dict[str, str] = {}
    if not deep:
        expected, sources["expected"] = expected_rms(layer, x, steps, "noise" if factor == 1 else extension)
        allowed, sources["envelope"] = norm_bound(layer, longer, certificate)
    sources = {name: words for name, words in sources.items() if words}
    return NormDrift(
        model=name or layer.layer_name or type(layer).__name__,
        mean=mean,
        rms=np.sqrt((values**2).mean(2)),
        quantiles=np.quantile(values, tuple(QUANTILES.values()), axis=2).transpose(1, 2, 0),
        slope=np.array([_log_slope(curve[settled]) for curve in mean]),
        drift=np.array([_doublings(curve[settled]) for curve in mean]),
        grad_norm=grad,
        grad_slope=_log_slope(grad[:length]) if gradients else float("nan"),
        expected=expected,
        envelope=allowed,
        sources=sources,
        length=length,
        extension=extension if factor > 1 else "none",
        loss="none" if not gradients else LOSS if y is None else "task loss",
        sequences=len(x),
    )


def _norms(layer: Any, x: Tensor) -> Tensor:
    """Return the norms of the hidden states, ``(layers, time, batch)``."""
    states = (layer.hidden_states(step.after) for step in layer.walk(x))
    return torch.stack([torch.stack([h.double().norm(dim=-1) for h in parts]) for parts in states], dim=1)


def _norms_over_depth(network: DeepNetwork, x: Tensor) -> Tensor:
    """Return the norms of each recurrent layer of a deep network, on the output of the blocks below."""
    parts = zip(network.layers, network.layer_inputs(x))
    return torch.stack([layer.states(u).double().norm(dim=-1).T for layer, u in parts])


def _gradient_norms(
    model: nn.Module, layer: Any, x: Tensor, y: Tensor | None, loss: Callable[..., Tensor] | None, seed: int
) -> np.ndarray:
    """Return the mean over the sequences of ``|dL / ds_t|``, with a loss per sequence, so that none dilutes another."""
    steps = list(layer.walk(x, _leaf(layer.begin(x)[1])))
    states = [step.after for step in steps]
    if y is None or loss is None:
        last = flat_state(states[-1])
        direction = torch.randn(last.shape, generator=torch.Generator().manual_seed(seed), dtype=last.dtype)
        total = (last * (direction / direction.norm(dim=1, keepdim=True)).to(last.device)).sum()
    else:
        outputs = torch.stack([layer.output(step.after, step.drive, step.prepared) for step in steps], dim=1)
        features = over_time(outputs, getattr(model, "reduction", "last"))
        total = len(x) * loss(model.get_submodule("head")(features), y)  # the mean over sequences, undone
    tensors = [t for s in states for t in state_leaves(s)]
    grads = torch.autograd.grad(total, tensors, allow_unused=True)
    per_step = len(tensors) // len(states)
    curve = []
    for i in range(0, len(grads), per_step):
        rows = [g.abs().reshape(len(x), -1) for g in grads[i : i + per_step] if g is not None]
        curve.append(float(torch.cat(rows, dim=1).norm(dim=1).mean()) if rows else 0.0)
    return np.array(curve)


def _leaf(state: Any) -> Any:
    """Return the state with a gradient, so that constant layers too have a graph through time."""
    for tensor in state_leaves(state):
        tensor.requires_grad_()
    return state


def _log_slope(curve: np.ndarray) -> float:
    """Return the least-squares slope of the logarithm per step; NaN for fewer than two positive points."""
    t = np.flatnonzero((curve > 0) & np.isfinite(curve))
    return float(np.polyfit(t, np.log(curve[t]), 1)[0]) if len(t) > 1 else float("nan")


def _doublings(curve: np.ndarray) -> float:
    low, high = float(curve.min()), float(curve.max())
    if high == 0:
        return 0.0
    return float(np.log2(high / low)) if low > 0 else float("inf")


def norms_step(work: Work) -> None:
    """Run the step ``norms`` of an analysis and write its files."""
    model, x = work.whole_sequences(min(work.budget.samples, 100))
    result = norm_drift(model, x, factor=work.budget.stretch, seed=work.seed, certificate=work.certificate)
    work.write_table("norms.csv", result.frame())
    work.write_result(
        "drift.json",
        result,
        slope=float(result.slope[-1]),
        trained_length=result.length,
        start=float(result.mean[-1, 0]),
        end=float(result.mean[-1, -1]),
    )
