"""Certificates of models that exist already, as jobs of their own; and what a certificate says in a table."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stability.certificate import Certificate
from stability.certification import certify
from stability.storage.arrays import npz_system

from .job import Found, Given, register_kind

MATRICES = 40
"""Matrices of the size of the state that live at once in a search for a proof, at most:
``python -m benchmarks.certify --only memory`` finds 35 at 2,048 states, the interpreter included."""


def certificate_memory(states: int) -> int:
    """Bytes of a search for a proof about so many states.

    Example:
        >>> certificate_memory(8192) // 2**30
        20
    """
    return MATRICES * 8 * states * states


def certificate_values(found: Certificate | None, why: str = "") -> dict[str, Any]:
    """A certificate's columns of the table.

    Args:
        found: the certificate, ``None`` where there can be none.
        why: the reason of that.

    Returns:
        Verdict, evidence, criterion, rate, overshoot and the sentence.
    """
    if found is None:
        empty = dict.fromkeys(("verdict", "evidence", "criterion", "rate", "overshoot"))
        return {**empty, "statement": f"no claim can be made: {why}"}
    return {
        "verdict": str(found.verdict),
        "evidence": str(found.evidence),
        "criterion": found.criterion,
        "rate": found.rate,
        "overshoot": found.overshoot,
        "statement": found.statement,
    }


def _memory(options: Mapping[str, Any]) -> int:
    return certificate_memory(int(options.get("states") or 0))


@register_kind("certificate", memory=_memory)
def certify_file(options: Mapping[str, Any], given: Given) -> Found:
    """Certify a model in a file.

    Args:
        options: ``file`` (its digest), ``states``, ``seed``, ``certificate`` (options of ``certify``).
        given: where the file lies.

    Returns:
        The verdict, and ``certificate.json``.

    Raises:
        StabilityError: as ``load_subject`` and ``certify``.
    """
    subject = open_file(given.file(options["file"]))
    asked: dict[str, Any] = {k: tuple(v) if k == "input_box" else v for k, v in options["certificate"].items()}
    found = certify(subject, seed=options["seed"], **asked)
    with tempfile.TemporaryDirectory(prefix="stability-job-") as folder:
        found.save(Path(folder) / "certificate.json")
        raw = (Path(folder) / "certificate.json").read_bytes()
    return certificate_values(found), {"certificate.json": raw}


def open_file(path: Path) -> Any:
    """What ``certify`` is asked about: the system of matrices, or what else a model's file holds.

    Args:
        path: the file.

    Raises:
        StabilityError: as ``load_subject``.
    """
    system = npz_system(str(path))
    if system is not None:
        return system
    from ...models.sources import load_subject

    source = load_subject(str(path))
    return source.subject if source.module is None else source.module
