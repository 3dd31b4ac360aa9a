"""The jail in which hostile files are tried tells what happens in it."""

from __future__ import annotations

import os
import signal

import numpy as np

from tests.jail import fault, jailed


def test_the_jail_tells() -> None:
    """The same eyes on calls that do all of it."""
    assert jailed(lambda: np.ones(2**24).sum(), memory=64).kind == "memory"
    assert jailed(lambda: [None for _ in iter(int, 1)], seconds=1).kind in ("timeout", "memory")
    assert jailed(lambda: os.kill(os.getpid(), signal.SIGKILL)).kind == "killed"
    raised = jailed(lambda: 1 // 0)
    assert (raised.kind, raised.error, raised.typed) == ("error", "ZeroDivisionError", False)
    assert "ZeroDivisionError" in fault(raised, (2,))
    assert fault(jailed(lambda: (2, "", "stability: error: a\x1b[31m\n")), (2,)) != ""
    assert fault(jailed(lambda: (0, "certified", "")), (2,)) == "exit code 0: "
    assert fault(jailed(lambda: (2, "", "stability: error: no file\n")), (2,)) == ""
