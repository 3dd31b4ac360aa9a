"""Forged certificates of gated linear layers: changed claims, fields and lists of layers."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import claim_document
from stability.checkpoint_certificate import CheckpointCertificate
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import worded
from stability.systems import GatedLinearLayer


def changed_number(value: Any, rng: random.Random) -> Any:
    """Return a number or an array with one entry changed."""
    if isinstance(value, np.ndarray) and value.size:
        value = value.copy()
        place = rng.randrange(value.size)
        value.flat[place] = changed_number(float(value.flat[place]), rng)
        return value
    return rng.choice([value * (1 - 1e-6), value * 0.5, 0.0, -value, value * 2.0, 1.0, -1.0, 1e300, 5e-324, value + 1])


def forged_claim(layer: GatedLinearLayer, claim: Claim, others: list[Claim], rng: random.Random) -> Claim:
    """Return a changed claim, four times in five with the sentence and the value that fit to its proof."""
    proof, name, verdict, value = claim.proof, claim.name, claim.verdict, claim.value
    other = rng.choice(others)
    what = rng.choice(["number", "number", "number", "value", "kind", "name", "verdict", "proof", "none"])
    if proof is None or what == "none":
        return replace(claim, proof=other.proof if proof is None else None)
    if what == "number":
        key = rng.choice(list(proof.data))
        data = {**proof.data, key: changed_number(proof.data[key], rng)}
        if rng.random() < 0.7:
            for total, parts in (("most", "bounds"), ("decay", "log_decay")):
                if total in data:
                    most = float(np.max(data[parts]))
                    data[total] = most if total == "most" else math.exp(min(most, 700.0))
                    value = data[total] if rng.random() < 0.9 else value
        proof = Proof(proof.kind, data)
    elif what == "value":
        value = changed_number(value if value is not None else 1.0, rng)
    elif what == "kind":
        proof = Proof(rng.choice([*KIND_NAMES, "nothing"]), proof.data)
    elif what == "name":
        name = rng.choice(["state_bound", "state_gain", "decay", "forgetting", "contraction", "as_it_runs"])
    elif what == "verdict":
        verdict = rng.choice(list(Verdict))
    else:
        proof, value = other.proof, other.value
    forged = Claim(name, claim.statement, verdict, proof, value)
    try:
        return worded(layer, forged) if rng.random() < 0.8 else forged
    except Exception:  # noqa: BLE001 - a sentence of data that make none
        return forged


FIELDS = ("layer", "type", "digest", "input_set", "taps", "box", "step_limits")
"""Keys of a layer in the file, beside its claims."""
KIND_NAMES = (
    "gate_extremes", "average_bound", "root_bound", "delta_bound", "series_bound", "average_gain", "series_gain",
    "expanding_unit", "accumulator", "weighted_bound", "periodic_growth",
)  # fmt: skip


def forged_file(
    honest: CheckpointCertificate, layers: dict[int, GatedLinearLayer], foreign: list[Any], rng: random.Random
) -> dict[str, Any]:
    """Return a changed document, not sealed yet; ``foreign`` are layers of other certificates."""
    records = [{**{key: getattr(x, key) for key in FIELDS}, "claims": list(x.claims)} for x in honest.layers]
    at = rng.randrange(len(records))
    record, claims = records[at], records[at]["claims"]
    pool = [claim for one in (*honest.layers, *foreign) for claim in one.claims]
    what = rng.choice(["claim"] * 8 + ["field", "field", "layers", "claims", "swap"])
    name = honest.name
    if what == "claim":
        i = rng.randrange(len(claims))
        claims[i] = forged_claim(layers[record["layer"]], claims[i], pool, rng)
    elif what == "field":
        other, key = (
            rng.choice([*honest.layers, *foreign]),
            rng.choice(FIELDS),
        )
        choices = [
            getattr(other, key),
            {"layer": record["layer"] + 1, "taps": record["taps"] + 1, "step_limits": True, "box": None}.get(
                key, "box"
            ),
        ]
        record[key] = rng.choice(choices)
    elif what == "layers":
        name = rng.choice([name, "another"])
        records = rng.choice([records[:at] + records[at + 1 :], [*records, record], records[::-1]])
    elif what == "claims":
        i = rng.randrange(len(claims))
        record["claims"] = rng.choice([claims[:i] + claims[i + 1 :], [*claims, claims[i]], claims[::-1]])
    else:
        other = rng.choice([*honest.layers, *foreign])
        record["claims"] = list(other.claims)
    stored = [{**one, "claims": [claim_document(c) for c in one["claims"]]} for one in records]
    return {"format": "stability-checkpoint-certificate", "version": 1, "name": name, "layers": stored, "meta": {}}
