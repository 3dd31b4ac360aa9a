"""Record of the versions, machine and commit behind a result."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = (
    "rnn-stability", "torch", "numpy", "scipy", "pandas", "safetensors", "pyhessian", "cvxpy", "scs", "clarabel",
)  # fmt: skip


def environment(seed: int, device: torch.device, started: str) -> dict[str, Any]:
    """Return versions, machine, threads, seed and times, for the record.

    Args:
        seed: seed of the run.
        device: device of the run.
        started: start time, ISO 8601.

    Returns:
        JSON values.

    Example:
        >>> sorted(environment(0, torch.device("cpu"), "now"))
        ['commit', 'device', 'finished', 'machine', 'seed', 'started', 'versions']
    """
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a checkout that was never installed
            versions[name] = "unknown"
    return {
        "versions": versions,
        "commit": commit(),
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


@functools.cache
def commit() -> str | None:
    """Return the commit of this program's checkout or installation.

    Returns:
        The digest, with ``, changed since`` if files of the checkout differ from it; ``None`` if it is not known.

    Example:
        >>> commit() is None or len(commit().partition(",")[0]) == 40
        True
    """
    root = Path(__file__).resolve().parents[1]
    git = shutil.which("git") if (root / ".git").exists() else None
    if git is None:
        return _installed()
    asked = (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 20}
    try:
        head, changed = (subprocess.run([git, "-C", str(root), *words], **options).stdout for words in asked)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.strip() + (", changed since" if changed.strip() else "")


def _installed() -> str | None:
    """Return the commit recorded by an installation from a repository (PEP 610)."""
    try:
        noted = metadata.distribution("rnn-stability").read_text("direct_url.json")
        commit_id = (json.loads(noted or "{}").get("vcs_info") or {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return commit_id if isinstance(commit_id, str) else None
