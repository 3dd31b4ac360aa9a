"""Make the reports of the gallery: ``python docs/gallery.py [FOLDER]``, by default ``build/gallery``.

Made again over the same folder, each report goes on where it was.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "build" / "gallery"
FAMILIES = {
    "linear": ("Linear recurrences", "rotrnn,lru"),
    "continuous": ("Differential equations", "lipschitz,lipschitz_margin,antisymmetric,neural_ode"),
    "constrained": ("Orthogonal and bounded networks", "householder,unitary,bounded_gain,contracting"),
    "gated": ("Gated cells", "lstm,gru"),
    "gated-linear": ("Gated linear layers", "mingru,mamba2"),
}
"""Title and models of each report, by its folder."""


def entries(folder: Path = FOLDER) -> str:
    """Return the gallery as HTML; reports that were not made are named with their command, without a link."""
    parts = []
    for name, (title, models) in FAMILIES.items():
        command = f"<code>stability report --quick --models {models}</code>"
        picture, page = f"{name}/figures/two-runs.svg", f"{name}/report.html"
        if (folder / page).is_file():
            shown = f'<img src="{picture}" alt="" width="480">' if (folder / picture).is_file() else ""
            title = f'<a href="{page}">{title}{"<br>" + shown if shown else ""}</a>'
        parts.append(f"<p><b>{title}</b><br>{command}</p>")
    return "\n".join(parts)


def main() -> int:
    """Make every family's report and return the largest of their exit codes."""
    from stability.reports.cli import run

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    call = ["report", "--quick", "--models"]
    return max(run([*call, models, "--out", str(folder / name)]) for name, (_, models) in FAMILIES.items())


if __name__ == "__main__":
    sys.exit(main())
