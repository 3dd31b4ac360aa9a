"""Search for claims about a gated linear layer: state bound, decay and gain, or a refutation.

The bounds are those that the checker computes from the weights, raised by ``ALLOWANCE``, so that a checker with another
order of summation accepts them too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from stability.certificate import Certificate, Finding
from stability.checkpoint_certificate import (
    INPUT_SETS,
    CheckpointCertificate,
    CheckpointLayer,
    LayerClaims,
    checkpoint_layers,
)
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.input_sets import InputBox
from stability.kernel.systems.rwkv import RWKVInjection
from stability.kernel.theorems.gated_linear_bounds import (
    BOUNDS,
    FLOAT32_ONE,
    TOLERANCE,
    largest_decay,
    most_forgotten,
    slowest_decays,
)
from stability.search.gated_runs import gated_run_claim
from stability.search.periodic_growth import growing_periods

ALLOWANCE = 1e-9
"""Relative distance of a stated bound to the computed one; orders of summation differ by about 1e-13."""


def _claim(
    layer: GatedLinearLayer, name: str, kind: str, data: dict[str, Any], value: float | None = None
) -> Claim | None:
    """Return a claim that its theorem accepts, or ``None``."""
    rule = RULES[kind]
    claim = Claim(name, "", rule.verdict, Proof(kind, data), value)
    return worded(layer, claim) if rule(layer, claim)[0] else None


def _bound_claim(layer: GatedLinearLayer, name: str) -> Claim | None:
    for kind, (injections, bound) in BOUNDS.items():
        if not kind.endswith(name.removeprefix("state")) or not isinstance(layer.injection, injections):
            continue
        bounds = bound(layer) * (1.0 + ALLOWANCE)
        if np.isfinite(bounds).all():
            most = float(bounds.max())
            return _claim(layer, name, kind, {"bounds": bounds, "most": most}, most)
    return None


def _decay_claim(layer: GatedLinearLayer, tol: float) -> Claim | None:
    log_decay = slowest_decays(layer)
    log_decay = log_decay + ALLOWANCE * np.abs(log_decay)
    decay = largest_decay(log_decay)
    if not np.isfinite(log_decay).all() or not np.isfinite(decay):
        return None
    return _claim(layer, "decay", "gate_extremes", {"log_decay": log_decay, "decay": decay, "tol": tol}, decay)


def _growth_claim(layer: GatedLinearLayer) -> Claim | None:
    low = layer.gate.log_decay[0]
    low = low if low.ndim == 1 else low.min(axis=1)
    unit, growth = int(low.argmax()), float(low.max()) * (1.0 - ALLOWANCE)
    if not 0.0 < growth < np.inf:
        return None
    return _claim(layer, "state_bound", "expanding_unit", {"unit": unit, "log_growth": growth}, growth)


def _accumulator_claim(layer: GatedLinearLayer) -> Claim | None:
    units = np.flatnonzero(most_forgotten(layer) <= FLOAT32_ONE).astype(float)
    return _claim(layer, "forgetting", "accumulator", {"units": units}) if units.size else None


def _periodic_claim(layer: GatedLinearLayer) -> Claim | None:
    proofs = growing_periods(layer) if isinstance(layer.injection, RWKVInjection) else ()
    claims = (_claim(layer, "state_bound", "periodic_growth", data) for data in proofs)
    return next((claim for claim in claims if claim), None)


@np.errstate(all="ignore")  # bounds that overflow are infinite or NaN, which no theorem accepts
def layer_claims(layer: GatedLinearLayer, tol: float = TOLERANCE) -> tuple[Claim, ...]:
    """Return the claims about a layer; the first claim is the main one.

    Args:
        layer: the layer.
        tol: weight of an input below which it counts as forgotten.

    Returns:
        First the main claim: a refutation if there is one, else the state bound, certified or undecided. Then the other
        proved claims among state bound, decay and gain.
    """
    growth = _growth_claim(layer)
    bound = None if growth else _bound_claim(layer, "state_bound")
    refuted = growth or _accumulator_claim(layer) or (None if bound else _periodic_claim(layer))
    proved = [claim for claim in (bound, _decay_claim(layer, tol), _bound_claim(layer, "state_gain")) if claim]
    if refuted:
        return refuted, *proved
    if bound:
        return tuple(proved)
    return worded(layer, Claim("state_bound", "", Verdict.INCONCLUSIVE)), *proved


def certify_gated_layer(layer: GatedLinearLayer, tol: float = TOLERANCE) -> Certificate:
    """Return the certificate of a layer.

    Example:
        >>> import numpy as np
        >>> from stability.systems import Affine, ConvexInjection, GatedLinearLayer, NormBall, SigmoidGate
        >>> ball = NormBall(np.ones(4))
        >>> values = Affine(np.full((3, 4), 0.1), ball)
        >>> certificate = certify_gated_layer(GatedLinearLayer(SigmoidGate(values), ConvexInjection(values), "minGRU"))
        >>> str(certificate.verdict), round(certificate.claim.value, 3)
        ('certified', 0.4)
    """
    started = time.monotonic()
    main, *further = layer_claims(layer, tol)
    kind = None if main.proof is None else main.proof.kind
    findings = [
        Finding(claim.proof.kind, claim.verdict is Verdict.CERTIFIED, None, claim.statement)
        for claim in (main, *further)
        if claim.proof is not None
    ]
    meta = {"seconds": round(time.monotonic() - started, 4)}
    return Certificate(layer, main, kind, None, None, tuple(findings), tuple(further), meta)


def _box_of(box: Any, index: int) -> Any:
    """Return the box of a layer: two numbers, an ``InputBox``, or ``None`` where there is none."""
    if not isinstance(box, Mapping):
        return box
    if index not in box:
        raise ConfigurationError(f"no bounds of the inputs of layer {index} are known")
    low, high = box[index]
    return InputBox(low, high)


def certify_checkpoint(
    weights: Any,
    *,
    stored: Iterable[CheckpointLayer] | None = None,
    layers: Iterable[int] | None = None,
    input_set: str = "norm",
    box: Any = None,
    step_limits: bool = False,
    tol: float = TOLERANCE,
    arithmetic: ExecutionModel | None = None,
) -> CheckpointCertificate:
    """Certify the gated linear layers of a checkpoint one after another.

    Args:
        weights: folder, file or module; ``stability.models`` registers the readers.
        stored: its layers, if they have been found already.
        layers: numbers of the layers; all by default.
        input_set: ``norm`` (every input of the norm in front of the layer), ``vocabulary`` (every sequence of tokens;
            first layer only) or ``box``.
        box: bounds of the inputs of a layer, behind its norm: two numbers for all entries of all layers, or a mapping
            from layer numbers to two vectors.
        step_limits: apply the limits of Mamba-2's step in ``config.json``. transformers and mamba_ssm apply them to
            whole sequences, not when they decode token by token.
        tol: weight of an input below which it counts as forgotten.
        arithmetic: adds the claim about a run of every layer, or the reason why there is none to
            ``meta["as_it_runs"]``, by the number of the layer.

    Returns:
        The certificate, which holds digests of the weights.

    Raises:
        ConfigurationError: a missing layer, an unknown input set, a missing or unused box, or step limits that no
            layer has.
        UnsupportedError: a file without gated linear layers.
    """
    if input_set not in INPUT_SETS:
        raise ConfigurationError(f"input_set must be one of {', '.join(INPUT_SETS)}, got {input_set!r}")
    if (input_set == "box") is (box is None):
        raise ConfigurationError("the input set 'box' needs bounds of the inputs; no other input set takes any")
    wanted, found, limited = None if layers is None else sorted(set(layers)), [], False
    reasons: dict[str, str] = {}
    for one in checkpoint_layers(weights) if stored is None else stored:
        if wanted is not None and one.index not in wanted:
            continue
        layer = one.build(input_set, _box_of(box, one.index), step_limits)
        claims, kept = layer_claims(layer, tol), layer.input_set if isinstance(layer.input_set, InputBox) else None
        run = None if arithmetic is None else gated_run_claim(layer, arithmetic)
        if isinstance(run, str):
            reasons[str(one.index)] = run
        elif run is not None:
            claims = (*claims, run)
        found.append(LayerClaims(one.index, one.type, layer.digest, input_set, claims, layer.taps, kept, step_limits))
        limited = limited or getattr(layer.gate, "limited", False)
    missing = sorted(set(wanted or ()) - {layer.layer for layer in found})
    if missing or not found:
        raise ConfigurationError(f"{weights} has no gated linear layer {', '.join(map(str, missing))}".rstrip())
    if step_limits and not limited:
        raise ConfigurationError("no step of these layers has a limit in config.json")
    title = Path(weights).resolve().name if isinstance(weights, (str, PathLike)) else type(weights).__name__
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", title)[-100:] or "checkpoint"
    return CheckpointCertificate(name, tuple(found), {"as_it_runs": reasons} if reasons else {})
