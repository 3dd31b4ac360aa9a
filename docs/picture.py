"""Take the picture of the report, ``docs/report.png``: ``python docs/picture.py [REPORT]``.

Without a report, the newest in ``runs/`` with ten models or more is taken. Nothing changes where there is neither such
a report nor a browser.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from stability.reports import render

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTINGS = "report-settings.json"


def main() -> None:
    """Draw a copy of the report and take the picture of its first screen."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    stored = sorted((ROOT / "runs").glob(f"*/{SETTINGS}"), key=lambda p: p.stat().st_mtime)
    large = [p.parent for p in stored if len(json.loads(p.read_text()).get("models", ())) >= 10]
    chosen = [Path(name) for name in sys.argv[1:]] or large[-1:]
    if browser is None or not chosen:
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(chosen[0], Path(folder) / "report"))
        page = render(copy, formats=())
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/user"]
        size = ["--window-size=1280,900", "--force-device-scale-factor=1.15"]
        target = f"--screenshot={ROOT / 'docs' / 'report.png'}"
        subprocess.run([browser, *options, *size, target, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
