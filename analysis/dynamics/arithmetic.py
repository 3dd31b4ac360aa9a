"""Runs of a network in a given arithmetic, and the state format that a tolerance on the logits needs.

The state is rounded after every step as an ``ExecutionModel`` says, and the run is compared with one in float64. Proved
bounds come from the claim ``as_it_runs``; everything else here is measured.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability import ExecutionModel
from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.execution import FORMATS
from stability.search.as_it_runs import as_model, certify_run

from ...models import SequenceModel
from ...models.recurrent import RecurrentLayer
from ...models.tensors import state_leaves
from ..drawn import Curve
from ..results import Record
from ..unroll import only_layer

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
FLOAT8 = {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
STATES = ("int16", "int12", "int10", "int8", "int8:32", "int6:32", "int4:16", "bfloat16", "float16", "float8_e4m3")
"""State formats that ``state_formats`` compares."""


@dataclass(frozen=True, eq=False)
class ArithmeticRun(Record):
    """Run in a given arithmetic beside a run in float64, on the same inputs.

    Attributes:
        distance: ``(time,)`` largest Euclidean distance of the states over the sequences, after each step.
        largest: maximum over all steps.
        relative: ``largest`` divided by the largest norm of a state in float64.
        proved: bound of the distance of this run to exact arithmetic: ``largest`` plus the proved error of the run in
            float64; ``None`` without a certificate that proves one.
        outputs: logits of a ``SequenceModel``, else outputs of the layer, in float64.
        reference: the same of the run in float64.
    """

    curve = Curve("step", ("distance",), words="distance to the run in float64")

    distance: np.ndarray = field(repr=False)
    largest: float
    relative: float
    proved: float | None
    outputs: Tensor = field(repr=False)
    reference: Tensor = field(repr=False)

    def curves(self) -> pd.DataFrame:
        """Return the largest distance over the sequences, one row per step."""
        return pd.DataFrame({"step": np.arange(1, len(self.distance) + 1), "distance": self.distance})


class StateRounding:
    """Rounding of a state between two steps.

    Args:
        model: the arithmetic.
        seed: seed of stochastic rounding.
    """

    def __init__(self, model: ExecutionModel, seed: int = 0) -> None:
        self.model = model
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Round a state ``(batch, n)``: return what is stored, and what acts on the next step."""
        kind = self.model.state
        if kind in DTYPES or kind in FLOAT8:
            stored = state.to({**DTYPES, **FLOAT8}[kind]).to(state.dtype)
            return stored, stored
        bits, _, block = kind.removeprefix("int").partition(":")
        levels, length = 2 ** (int(bits) - 1) - 1, int(block) if block else state.shape[1]
        padded = nn.functional.pad(state, (0, -state.shape[1] % length)).reshape(len(state), -1, length)
        scale = padded.abs().amax(-1, keepdim=True).clamp(min=1e-37) / levels
        ratio = padded / scale
        if self.model.rounding == "stochastic":
            ratio = (ratio + torch.rand(ratio.shape, generator=self.generator, dtype=ratio.dtype)).floor()
        else:
            ratio = ratio.round()
        stored = (ratio.clamp(-levels, levels) * scale).reshape(len(state), -1)[:, : state.shape[1]]
        if self.model.rounding != "feedback":
            return stored, stored
        return stored, stored + (state - stored)


def runnable(execution: ExecutionModel) -> torch.dtype:
    """Return the dtype of an arithmetic that can be run here.

    Raises:
        UnsupportedError: factors or sums in another format than the results, or flushed subnormal numbers.
    """
    if execution.format not in DTYPES or execution.factors or execution.flush:
        raise UnsupportedError(f"{execution.phrase} cannot be run here, only claimed")
    return DTYPES[execution.format]


def run_in(
    model: nn.Module,
    x: Tensor,
    arithmetic: str | ExecutionModel,
    *,
    seed: int = 0,
    certificate: Certificate | None = None,
) -> ArithmeticRun:
    """Run a network step by step in a given arithmetic, and in float64.

    Args:
        model: a recurrent layer, or a model with exactly one.
        x: ``(batch, time, features)``, inputs of the layer.
        arithmetic: a format such as ``"float32"`` or ``"int8:64"``, or an ``ExecutionModel``.
        seed: seed of stochastic rounding.
        certificate: certificate of the contracting network; it adds the proved distance to exact arithmetic.

    Returns:
        Distances of the states, and the outputs of both runs.

    Raises:
        UnsupportedError: arithmetic that cannot be run here: factors or sums in another format than the results, or
            flushed subnormal numbers.

    Example:
        >>> from stability.models import ElmanRNN
        >>> _ = torch.manual_seed(0)
        >>> run = run_in(ElmanRNN(2, 8), torch.ones(3, 20, 2), "int8")
        >>> 0.0 < run.relative < 0.1
        True
    """
    execution = as_model(arithmetic, model)
    dtype = runnable(execution)
    if execution.rounding == "noise_shaping":
        raise UnsupportedError("noise shaping is for gated linear layers: use gated_run")
    rounded = copy.deepcopy(model)
    if execution.weights != "stored":
        for parameter in rounded.parameters():
            parameter.data = parameter.data.to({**DTYPES, **FLOAT8}[execution.weights]).to(parameter.dtype)
    runs = [
        _walk(rounded.to(dtype).eval(), x.to(dtype), StateRounding(execution, seed)),
        _walk(copy.deepcopy(model).double().eval(), x.to(dtype).double(), None),
    ]
    (states, outputs), (exact, reference) = runs
    distance = (states - exact).norm(dim=2).amax(1)
    size = float(exact.norm(dim=2).max())
    largest = float(distance.max())
    relative = largest / size if size else 0.0
    proved = None if certificate is None else _proved(certificate, model, x.to(dtype), largest)
    return ArithmeticRun(distance.numpy(), largest, relative, proved, outputs, reference)


def _proved(certificate: Certificate, model: nn.Module, x: Tensor, largest: float) -> float | None:
    """Add the proved error of the run in float64 to a measured distance to it."""
    execution = as_model("float64", model)
    ends = (x.double().amin((0, 1)).numpy(), x.double().amax((0, 1)).numpy())
    claim = certify_run(certificate, execution, ends)
    return None if isinstance(claim, str) or claim.value is None else largest * (1.0 + 1e-12) + claim.value


def _walk(model: nn.Module, x: Tensor, rounding: StateRounding | None) -> tuple[Tensor, Tensor]:
    """Return stored states ``(time, batch, n)`` and outputs in float64 of a run."""
    layer = only_layer(model)
    found, outputs = [], []
    with torch.no_grad():
        prepared, state = layer.begin(x, None)
        for drive in layer.drive(x, prepared).unbind(1):
            state = layer.transition(drive, state, prepared)
            if rounding is not None:
                stored, acting = rounding(_flat(layer, state))
                seen, state = _like(layer, state, stored), _like(layer, state, acting)
            else:
                seen = state
            found.append(_flat(layer, seen).double())
            outputs.append(layer.output(seen, drive, prepared))
        out = torch.stack(outputs, dim=1)
        if isinstance(model, SequenceModel):
            out = model.head(
                {"last": lambda y: y[:, -1], "mean": lambda y: y.mean(1), "all": lambda y: y}[model.reduction](out)
            )
    return torch.stack(found), out.double()


def _flat(layer: RecurrentLayer, state: Any) -> Tensor:
    return layer.system_state(state)


def _like(layer: RecurrentLayer, state: Any, flat: Tensor) -> Any:
    """Convert rows ``(batch, n)`` to a state of the layer."""
    leaves = state_leaves(state)
    if any(leaf.is_complex() for leaf in leaves):
        raise UnsupportedError(f"{type(layer).__name__} has a complex state, which has no rounding here yet")
    rows, at = [], 0
    for leaf in leaves:
        size = leaf[0].numel()
        rows.append(flat[:, at : at + size].reshape(leaf.shape))
        at += size
    return rows[0] if isinstance(state, Tensor) else _nested(state, iter(rows))


def _nested(state: Any, rows: Any) -> Any:
    return tuple(_nested(part, rows) for part in state) if isinstance(state, (tuple, list)) else next(rows)


def logit_bound(model: SequenceModel, bound: float, size: float) -> float:
    """Bound the error of every logit, and of half of every difference of two, from a bound of the states' error.

    Args:
        model: network with a linear head.
        bound: bound of the Euclidean distance of the states.
        size: bound of the Euclidean norm of a state, for the rounding of the head.

    Returns:
        ``max_i |w_i| bound`` plus the rounding of the head in its format.
    """
    weight = model.head.weight.detach().double()
    rows = float(weight.norm(dim=1).max())
    unit = FORMATS[str(model.head.weight.dtype).removeprefix("torch.")].unit
    bias = 0.0 if model.head.bias is None else float(model.head.bias.detach().abs().max())
    return rows * bound + unit * (weight.shape[1] + 2) * (rows * (size + bound) + bias) * 1.01


def state_formats(
    model: SequenceModel,
    x: Tensor,
    y: Tensor,
    *,
    tol: float,
    input_box: tuple[Any, Any] | None = None,
    formats: Sequence[str | ExecutionModel] = STATES,
    certificate: Certificate | None = None,
) -> pd.DataFrame:
    """Compare state formats: proved and measured change of the logits, and the accuracy.

    Args:
        model: a ``SequenceModel`` with logits at the last step.
        x: ``(batch, time, features)`` inputs.
        y: ``(batch,)`` classes.
        tol: largest change of a logit that is allowed.
        input_box: ends of the box of the inputs; by default the range of ``x``.
        formats: formats of the state, or execution models.
        certificate: certificate of the network; by default it is certified here.

    Returns:
        One row a format: ``state``, ``bits`` an entry (scales of blocks included), ``bound`` of a logit's change
        (``NaN``: not proved), ``measured`` change, ``accuracy``, and ``enough``: True if the bound is at most ``tol``.

    Raises:
        ConfigurationError: a model without logits at the last step, or a tolerance that is not positive.
        UnsupportedError: a layer whose output is not its state, such as an LRU: its output map has no bound here.

    Example:
        >>> from stability.models import ContractingRNN
        >>> _ = torch.manual_seed(0)
        >>> model = SequenceModel(ContractingRNN(2, 4, rate=0.8), 3)
        >>> x, y = torch.rand(5, 10, 2), torch.zeros(5, dtype=torch.long)
        >>> table = state_formats(model, x, y, tol=0.1, formats=["int16", "int8"])
        >>> bool(table["bound"][0] < table["bound"][1])
        True
    """
    if not isinstance(model, SequenceModel) or model.reduction != "last":
        raise ConfigurationError("state_formats needs a SequenceModel with logits at the last step")
    if not model.layer.outputs_hidden:
        raise UnsupportedError(f"the output of {type(model.layer).__name__} is not its state: its logits have no bound")
    if not tol > 0.0:
        raise ConfigurationError(f"tol must be positive, got {tol}")
    low, high = (float(x.min()), float(x.max())) if input_box is None else input_box
    certificate = certify(model) if certificate is None else certificate
    box = tuple(np.broadcast_to(np.asarray(end, dtype=np.float64), (model.input_size,)) for end in (low, high))
    rows = []
    for asked in formats:
        execution = as_model(asked if isinstance(asked, ExecutionModel) else ExecutionModel("float32", asked), model)
        claim = certify_run(certificate, execution, box)  # type: ignore[arg-type]
        run = run_in(model, x, execution)
        bound = math.nan if isinstance(claim, str) else logit_bound(model, float(claim.value or 0.0), _size(claim))
        change = float((run.outputs - run.reference).abs().max())
        accuracy = float((run.outputs.argmax(1) == y.to(run.outputs.device)).double().mean())
        rows.append((execution.state, _bits(execution, model.hidden_size), bound, change, accuracy, bound <= tol))
    return pd.DataFrame(rows, columns=["state", "bits", "bound", "measured", "accuracy", "enough"])


def _size(claim: Any) -> float:
    """Bound the norm of the computed states by the set of states in the proof."""
    data = claim.proof.data
    if data.get("ball") is not None:
        return float(data["room"] * data["ball"]["radius"])
    if data.get("entries") is not None:
        return float(np.linalg.norm(data["entries"]))
    if "center" in data:
        return float(np.linalg.norm(data["center"]) + data["radius"] / math.sqrt(data["p_min"]))
    if "sizes" in data:
        return float(np.linalg.norm(data["sizes"]))
    if "radius" in data:
        return float(data["radius"] / math.sqrt(data["weights"].min()))
    return float(np.linalg.norm(np.maximum(np.abs(data["low"]), np.abs(data["high"]))))


def _bits(execution: ExecutionModel, states: int) -> float:
    """Return the bits of storage for each entry of the state, with a float32 scale for each block."""
    if execution.state in FORMATS:
        return {"float64": 64, "float32": 32, "tf32": 32, "bfloat16": 16, "float16": 16}.get(execution.state, 8)
    bits, _, block = execution.state.removeprefix("int").partition(":")
    return int(bits) + 32.0 / (int(block) if block else states)
