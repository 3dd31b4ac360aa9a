"""A headless browser at the end of two pipes: what a page asks for, says and does while it is opened."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BROWSER", "Visit", "visit"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --hide-scrollbars --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
)
QUIET = 1.0  # seconds after the page was loaded in which nothing more happened


@dataclass
class Visit:
    """Events while a page was open."""

    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    loaded: bool = False
    answer: Any = None
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, message: dict[str, Any]) -> None:
        name, data = message.get("method", ""), message.get("params", {})
        if "id" in message:
            self.answers[message["id"]] = message
        elif name == "Network.requestWillBeSent":
            self.requests.append(data["request"]["url"])
        elif name == "Page.javascriptDialogOpening":
            self.dialogs.append(data["message"])
        elif name == "Runtime.consoleAPICalled":
            self.console.append(str(data["args"]))
        elif name in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.console.append(json.dumps(data))
        elif name == "Page.loadEventFired":
            self.loaded = True


def visit(
    page: Path,
    profile: Path,
    *,
    size: tuple[int, int] = (1280, 900),
    picture: Path | None = None,
    scheme: str = "light",
    scripts: Sequence[str] = (),
    pdf: Path | None = None,
) -> Visit:
    """Open a page and wait until nothing happens any more.

    Args:
        page: the file.
        profile: an empty folder for the browser.
        size: of the page in its window.
        picture: where a picture of the whole page goes, if wanted.
        scheme: ``light`` or ``dark``, what the reader prefers.
        scripts: run in the page after that, one after the other; what the last one gives is ``answer``.
        pdf: where a print of the page goes, if wanted.
    """
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    assert BROWSER is not None

    def place() -> None:
        os.dup2(to_browser, 3)
        os.dup2(from_browser, 4)

    command = [BROWSER, *FLAGS.split(), f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
    keep = (3, 4, to_browser, from_browser)
    process = subprocess.Popen(
        command, preexec_fn=place, pass_fds=keep, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seen, count, rest = Visit(), 0, b""
    try:

        def hear(seconds: float) -> bool:
            nonlocal rest
            if not select.select([answers], [], [], seconds)[0]:
                return False
            *whole, rest = (rest + os.read(answers, 1 << 20)).split(b"\0")
            for text in whole:
                seen.take(json.loads(text))
            return True

        def ask(method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
            nonlocal count
            count += 1
            message = {"id": count, "method": method, "params": params} | ({"sessionId": session} if session else {})
            os.write(commands, json.dumps(message).encode() + b"\0")
            end = time.monotonic() + 120
            while count not in seen.answers:
                assert time.monotonic() < end, f"the browser does not answer {method}"
                hear(1.0)
            return seen.answers[count].get("result", {})

        target = ask("Target.createTarget", url="about:blank")["targetId"]
        session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            ask(f"{domain}.enable", session)
        width, height = size  # of the page itself: a window is never narrower than 500
        ask(
            "Emulation.setDeviceMetricsOverride", session, width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        asked = [{"name": "prefers-color-scheme", "value": scheme}]
        ask("Emulation.setEmulatedMedia", session, features=asked)
        seen.requests.clear()
        seen.loaded = False
        ask("Page.navigate", session, url=page.as_uri())
        end = time.monotonic() + 120
        while not seen.loaded and not seen.dialogs:
            assert time.monotonic() < end, "the page does not load"
            hear(1.0)
        while hear(QUIET):
            pass
        for script in scripts:
            told = ask("Runtime.evaluate", session, expression=script, awaitPromise=True, returnByValue=True)
            assert "exceptionDetails" not in told, told["exceptionDetails"]
            seen.answer = told["result"].get("value")
        if pdf is not None:
            printed = ask("Page.printToPDF", session, printBackground=True, preferCSSPageSize=True)
            pdf.write_bytes(base64.b64decode(printed["data"]))
        if picture is not None:
            shot = ask("Page.captureScreenshot", session, captureBeyondViewport=True, format="png")
            picture.write_bytes(base64.b64decode(shot["data"]))
    finally:
        process.kill()
        process.wait()
        for end_of_pipe in (to_browser, commands, answers, from_browser):
            os.close(end_of_pipe)
    return seen
