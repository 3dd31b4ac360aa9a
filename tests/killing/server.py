"""Carries commands out in forked processes and kills them: all is imported once, so that a hundred deaths are cheap.

Reads one JSON order a line on standard input: ``argv``, ``cwd``, ``log``; ``after`` (seconds until SIGKILL), ``victim``
(``parent`` or ``child``), or ``write`` (SIGKILL at the n-th file that is moved into place). Answers in one line, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from stability.analysis.campaign.budgets import BUDGETS, Budget
from stability.analysis.studies import STUDIES
from stability.reports import cli
from stability.storage import writing

BUDGETS["quick"] = Budget(
    samples=10, attacked=5, curved=5, certified=3, gated=1, draws=1, levels=(0.0, 0.3), epsilons_linf=(0.0, 0.1),
    epsilons_l2=(0.0, 1.0), steps=1, stretch=2, iterations=3, probes=1, trajectories=1, program_states=0,
)  # fmt: skip
TINY = {"steps": 6, "iterations": 6, "every": 2, "oRNN": 16, "LSTM": 6, "Elman": 14, "seeds": 2}
STUDIES["adding"] = replace(STUDIES["adding"], sizes={"full": TINY, "quick": TINY})


def die_at_write(number: int) -> None:
    """SIGKILL just before (odd) or just after (even) a file is moved into place."""
    move, seen = os.replace, [0]

    def replace(source: object, target: object) -> None:
        seen[0] += 1
        if 2 * seen[0] - 1 == number:
            os.kill(os.getpid(), signal.SIGKILL)
        move(source, target)  # type: ignore[arg-type]
        if 2 * seen[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    writing.os.replace = replace  # type: ignore[assignment]


def children(process: int) -> list[int]:
    """Processes that work for another one (not those that only mind its semaphores)."""
    try:
        told = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]  # of every thread
        below = [int(p) for p in " ".join(told).split()]
        return [p for p in below if b"resource_tracker" not in Path(f"/proc/{p}/cmdline").read_bytes()]
    except OSError:
        return []


def carry_out(order: dict) -> dict:
    begun = time.monotonic()
    process = os.fork()
    if not process:
        torch.set_num_threads(1)  # none of the parent's are in a fork: OpenMP would wait for them
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(order["cwd"])
        sys.argv = ["stability", *order["argv"]]
        if order.get("write"):
            die_at_write(order["write"])
        code = 70
        try:
            code = cli.run(order["argv"])
        except BaseException:  # noqa: BLE001 - whatever it is, it is for the log
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    draw, killed = random.Random(order.get("seed", 0)), False
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - begun, "killed": killed}
        if not killed and order.get("after") is not None and time.monotonic() - begun > order["after"]:
            victims = children(process) if order.get("victim") == "child" else [process]
            if victims:
                os.kill(draw.choice(victims), signal.SIGKILL)
                killed = True
        time.sleep(0.001)


def warm_up() -> None:
    """Carry the commands out once here: what they import, and set up, is then there in every child."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/m.npz", A=-np.eye(2), W=0.5 * np.eye(2))
        tiny = ["--task-set", "size=7", "--task-set", "limit=20", "--task-set", "test_limit=5", "--epochs", "1"]
        cli.run(["train", "--hidden", "2", *tiny, "-q", "--out", f"{folder}/t"])
        cli.run(
            ["report", f"{folder}/m.npz", f"{folder}/t", "--processes", "1", "--quick", "-q", "--out", f"{folder}/r"]
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(carry_out(json.loads(line))) + "\n")
        sys.stdout.flush()
