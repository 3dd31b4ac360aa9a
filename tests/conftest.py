"""Shared settings: one thread, fixed seeds, and no test may leave the global random state changed for the next."""

from __future__ import annotations

import os
import tempfile

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

torch.set_num_threads(1)
settings.register_profile(
    "stability", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("stability")


os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="stability-")  # notes of code that was named
os.environ.setdefault("STABILITY_TRACEBACK", "1")  # faults of the program are seen, here and in its processes


@pytest.fixture(autouse=True)
def _seeded():
    np.random.seed(0)  # noqa: NPY002 - libraries that still use the global state
    torch.manual_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)
