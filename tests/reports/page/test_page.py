"""The page as a browser shows it: nothing sticks out, wide or narrow, and what must be read can be read."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --allow-file-access-from-files --virtual-time-budget=4000"
)
MEASURE = """<!doctype html><body style="margin:0">
<iframe id="f" src="{page}" style="border:0;width:{width}px;height:900px"></iframe>
<pre id="out">not measured</pre><script>
const frame = document.getElementById('f');
frame.onload = () => {{
  const d = frame.contentDocument, w = {width}, wide = [];
  for (const e of d.body.querySelectorAll('*')) {{
    if (e.closest('.scroll, pre') && !e.matches('.scroll, pre')) continue;
    const box = e.getBoundingClientRect();
    const out = box.width > 0 && (box.right > w + 1 || box.left < -1);
    if (out) wide.push(e.tagName + '.' + e.getAttribute('class'));
  }}
  const text = [...d.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height).filter(h => h > 0);
  document.getElementById('out').textContent = JSON.stringify({{
    scroll: d.documentElement.scrollWidth, wide: wide.slice(0, 8),
    figures: d.querySelectorAll('figure svg').length, cards: d.querySelectorAll('.card').length,
    smallest: Math.min(...text), shown: text.length, text: d.body.innerText.slice(0, 6000),
    clipped: [...d.querySelectorAll('figure svg')].flatMap(s => [...s.querySelectorAll('text')].filter(t => {{
      const a = t.getBoundingClientRect(), b = s.getBoundingClientRect();
      return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2 || a.bottom > b.bottom + 2;
    }}).map(t => t.textContent)),
  }});
}};
</script>"""

pytestmark = [
    pytest.mark.page,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine; `.ci/run` installs one"),
]


def measure(page: Path, width: int, tmp_path: Path) -> dict:
    import json

    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(MEASURE.format(page=page.as_uri(), width=width))
    command = [
        str(BROWSER),
        *FLAGS.split(),
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,1000",
        "--dump-dom",
        wrapper.as_uri(),
    ]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="out">(.*?)</pre>', out, flags=re.DOTALL)
    assert found is not None
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_and_the_verdicts_are_there(drawn: Path, tmp_path: Path, width: int) -> None:
    seen = measure(drawn / "report.html", width, tmp_path)
    assert seen["scroll"] <= width
    assert seen["wide"] == []
    assert seen["cards"] == 3
    assert seen["figures"] > 15
    assert seen["clipped"] == []
    assert seen["shown"] > 50
    assert seen["smallest"] >= 9
    for words in (
        "Stability of three networks",
        "certified stable",
        "refuted",
        "inconclusive",
        "distance is at most half",
    ):
        assert words in seen["text"]
