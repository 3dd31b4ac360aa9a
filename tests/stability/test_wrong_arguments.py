"""Arguments that are no system, certificate or path raise the toolkit's own errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stability import Certificate, LureSystem, certify, circle_criterion, verify
from stability.errors import ConfigurationError
from stability.recovery import memory_horizon, recovery_time
from stability.search.criteria.circle import kyp_criterion
from stability.search.criteria.multiplier import multiplier_criterion

SYSTEM = LureSystem.recurrent([[-2.0]], [[1.0]])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: circle_criterion(None), "must be a LureSystem, got NoneType"),  # type: ignore[arg-type]
        (lambda: kyp_criterion(None), "must be a LureSystem, got NoneType"),  # type: ignore[arg-type]
        (lambda: multiplier_criterion(None), "must be a LureSystem, got NoneType"),  # type: ignore[arg-type]
        (lambda: multiplier_criterion([[1.0]]), "must be a LureSystem, got list"),  # type: ignore[arg-type]
        (lambda: memory_horizon(None), "must be a Certificate, got NoneType"),  # type: ignore[arg-type]
        (lambda: recovery_time(5, 1.0), "must be a Certificate, got int"),  # type: ignore[arg-type]
        (lambda: Certificate.load(None), "a path must be"),  # type: ignore[arg-type]
        (lambda: certify(SYSTEM).save(None), "a path must be"),  # type: ignore[arg-type]
        (lambda: certify(SYSTEM, criterion=["circle"]), "unknown criterion"),  # type: ignore[arg-type]
        (lambda: verify(None), "a Certificate or the path of its file, got NoneType"),  # type: ignore[arg-type]
    ],
)
def test_it_is_refused_in_words(call: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        call()


def test_a_number_is_no_open_file(tmp_path: Path) -> None:
    path = certify(SYSTEM).save(tmp_path / "c.json")
    with path.open("rb") as handle:
        for call in (verify, Certificate.load):
            with pytest.raises(ConfigurationError, match="got int"):
                call(handle.fileno())  # type: ignore[operator]
        assert os.lseek(handle.fileno(), 0, os.SEEK_CUR) == 0
    assert verify(str(path)).valid
