"""Certified and attacked radius of single inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.errors import ContradictionError
from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim
from stability.kernel.systems.classifier import Classifier
from stability.search.local.largest_radius import NORMS, largest_balls
from stability.search.local.request import check_radius_range

from ...models.packed import Reading
from ...models.wrapped import MeasuredClassifier
from ..attacks.masked import unwarned
from ..attacks.projections import NORMS as NORMS_OF
from ..attacks.smallest import CLEAR, attack_radii, check_budget
from ..attacks.threat import AttackResult, Bounds
from ..drawn import Curve
from ..guard import check_number
from ..results import Record, plain_value
from .request import as_arrays, checked_limit, first_steps, prepare

Array = NDArray[np.float64]
Subject = Classifier | MeasuredClassifier
_AT_ONCE = {"l2": 64, "linf": 8}
"""Samples per call of a search; their proofs are kept before the next ones start."""
_WORK = 6e7
"""Most steps times squared states over the samples of one call, so that an interrupt loses little work."""


@dataclass(frozen=True, eq=False)
class LocalRadius(Record):
    """Certified ball around every input, and the smallest adversarial perturbation found.

    No perturbation within ``radius`` changes the class, for the stored weights in exact arithmetic; one of size
    ``attack_radius`` does. What lies between is not known. Nothing is said of other inputs, nor of whether the class
    is right.

    Attributes:
        norm: ``l2`` or ``linf``, over the whole sequence; see ``budget``.
        radius: ``(n,)``; 0 where nothing was proved, and where the input is misclassified.
        attack_radius: ``(n,)``; infinite where no attack succeeded, 0 where the input is misclassified.
        certified: ``(n,)`` whether the radius reaches ``epsilon``; ``None`` without one.
        correct: ``(n,)`` whether the network, in float64, gives the label.
        label: ``(n,)``.
        epsilon: the radius that was asked about, or ``None``.
        seconds: ``(n,)`` spent on certificates, attacks not included; samples that were done together share it.
        adversarial: ``(n, time, features)`` the perturbed inputs; the input itself where no attack succeeded.
        claims: each sample's claim with its proof, or ``None``.
        budget: ``total``: both radii are of the whole perturbation; ``step``: of its longest step, ``max_t |u_t|_2``.
        lengths: ``(n,)`` the own steps of each sequence, of a network that packs them; both radii are about changes of
            these steps alone, their number counts as given. ``None``: all steps.
        agrees: ``(n,)`` whether the classifier gave the packing network's own logits; where it did not, the sequence
            was not examined, has no radius and no attack, and counts as not correct. ``None``: all are examined.
        masked: number of entries of an input that a mask lets change; ``None``: no mask.
        size: ``(n,)`` norm of each sequence, over its own steps, as the radius is measured.
    """

    curve = Curve("radius", ("certified", "left_by_attacks"), words="accuracy", steps=True)

    norm: str
    radius: Array
    attack_radius: Array
    certified: NDArray[np.bool_] | None
    correct: NDArray[np.bool_]
    label: NDArray[np.int64]
    epsilon: float | None
    seconds: Array
    adversarial: Array
    claims: tuple[Claim | None, ...]
    budget: str = "total"
    lengths: NDArray[np.int64] | None = None
    agrees: NDArray[np.bool_] | None = None
    masked: int | None = None
    size: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def share(self) -> Array:
        """Certified radius relative to the norm of each sequence; NaN for a sequence of zeros."""
        return np.divide(self.radius, self.size, out=np.full_like(self.radius, np.nan), where=self.size > 0)

    @property
    def unread(self) -> int:
        """Number of sequences that were not examined, since the packing network's own logits differ."""
        return 0 if self.agrees is None else int((~self.agrees).sum())

    @property
    def ratio(self) -> Array:
        """Ratio ``radius / attack_radius`` of the correctly classified inputs with a successful attack."""
        both = self.correct & np.isfinite(self.attack_radius)
        return self.radius[both] / self.attack_radius[both]

    def certified_accuracy(self, epsilon: float) -> float:
        """Return the share of inputs whose class is proved to be constant within ``epsilon``."""
        return float((self.correct & (self.radius >= check_number("epsilon", epsilon))).mean())

    def attacked_accuracy(self, epsilon: float) -> float:
        """Return the share of inputs whose class no attack within ``epsilon`` changed."""
        return float((self.correct & (self.attack_radius > check_number("epsilon", epsilon))).mean())

    def curves(self) -> pd.DataFrame:
        """Return the shares of samples certified beyond a radius and of samples that no attack within it changed."""
        attacks = self.attack_radius[np.isfinite(self.attack_radius)]
        at = np.unique(np.concatenate([[0.0], self.radius, attacks]))
        shares = {"certified": self.radius, "left_by_attacks": self.attack_radius}
        return pd.DataFrame(
            {"radius": at} | {k: [float((self.correct & (v > r)).mean()) for r in at] for k, v in shares.items()}
        )

    def frame(self) -> pd.DataFrame:
        """Return one row per sample: ``index, label, correct, radius, attack_radius, share, certified, seconds``.

        Of a network that packs its sequences also ``steps`` and ``agrees``.
        """
        columns = {"index": np.arange(len(self.radius)), "label": self.label, "correct": self.correct}
        columns |= {"radius": self.radius, "attack_radius": self.attack_radius, "share": self.share}
        certified = [None] * len(self.radius) if self.certified is None else self.certified
        more = {} if self.lengths is None else {"steps": self.lengths, "agrees": self.agrees}
        return pd.DataFrame({**columns, "certified": certified, "seconds": self.seconds, **more})

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON values of the command line: without proofs and perturbed inputs."""
        rows = [
            {key: plain_value(value) for key, value in row.items()}
            for row in self.frame().astype(object).to_dict("records")
        ]
        return {
            "norm": self.norm,
            "budget": self.budget,
            **({} if self.masked is None else {"masked": self.masked}),
            "n": len(self.radius),
            "correct": int(self.correct.sum()),
            "certified": None if self.certified is None else int(self.certified.sum()),
            "median_radius": _median(self.radius[self.correct]),
            "median_attack": _median(self.attack_radius[self.correct]),
            "median_share": _median(self.share[self.correct]),
            **({} if self.lengths is None else {"unread": self.unread}),
            "samples": rows,
        }


def _median(values: Array) -> float | None:
    """Return the median; ``None`` for no values, and for an infinite median."""
    if not len(values):
        return None
    middle = float(np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]].mean())
    return middle if np.isfinite(middle) else None


def local_radius(
    model: nn.Module | Classifier | Reading,
    x: Any,
    y: Any,
    *,
    norm: str = "l2",
    budget: str = "total",
    epsilon: Any = None,
    bounds: Bounds = None,
    mask: Tensor | None = None,
    scale: Any = None,
    time_limit: float | None = None,
    restarts: int = 4,
    seed: int = 0,
    keep: Callable[[int, Claim], Any] | None = None,
    progress: Callable[[str, int, int], Any] | None = None,
) -> LocalRadius:
    """Compute the certified and the attacked radius of every input.

    The certificates are proofs that include rounding, made by ``stability.search.local`` and accepted by the kernel;
    the attacks of ``attack_radii`` run the same stored weights in float64. A certified radius above an attacked one
    would refute the proof: it stops the run with an error.

    Args:
        model: a classifier: a ``SequenceModel`` with any layer that has a system, and whatever else
            ``stability.models.classifier`` reads; or what ``stability.models.packed.reading`` gave for these inputs. A
            network that packs its sequences is examined on the steps of each one that it reads. Of one with gated
            linear layers only attack radii are computed.
        x: ``(n, time, features)``, a tensor or an array; as it is, float32 becomes float64 exactly.
        y: ``(n,)`` class labels.
        norm: ``"l2"`` or ``"linf"``, over the whole sequence.
        budget: norm limited by a radius, in proofs and attacks: ``"total"``, the norm of the whole perturbation
            ``u``; ``"step"`` (l2 alone), that of every step, ``max_t |u_t|_2``: the ball of radius ``r`` then holds
            perturbations of norm up to ``sqrt(time) r`` in all. In l_inf both are one.
        epsilon: decide only whether this radius is certified; ``None``: the largest radius that is found. One size for
            each feature, ``(features,)``: in units of these, whether the radius 1 is.
        bounds: ``(low, high)`` that perturbed inputs are clipped to; ``None``: free.
        mask: boolean ``(time, features)``: true where the input may change; ``None``: everywhere.
        scale: ``(features,)`` the unit of each feature, such as its standard deviation: radii are in these units, and
            so are the proofs, which are about the network with its input weights multiplied by them; a feature with 0
            may not change. ``None``: the unit of the data.
        time_limit: seconds a sample, attacks not included; ``None`` or infinity: as long as the searches need.
        restarts: restarts of the attacks.
        seed: seed of everything random.
        keep: called with a sample's index and its claim as soon as it is proved.
        progress: called with the stage (``"attacks"``, ``"certificates"``), the number done, and the total.

    Returns:
        The radii.

    Raises:
        ConfigurationError: an option, bounds or labels that do not fit; an ``epsilon`` that is not positive, or 1e12
            and more; a budget for each step in l_inf; a network that holds a number beyond 1e60.
        DimensionError: a wrong shape.
        NonFiniteError: NaN or infinities.
        UnsupportedError: a model that is no classifier here, or for whose norm there is no certificate.
        ContradictionError: an attack succeeded inside a certified ball.

    Example:
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> x = torch.rand(3, 4, 2)
        >>> model = SequenceModel(ElmanRNN(2, 5), 3)
        >>> found = local_radius(model, x, model(x).argmax(1))
        >>> bool((found.radius <= found.attack_radius).all())
        True
    """
    as_choice("norm", norm, NORMS)
    check_budget(norm, budget)
    if np.ndim(epsilon) == 1:
        scale, epsilon = epsilon, 1.0
    if epsilon is not None:
        epsilon = check_number("epsilon", epsilon, strict=True)
        check_radius_range("epsilon", epsilon)
    time_limit = checked_limit(time_limit)
    read, network, x, y, free, mask, raw = prepare(model, x, y, bounds, mask, scale)
    if progress is not None:
        progress("attacks", 0, len(x))
    measure: dict[str, Any] = {"norm": norm, "budget": budget}
    samples = _Samples(x.numpy(), y.numpy())
    parts = [
        (rows, steps, first_steps(free, steps), None if mask is None else mask[:steps])
        for rows, steps in read.groups(x)
    ]
    for rows, steps, ends, own in parts:
        part = x[rows, :steps], y[rows]
        options = {**measure, "bounds": ends, "mask": own, "restarts": restarts, "seed": seed}
        with unwarned():  # a radius that attacks did not find is infinite, and says so
            attacks = attack_radii(network, *part, **options)
        samples.attacked(read.subject, rows, attacks)
        if progress is not None and len(parts) > 1:
            progress("attacks", int(samples.seen.sum()), len(x))
    subject = read.subject
    for rows, steps, ends, own in parts:
        if isinstance(subject, MeasuredClassifier):
            break
        options = {**measure, "epsilon": epsilon, "bounds": as_arrays(ends), "time_limit": time_limit}
        options["mask"] = None if own is None else own.numpy()
        rows = rows[samples.correct[rows]]
        together = min(_AT_ONCE[norm], max(1, int(_WORK / (steps * subject.states**2))))
        for start in range(0, len(rows), together):
            part = rows[start : start + together]
            if progress is not None:
                progress("certificates", int(samples.asked.sum()), int(samples.correct.sum()))
            start_time = time.perf_counter()
            inputs, upper = samples.inputs[part, :steps], samples.upper[part]
            balls = largest_balls(subject, inputs, samples.labels[part], upper=upper, **options)
            samples.proved(part, balls, time.perf_counter() - start_time, keep, **measure)
    result = samples.result(read, norm, budget, epsilon)
    moved = result.adversarial if scale is None else result.adversarial * np.asarray(scale)
    moved = np.where(result.adversarial == x.numpy(), raw.numpy(), moved)
    return replace(result, adversarial=moved, masked=None if mask is None else int(mask.sum()))


class _Samples:
    """Results for the samples of one call so far; samples that are not examined have no radius and no attack."""

    def __init__(self, inputs: Array, labels: NDArray[np.int64]) -> None:
        n = len(inputs)
        self.inputs, self.labels, self.adversarial = inputs, labels, inputs.copy()
        self.seen, self.correct, self.asked = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        self.upper, self.seconds = np.full(n, np.inf), np.zeros(n)
        self.claims: list[Claim | None] = [None] * n

    def attacked(self, subject: Subject, rows: NDArray[np.int64], result: AttackResult) -> None:
        """Add attacks on samples of one length; the subject itself recomputes each success."""
        steps, z = result.adversarial.shape[1], result.adversarial.numpy()
        self.seen[rows] = True
        self.correct[rows] = subject.logits(self.inputs[rows, :steps]).argmax(axis=1) == self.labels[rows]
        upper = _upper(subject, z, self.labels[rows], result.norms.numpy(), self.correct[rows])
        self.upper[rows] = upper
        succeeded = rows[upper < np.inf]
        self.adversarial[succeeded, :steps] = z[upper < np.inf]

    def proved(
        self,
        rows: NDArray[np.int64],
        claims: Sequence[Claim | None],
        seconds: float,
        keep: Callable[[int, Claim], Any] | None,
        norm: str,
        budget: str,
    ) -> None:
        """Add the proofs of samples that were certified together."""
        self.asked[rows] = True
        self.seconds[rows] = seconds / len(rows)
        for row, claim in zip(rows, claims, strict=True):
            _refuse_crossing(int(row), claim, float(self.upper[row]), norm, budget)
            self.claims[row] = claim
            if claim is not None and keep is not None:
                keep(int(row), claim)

    def result(self, read: Reading, norm: str, budget: str, epsilon: float | None) -> LocalRadius:
        """Return the complete result."""
        radius = np.array([0.0 if claim is None or claim.value is None else claim.value for claim in self.claims])
        certified = None if epsilon is None else self.correct & (radius >= epsilon)
        parts = (norm, radius, self.upper, certified, self.correct, self.labels, epsilon, self.seconds)
        shape = NORMS_OF["l2_step" if budget == "step" else norm]
        norms = self.inputs if read.lengths is None else self.inputs * _own(read.lengths, self.inputs)
        size = shape.size(torch.from_numpy(norms)).numpy()
        return LocalRadius(*parts, self.adversarial, tuple(self.claims), budget, read.lengths, read.agrees, size=size)


def _own(lengths: NDArray[np.int64], x: Array) -> NDArray[np.bool_]:
    return (np.arange(x.shape[1]) < lengths[:, None])[:, :, None]


def _upper(subject: Subject, z: Array, labels: NDArray[np.int64], norms: Array, correct: NDArray[np.bool_]) -> Array:
    """Return attack radii; the subject itself recomputes each success from the perturbed input."""
    logits = subject.logits(z)
    rows = np.arange(len(z))
    others = logits.copy()
    others[rows, labels] = -np.inf
    wrong = others.max(axis=1) - logits[rows, labels] > 0.5 * CLEAR * np.abs(logits).max(axis=1)
    return np.where(correct, np.where(wrong, norms, np.inf), 0.0)


def _refuse_crossing(index: int, claim: Claim | None, upper: float, norm: str, budget: str) -> None:
    """Raise an error if an attack succeeded inside a certified ball: one of the two must be wrong."""
    if claim is not None and claim.value is not None and claim.value > upper:
        size = f"{claim.value!r} at every step" if budget == "step" else repr(claim.value)
        raise ContradictionError(
            f"sample {index}: {norm} radius {size} is certified, and an attack of size {upper!r} succeeds. "
            "One of them is wrong: do not use these results, and report the model and this sample"
        )
