r"""Finite-time Lyapunov exponents along driven trajectories, by QR.

Along a trajectory with one-step Jacobians :math:`J_t` an orthonormal frame is pushed forward and orthonormalised again,
:math:`Q_{t+1} R_{t+1} = J_t Q_t`; the exponents are the means of :math:`\log |R_{ii}|` (Benettin, Galgani, Giorgilli,
Strelcyn 1980; Engelken, Wolf, Abbott 2023 for recurrent networks). The largest one is the mean rate at which
neighboring trajectories separate over the steps that count.

Which directions the frame begins with is forgotten in the long run, and decides over a short one: a random direction
first shrinks into those that last, and what it loses on its way looks like an exponent, for ``n`` directions of like
rates up to :math:`\tfrac12 \log n` in all. So the frame begins with the leading right singular vectors of what all
``T`` steps do together,

.. math:: J_T \cdots J_1 = U \Sigma V^\mathsf{T}, \quad Q_0 = V_k, \quad
    \lambda_i = \frac{1}{T - s} \sum_{t > s} \log |(R_t)_{ii}|,

and without skipped steps, ``s = 0``, the exponents are :math:`\log(\sigma_i) / T`: the finite-time exponents of
Goldhirsch, Sulem and Orszag ("Stability and Lyapunov stability of dynamical systems", Physica D 27, 1987). Steps that
are normal matrices and commute, as of a RotRNN or an LRU, give :math:`\log |\mu_i|` of their eigenvalues after any
number of steps; others may exceed it by their overshoot, as below. Directions that shrink beside the first by more than
the rounding of float64 (:math:`10^{-16}` over all steps) are not told apart by the product; skipped steps and the long
run do that.

What a certificate says about them: from ``|d(k)| <= C rho^k |d(0)|`` for every two trajectories follows
:math:`|J_{k} \cdots J_1| \le C \rho^k`, hence every exponent over ``k`` steps is at most
:math:`\log \rho + \log(C) / k` (:func:`certified_bound`). ``log rho`` alone bounds the limit of long times only: a
network with an overshoot ``C > 1`` may exceed it for a while.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import ConfigurationError, NonFiniteError
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim, Verdict

from ...models.deep import DeepNetwork
from ...models.recurrent import RecurrentLayer
from ...models.tensors import check_sequence
from ..drawn import Curve
from ..guard import check_int, check_model, check_number, check_real_sequences
from ..results import Record, plain_value
from ..tasks.ranges import covers
from ..threads import threads_fitting
from ..unroll import flat_state, layer_inputs, only_layer, step_jacobians

if TYPE_CHECKING:
    from ..campaign.work import Work

_ROUNDING = 1e-12  # relative allowance for the rounding of the bound in float64
_KEPT = 2**24  # entries of Jacobians kept for a second pass, 128 MiB in float64; more are recomputed
STARTS = ("fastest", "random")


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum(Record):
    """Finite-time Lyapunov exponents, largest first.

    Attributes:
        exponents: ``(k,)`` per step, means over the trajectories; ``-inf`` for directions that are lost completely.
        standard_error: ``(k,)`` of those means over the trajectories; NaN for a single one.
        trajectories: ``(batch, k)``, each trajectory's own.
        running: ``(steps, k)``, the estimate after each counted step, mean over the trajectories.
        steps: steps that count.
        skipped: steps before them, in which the frame turned on without being counted.
        dt: time of a step for layers that integrate a differential equation; ``None`` for maps, whose steps have none.
        states: real dimension of the state.
    """

    curve = Curve("index", ("per_step",), ("low", "high"), words="exponent per step")

    exponents: np.ndarray
    standard_error: np.ndarray
    trajectories: np.ndarray = field(repr=False)
    running: np.ndarray = field(repr=False)
    steps: int
    skipped: int
    dt: float | None
    states: int

    @property
    def largest(self) -> float:
        """The largest exponent, per step."""
        return float(self.exponents[0])

    @property
    def per_time(self) -> np.ndarray | None:
        """Exponents per unit of time, if steps have a duration."""
        return None if self.dt is None else self.exponents / self.dt

    @property
    def kaplan_yorke(self) -> float:
        """Kaplan-Yorke dimension: number of directions, fractions included, that keep their volume.

        A lower bound if ``k < n``.
        """
        sums = np.cumsum(self.exponents)
        positive = int((sums >= 0).sum()) if (sums >= 0).any() else 0
        if positive == 0:
            return 0.0
        if positive == len(sums):
            return float(len(sums))
        return positive + float(sums[positive - 1] / abs(self.exponents[positive]))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values with the derived numbers, without the running estimates."""
        values = super().to_dict()
        values.pop("running")
        per_time = None if self.per_time is None else self.per_time.tolist()
        derived = {"largest": self.largest, "per_time": per_time, "kaplan_yorke": self.kaplan_yorke}
        return {**values, **plain_value(derived)}

    def curves(self) -> pd.DataFrame:
        """Return the exponents, each with one standard error on both sides."""
        table = self.frame()
        return table.assign(low=table.per_step - table.standard_error, high=table.per_step + table.standard_error)

    def frame(self) -> pd.DataFrame:
        """Return one row per exponent: ``index, per_step, per_time, standard_error``."""
        return pd.DataFrame(
            {
                "index": np.arange(1, len(self.exponents) + 1),
                "per_step": self.exponents,
                "per_time": np.full(len(self.exponents), np.nan) if self.per_time is None else self.per_time,
                "standard_error": self.standard_error,
            }
        )


def certified_bound(certificate: Certificate, steps: int, *, dt: float | None = None) -> float | None:
    r"""Bound the largest finite-time exponent over a number of steps by the certified rates.

    .. math:: \lambda_1 \le \min_i\; (\log \rho_i + \log(C_i) / k)

    over the certified pairs of rate and overshoot: the main claim, the slower contraction rates, a growth factor. For a
    differential equation sampled every ``dt``: :math:`-\lambda_i dt + \log(C_i) / k`. A rate in the infinity norm
    (of LSTM and GRU) counts with ``C sqrt(n)``, since exponents are measured in the Euclidean norm.

    The certificate is taken at its word (``stability.verify`` judges it), and the bound is about trajectories that it
    is about: inputs in its box where it names one.

    Args:
        certificate: certificate of the layer whose exponents are measured.
        steps: ``k``, the steps that count: ``LyapunovSpectrum.steps``.
        dt: for the certificate of a differential equation, the time between two looks at its state. The Euler or
            midpoint map of such an equation is another system, with a certificate of its own.

    Returns:
        The bound, per step; ``None`` where no rate is certified, and for a differential equation without ``dt``.

    Raises:
        ConfigurationError: no certificate, or no positive number of steps.

    Example:
        >>> from stability import LureSystem, certify
        >>> slow = certify(LureSystem([[0.5, 8.0], [0.0, 0.5]], [[0.0], [0.0]], [[0.0, 0.0]], dt=1.0))
        >>> math.log(slow.rate) < certified_bound(slow, 10_000) < certified_bound(slow, 20)
        True
    """
    if not isinstance(certificate, Certificate):
        raise ConfigurationError(f"certificate must be a Certificate, got {type(certificate).__name__}")
    steps = check_int("steps", steps)
    discrete = certificate.subject.is_discrete
    if not discrete and dt is None:
        return None
    duration = 1.0 if discrete else check_number("dt", dt, strict=True)
    pairs = [_rate_and_overshoot(certificate.subject, claim) for claim in (certificate.claim, *certificate.claims)]

    def exponent(rate: float) -> float:
        return -rate * duration if not discrete else math.log(rate) if rate > 0 else -math.inf

    bounds = [exponent(rate) + math.log(overshoot) / steps for rate, overshoot in filter(None, pairs)]
    if not bounds:
        return None
    least = min(bounds)
    return least + _ROUNDING * (1.0 + abs(least)) if math.isfinite(least) else least


def _rate_and_overshoot(subject: Any, claim: Claim) -> tuple[float, float] | None:
    """Return ``(rho, C)`` or ``(lambda, C)`` of ``|d(t)|_2 <= C rho^t |d(0)|_2`` if a claim states it."""
    if claim.verdict is not Verdict.CERTIFIED or claim.proof is None or claim.value is None:
        return None
    if claim.name == "nonexpansive":
        return float(claim.value), 1.0
    overshoot = claim.proof.data.get("overshoot")
    if claim.name != "contraction" or not isinstance(overshoot, (int, float)):
        return None
    norms = math.sqrt(subject.states) if claim.proof.kind == "interval_jacobian" else 1.0
    return float(claim.value), norms * float(overshoot)


def lyapunov_exponents(
    model: nn.Module,
    x: Tensor,
    k: int | None = None,
    *,
    skip: int | None = None,
    start: str = "fastest",
    seed: int = 0,
    part: str | None = None,
) -> LyapunovSpectrum:
    """Compute finite-time Lyapunov exponents of a recurrent layer along the trajectories of given sequences.

    All arithmetic is in float64 on a copy of the layer. The state is the complete one: ``(h, c)`` for an
    LSTM, the states of all layers for a stack or a ``DeepNetwork``.

    Args:
        model: a recurrent layer, or a model that holds one (``torch.nn``'s included), or a ``DeepNetwork``.
        x: ``(batch, time, features)``, inputs of the model; one trajectory per sequence of the layer's inputs, from
            the layer's own initial state. Short sequences show the transient from there, not the long run.
        k: number of exponents, the largest ones; ``None`` for all.
        skip: steps at the beginning that do not count, the frame turning on through them; by default a tenth. With
            none, the exponents are the logarithms of the singular values of all steps' product, by their number.
        start: the initial frame: ``fastest``, the directions that grow most over all steps, or ``random``, whose
            turning towards these counts as decay where steps are few; ``finite_time_exponents`` has the random one.
        seed: seed of a random initial frame.
        part: the path of the layer, where the model holds several.

    Returns:
        The exponents, per step and per unit of time.

    Raises:
        ConfigurationError: bad options or a bad tensor.
        DimensionError: a wrong shape.
        NonFiniteError: weights, input or states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> from stability.models import ElmanRNN
        >>> layer = ElmanRNN(1, 3)
        >>> spectrum = lyapunov_exponents(layer, torch.zeros(2, 50, 1))
        >>> spectrum.exponents.shape, spectrum.steps, spectrum.skipped
        ((3,), 45, 5)
    """
    layer = copy.deepcopy(only_layer(check_model(model), part)).double().eval()
    x = check_sequence(check_real_sequences(layer_inputs(model, x, part)).double(), layer.input_size)
    batch, steps = x.shape[:2]
    as_choice("start", start, STARTS)
    skip = steps // 10 if skip is None else check_int("skip", skip, 0)
    if skip >= steps:
        raise ConfigurationError(f"skip must be less than the {steps} time steps, got {skip}")
    with threads_fitting(layer), torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        prepared, state = layer.begin(x)
        n = flat_state(state).shape[1]
        k = n if k is None else check_int("k", k)
        if k > n:
            raise ConfigurationError(f"k must be at most {n}, the size of the state, got {k}")
        generator = torch.Generator().manual_seed(check_int("seed", seed, 0))
        drives = layer.drive(x, prepared).unbind(1)
        if start == "random":
            drawn = torch.randn(batch, n, k, generator=generator, dtype=torch.float64)
            frame, along = torch.linalg.qr(drawn)[0].to(x.device), _along(layer, drives, state, prepared)
        else:
            along = _along(layer, drives, state, prepared)
            along = list(along) if steps * batch * n * n <= _KEPT else along
            frame = _fastest(along)[:, :, :k]
            along = along if isinstance(along, list) else _along(layer, drives, state, prepared)
        logs = []
        for t, jacobians in enumerate(along):
            frame, triangle = torch.linalg.qr(jacobians @ frame)
            if t >= skip:
                logs.append(triangle.diagonal(dim1=-2, dim2=-1).abs().log().cpu())
    return _spectrum(torch.stack(logs).numpy(), skip, layer.time_step, n)


def _along(layer: RecurrentLayer, drives: Iterable[Tensor], state: Any, prepared: Any) -> Iterator[Tensor]:
    """Yield the Jacobians ``(batch, n, n)`` step by step."""
    for t, drive in enumerate(drives):
        jacobians, state = step_jacobians(layer, drive, state, prepared)
        if not (torch.isfinite(jacobians).all() and torch.isfinite(flat_state(state)).all()):
            raise NonFiniteError(f"the state after {t + 1} steps", "the network diverges on this input")
        yield jacobians


def _fastest(along: Iterable[Tensor]) -> Tensor:
    """Return the right singular vectors ``(batch, n, n)`` of a matrix product, by falling singular values."""

    def scaled(matrix: Tensor) -> Tensor:  # the product of many would leave the range of float64
        size = matrix.abs().amax(dim=(1, 2), keepdim=True)
        return matrix / torch.where(size > 0, size, 1.0)

    matrices = iter(along)
    product = scaled(next(matrices))
    for matrix in matrices:
        product = scaled(scaled(matrix) @ product)
    return torch.linalg.svd(product)[2].mT


def _spectrum(logs: np.ndarray, skip: int, dt: float | None, states: int) -> LyapunovSpectrum:
    """Average ``logs (steps, batch, k)`` over the counted steps."""
    steps, batch, _ = logs.shape
    mean_logs = logs.mean(0)
    mean = mean_logs.mean(0)
    order = np.argsort(-mean, kind="stable")
    with np.errstate(invalid="ignore"):  # -inf minus -inf: a direction that is lost has no spread
        spread = mean_logs.std(0, ddof=1) / np.sqrt(batch) if batch > 1 else np.full(len(mean), np.nan)
        running = logs.mean(1).cumsum(0) / np.arange(1, steps + 1)[:, None]
    return LyapunovSpectrum(
        exponents=mean[order],
        standard_error=spread[order],
        trajectories=mean_logs[:, order],
        running=running[:, order],
        steps=steps,
        skipped=skip,
        dt=None if dt is None else float(dt),
        states=states,
    )


def lyapunov_step(work: Work) -> None:
    """Run the step ``lyapunov`` of an analysis and write its files."""
    model, x = work.sequences_for_jacobians(min(work.budget.samples, work.budget.trajectories))
    result = lyapunov_exponents(model, x, seed=work.seed)
    work.write_table("lyapunov.csv", result.frame())
    bound = _bound_for(work, result.steps)
    work.write_result("exponents.json", result, trajectories=len(x), bound=bound)


def _bound_for(work: Work, steps: int) -> float | None:
    """Return the certified upper bound of exponents on the data; see ``certified_bound``."""
    certificate = work.certificate
    if certificate is None or certificate.verdict is not Verdict.CERTIFIED:
        return None
    if isinstance(work.model, DeepNetwork) and work.model.depth > 1:
        return None  # it is about the layers, each with inputs of its own, not about what passes from one to the next
    if work.input_box is not None and not covers(work.input_box, work.input_range):
        return None  # the data leave the box that was stated
    return certified_bound(certificate, steps)
