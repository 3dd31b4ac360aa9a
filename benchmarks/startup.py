"""What commands cost before they work: whole processes, against importing numpy and scipy.linalg in the same run.

    python -m benchmarks.startup

Processor seconds (user and system) of the child, least of several runs; ``certify`` has a system of 32 states. The
first run of each, which does not count, compiles what it loads, as an installer does: nothing else would be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FLOOR = [sys.executable, "-c", "import numpy, scipy.linalg"]
MAIN = "import sys; from stability.reports.cli import main; sys.argv[0] = 'stability'; sys.exit(main())"
STABILITY = [sys.executable, "-c", MAIN]


def processor(command: list[str], folder: str) -> float:
    """Processor seconds of one child and its children."""
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    compiled["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=compiled, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows(repeats: int) -> list[dict]:
    """One row a command."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "x.npz", A=-np.eye(32), W=rng.normal(size=(32, 32)) * 0.4 / np.sqrt(32))
        commands = {
            "numpy and scipy.linalg": FLOOR,
            "--help": [*STABILITY, "--help"],
            "certify missing.npz": [*STABILITY, "certify", "missing.npz"],
            "certify x.npz": [*STABILITY, "certify", "x.npz", "-o", "c.json"],
            "verify c.json": [*STABILITY, "verify", "c.json"],
        }
        found = {
            name: min([processor(command, folder) for _ in range(repeats + 1)][1:])
            for name, command in commands.items()
        }
    floor = found["numpy and scipy.linalg"]
    return [{"command": name, "seconds": s, "times_the_floor": s / floor} for name, s in found.items()]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "startup.json")
    options = parser.parse_args()
    found = rows(options.repeats)
    for row in found:
        print(json.dumps(row))
    options.out.write_text(json.dumps({"rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
