r"""Local growth along data: the factor by which each step stretches small differences of the state.

Along a trajectory with one-step Jacobians :math:`J_t` two numbers a step: the largest singular value
:math:`\sigma(J_t)`, by which some difference grows in this step (in the Euclidean norm), and the local exponent
:math:`\log |J_t v_t|` of the direction that the steps before have turned the fastest one into,
:math:`v_{t+1} = J_t v_t / |J_t v_t|`, from the direction that the first step stretches most. A step may stretch, and
the next take it back: a network that contracts in another norm does so; the mean of the local exponents over a sequence
says whether a difference has grown at its end.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import NonFiniteError
from stability.systems import LureSystem

from ...models.tensors import check_sequence
from ..drawn import Curve
from ..guard import check_int, check_model, check_real_sequences
from ..results import Record
from ..unroll import flat_state, layer_inputs, only_layer, step_jacobians

if TYPE_CHECKING:
    from ..campaign.work import Work

WORST = 5
"""Number of sequences listed by name."""
MOST_STEPS, FEWEST = 700, 4
"""Approximate number of steps over all sequences, and least number of sequences; they bound the work."""
ROUNDING = 1e-9
"""Excess over one below which the largest singular value counts as norm-preserving."""
SPECTRA = 24
"""Number of Jacobians whose eigenvalues are kept."""


@dataclass(frozen=True, eq=False)
class LocalGrowth(Record):
    """Growth of small differences in each step, along the trajectories of given sequences.

    Attributes:
        stretch: ``(batch, steps)``, the largest singular value of each step's Jacobian.
        exponents: ``(batch, steps)``, the growth of the fastest direction in each step, its logarithm.
        spectra: ``(k, n)`` complex, eigenvalues of the Jacobians of some steps, evenly spread over all.
        states: real dimension of the state.
    """

    curve = Curve("t", ("exponent",), by="sequence")

    stretch: np.ndarray
    exponents: np.ndarray
    spectra: np.ndarray = field(repr=False)
    states: int

    @property
    def stretching(self) -> float:
        """Share of steps in which some difference grows."""
        return float((self.stretch > 1 + ROUNDING).mean())

    @property
    def growing(self) -> float:
        """Share of steps in which the fastest direction grows."""
        return float((self.exponents > ROUNDING).mean())

    @property
    def grown(self) -> float:
        """Share of sequences over which the fastest direction has grown."""
        return float((self.exponents.mean(1) > ROUNDING).mean())

    @property
    def worst(self) -> np.ndarray:
        """Return the sequences in descending order of their mean exponent."""
        return np.argsort(-self.exponents.mean(1), kind="stable")

    def frame(self) -> pd.DataFrame:
        """Return one row per step: ``sequence, t, stretch, exponent``; steps count from 1."""
        batch, steps = self.stretch.shape
        row, t = np.indices((batch, steps))
        table = {"sequence": row, "t": t + 1, "stretch": self.stretch, "exponent": self.exponents}
        return pd.DataFrame({name: values.ravel() for name, values in table.items()})

    def eigenvalues(self, beside: np.ndarray | None = None) -> pd.DataFrame:
        """Return one row per eigenvalue: ``what, real, imag``; ``what``: ``data`` here, ``slope`` for the argument."""
        parts = {"data": self.spectra.ravel(), "slope": np.zeros(0) if beside is None else beside}
        return pd.concat(
            [pd.DataFrame({"what": what, "real": v.real, "imag": v.imag}) for what, v in parts.items() if len(v)],
            ignore_index=True,
        )


def local_growth(model: nn.Module, x: Tensor, *, spectra: int = SPECTRA) -> LocalGrowth:
    """Compute largest singular values, local exponents and eigenvalues of one-step Jacobians along sequences.

    All arithmetic is in float64 on a copy of the layer, from its own initial state; the state is the complete one.

    Args:
        model: a recurrent layer, or a model that holds one (``torch.nn``'s included), or a ``DeepNetwork``.
        x: ``(batch, time, features)``, inputs of the model.
        spectra: number of Jacobians whose eigenvalues are kept.

    Returns:
        The numbers, per step.

    Raises:
        ConfigurationError: a bad option or a bad tensor.
        DimensionError: a wrong shape.
        NonFiniteError: weights, input or states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> from stability.models import ContractingRNN
        >>> found = local_growth(ContractingRNN(1, 3, rate=0.5), torch.zeros(2, 40, 1))
        >>> found.stretch.shape, found.grown
        ((2, 40), 0.0)
    """
    layer = copy.deepcopy(only_layer(check_model(model))).double().eval()
    x, spectra = layer_inputs(model, x), check_int("spectra", spectra, 0)
    x = check_sequence(check_real_sequences(x).double(), layer.input_size)
    batch, steps = x.shape[:2]
    positions = np.unique(np.linspace(0, batch * steps - 1, min(spectra, batch * steps)).round().astype(int))
    stretch, growth, singular_values = [], [], []
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        prepared, state = layer.begin(x)
        n = flat_state(state).shape[1]
        v = torch.zeros(batch, n, dtype=x.dtype, device=x.device)
        for t, drive in enumerate(layer.drive(x, prepared).unbind(1)):
            jacobians, state = step_jacobians(layer, drive, state, prepared)
            if not (torch.isfinite(jacobians).all() and torch.isfinite(flat_state(state)).all()):
                raise NonFiniteError(f"the state after {t + 1} steps", "the network diverges on this input")
            if t == 0:
                v = torch.linalg.svd(jacobians)[2][:, 0]
            v = (jacobians @ v[:, :, None])[:, :, 0]
            size = v.norm(dim=1)
            v = v / torch.where(size > 0, size, 1.0)[:, None]
            squares = torch.linalg.eigvalsh(jacobians.mT @ jacobians)[:, -1]  # a third of the time of singular values
            stretch.append(squares.clamp(min=0).sqrt().cpu())
            growth.append(size.log().cpu())
            rows = positions[positions % steps == t] // steps
            singular_values.append(torch.linalg.eigvals(jacobians[torch.as_tensor(rows, device=x.device)]).cpu())
    return LocalGrowth(
        torch.stack(stretch, 1).numpy(), torch.stack(growth, 1).numpy(), torch.cat(singular_values).numpy(), n
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _steepest(work: Work) -> np.ndarray | None:
    """Return the eigenvalues of the map with every activation slope at its maximum; ``None`` for other maps."""
    subject = work.certificate.subject if work.certificate is not None else None
    system: Any = getattr(subject, "system", subject)
    if not isinstance(system, LureSystem) or not system.is_discrete or system.D.any():
        return None
    slope = np.broadcast_to(np.asarray(system.slope[1], dtype=np.float64), (system.channels,))
    return np.linalg.eigvals(system.A + system.B @ (slope[:, None] * system.C)) if np.isfinite(slope).all() else None


def growth_step(work: Work) -> None:
    """Run the step ``growth`` of an analysis and write its files."""
    _, x = work.sequences_for_jacobians(1)
    several = max(FEWEST, min(3 * work.budget.trajectories, MOST_STEPS // x.shape[1]))
    model, x = work.whole_sequences(several)
    result = local_growth(model, x)
    work.write_table("growth.csv", result.frame())
    work.write_table("jacobians.csv", result.eigenvalues(_steepest(work)))
    worst = result.worst[:WORST]
    named = [
        {
            "sequence": int(k),
            "mean": _finite(result.exponents[k].mean()),
            "step": int(result.stretch[k].argmax()) + 1,
            "stretch": float(result.stretch[k].max()),
        }
        for k in worst
    ]
    totals = {"stretching": result.stretching, "growing": result.growing, "grown": result.grown}
    largest = float(result.stretch.max())
    sizes = {"sequences": len(result.stretch), "steps": result.stretch.shape[1]}
    work.write_json("growth.json", {**totals, "largest": largest, **sizes, "worst": named})
