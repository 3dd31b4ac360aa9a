"""A program that has trained with several threads may fork: what it forked computes, alone, and comes to an end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, time
import torch
{library}

def work():
    return (torch.ones(2_000_000) + 1).exp().sum().item()

torch.set_num_threads(3)
here = work()
child = os.fork()
if not child:
    os._exit(0 if abs(work() / here - 1) < 1e-5 and torch.get_num_threads() == {threads} else 1)
for _ in range({patience}):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        print("ended", os.waitstatus_to_exitcode(status))
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    os.waitpid(child, 0)
    print("hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_after_threads_comes_to_an_end() -> None:
    program = PROGRAM.format(library="import stability.models", threads=1, patience=1500)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.stdout == "ended 0\n", done.stderr
