r"""Distance of two trajectories under the same input: along the data, and along a refutation's counterexample.

The distance of two states under the same inputs, relative to their initial distance, shows whether a network contracts.
On data, the states after two test sequences both read one of these sequences repeatedly. A refutation names two states,
or an unstable state, next to which the second one starts. If contraction is proved, ``C rho^k`` bounds every pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.certificate import Certificate
from stability.errors import NonFiniteError, UnsupportedError
from stability.kernel.format.claims import Verdict

from ..drawn import Curve
from ..guard import check_int
from ..results import Record
from ..unroll import after_sequences, flat_state, shaped_state

if TYPE_CHECKING:
    from ..campaign.work import Work

Array = NDArray[np.float64]
PAIRS, LENGTHS, MOST_STEPS = 100, 3, 1000
"""Number of pairs in a report, number of steps divided by the sequence length, and largest number of steps."""
OFFSET = 1e-3
"""Initial distance of the second trajectory from an unstable state ``x``, divided by ``1 + |x|``."""


@dataclass(frozen=True, eq=False)
class PairDistances(Record):
    """Distances of pairs of trajectories under the same inputs.

    Attributes:
        distance: ``(steps + 1, pairs)``, divided by the distance at the start.
        start: the median distance at the start.
    """

    curve = Curve("step", ("median",), ("q10", "q90"), words="distance / distance at the start", log=True)

    distance: Array = field(repr=False)
    start: float

    def curves(self) -> pd.DataFrame:
        """Return the median and the 80 % band over the pairs, one row per step."""
        low, middle, high = np.quantile(self.distance, (0.1, 0.5, 0.9), axis=1)
        return pd.DataFrame({"step": np.arange(len(middle)), "q10": low, "median": middle, "q90": high})

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.distance.shape[1]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.distance) - 1


def pair_distances(model: nn.Module, x: Tensor, *, steps: int, seed: int = 0, part: str | None = None) -> PairDistances:
    """Measure the distance of two states that read the same sequence, in float64 on a copy of the layer.

    Args:
        model: a recurrent layer, or a model that holds one (``torch.nn``'s included).
        x: ``(pairs, time, features)``, inputs of the model, two sequences or more; pair ``i`` starts at the states
            after sequence ``i`` and after another one, and both read sequence ``i`` repeatedly.
        steps: number of steps.
        seed: seed of the pairing.
        part: the path of the layer, if the model has several.

    Returns:
        The distances; pairs that start at the same state are left out.

    Raises:
        ConfigurationError: bad options or a bad tensor.
        DimensionError: a wrong shape.
        NonFiniteError: states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer, fewer than two sequences, or states that are
            all the same.

    Example:
        >>> from stability.models import ContractingRNN
        >>> seen = pair_distances(ContractingRNN(1, 4, rate=0.5), torch.randn(3, 5, 1), steps=4)
        >>> bool((seen.distance[4] <= seen.distance[0]).all())
        True
    """
    steps = check_int("steps", steps)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        layer, prepared, drives, state = after_sequences(model, x, part)
        flat = flat_state(state)
        if len(flat) < 2:
            raise UnsupportedError("pairs of trajectories need at least two sequences")
        shift = 1 + int(np.random.default_rng(check_int("seed", seed, 0)).integers(len(flat) - 1))
        state = shaped_state(torch.cat([flat, flat.roll(shift, 0)]), state)
        drives = [d.repeat(2, *[1] * (d.dim() - 1)) for d in drives]
        gaps = []
        for t in range(steps + 1):
            first, second = flat_state(state).chunk(2)
            gaps.append((first - second).norm(dim=1))
            state = layer.transition(drives[t % len(drives)], state, prepared)
    distances = torch.stack(gaps).cpu().numpy()
    if not np.isfinite(distances).all():
        raise NonFiniteError("the distance of two trajectories", "the network diverges")
    apart = distances[0] > 0.0
    if not apart.any():
        raise UnsupportedError("distances of trajectories need different states, got the same state for all sequences")
    distances = distances[:, apart]
    return PairDistances(distances / distances[0], float(np.median(distances[0])))


def counterexample_pair(certificate: Certificate, steps: int) -> tuple[Array, Array, Array, str] | None:
    """Return two states and inputs under which the trajectories of a refuted map do not converge to each other.

    Args:
        certificate: certificate of a refuted map; its proof is not checked here.
        steps: number of steps.

    Returns:
        Both states ``(n,)``, the periodic inputs ``(q, p)``, and a description of the pair. ``None`` if the subject is
        no map with inputs, or its proof determines no trajectories.
    """
    subject, proof = certificate.subject, certificate.proof
    runs = getattr(subject, "is_discrete", False) and hasattr(subject, "advance")
    if proof is None or certificate.verdict is Verdict.CERTIFIED or not runs:
        return None
    data = proof.data
    zero = np.zeros((1, subject.inputs))
    first, second = (_row(data, *names) for names in (("state1", "first"), ("state2", "second")))
    if first is not None and second is not None:
        inputs = next((np.atleast_2d(np.asarray(data[k], float)) for k in ("input", "inputs") if k in data), zero)
        return first, second, inputs, "the two trajectories of the proof"
    if data.get("difference") is not None:
        difference = np.asarray(data["difference"], dtype=np.float64)
        return np.zeros(subject.states), difference, zero, "two trajectories with the difference of the proof, input 0"
    state = _row(data, "state", "orbit")
    if state is not None:
        inputs = np.atleast_2d(np.asarray(data.get("input", zero), dtype=np.float64))
        longest = len(np.atleast_2d(np.asarray(data.get("state", data.get("orbit")))))
        return state, _perturbed(subject, state, inputs, longest), inputs, "next to the unstable state of the proof"
    if proof.kind == "unstable_everywhere":
        state = np.linalg.lstsq(subject.system.C, -(zero[0] @ subject.E.T + subject.b), rcond=None)[0]
        return state, _perturbed(subject, state, zero, 1), zero, "next to the unstable equilibrium of input 0"
    if proof.kind == "pair_isometry":
        far = np.zeros(subject.states)
        far[0] = 8.0 * (steps + 1) * (1.0 + float(np.linalg.norm(subject.b)))
        return np.zeros(subject.states), far, zero, "from zero and from far away, input 0"
    return None


def _row(data: Mapping[str, Any], *names: str) -> Array | None:
    """Return the first row of the first existing field among ``names``, or ``None``."""
    value = next((data[name] for name in names if data.get(name) is not None), None)
    return None if value is None else np.atleast_2d(np.asarray(value, dtype=np.float64))[0]


def _perturbed(subject: Any, state: Array, inputs: Array, period: int) -> Array:
    """Return a state next to ``state``, in the direction that grows most along the periodic orbit."""
    product, at = np.eye(len(state)), state
    for t in range(max(period, len(inputs))):
        u = inputs[t % len(inputs)]
        product, at = subject.jacobian(at, u) @ product, subject.advance(at, u)
    values, vectors = np.linalg.eig(product)
    direction = vectors[:, np.argmax(np.abs(values))]
    real, imag = np.real(direction), np.imag(direction)
    direction = real if np.linalg.norm(real) > np.linalg.norm(imag) else imag
    return state + OFFSET * (1.0 + float(np.linalg.norm(state))) * direction / np.linalg.norm(direction)


def counterexample_distance(certificate: Certificate, steps: int) -> tuple[Array, str] | None:
    """Compute the distance of the trajectories of ``counterexample_pair`` in floating point, relative to the start.

    Args:
        certificate: certificate of a refuted map.
        steps: number of steps.

    Returns:
        ``(steps + 1,)``, NaN once it is not finite, and a description of the pair; ``None`` without a pair.
    """
    pair = counterexample_pair(certificate, steps)
    if pair is None:
        return None
    first, second, inputs, words = pair
    x, gaps = np.stack([first, second]), np.full(steps + 1, np.nan)
    for t in range(steps + 1):
        gap = float(np.linalg.norm(x[0] - x[1]))
        if not np.isfinite(gap):
            break
        gaps[t] = gap
        with np.errstate(all="ignore"):
            x = certificate.subject.advance(x, np.broadcast_to(inputs[t % len(inputs)], (2, inputs.shape[1])))
    return (gaps / gaps[0], words) if gaps[0] > 0 else None


def pairs_step(work: Work) -> None:
    """Run the step ``pairs`` of an analysis and write its files."""
    seen, why = None, ""
    steps = MOST_STEPS
    try:
        model, x = work.whole_sequences(min(work.budget.samples, PAIRS))
        steps = min(LENGTHS * x.shape[1], MOST_STEPS)
        seen = pair_distances(model, x, steps=steps, seed=work.seed)
    except (UnsupportedError, NonFiniteError) as error:
        why, steps = str(error), min(steps, 100)
    counter = None if work.certificate is None else counterexample_distance(work.certificate, steps)
    if seen is None and counter is None:
        raise UnsupportedError(why)
    parts, t = [], np.arange(steps + 1)
    if seen is not None:
        low, middle, high = np.quantile(seen.distance, (0.1, 0.5, 0.9), axis=1)
        parts.append(pd.DataFrame({"what": "data", "t": t, "q10": low, "q50": middle, "q90": high}))
    if counter is not None:
        parts.append(pd.DataFrame({"what": "counter", "t": t, "q10": np.nan, "q50": counter[0], "q90": np.nan}))
    work.write_table("pairs.csv", pd.concat(parts, ignore_index=True))
    fields = {"pairs": seen.pairs if seen else 0, "steps": steps, "start": seen.start if seen else None}
    fields["closer"] = int((seen.distance[-1] < 1.0).sum()) if seen else 0
    work.write_json("pairs.json", {**fields, "counter": counter[1] if counter else None})
