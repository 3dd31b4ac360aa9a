"""Commands are forked from one warm process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import harness


@pytest.fixture(scope="session", autouse=True)
def _warm():
    if sys.platform != "linux":
        pytest.skip("processes are measured through /proc")
    harness.warm_up()
