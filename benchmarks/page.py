"""Processor time and size of the page of fifty models, drawn from stored results.

    stability report --out REPORT
    OMP_NUM_THREADS=1 python -m benchmarks.page REPORT

The models of the report are copied until there are fifty; every certificate is verified while the page is drawn.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from stability.reports import render

from .timing import arguments, keep, processor

MODELS = 50


def multiplied(report: Path, folder: Path) -> None:
    """Write a report of fifty models, copies of those of another."""
    known = [f for f in sorted((report / "models").iterdir()) if (f / "analysis.json").is_file()]
    names = []
    for k in range(MODELS):
        own = known[k % len(known)]
        names.append(f"{own.name}-{k:02d}")
        there = folder / "models" / names[-1]
        shutil.copytree(own, there)
        document = json.loads((there / "analysis.json").read_text())
        (there / "analysis.json").write_text(json.dumps({**document, "title": f"{document['title']} {k:02d}"}))
    settings = json.loads((report / "report-settings.json").read_text())
    (folder / "report-settings.json").write_text(json.dumps({**settings, "models": names}))


def main() -> None:
    parser = arguments(__doc__, "page")
    parser.add_argument("report", type=Path, help="a report's folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "report"
        multiplied(options.report, folder)
        seconds, page = processor(lambda: render(folder))
        keep(options.out, {"models": MODELS, "bytes": page.stat().st_size, "processor_seconds": seconds}, "models")


if __name__ == "__main__":
    main()
