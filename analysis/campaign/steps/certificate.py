"""The first step of an analysis: the certificate, which later steps build on."""

from __future__ import annotations

from typing import Any

from stability.certify import certify

from ..work import Work
from . import step


@step("certificate")
def _certificate_step(work: Work) -> None:
    use: dict[str, Any] = {}  # counter-examples are looked for where the data are, and said to lie there or not
    if work.task is not None:
        use = {"input_range": work.input_range, "horizon": int(work.task.test[0].shape[1])}
    work.certificate = certify(work.subject, seed=work.seed, time_limit=work.budget.seconds, **use)
    work.certificate.save(work.file("certificate.json"))
