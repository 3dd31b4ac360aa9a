"""Certified robustness: radius of a ball of inputs in which the class is proved to be constant."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.format.serialization import digest_of
from stability.kernel.theorems.pairwise import metric
from stability.search.gains.gain import Gain
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stepwise_storage import final_storage
from stability.search.solvers.deadline import TimeLimit
from stability.systems import DrivenSystem, PairwiseSystem
from stability.threads import threads_for
from stability.verification import verify_claim

from ...models.bounded_gain import BoundedGainRNN
from ...models.network import SequenceModel
from ...models.tensors import to_numpy
from ...models.wrapped import TwoLogits
from ..attacks.padding import own_steps_of
from ..drawn import Curve
from ..dynamics.stepbound import SLACK, StepBound, horizon_gain, joint_bound, pair_gains, step_bound
from ..guard import check_labelled, check_number, logits_of, untouched
from ..results import Record
from ..tasks.scores import counted
from .affine import affine_gains, affine_gains_at_steps, is_affine
from .answers import by_row, check_step_labelled, step_logits
from .networks import GIVEN, network_of
from .stacks import is_residual, is_stack_of_pairs, residual_reach, stack_reach

if TYPE_CHECKING:
    from ..campaign.work import Work

Array = NDArray[np.float64]
MOST_PAIRS = 2**24  # pairs of classes over all steps, 128 MiB in float64; tasks with words as classes exceed it


@dataclass(frozen=True, eq=False)
class CertifiedRadius(Record):
    """Radii within which no perturbation of the input sequence changes the class.

    The radii hold for the stored weights in real arithmetic, not for a network that runs in float32. The inequality
    behind a radius is proved; the radius itself is computed in float64, with a relative slack of 1e-9 for rounding, and
    is not enclosed in intervals. If every step has a class, the arrays are ``(batch, time)``, with a radius for each
    answer and NaN at steps without a target.

    Attributes:
        radius: ``(batch,)``, in l2 over the whole sequence; 0 if the sequence is misclassified.
        radius_linf: ``(batch,)``, ``radius / sqrt(time * features)``, with ``time`` the steps up to the answer.
        margin: ``(batch,)``, logit of the true class minus the largest other logit; 0 if misclassified.
        gain: bound ``g_T`` of ``|change of the logits|_2 / |change of the input|_2``; the smallest of all proofs.
        method: source of the gain; with several proofs each answer has the largest of its radii.
        horizon: time steps.
        features: input features per step.
    """

    curve = Curve("radius", ("certified_accuracy",), steps=True)

    radius: Array
    radius_linf: Array
    margin: Array
    gain: float
    method: str
    horizon: int
    features: int

    def accuracy_at(self, epsilon: float, norm: str = "l2") -> float:
        """Return the certified accuracy: the share of sequences with a radius above ``epsilon``.

        No attack of norm ``epsilon`` lowers the accuracy below it. For sequences with several answers it is the mean
        over the sequences of the share of their answers.

        Raises:
            ConfigurationError: an unknown norm or a negative radius.
        """
        if norm not in ("l2", "linf"):
            raise ConfigurationError(f"norm must be 'l2' or 'linf', got {norm!r}")
        radii = self.radius if norm == "l2" else self.radius_linf
        shares = by_row(radii > check_number("epsilon", epsilon), ~np.isnan(radii))
        return float(shares.mean())

    def curves(self) -> pd.DataFrame:
        """Return the certified accuracy by radius, with two rows at each radius where it falls."""
        known = self.radius[np.isfinite(self.radius)]
        at = np.unique(np.concatenate([[0.0], known, np.nextafter(known, np.inf)]))
        return pd.DataFrame({"radius": at, "certified_accuracy": [self.accuracy_at(float(r)) for r in at]})

    def frame(self) -> pd.DataFrame:
        """Return a row per sequence, ``sample, margin, radius, radius_linf``, or per answer, with its ``step``."""
        there = np.nonzero(~np.isnan(self.radius))
        columns = {"margin": self.margin, "radius": self.radius, "radius_linf": self.radius_linf}
        values = {name: column[there] for name, column in columns.items()}
        return pd.DataFrame({**dict(zip(("sample", "step"), there)), **values})


def _logits(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the logits in float64, since the radius holds for the stored weights without rounding."""
    with untouched(model), torch.no_grad():
        exact = copy.deepcopy(model).double()
        return logits_of(exact, x.double(), y) if y.dim() == 1 else step_logits(exact, x.double(), y)


def _from_gain(gain: Any, model: nn.Module, horizon: int) -> tuple[float, Array | None, str]:
    """Return the gain to the logits, bounds for pairs of classes if its proof gives them, and the method's name."""
    if not isinstance(gain, Gain):
        return check_number("gain", getattr(gain, "value", gain), strict=True), None, "given gain"
    if gain.proof is None:
        return math.inf, None, "no gain was proved"
    network = network_of(model, getattr(model, "reduction", "") == "all")
    subject, proof, head = network.subject, gain.proof.data, network.head
    if not _same(gain.subject, subject):
        raise ConfigurationError("the gain was proved for another network")
    if not np.array_equal(proof["H"], head):
        raise ConfigurationError("expected a gain from inputs to logits: compute it with output=model.head.weight")
    if gain.horizon is not None and gain.horizon < horizon:
        raise ConfigurationError(f"the gain holds for {gain.horizon} steps, the sequences have {horizon}")
    checked = verify_claim(gain.subject, gain.claim)
    if not checked.valid:
        raise ConfigurationError(f"the gain's proof does not hold: {checked.reason}")
    if gain.measure != "final" or proof.get("mode", "terminal") != "terminal":
        return gain.value, None, "proved gain"
    if isinstance(gain.subject, PairwiseSystem):
        root = np.diag(np.sqrt(metric(gain.subject, proof["weights"])))
    else:  # x^T P x <= g^2 |u|^2 at the last step
        with threads_for(gain.subject.states):
            last = final_storage(gain.subject.system, proof) if gain.proof.kind == "gain_steps" else proof["P"]
            root = np.linalg.cholesky(last).T
    return gain.value, pair_gains(root, head, gain.value), "proved gain"


def _carried(model: nn.Module) -> Gain | None:
    """Return the gain to the logits that the layer has by construction, or ``None``."""
    if not isinstance(model, SequenceModel) or not isinstance(model.layer, BoundedGainRNN):
        return None
    carried = model.layer.carried_gain(to_numpy(model.head.weight))
    return None if carried is None or carried.proof is None else carried


def _same(one: Any, other: DrivenSystem | PairwiseSystem) -> bool:
    """Return True if two subjects are the same network, apart from names."""
    if isinstance(one, PairwiseSystem) and isinstance(other, PairwiseSystem):
        return one.activation == other.activation and digest_of(one) == digest_of(other)
    if not isinstance(one, DrivenSystem) or not isinstance(other, DrivenSystem):
        return False
    a, b = one.system, other.system
    pairs = [(a.A, b.A), (a.B, b.B), (a.C, b.C), (a.D, b.D), (one.E, other.E), (one.F, other.F)]
    slopes = [(a.alpha, b.alpha), (a.beta, b.beta)]
    return a.dt == b.dt and all(np.array_equal(p, q) for p, q in [*pairs, *slopes])


def _from_steps(model: nn.Module, certificate: Any, horizon: int, every_step: bool = False) -> tuple[float, Array, str]:
    """Return the gain, the bounds for pairs of classes and the method from the best of all one-step bounds."""
    network = network_of(model, every_step)
    subject, witness = network.subject, network.witness(certificate)
    n = subject.states
    if witness is not None and np.shape(witness["P"]) != (n, n):
        raise DimensionError("the certificate's P", (n, n), np.shape(witness["P"]))
    head, mean = network.head, network.reduction == "mean"
    bounds: list[StepBound] = [step_bound(subject), *([] if witness is None else [step_bound(subject, witness)])]
    joint = joint_bound(subject, horizon, mean) if isinstance(subject, PairwiseSystem) else None
    bounds += [] if joint is None else [joint]
    gains = [horizon_gain(b, head, horizon, mean) for b in bounds]
    reached = [b.at_every_step(horizon) if every_step else b.accumulated(horizon, mean) for b in bounds]
    pairs = [_scaled(pair_gains(b.root, head, 1.0), total) for b, total in zip(bounds, reached)]
    best = int(np.argmin(gains))
    return gains[best], np.min(pairs, axis=0), bounds[best].source  # every entry has the smaller of two bounds


def _scaled(pairs: Array, total: Any) -> Array:
    """Multiply ``pairs`` by the state's reach ``total``, one number or one for each step; infinite if it is."""
    reached = np.asarray(total)[..., None, None]
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(reached), math.inf, pairs * reached)


def _radii(gaps: Array, truth: NDArray[np.int64], at: Any, gain: float, pairs: Array | None) -> Array:
    """Return radii ``(answers,)`` from logit gaps ``(answers, classes)``, which are infinite for the true class.

    ``pairs`` is ``(classes, classes)``, or ``(time, classes, classes)`` with the step ``at`` of each answer.
    """
    reach = np.full_like(gaps, math.sqrt(2) * gain)
    if pairs is not None:
        reach = pairs[truth] if pairs.ndim == 2 else pairs[at, truth]
    with np.errstate(divide="ignore", invalid="ignore"):
        radii = np.where(np.isinf(gaps), math.inf, np.where(gaps > 0, gaps / reach, 0.0))
    return radii.min(axis=1) * (1 - SLACK)


def _reaches(
    model: nn.Module, gain: Any, certificate: Any, horizon: int, features: int, every_step: bool
) -> list[tuple[float, Array | None, str]]:
    """Return the gain from inputs to logits by each available proof."""
    bounds = [] if gain is None else [_from_gain(gain, model, horizon)]
    if gain is None and isinstance(model, SequenceModel) and is_stack_of_pairs(model):
        bounds.append(stack_reach(model, horizon))
    elif gain is None and is_residual(model):
        try:
            bounds.append(residual_reach(model, horizon))
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}{GIVEN}") from error
    elif is_affine(model, every_step):
        bounds.append((affine_gains_at_steps if every_step else affine_gains)(model, horizon, features))
    elif gain is None and (carried := _carried(model)) is not None:
        bounds.append(_from_gain(carried, model, horizon))
    elif gain is None or certificate is not None:
        bounds.append(_from_steps(model, certificate, horizon, every_step))
    return bounds


def certified_radius(
    model: nn.Module, x: Tensor, y: Tensor, *, gain: Any = None, certificate: Certificate | None = None
) -> CertifiedRadius:
    """Compute an l2 radius within which the class is constant, for each sequence or each of its labels.

    If ``g_T`` bounds the incremental gain from input sequence to logits, a perturbation ``u`` changes the difference of
    two logits by at most ``sqrt(2) g_T |u|``, so ``margin / (sqrt(2) g_T)`` is certified. Without ``gain`` the bound
    follows from one step of the difference of two trajectories
    (see :func:`~stability.analysis.dynamics.stepbound.step_bound`), with a row ``|(h_i - h_j) R^{-1}|`` for each pair
    of classes, which is never worse. The metric and rate come from the certificate, from the proof that the layer
    carries, or from the norms of the weights; norms are always sound, but give tiny radii for long sequences of a
    network that does not contract. In a stack of layers with activations on pairs the layers' gains are multiplied.
    With both ``gain`` and ``certificate`` each sequence gets the larger of its two radii. A linear recurrence (RotRNN,
    LRU) has a known affine map to the logits, and the radius is the distance to the nearest decision boundary.

    If every step has a class, each answer has a radius: the logits after ``t`` steps depend only on the inputs up to
    there, and the gain of ``t`` steps bounds them. A perturbation changes no answer whose radius exceeds its norm.

    Args:
        model: a ``SequenceModel`` with logits at the last step, of the mean output, or at every step; another module
            with one recurrent part (``torch.nn.RNN``, a registered cell) and one linear head on its last or mean
            output; any model if ``gain`` is given.
        x: ``(batch, time, features)``.
        y: ``(batch,)`` class labels; or ``(batch, time)``, -100 at steps without label, for logits at every step.
        gain: from ``logit_gain`` or :func:`stability.incremental_gain` of the model's layer, with ``output`` the
            head's weight and the sequences' length as ``horizon`` (slower, usually many times better; its proof
            is checked again and bounds every pair of classes if its norm is quadratic); or a number, taken on trust.
        certificate: certificate of the layer, which is proved again; one without a quadratic norm (by a criterion other
            than the multiplier inequality) is not used.

    Returns:
        The radii.

    Raises:
        ConfigurationError: a gain of another network, output or horizon, or a certificate of another system.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or logits.
        UnsupportedError: a model whose gain has to be given.

    Source: Y. Tsuzuku, I. Sato, M. Sugiyama (2018), proposition 1, for ``sqrt(2)``.

    >>> from stability.models import ElmanRNN
    >>> model = SequenceModel(ElmanRNN(2, 4), 3)
    >>> result = certified_radius(model, torch.zeros(5, 7, 2), torch.tensor([0, 1, 2, 0, 1]))
    >>> bool((result.radius[result.margin > 0] > 0).all()), result.horizon
    (True, 7)
    """
    every_step = isinstance(y, Tensor) and y.dim() == 2
    if isinstance(model, SequenceModel) and model.output_size == 1:
        model = TwoLogits(model)
    x, y = (check_step_labelled if every_step else check_labelled)(model, x, y)
    if own_steps_of(model, x) is not None:
        raise UnsupportedError("these sequences have lengths of their own: local_radius certifies each by itself")
    horizon, features = x.shape[1:]
    classes = model.output_size if isinstance(model, SequenceModel) else 0
    if every_step and horizon * classes**2 > MOST_PAIRS:
        raise UnsupportedError(f"{classes} classes at {horizon} steps exceed the limit on pairs of classes")
    bounds = _reaches(model, gain, certificate, horizon, features, every_step)
    z, asked = to_numpy(_logits(model, x, y)), counted(y).cpu().numpy()
    place = np.nonzero(asked)
    z, truth = z[place], y.cpu().numpy()[place]
    rows_of = np.arange(len(z))
    gaps = z[rows_of, truth][:, None] - z  # (answers, classes), 0 for the true class
    gaps[rows_of, truth] = math.inf
    margin = np.maximum(gaps.min(axis=1), 0.0)
    gaps -= SLACK * np.abs(z).max(axis=1, keepdims=True)  # rounding of the logits
    steps = place[1] + 1 if every_step else np.full(len(z), horizon)
    radius = np.max([_radii(gaps, truth, steps - 1, value, pairs) for value, pairs, _ in bounds], axis=0)

    def placed(values: Array) -> Array:
        out = np.full(asked.shape, math.nan)
        out[place] = values
        return out

    return CertifiedRadius(
        radius=placed(radius),
        radius_linf=placed(radius / np.sqrt(steps * features)),
        margin=placed(margin),
        gain=min(value for value, _, _ in bounds),
        method=", or ".join(dict.fromkeys(method for _, _, method in bounds)),
        horizon=int(horizon),
        features=int(features),
    )


def logit_gain(model: nn.Module, horizon: int, *, worth: float = math.inf, time_limit: TimeLimit = None) -> Gain:
    """Prove the gain from input sequences to the logits, optimized for small bounds on pairs of classes.

    Args:
        model: a ``SequenceModel`` on a Lur'e network or on one with an activation on pairs, or another module with such
            a part and a linear head, see :func:`stability.models.classifier.classifier`.
        horizon: time steps.
        worth: largest gain with useful radii: a search that begins above it is short.
        time_limit: time limit of the search in seconds.

    Returns:
        The gain, for ``certified_radius(..., gain=...)``.

    Raises:
        UnsupportedError: another kind of model.
    """
    network = network_of(model, getattr(model, "reduction", "") == "all")
    options: dict[str, Any] = {
        "horizon": horizon,
        "measure": "final",
        "pairs": True,
        "worth": worth,
        "time_limit": time_limit,
    }
    return incremental_gain(network.subject, output=network.head, **options)


def _worth(result: CertifiedRadius, attacked: list[float]) -> float:
    """Return the gain with which the decision of largest margin has half the smallest attack as its radius."""
    smallest = min((e for e in attacked if e > 0.0), default=0.0)
    margin = float(np.nanmax(result.margin, initial=0.0))
    return margin / (math.sqrt(2) * 0.5 * smallest) if smallest > 0.0 and margin > 0.0 else math.inf


def robustness_step(work: Work) -> None:
    """Run the step ``robustness`` of an analysis and write its files."""
    model, x, y, bounds = work.answers(work.budget.samples)
    certificate = work.certificate  # without one the norms of the weights give the bound
    certified = certificate if certificate is not None and certificate.verdict is Verdict.CERTIFIED else None
    if work.input_box is not None:  # perturbed inputs may leave the box for which the certificate holds
        certified = None
    unit = float(work.deviations.max())  # a ball in deviations lies in a ball of this times its radius
    attacked = [e * work.span(bounds) for e in work.budget.epsilons_l2]
    result = certified_radius(model, x, y, certificate=certified)
    composed = is_residual(model) or is_stack_of_pairs(model)
    if not composed and not is_affine(model, y.dim() == 2):  # contracting or not
        gain = logit_gain(model, x.shape[1], worth=_worth(result, [unit * e for e in attacked]))
        if gain.proof is not None:  # multipliers for every step usually, but not always, give the smaller gain
            proved = certified_radius(model, x, y, gain=gain, certificate=certified)  # the larger radius of each answer
            result = proved if certified is not None or proved.gain < result.gain else result
    scaled = {name: getattr(result, name) / unit for name in ("radius", "radius_linf")}
    result = replace(result, gain=result.gain * unit, **scaled)
    radii = result.radius[~np.isnan(result.radius)]
    largest = float(radii.max(initial=0.0))
    grid = np.unique([*np.linspace(0.0, 1.01 * largest, 60), *(e for e in attacked if e <= largest)])
    share = [result.accuracy_at(float(r)) for r in grid]
    work.write_table("robustness.csv", pd.DataFrame({"radius": grid, "certified_accuracy": share}))
    work.write_result(
        "radius.json",
        result,
        median=float(np.median(radii)),
        largest=largest,
        clean_accuracy=result.accuracy_at(0.0),
        samples=len(result.radius),
        norm="l2",
    )
