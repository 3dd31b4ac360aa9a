"""Jobs that do next to nothing, for the benchmarks and tests of what spreads jobs over machines."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from stability.errors import UnsupportedError

Found = tuple[dict[str, Any], dict[str, bytes]]


def nap(options: Mapping[str, Any], given: Any) -> Found:
    """Sleep; the value depends on the options alone. With ``log``, a line for each time that it runs to its end."""
    time.sleep(options.get("seconds", 0.0))
    number = options["number"]
    if options.get("log"):
        handle = os.open(options["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{number}\n".encode())
        os.close(handle)
    return {"square": number * number, "third": number / 3}, {}


def stumble(options: Mapping[str, Any], given: Any) -> Found:
    """Fail as long as a file is there."""
    if os.path.exists(options["while"]):
        raise UnsupportedError(f"there is {options['number']}")
    return {"number": options["number"]}, {}
