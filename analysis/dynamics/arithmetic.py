"""Runs of a network in a given arithmetic, and the state format that a tolerance on the logits needs.

The state is rounded after every step as an ``ExecutionModel`` says, and the run is compared with one in float64. Proved
bounds come from ``running_bounds`` for one run and from the claim ``as_it_runs`` for all runs; everything else here is
measured.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability import ExecutionModel
from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import upper
from stability.kernel.format.serialization import encode
from stability.kernel.systems.execution import FORMATS
from stability.search.as_it_runs import as_model, certify_run

from ...models import SequenceModel
from ...models.tensors import check_sequence
from ..drawn import Curve
from ..results import Record
from ..unroll import flat_state, only_layer, shaped_state
from .decisions import logit_change
from .running_bounds import running_bounds

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
        outputs: logits of a ``SequenceModel``, else outputs of the layer, in float64.
        reference: the same of the run in float64.
        bounds: function that returns ``bound``; called once, when a bound is read.
    """

    curve = Curve("step", ("distance",), words="distance to the run in float64")

    distance: np.ndarray = field(repr=False)
    largest: float
    relative: float
    outputs: Tensor = field(repr=False)
    reference: Tensor = field(repr=False)
    bounds: InitVar[Callable[[], np.ndarray | None]]

    def __post_init__(self, bounds: Callable[[], np.ndarray | None]) -> None:
        vars(self)["_bounds"] = bounds

    @cached_property
    def bound(self) -> np.ndarray | None:
        """Proved bound of the distance of this run to exact arithmetic, ``(time,)``, over all sequences.

        Infinite from the step on at which none is known, such as late in a chaotic run; ``None`` for layers whose step
        is not known, such as gated linear layers and users' own.
        """
        return vars(self)["_bounds"]()

    @property
    def proved(self) -> float | None:
        """Maximum of ``bound`` over all steps."""
        return None if self.bound is None else float(self.bound.max())

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
        limits = torch.finfo(state.dtype)
        scale = (padded.abs().amax(-1, keepdim=True) / levels).clamp(min=limits.smallest_normal * limits.eps)
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
        certificate: certificate of the contracting network; it proves the same bound for all steps, in less time.

    Returns:
        Distances of the states, the outputs of both runs, and a proved bound of the distance to exact arithmetic.

    Raises:
        UnsupportedError: arithmetic that cannot be run here: factors or sums in another format than the results,
            flushed subnormal numbers, or complex numbers in a narrow format.
        ConfigurationError: ``x`` is no floating-point tensor, or ``certificate`` is about another network.
        DimensionError: ``x`` has another shape, or is empty.

    Example:
        >>> from stability.models import ElmanRNN
        >>> _ = torch.manual_seed(0)
        >>> run = run_in(ElmanRNN(2, 8), torch.ones(3, 20, 2), "int8")
        >>> 0.0 < run.relative < 0.1, run.largest <= run.proved < run.largest + 1e-12
        (True, True)
    """
    execution = as_model(arithmetic, model if arithmetic == "module" else None)
    dtype, x = runnable(execution), check_sequence(x, only_layer(model).input_size)
    _require_certificate(certificate, model)
    if execution.rounding == "noise_shaping":
        raise UnsupportedError("noise shaping is for gated linear layers: use gated_run")
    rounded = copy.deepcopy(model)
    if execution.weights != "stored":
        for parameter in rounded.parameters():
            parameter.data = parameter.data.to({**DTYPES, **FLOAT8}[execution.weights]).to(parameter.dtype)
    exact_model = copy.deepcopy(model).double().eval()
    try:
        states, outputs = _walk(rounded.to(dtype).eval(), x.to(dtype), StateRounding(execution, seed))
    except (RuntimeError, ConfigurationError) as error:
        text = f"torch cannot run this network in {execution.format}, give a format for its state only: {error}"
        raise UnsupportedError(text[:400]) from error
    exact, reference = _walk(exact_model, x.to(dtype).double(), None)
    distances = (states - exact)[1:].norm(dim=2)
    distance = distances.amax(1)
    size, largest = float(exact[1:].norm(dim=2).max()), float(distance.max())
    bounds = partial(_bounds, certificate, exact_model, x.to(dtype).double(), exact, distances)
    relative = largest / size if size else 0.0
    return ArithmeticRun(distance.numpy(), largest, relative, outputs, reference, bounds)


def _require_certificate(certificate: Certificate | None, model: nn.Module) -> None:
    """Raise an error if a certificate is about another network than the layer of a model.

    Raises:
        ConfigurationError: it is.
    """
    if certificate is None:
        return
    if not isinstance(certificate, Certificate):
        raise ConfigurationError(f"certificate must be a Certificate, got {type(certificate).__name__}")
    words = {"name", "part", "input_low", "input_high"}  # a cell is certified for inputs in a box
    own, given = (encode(subject) for subject in (only_layer(model).driven(), certificate.subject))
    if any(own.get(key) != given.get(key) for key in {*own, *given} - words):
        raise ConfigurationError("certificate must be about this network with these weights: use certify(model)")


def _bounds(
    certificate: Certificate | None, model: nn.Module, x: Tensor, exact: Tensor, distances: Tensor
) -> np.ndarray | None:
    """Add the proved error of the run in float64 to the measured distances to it, ``(time,)``."""
    errors = None
    if certificate is not None:
        ends = (x.amin((0, 1)).numpy(), x.amax((0, 1)).numpy())
        claim = certify_run(certificate, as_model("float64", model), ends)
        errors = None if isinstance(claim, str) else np.full(distances.shape, claim.value)
    if errors is None:
        errors = running_bounds(only_layer(model).driven(), exact.numpy(), x.transpose(0, 1).numpy())
    if errors is None:
        return None
    found = upper(upper(distances.numpy(), gamma(exact.shape[2] + 8)) + errors)
    return np.where(np.isfinite(found), found, math.inf).max(1)


def _walk(model: nn.Module, x: Tensor, rounding: StateRounding | None) -> tuple[Tensor, Tensor]:
    """Return stored states ``(time + 1, batch, n)``, the first before any step, and outputs in float64 of a run."""
    layer = only_layer(model)
    outputs = []
    with torch.no_grad():
        prepared, state = layer.begin(x, None)
        found = [layer.system_state(state).double()]
        for drive in layer.drive(x, prepared).unbind(1):
            state = layer.transition(drive, state, prepared)
            if rounding is not None:
                seen, state = (shaped_state(part, state) for part in rounding(flat_state(state)))
            else:
                seen = state
            found.append(layer.system_state(seen).double())
            outputs.append(layer.output(seen, drive, prepared))
        out = torch.stack(outputs, dim=1)
        if isinstance(model, SequenceModel):
            out = model.head(
                {"last": lambda y: y[:, -1], "mean": lambda y: y.mean(1), "all": lambda y: y}[model.reduction](out)
            )
    return torch.stack(found), out.double()


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
        (``NaN``: not proved), ``margin`` (no decision with a margin above it changes), ``measured`` change,
        ``accuracy``, and ``enough``: True if the bound is at most ``tol``.

    Raises:
        ConfigurationError: a model without logits at the last step, a tolerance that is not positive, or a certificate
            of another network.
        DimensionError: ``x`` or ``y`` has another shape, or is empty.
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
    x = check_sequence(x, model.input_size)
    if not isinstance(y, Tensor) or y.shape != x.shape[:1]:
        raise DimensionError("y", tuple(x.shape[:1]), tuple(np.shape(y)), "one class for each sequence")
    low, high = (float(x.min()), float(x.max())) if input_box is None else input_box
    known: Certificate = certify(model) if certificate is None else certificate
    _require_certificate(known, model)
    box = tuple(np.broadcast_to(np.asarray(end, dtype=np.float64), (model.input_size,)) for end in (low, high))
    rows = []
    for asked in formats:
        execution = as_model(asked if isinstance(asked, ExecutionModel) else ExecutionModel("float32", asked), model)
        claim = certify_run(known, execution, box)  # type: ignore[arg-type]
        run = run_in(model, x, execution)
        proved = None if isinstance(claim, str) else logit_change(model, known, claim)
        bound, margin = (math.nan, math.nan) if proved is None else proved
        change = float((run.outputs - run.reference).abs().max())
        accuracy = float((run.outputs.argmax(1) == y.to(run.outputs.device)).double().mean())
        bits = _bits(execution, model.hidden_size)
        rows.append((execution.state, bits, bound, margin, change, accuracy, bound <= tol))
    return pd.DataFrame(rows, columns=["state", "bits", "bound", "margin", "measured", "accuracy", "enough"])


def _bits(execution: ExecutionModel, states: int) -> float:
    """Return the bits of storage for each entry of the state, with a float32 scale for each block."""
    if execution.state in FORMATS:
        return {"float64": 64, "float32": 32, "tf32": 32, "bfloat16": 16, "float16": 16}.get(execution.state, 8)
    bits, _, block = execution.state.removeprefix("int").partition(":")
    return int(bits) + 32.0 / (int(block) if block else states)
