"""Search for the claim about a run in finite precision, from the proofs of contraction."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.errors import ConfigurationError
from stability.kernel.arithmetic.directed_functions import norm_above
from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_bounds import JacobianBound, embedding, gate_bounds
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.as_it_runs import AsItRuns, displacement, norm_of_entries, reached_entries, run_bound
from stability.kernel.theorems.gated_runs import run_of
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.kernel.theorems.runs_of_layers import (
    MOST_STEPS,
    AsItRunsBlocks,
    AsItRunsPairs,
    AsItRunsSteps,
    diagonal_blocks,
)
from stability.kernel.theorems.step_errors import cell_step_error, stays_in_box
from stability.proposals import accepted_claim
from stability.search.gated_runs import ALLOWANCE, ROUNDS, gated_run_claim

Array = np.ndarray
Data = dict[str, Any]
Found = tuple[str, Data] | None
"""Kind and data of a proof."""
Attempt = Callable[[], Found]
Search = Callable[..., list[Attempt]]
"""Attempts for one proof of contraction: one for each kind of set that may hold the computed states."""
SETTLING = 2000
"""Largest number of steps under the middle of the input box; the last state is the center of the ball of states."""
SLOWER = (0.0, 1e-9, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.6)
"""Shares of ``1 - rate`` that a proof may lose in the wider box of the computed states."""


def certify_run(
    certificate: Certificate, model: ExecutionModel, box: tuple[Array, Array] | None, steps: int | None = None
) -> Claim | str:
    """Return the claim with the smallest proved bound on the distance between a run and the certified network.

    Args:
        certificate: certificate with proofs of contraction.
        model: the arithmetic.
        box: lower and upper bounds of the inputs, ``(p,)`` each; ``None`` for those of a gated cell.
        steps: length of the longest sequence; a network on pairs without a bound for all times has one up to it.

    Returns:
        The claim, or the reason why there is none.
    """
    subject = certificate.subject
    if isinstance(subject, GatedLinearLayer):
        return gated_run_claim(subject, model)
    if model.rounding == "noise_shaping":
        return "noise shaping is for gated linear layers; set rounding='feedback'"
    search = next((function for kind, function in _SEARCHES.items() if isinstance(subject, kind)), None)
    if search is None:
        return "no theorem covers this kind of network yet"
    if box is None and not isinstance(subject, GatedCell):
        return "rounding errors grow with the inputs; set a box of inputs with --input-box LOW HIGH (Python: input_box)"
    low, high = (getattr(subject, name, None) for name in ("input_low", "input_high"))
    if box is not None and low is not None and ((box[0] < low) | (box[1] > high)).any():
        return "the inputs leave the box of the certificate; certify with a box that contains them"
    claims = (certificate.claim, *certificate.claims)
    ellipsoid = next((c.proof.data for c in claims if c.proof is not None and c.proof.kind == "ball"), None)
    proofs = [claim.proof for claim in claims if claim.verdict is Verdict.CERTIFIED and claim.proof is not None]
    attempts = [attempt for proof in proofs for attempt in search(subject, proof, model, box, ellipsoid, steps)]
    found = [made for attempt in attempts if (made := _guarded(attempt)) is not None]
    sizes = [AsItRunsSteps.of(data).growth_of(subject)[0] for _, data in found if "steps" in data]
    most = min(sizes, default=math.inf)  # a bound at all times above the states of so many steps is of no use
    for kind, data in sorted(found, key=lambda pair: (pair[1]["bound"] > most, "steps" in pair[1], pair[1]["bound"])):
        claim = accepted_claim(subject, kind, data)
        if claim is not None:
            return claim
    if not any(proof.kind in _PROOFS for proof in proofs):
        return "contraction under every input is not proved, so rounding errors may accumulate"
    more = ", or set horizon, the length of sequences" * (isinstance(subject, PairwiseSystem) and steps is None)
    return f"{model.format} operations on {model.state} states are too coarse for the proved rate; try more bits{more}"


def size_of_states(subject: Any, claim: Claim) -> float:
    """Bound the Euclidean norm of exact and computed states by the set of states in a proof about a run.

    Args:
        subject: the network.
        claim: its claim ``as_it_runs``.
    """
    data = {} if claim.proof is None else claim.proof.data
    if "units" in data:
        states = run_of(subject, ExecutionModel.from_payload(data["arithmetic"])).states
        return float(norm_above((states + data["units"][:, None]).ravel()))
    if "steps" in data:
        return AsItRunsSteps.of(data).growth_of(subject)[0]
    if data.get("ball") is not None:
        return float(data["room"] * data["ball"]["radius"])
    if data.get("entries") is not None:
        return float(np.linalg.norm(data["entries"]))
    if data.get("center") is not None:
        return float(np.linalg.norm(data["center"]) + data["radius"] / math.sqrt(data["p_min"]))
    if "sizes" in data:
        return float(np.linalg.norm(data["sizes"]))
    if "radius" in data:
        return float(data["radius"] / math.sqrt(data["weights"].min()))
    return float(np.linalg.norm(np.maximum(np.abs(data["low"]), np.abs(data["high"]))))


def with_run(
    certificate: Certificate, model: ExecutionModel | None, box: tuple[Array, Array] | None, steps: int | None = None
) -> Certificate:
    """Return a certificate with the claim of ``certify_run``, or the reason in ``meta``; unchanged without a model."""
    found = None if model is None else certify_run(certificate, model, box, steps)
    if found is None or isinstance(found, str):
        meta = {**certificate.meta, **({"as_it_runs": found} if found else {})}
        return replace(certificate, meta=meta)
    return replace(certificate, claims=(*certificate.claims, found))


def _guarded(attempt: Callable[[], Any]) -> Any:
    """Return the result of an attempt, or ``None``; a set that is refused says nothing about other sets."""
    with contextlib.suppress(Refused), np.errstate(all="ignore"):
        return attempt()
    return None


def _settled(subject: DrivenSystem, u: Array) -> Array:
    """Return the state after many steps of a constant input."""
    state = np.zeros(subject.states)
    for _ in range(SETTLING):
        after = subject.advance(state, u)
        if not np.isfinite(after).all() or np.allclose(after, state, rtol=1e-9, atol=1e-300):
            break
        state = after
    return state


def _smallest_ball(
    data: Data, errors: Callable[[Data], tuple[float, float]], push: float, radius: float, p_min: float
) -> Data | None:
    """Return the data with the smallest radius that holds the computed states, and its bound."""
    rate = float(data["rate"])
    radius = max(radius, push / (1.0 - rate)) * ALLOWANCE + 1e-300
    for _ in range(ROUNDS):
        delta, stored = errors({**data, "radius": radius, "bound": 0.0})
        if (rate * radius + push + delta) * ALLOWANCE <= radius:
            bound = run_bound(delta, rate, p_min, stored) * ALLOWANCE
            return {**data, "radius": radius, "bound": bound} if math.isfinite(bound) else None
        radius = max(radius * 1.01, (push + delta) / (1.0 - rate) * 1.001)
        if not radius < 1e100:
            break
    return None


def _driven(
    subject: DrivenSystem, proof: Any, model: ExecutionModel, box: tuple[Array, Array], ellipsoid: Any, _: Any
) -> list[Attempt]:
    if proof.kind != "multiplier_lmi" or not subject.is_discrete:
        return []
    data = {**proof.data, "low": box[0], "high": box[1], "arithmetic": model.payload()}
    attempts = [partial(_entries, subject, data), partial(_in_ball, subject, data)]
    if ellipsoid is not None:
        attempts.append(partial(_in_ellipsoid, subject, data, ellipsoid))
    return attempts if subject.system.channels else [*attempts, partial(_blocks, subject, model, box)]


def _with_bound(data: Data, delta: float, stored: Array) -> Found:
    """Return the data of an ``as_it_runs`` proof with the bound, if it is finite."""
    bound = run_bound(delta, float(data["rate"]), float(data["p_min"]), float(norm_above(stored))) * ALLOWANCE
    return ("as_it_runs", {**data, "bound": bound}) if math.isfinite(bound) else None


def _in_ball(subject: DrivenSystem, data: Data) -> Found:
    center = _settled(subject, 0.5 * (data["low"] + data["high"]))
    data = {**data, "center": center}
    push = norm_of_entries(data["P"], displacement(subject, center, data["low"], data["high"]))
    start = norm_of_entries(data["P"], np.abs(center))

    def errors(ball: Data) -> tuple[float, float]:
        found = AsItRuns.of(ball).errors(subject)
        return norm_of_entries(data["P"], found.step), float(norm_above(found.stored))

    found = _smallest_ball(data, errors, push, start, float(data["p_min"]))
    return None if found is None else ("as_it_runs", found)


def _in_ellipsoid(subject: DrivenSystem, data: Data, ellipsoid: Data) -> Found:
    least = float(np.linalg.eigvalsh(ellipsoid["Y"])[0]) * (1.0 - 1e-6)
    mu, room = float(ellipsoid["mu"]), 1.0 + 1e-6
    if not least > 0.0:
        return None
    for _ in range(ROUNDS):
        proof = {**data, "ball": dict(ellipsoid), "room": room, "y_min": least}
        found = AsItRuns.of({**proof, "bound": 0.0}).errors(subject)
        error = float(norm_above(found.step)) / math.sqrt(least) * ALLOWANCE
        if math.sqrt((1.0 - mu) * room * room + mu) * (1.0 + 1e-12) + error <= room:
            return _with_bound(proof, norm_of_entries(data["P"], found.step), found.stored)
        room = max(1.0 + 1.1 * error / mu, 1.001 * room)
        if room > 1e3:
            return None
    return None


def _entries(subject: DrivenSystem, data: Data) -> Found:
    inputs = np.maximum(np.abs(data["low"]), np.abs(data["high"]))
    entries = reached_entries(subject, inputs, np.zeros(subject.states))
    for _ in range(ROUNDS // 10):
        if entries is None or not entries.max() < 1e100:
            return None
        proof = {**data, "entries": entries * (1.0 + 1e-3)}
        found = AsItRuns.of({**proof, "bound": 0.0}).errors(subject)
        entries = reached_entries(subject, inputs, found.step)
        if entries is not None and (entries <= proof["entries"]).all():
            return _with_bound(proof, norm_of_entries(data["P"], found.step), found.stored)
    return None


def _blocks(subject: DrivenSystem, model: ExecutionModel, box: tuple[Array, Array]) -> Found:
    blocks = diagonal_blocks(subject.system.A)
    data = {"low": box[0], "high": box[1], "arithmetic": model.payload(), "bound": 0.0}
    sizes = np.full(len(blocks), 1e-300)
    for _ in range(ROUNDS):
        found = AsItRunsBlocks.of({**data, "sizes": sizes}).block_bounds(subject, blocks)
        if (found.least * ALLOWANCE <= sizes).all():
            bound = (float(np.linalg.norm(found.error)) + found.stored) * ALLOWANCE
            return "as_it_runs_blocks", {**data, "sizes": sizes, "bound": bound}
        others = np.maximum(found.least - found.rates * sizes, 1e-300)  # push and errors
        sizes = np.maximum(sizes, others / (1.0 - found.rates) * (1.0 + 1e-3))
        if not sizes.max() < 1e100:
            break
    return None


def _pairs(
    subject: PairwiseSystem, proof: Any, model: ExecutionModel, box: tuple[Array, Array], _: Any, steps: int | None
) -> list[Attempt]:
    if proof.kind == "norm_gain" and steps is not None and steps <= MOST_STEPS:
        return [partial(_over_steps, subject, proof, model, box, steps)]
    return [partial(_in_pair_ball, subject, proof, model, box)] if proof.kind == "pair_norm" else []


def _over_steps(
    subject: PairwiseSystem, proof: Any, model: ExecutionModel, box: tuple[Array, Array], steps: int
) -> Found:
    data = {key: proof.data[key] for key in ("weights", "gain", "growth")}
    data |= {"low": box[0], "high": box[1], "arithmetic": model.payload(), "steps": steps, "bound": 0.0}
    bound = AsItRunsSteps.of(data).growth_of(subject)[1] * ALLOWANCE
    return ("as_it_runs_steps", {**data, "bound": bound}) if math.isfinite(bound) else None


def _in_pair_ball(subject: PairwiseSystem, proof: Any, model: ExecutionModel, box: tuple[Array, Array]) -> Found:
    data = {**proof.data, "low": box[0], "high": box[1], "arithmetic": model.payload()}
    push = AsItRunsPairs.of(data).push(subject)
    least = float(data["weights"].min())
    found = _smallest_ball(data, lambda d: AsItRunsPairs.of(d).errors(subject, d["radius"]), push, 0.0, least)
    return None if found is None else ("as_it_runs_pairs", found)


def _cell(cell: GatedCell, proof: Any, model: ExecutionModel, *_: Any) -> list[Attempt]:
    return [partial(_in_wider_box, cell, proof, model)] if proof.kind in _PROOFS[2:] else []


def _in_wider_box(cell: GatedCell, proof: Any, model: ExecutionModel) -> Found:
    wide = _box_of_run(cell, model, Interval(proof.data["low"], proof.data["high"]))
    if wide is None:
        return None
    data = {**proof.data, "low": wide.low, "high": wide.high, "arithmetic": model.payload()}
    found, rate = cell_step_error(cell, model, wide), float(data["rate"])
    stored = float(np.linalg.norm(found.stored))
    if proof.kind == "interval_jacobian":
        rate = max(rate, float((JacobianBound(cell, wide).apply(data["d"]) / data["d"]).max()) * ALLOWANCE)
        if not rate < 1.0:
            return None
        delta = float((found.step / data["d"]).max()) * float(np.linalg.norm(data["d"]))
        bound = run_bound(delta, rate, 1.0, stored) * ALLOWANCE
        return "as_it_runs_interval", {**data, "rate": rate, "bound": bound}
    system = embedding(cell, wide)
    for share in SLOWER:
        slower = rate + share * (1.0 - rate)
        if check_lmi(system, data["P"], data["L"], slower)[0]:
            delta = norm_of_entries(data["P"], found.step)
            bound = run_bound(delta, slower, float(data["p_min"]), stored) * ALLOWANCE
            return "as_it_runs_lmi", {**data, "rate": slower, "bound": bound}
    return None


def _box_of_run(cell: GatedCell, model: ExecutionModel, box: Interval) -> Interval | None:
    """Widen the box of a contraction proof until no computed state leaves it."""
    m, lstm = cell.hidden, cell.kind == "lstm"
    for _ in range(ROUNDS):
        step = cell_step_error(cell, model, box).step
        if stays_in_box(cell, box, step):
            return box
        gates = gate_bounds(cell, box)
        towards, gate = (gates["q"], gates["f"]) if lstm else (gates["n"], gates["z"])
        if not (gate.high < 1.0).all():
            return None
        room = 1.1 * step[m:] / (1.0 - gate.high) if lstm else 1.1 * step / (1.0 - gate.high)
        low, high = towards.low - room, towards.high + room
        if lstm:
            room = 1.1 * step[:m]
            low = np.concatenate([gates["next"].low[:m] - room, low])
            high = np.concatenate([gates["next"].high[:m] + room, high])
        box = Interval(np.minimum(box.low, low), np.maximum(box.high, high))
        if not np.abs(box.magnitude).max() < 1e6:
            return None
    return None


_SEARCHES: Mapping[type, Search] = {DrivenSystem: _driven, PairwiseSystem: _pairs, GatedCell: _cell}
_PROOFS = ("multiplier_lmi", "pair_norm", "interval_jacobian", "interval_lmi")
_IMPLIED: list[Callable[[Any], ExecutionModel | None]] = []
_REFINED: list[Callable[[ExecutionModel, Any], ExecutionModel]] = []


def register_execution(
    implied: Callable[[Any], ExecutionModel | None], refined: Callable[[ExecutionModel, Any], ExecutionModel]
) -> None:
    """Register functions that find the execution model of a kind of network.

    Args:
        implied: return the arithmetic in which an object runs, or ``None`` for other objects.
        refined: add the errors of an object to a model, such as errors of weights that the object computes.
    """
    _IMPLIED.insert(0, implied)
    _REFINED.insert(0, refined)


def as_model(arithmetic: str | ExecutionModel, network: Any = None) -> ExecutionModel:
    """Return the execution model of a network in some arithmetic.

    Args:
        arithmetic: name of a format, ``"module"`` for the arithmetic of the network's own module, or a model.
        network: the network, whose computed weights and added biases the model then covers; a format's name also takes
            its order of sums. ``None`` for none.

    Raises:
        ConfigurationError: an unknown format, or ``"module"`` for an object that is not a torch module.

    Example:
        >>> as_model("int8:64").state
        'int8:64'
    """
    if arithmetic == "module":
        found = next((model for function in _IMPLIED if (model := function(network)) is not None), None)
        if found is None:
            raise ConfigurationError(f"arithmetic 'module' needs a torch module, got {type(network).__name__}")
    elif isinstance(arithmetic, ExecutionModel):
        found = arithmetic
    else:
        order = getattr(getattr(network, "layer", network), "summation", "any")
        found = ExecutionModel(str(arithmetic), summation=order)
    for function in _REFINED:
        found = function(found, network)
    return found
