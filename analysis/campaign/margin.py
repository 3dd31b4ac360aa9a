"""Step ``margin``: largest gain and integrator step for which the proof of stability still succeeds.

Both ends are stored with their certificates, so that the factors can be proved again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stability.errors import StabilityError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.loop_margin import GainMargin, gain_margin, step_margin
from stability.storage.artifacts import artifact

from .work import Work

TOL = 0.05
"""Relative tolerance of the margins."""
KINDS: dict[str, Callable[..., GainMargin]] = {"gain": gain_margin, "step": step_margin}


def margin_step(work: Work) -> None:
    """Run the step ``margin`` of an analysis and write its files."""
    certificate = work.certificate
    if certificate is None or certificate.verdict is not Verdict.CERTIFIED or certificate.rate is None:
        raise UnsupportedError("needs a proof of contraction for every input")
    result: dict[str, Any] = dict.fromkeys(artifact("margin.json").fields) | {"tol": TOL}
    why = ""
    for kind, search in KINDS.items():
        try:
            margin = search(certificate.subject, tol=TOL, seed=work.seed)
        except StabilityError as error:
            why = why or str(error)
            continue
        if kind == "gain" and margin.certified and margin.certified_low:
            why = why or "slopes times smaller factors are not all certified: see gain_margin"
            continue
        for end, value, proof in (
            ("certified", margin.certified, margin.certificate),
            ("destabilising", margin.destabilising, margin.refutation),
        ):
            if proof is not None:
                result[f"{kind}_{end}"] = value
                proof.save(work.file(f"margin_{kind}_{end}.json"))
    if not any(value is not None for name, value in result.items() if name != "tol"):
        raise UnsupportedError(why or "no factor was found")
    work.write_json("margin.json", result)
