"""Processor time of whole commands, in units of importing numpy and scipy.linalg.

python -m benchmarks.startup
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .timing import arguments, keep

MAIN = "import sys; from stability.reports.cli import main; sys.argv[0] = 'stability'; sys.exit(main())"
COMMANDS = (["--help"], ["certify", "missing.npz"], ["certify", "x.npz", "-o", "c.json"], ["verify", "c.json"])


def processor(code: str, words: list[str], folder: str) -> float:
    """Return the processor seconds of a Python process and its children."""
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    settings["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *words], cwd=folder, env=settings, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = arguments(__doc__, "startup")
    parser.add_argument("--repeats", type=int, default=5)
    options, rng = parser.parse_args(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "x.npz", A=-np.eye(32), W=rng.normal(size=(32, 32)) * 0.4 / np.sqrt(32))

        def least(code: str, words: list[str]) -> float:
            return min([processor(code, words, folder) for _ in range(options.repeats + 1)][1:])

        floor = least("import numpy, scipy.linalg", [])
        for words in COMMANDS:
            seconds = least(MAIN, words)
            keep(options.out, {"command": " ".join(words), "seconds": seconds, "ratio": seconds / floor}, "command")


if __name__ == "__main__":
    main()
