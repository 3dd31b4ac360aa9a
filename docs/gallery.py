"""Make the reports of the gallery: ``python docs/gallery.py [FOLDER]``, by default ``build/gallery``.

Made again over the same folder, each report goes on where it was.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stability.reports.cli import run

FAMILIES = {
    "linear": "rotrnn,lru",
    "continuous": "lipschitz,lipschitz_margin,antisymmetric,neural_ode",
    "constrained": "householder,unitary,bounded_gain,contracting",
    "gated": "lstm,gru",
}


def main() -> int:
    """Every family's report; the worst exit code of all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "build" / "gallery"
    return max(run(["report", "--quick", "--models", m, "--out", str(folder / f)]) for f, m in FAMILIES.items())


if __name__ == "__main__":
    sys.exit(main())
