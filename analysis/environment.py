"""Where and with what a result was made."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

PACKAGES = (
    "rnn-stability",
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "safetensors",
    "pyhessian",
    "cvxpy",
    "scs",
    "clarabel",
)


def environment(seed: int, device: torch.device, started: str) -> dict[str, Any]:
    """Versions, machine, threads, seed and times, for the record.

    Args:
        seed: of the run.
        device: that it ran on.
        started: when, ISO 8601.

    Returns:
        JSON values.

    Example:
        >>> sorted(environment(0, torch.device("cpu"), "now"))
        ['device', 'finished', 'machine', 'seed', 'started', 'versions']
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a checkout that was never installed
            versions[name] = "unknown"
    return {
        "versions": versions,
        "seed": seed,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "started": started,
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
