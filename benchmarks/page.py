"""The page of fifty models, drawn from stored results: processor seconds and size.

    stability report --out REPORT
    OMP_NUM_THREADS=1 python -m benchmarks.page REPORT

The models of the report are copied until there are fifty, each under a name of its own; every certificate is proved
again while
the page is drawn, in one process. ``results/page.json`` is the row that is kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from stability.reports import render

RESULTS = Path(__file__).parent / "results" / "page.json"
MODELS, BYTES, SECONDS = 50, 5_000_000, 30.0


def multiplied(report: Path, folder: Path, many: int) -> None:
    """A report of so many models, copies of those of another."""
    known = [f for f in sorted((report / "models").iterdir()) if (f / "analysis.json").is_file()]
    names = []
    for k in range(many):
        own = known[k % len(known)]
        names.append(f"{own.name}-{k:02d}")
        there = folder / "models" / names[-1]
        shutil.copytree(own, there)
        document = json.loads((there / "analysis.json").read_text())
        (there / "analysis.json").write_text(json.dumps({**document, "title": f"{document['title']} {k:02d}"}))
    settings = json.loads((report / "report-settings.json").read_text())
    (folder / "report-settings.json").write_text(json.dumps({**settings, "models": names}))


def main() -> None:
    """Draw, and keep the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a report's folder")
    report = parser.parse_args().report
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "report"
        multiplied(report, folder, MODELS)
        start, begun = time.process_time(), time.perf_counter()
        page = render(folder)
        spent, waited = time.process_time() - start, time.perf_counter() - begun
        size = page.stat().st_size
    row = {"models": MODELS, "bytes": size, "processor_seconds": spent, "seconds": waited}
    RESULTS.write_text(json.dumps(row, indent=1) + "\n")
    print(f"{MODELS} models: {size / 1e6:.2f} MB of {BYTES / 1e6:g}, {spent:.1f} s of processor time of {SECONDS:g}")


if __name__ == "__main__":
    main()
