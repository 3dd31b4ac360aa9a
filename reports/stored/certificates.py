"""Certificates as plain values, with the result of the checker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.checkpoint_certificate import CheckpointCertificate, LayerClaims, is_checkpoint_certificate
from stability.errors import StabilityError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.layer_stack import LayerStack
from stability.recovery import first_step, settling_time
from stability.search.as_it_runs import size_of_states
from stability.storage.artifacts import ANALYSIS_FILE, WEIGHTS
from stability.verification import Verification, verify

from ..names import clean
from .shapes import SHAPES, misfit, read_shaped

BOUNDS = ("state_bound", "gain", "decay_max", "horizon", "accumulators")
"""Proved numbers of a gated linear layer, as in ``LayerClaims.summary``."""


@dataclass(frozen=True)
class Checked:
    """Result of checking one certificate file.

    Attributes:
        view: content of the certificate, see ``view``; ``None`` for a file that does not verify.
        valid: whether all claims were proved again; True also for a file without claims.
        reason: the checker's result as a sentence.
        subject: name, size and digest of the subject, as the checker read them.
    """

    view: Mapping[str, Any] | None
    valid: bool
    reason: str
    subject: str = ""


def view(certificate: Certificate, size: float = 1.0, tol: float = 1e-3) -> dict[str, Any]:
    """Return a certificate's result in plain values, without matrices.

    Args:
        certificate: the certificate; its proofs are not checked here.
        size: norm of a disturbance of the state.
        tol: norm below which the disturbance counts as forgotten.

    Returns:
        ``Certificate.summary()`` with all texts printable, and further entries, ``None`` if they do not apply:

        - ``pairs``: every certified ``(rate, overshoot)`` of the main claim's kind of contraction;
        - ``eigenvalue``, ``modulus``: eigenvalue that a refutation names;
        - ``needs_box``: True for gated cells under every input, which no criterion certifies;
        - ``driven``: for a certified claim about inputs in a box, the ends of the box and the step from which it
          holds for all initial states, ``None`` if this step depends on the initial state;
        - ``recovery``, ``memory``: time until the disturbance is below ``tol``, and number of last inputs that
          determine the state up to ``tol``, see ``stability.recovery``;
        - ``like_data``: second verdict, for inputs in the range of the data or in a stated box;
        - ``run_size``: bound of the norm of the states in the proof about a run in finite precision;
        - ``dt``: duration of a step, if it is not one;
        - ``hidden``: size of the last hidden state;
        - ``witness_input``: smallest and largest entry of the input of a counterexample;
        - ``gated_linear``: proved bounds of a gated linear layer, see ``LayerClaims.summary``, with the name of its
          units and their number;
        - ``slopes``: slopes of the activation, if all channels have the same interval.

    Example:
        >>> from stability import LureSystem, certify
        >>> ((rate, overshoot),) = view(certify(LureSystem.recurrent([[-2.0]], [[1.0]])))["pairs"]
        >>> round(rate, 6), round(overshoot, 6)
        (1.0, 1.0)
    """
    claims, main = (certificate.claim, *certificate.claims), certificate.claim.name
    proved = [
        (float(c.value), float(c.proof.data["overshoot"]))
        for c in claims
        if c.name == main and c.verdict is Verdict.CERTIFIED and c.value is not None and c.proof is not None
        if isinstance(c.proof.data.get("overshoot"), (int, float))
    ]
    summary = clean(certificate.summary())
    if misfit(summary["meta"], SHAPES["meta"]) is not None:  # meta holds no proved results
        summary["meta"] = {}
    eigenvalue = _eigenvalue(certificate)
    modulus = None if eigenvalue is None else math.hypot(*eigenvalue)
    more: dict[str, Any] = {"modulus": modulus, "eigenvalue": eigenvalue, "needs_box": needs_box(certificate.subject)}
    more["driven"] = _driven(certificate)
    more["gated_linear"] = _gated_linear(certificate)
    run = next((c for c in certificate.claims if c.name == "as_it_runs" and c.verdict is Verdict.CERTIFIED), None)
    more["run_size"] = None if run is None else size_of_states(certificate.subject, run)
    last = getattr(certificate.subject, "layers", (certificate.subject,))[-1]
    dt = getattr(getattr(certificate.subject, "system", certificate.subject), "dt", None)
    more["dt"] = None if dt == 1.0 else dt
    more["hidden"] = getattr(last, "hidden", getattr(last, "states", None))
    slopes = {*zip(*(np.ravel(getattr(certificate.subject, end, ())).tolist() for end in ("alpha", "beta")))}
    more["slopes"] = list(*slopes) if len(slopes) == 1 else None
    more["witness_input"] = _witness_input(certificate)
    more["like_data"] = _like_data(certificate, summary["meta"].get("like_data"), size, tol)
    return {**summary, "pairs": [list(p) for p in proved], **more, **_recovery(certificate, size, tol)}


def _recovery(certificate: Certificate, size: float, tol: float, claim: Claim | None = None) -> dict[str, Any]:
    """Return recovery time and memory horizon by one of the claims."""
    times = {
        "recovery": certificate.recovery_time(size, tol, claim=claim),
        "memory": certificate.memory_horizon(tol, claim=claim),
    }
    return {name: None if value is None else value.to_dict() for name, value in times.items()}


def _gated_linear(certificate: Certificate) -> dict[str, Any] | None:
    """Return the proved bounds of a gated linear layer, and its units; ``None`` for other subjects."""
    layer = certificate.subject
    if not isinstance(layer, GatedLinearLayer):
        return None
    record = LayerClaims(0, layer.name, "", "norm", (certificate.claim, *certificate.claims), layer.taps).summary()
    return {"unit": layer.unit, "layers": 1, **{key: record[key] for key in BOUNDS}}


def layers_view(certificate: CheckpointCertificate) -> dict[str, Any]:
    """Return the result of a certificate of several gated linear layers in the form of ``view``."""
    records = [layer.summary() for layer in certificate.layers]

    def largest(values: list[Any]) -> Any:
        return None if None in values else max(values)

    gated: dict[str, Any] = {"unit": "unit", "layers": len(records), "tol": records[0]["horizon"]["tol"]}
    gated |= {key: largest([record[key] for record in records]) for key in ("state_bound", "gain", "decay_max")}
    gated["accumulators"] = [unit for record in records for unit in record["accumulators"]]
    ends = {key: largest([record["horizon"][key] for record in records]) for key in ("median", "max")}
    gated["horizon"] = {"tol": gated.pop("tol"), **ends}
    mains = [layer.claims[0] for layer in certificate.layers]
    main = next((claim for claim in mains if claim.verdict is certificate.verdict), mains[0])
    absent = ("criterion", "rate", "overshoot", "modulus", "eigenvalue", "driven", "dt", "hidden", "slopes")
    absent += ("witness_input", "like_data", "recovery", "memory", "run_size")
    return {
        **dict.fromkeys(absent),
        "verdict": str(certificate.verdict),
        "evidence": str(main.evidence),
        "statement": clean(" ".join(claim.statement for claim in mains)),
        "proof": main.proof.kind if main.proof else None,
        **{name: [] for name in ("findings", "claims", "pairs")},
        "meta": {"model": clean(str(certificate.meta.get("model")))},
        "needs_box": False,
        "gated_linear": gated,
    }


def _driven(certificate: Certificate) -> dict[str, Any] | None:
    """Return the box and the first step of a claim about inputs in a box."""
    claim = certificate.claim
    if claim.name == "driven_contraction" and claim.proof is not None:
        data = claim.proof.data
        low, high, since = data["low"], data["high"], first_step(claim)
        settling = settling_time(claim)
    else:  # gated cells: trajectories contract once both are in the proof's box of states, at a step that is not known
        first = getattr(certificate.subject, "layers", (certificate.subject,))[0]
        low, high, since = getattr(first, "input_low", None), getattr(first, "input_high", None), None
        settling = None
        if claim.verdict is not Verdict.CERTIFIED or low is None:
            return None
    return {"low": np.asarray(low).tolist(), "high": np.asarray(high).tolist(), "since": since, "settling": settling}


def _like_data(certificate: Certificate, query: Any, size: float, tol: float) -> dict[str, Any] | None:
    """Return the second verdict: for inputs in a stated box, or in the range of the data with a margin."""
    if not isinstance(query, dict):
        return None
    claim = next((c for c in certificate.claims if c.name == "driven_contraction"), None)
    witness = certificate.meta.get("witness") or {}
    entry = {key: query.get(key) for key in ("low", "high", "margin", "why")} | {"stated": query.get("stated") is True}
    inside = query.get("inside", witness.get("input_in_data_range")) is True
    if certificate.verdict is Verdict.CERTIFIED:
        return {**entry, "answer": "implied"}
    if claim is not None and claim.verdict is Verdict.CERTIFIED and claim.proof is not None:
        data = claim.proof.data
        more = {"rate": claim.value, "overshoot": data["overshoot"], "since": first_step(claim)}
        more["settling"] = settling_time(claim)
        return {**entry, "answer": "certified", **more, **_recovery(certificate, size, tol, claim)}
    if certificate.verdict is Verdict.REFUTED and inside:
        return {**entry, "answer": "refuted"}
    return {**entry, "answer": "open"}


def _witness_input(certificate: Certificate) -> list[float] | None:
    data = {} if certificate.proof is None or certificate.verdict is not Verdict.REFUTED else certificate.proof.data
    point = data.get("input", data.get("inputs"))
    return [float(np.min(point)), float(np.max(point))] if isinstance(point, np.ndarray) and point.size else None


def needs_box(subject: Any) -> bool:
    """Return True if a gated cell reads an input without a stated range."""
    parts = subject.layers[: subject.directions] if isinstance(subject, LayerStack) else (subject,)
    return any(isinstance(part, GatedCell) and part.input_low is None for part in parts)


def _eigenvalue(certificate: Certificate) -> tuple[float, float] | None:
    """Return real and imaginary part of the eigenvalue in a proof, for discrete-time systems."""
    proof = certificate.proof
    value = None if proof is None else proof.data.get("eigenvalue")
    system = getattr(certificate.subject, "system", certificate.subject)
    if value is None or len(value) != 2 or not getattr(system, "is_discrete", True):
        return None
    return float(value[0]), float(value[1])


def check_file(path: Path) -> Checked:
    """Read a certificate file and prove it again, without a solver; a single system also without torch.

    The certificate of several gated linear layers is checked with the weights beside it.

    Args:
        path: the file.

    Returns:
        The outcome; a file that is damaged, altered, of another version or false gives a reason, not an exception.
    """
    several = is_checkpoint_certificate(path)
    result = _verify_layers(path) if several else verify(path)
    if not (result.valid or claims_nothing(result)):
        return Checked(None, False, clean(result.reason))
    try:
        summary = layers_view(CheckpointCertificate.load(path)) if several else view(Certificate.load(path))
    except StabilityError as error:
        return Checked(None, False, clean(str(error)))
    if _model_of(path.parent) not in (None, summary["meta"].get("model")):
        return Checked(None, False, "the certificate is valid, but for another model than the one in its folder")
    return Checked(summary, True, clean(result.reason), clean(result.subject))


def _verify_layers(path: Path) -> Verification:
    """Check a certificate of gated linear layers with the weights beside it, all of whose layers it must cover."""
    from ...models import gated_layers

    weights = path.parent / WEIGHTS
    try:
        stored = list(gated_layers(weights) or ())
        if len(stored) != len(CheckpointCertificate.load(path).layers):
            return Verification(
                False, f"it does not cover all {len(stored)} gated linear layers of the weights beside it"
            )
    except StabilityError as error:
        return Verification(False, str(error))
    return verify(path, weights=weights)


def _model_of(folder: Path) -> str | None:
    """Return the digest of the model that ``analysis.json`` records; ``None`` without a record."""
    analysis = read_shaped(folder / ANALYSIS_FILE) if (folder / ANALYSIS_FILE).is_file() else {}
    recorded = analysis.get("files")
    return None if recorded is None else recorded.get(WEIGHTS, analysis.get("digest"))


def claims_nothing(result: Verification) -> bool:
    """Return True if a file is valid and all its claims are inconclusive."""
    return bool(result.checks) and result.verdict == Verdict.INCONCLUSIVE and all(c.valid for c in result.checks)
