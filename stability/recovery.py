r"""Recovery time of a certified network: the time in which a disturbance of its state decays.

From a proved pair ``|d(k)| <= C rho^k |d(0)|`` a disturbance of size ``s`` is below ``tol`` as soon as

.. math:: k > \frac{\log (C s / tol)}{-\log \rho} ,

for every input (in continuous time :math:`t > \log(C s / tol) / \lambda`). With several proved pairs the smallest time
counts, since a slower rate may have a smaller overshoot. If every trajectory ends in a ball, the ball's diameter bounds
every disturbance. Then everything before the last ``k`` inputs changes the state by less than ``tol``: ``k`` is the
memory horizon of the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.arguments import as_positive
from stability.errors import ConfigurationError
from stability.kernel.arithmetic.definiteness import spectral_bounds
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.backward_bounds import steps_made

if TYPE_CHECKING:
    from stability.certificate import Certificate
    from stability.kernel.format.claims import Claim

_CONTRACTION_CLAIMS = ("contraction", "driven_contraction")
SETS = ("low", "high", "r", "share", "room", "steps", "window", "backward", "Y", "tau", "falls")
"""Fields of a proof that determine its absorbing sets."""
_RUN = ("run_low", "run_high", "turns", "settling", "near", "waits")
"""Fields of a proof that determine its sets near a reference run."""


@dataclass(frozen=True)
class Recovery:
    """Proved bound of the time in which a disturbance decays.

    Attributes:
        size: Euclidean norm of the disturbance.
        tol: norm below which the disturbance decays.
        time: number of steps (an integer), or units of time.
        since: step from which on the bound holds for every initial state, 0 for claims about all times; ``None`` if
            the step depends on the initial state (the claim's sentence says how).
    """

    size: float
    tol: float
    time: float
    since: int | None = 0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"size": self.size, "tol": self.tol, "time": self.time, "since": self.since}


def recovery_time(
    certificate: Certificate, size: float = 1.0, tol: float = 1e-3, *, claim: Claim | None = None
) -> Recovery | None:
    r"""Bound the time until a disturbance is below a tolerance, for every input (of the claim's box).

    Args:
        certificate: the certificate; its proofs are not checked here but by ``stability.verify``.
        size: ``s``, Euclidean norm of the disturbance at any time. For a claim about inputs in a box: distance of two
            trajectories once the claim holds (a disturbance that leaves the claim's sets is a new initial state).
        tol: the tolerance.
        claim: one of the claims, for example about inputs in a box if the network is refuted for other inputs;
            ``None``: the main claim.

    Returns:
        The smallest number of steps that the proved pairs give (a time, for a flow), rounded up; ``None`` if no rate
        is certified.

    Raises:
        ConfigurationError: no certificate, or a size or tolerance that is not a positive number.

    Source:
        The definition of exponential incremental stability, solved for the time; the minimum over certified pairs.

    Example:
        >>> from stability import LureSystem, certify
        >>> halves = certify(LureSystem([[0.5]], [[0.0]], [[0.0]], dt=1.0))
        >>> recovery_time(halves, size=1.0, tol=0.2).time
        3
        >>> recovery_time(halves, size=0.1, tol=0.2).time
        0
    """
    size, tol = as_positive("size", size), as_positive("tol", tol)
    _check_certificate(certificate)
    discrete = certificate.subject.is_discrete
    times = [
        t
        for rate, overshoot in proved_pairs(certificate, claim=claim)
        if (t := _time_below(rate, overshoot, size, tol, discrete)) is not None
    ]
    if not times:
        return None
    return Recovery(size, tol, min(times), first_step(certificate.claim if claim is None else claim))


def memory_horizon(certificate: Certificate, tol: float = 1e-3, *, claim: Claim | None = None) -> Recovery | None:
    """Bound the number of last inputs that determine the state up to a tolerance, once it is in the absorbing set.

    Args:
        certificate: the certificate; its proofs are not checked here.
        tol: the tolerance, a Euclidean norm.
        claim: see ``recovery_time``.

    Returns:
        The recovery time from a disturbance as large as the absorbing set: the ball of the claim ``bounded``, the box
        (for a flow the last ellipsoid) of a claim about inputs in a box, or the box of ``bounded_in_box``. ``None`` if
        no rate or no such set is certified.

    Raises:
        ConfigurationError: no certificate, or a tolerance that is not a positive number.

    Example:
        >>> from stability import DrivenSystem, LureSystem, certify
        >>> network = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> memory_horizon(certify(network), tol=0.3).time  # |h| <= 1, differences at most halve: 2, 1, .5, .25
        3
    """
    tol = as_positive("tol", tol)
    _check_certificate(certificate)
    sizes = list(_diameters(certificate, certificate.claim if claim is None else claim))
    return recovery_time(certificate, min(sizes), tol, claim=claim) if sizes else None


def proved_pairs(certificate: Certificate, *, claim: Claim | None = None) -> list[tuple[float, float]]:
    """Return rate and overshoot, in the Euclidean norm, of every certified claim of the main claim's kind.

    The overshoot of a claim in the infinity norm is multiplied by ``sqrt(n)``; the overshoot of a stack's skewed state
    is converted to that of the states at one step (``_overshoot_at_one_step``).

    Args:
        certificate: the certificate; its proofs are not checked here.
        claim: see ``recovery_time``.

    Returns:
        The pairs, starting with the main claim's.
    """
    pairs, name = [], (certificate.claim if claim is None else claim).name
    for claim in (certificate.claim, *certificate.claims):
        if claim.name != name or claim.name not in _CONTRACTION_CLAIMS or str(claim.verdict) != "certified":
            continue
        overshoot = None if claim.proof is None else claim.proof.data.get("overshoot")
        if claim.proof is None or claim.value is None or not isinstance(overshoot, (int, float)):
            continue
        rate, overshoot = float(claim.value), float(overshoot)
        if claim.proof.kind == "interval_jacobian":
            overshoot *= math.sqrt(certificate.subject.states) * (1 + 4 * EPS)
        if claim.proof.kind == "stack_driven":
            overshoot = _overshoot_at_one_step(rate, overshoot, len(getattr(certificate.subject, "layers", (None,))))
        if math.isfinite(overshoot):
            pairs.append((rate, overshoot))
    return pairs


def _overshoot_at_one_step(rate: float, overshoot: float, levels: int) -> float:
    r"""Return the overshoot of a stack's state, with all layers at one step, from the overshoot of its skewed state.

    The skewed state holds layer ``m + 1`` one step later than layer ``m``. In the metric of the proof, the differences
    of the first ``m`` layers contract by themselves, since these layers do not read the others. Therefore the skewed
    difference, once it contains all layers, is at most :math:`\max(1, C \rho)^{l-1}` times the difference of the states
    at one step. The difference of a layer at step ``k`` is a part of the skewed difference at one of the ``l`` steps
    ``k`` to ``k + l - 1``.
    """
    with np.errstate(all="ignore"):
        together = np.float64(max(1.0, overshoot * rate)) ** (levels - 1) / np.float64(rate) ** (levels - 1)
        return float(np.sqrt(levels) * overshoot * together * (1 + 1e-12)) if levels > 1 else overshoot


def _time_below(rate: float, overshoot: float, size: float, tol: float, discrete: bool) -> float | None:
    """Return the first time at which the bound is proved to be below the tolerance; ``None`` if there is none."""
    parts = (math.log(overshoot), math.log(size), -math.log(tol))
    needed = math.fsum(parts) + 8 * EPS * math.fsum(map(abs, parts))  # an upper bound of the exact sum
    decay = (math.inf if rate <= 0 else -math.log(rate)) if discrete else rate
    decay *= 1 - 8 * EPS
    if decay <= 0 or not math.isfinite(needed):
        return None
    if overshoot * size * (1 + 4 * EPS) < tol:
        return 0 if discrete else 0.0
    time = max(needed, 0.0) / decay * (1 + 4 * EPS)
    return math.floor(time) + 1 if discrete else math.nextafter(time, math.inf)


def first_step(claim: Claim) -> int | None:
    """Return the step from which on a claim holds for every initial state; ``None`` if it depends on the state."""
    data = {} if claim.proof is None else claim.proof.data
    if claim.name == "contraction":
        return 0
    return _steps_until_valid(data) + 1 if data.get("share") == 0.0 and "steps" in data else None


def _steps_until_valid(data: Mapping[str, Any]) -> int:
    """Return the number of steps from entry into the first set until a claim about inputs in a box holds."""
    sets = steps_made(data["steps"], data.get("backward"))
    if "waits" in data:
        return max(sets, int(data["turns"]) + int(data["settling"])) + int(data["waits"])
    return sets + int(data.get("levels", 1)) - 1


def settling_time(claim: Claim) -> float | None:
    """Return the number of steps, or time, from entry into the first set until a claim about inputs in a box holds.

    ``None`` for other claims.

    Example:
        >>> from stability import DrivenSystem, LureSystem, certify
        >>> latch = DrivenSystem(LureSystem([[0.3]], [[0.7]], [[2.0]], dt=1.0), "tanh", [[1.0]], [2.0])
        >>> found = certify(latch, input_box=(-0.2, 0.2), refute=False).claim
        >>> first_step(found) is None, settling_time(found) > 10
        (True, True)
    """
    data = {} if claim.proof is None else claim.proof.data
    if "shapes" in data:
        return float(data["time"])
    if "steps" not in data or "r" not in data:
        return None
    return _steps_until_valid(data)


def _diameters(certificate: Certificate, main: Claim) -> Iterator[float]:
    """Yield diameters of sets in which every trajectory ends, under the inputs of a claim."""
    for claim in certificate.claims:
        every_input = claim.proof is not None and claim.proof.data.get("input_bound") is None
        if claim.name == "bounded" and str(claim.verdict) == "certified" and claim.value is not None and every_input:
            yield 2.0 * float(claim.value)
    proof = main.proof
    if main.name == "driven_contraction" and proof is not None and "r" in proof.data:
        half = np.asarray(proof.data["r"], dtype=np.float64)
        if proof.data.get("falls") is not None:
            half = 0.5 * (half + np.asarray(proof.data["falls"], dtype=np.float64))
        half = half * (1.0 + float(proof.data.get("room", 0.0)))
        yield 2.0 * float(np.linalg.norm(half)) * (1 + (half.size + 8) * EPS)
        yield from (
            float(c.value) for c in certificate.claims if c.value is not None and _uses_same_sets(c, proof.data)
        )
    if main.name == "driven_contraction" and proof is not None and "shapes" in proof.data:
        yield _ellipsoid_diameter(np.asarray(proof.data["shapes"], dtype=np.float64)[-1], float(proof.data["room"]))
    if main.name == "contraction" and proof is not None and "low" in proof.data:  # a gated cell's box
        yield from (
            float(c.value) for c in certificate.claims if c.value is not None and _uses_same_sets(c, proof.data)
        )


def _ellipsoid_diameter(Y: np.ndarray, room: float) -> float:
    """Return an upper bound of the largest diameter of an ellipsoid ``x^T Y^-1 x <= 1 + room``."""
    trace = float(np.trace(Y)) * (1 + (len(Y) + 8) * EPS)
    top = float(np.linalg.eigvalsh(Y)[-1]) * (1 + 1e-9)
    largest = min(top, trace) if spectral_bounds(Y, -trace, top).holds else trace
    return 2.0 * math.sqrt((1.0 + room) * largest) * (1 + 16 * EPS)


def _uses_same_sets(claim: Claim, data: Mapping[str, Any]) -> bool:
    """Return True if a claim bounds the states by the same sets as a proof about the same inputs."""
    if claim.name != "bounded_in_box" or str(claim.verdict) != "certified" or claim.proof is None:
        return False
    proof_data = claim.proof.data
    same = (key for key in (*SETS, *_RUN) if key in proof_data or key in data)
    return all(key in proof_data and key in data and np.array_equal(proof_data[key], data[key]) for key in same)


def _check_certificate(certificate: Any) -> None:
    if not all(hasattr(certificate, field) for field in ("subject", "claim", "claims")):
        raise ConfigurationError(f"certificate must be a Certificate, got {type(certificate).__name__}")
