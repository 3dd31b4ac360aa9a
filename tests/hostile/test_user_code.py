"""Code of a user's own that exits, hangs, crashes, forks, prints or gives rubbish: one line and one exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import command

CODE = """
import os, re, signal, subprocess, sys, threading, time
import torch
from torch import nn

class Weird(BaseException): pass
class Mute(Exception):
    def __str__(self): raise KeyError("no text")
class Leaver(nn.RNN):
    def witness(self): sys.exit(0)

def calm():
    net = nn.RNN(2, 3)
    nn.init.eye_(net.weight_hh_l0).data.mul_(0.1)
    return net
def prints():
    print("to python"); os.write(1, b"to the file\\\\n"); subprocess.run(["echo", "from a child"])
    return calm()
def forks():
    os.fork()
    return calm()
def leaves_a_child():
    if os.fork() == 0: time.sleep(600)
    return calm()
def starts_a_program():
    subprocess.Popen(["sleep", "600"])
    return calm()
def thread_without_end():
    threading.Thread(target=time.sleep, args=(600,)).start()
    return calm()
def unsettles():
    os.chdir("/"); sys.path.clear(); signal.signal(signal.SIGINT, signal.SIG_IGN); os.umask(0o777)
    torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False); torch.set_default_device("meta")
    import warnings, locale, gc, numpy
    warnings.simplefilter("error"); gc.disable(); numpy.seterr(all="raise"); signal.alarm(1)
    sys.stdout.close(); sys.stderr = None; sys.argv[:] = ["x"]
    with torch.device("cpu"): return calm()
def exits_at_once(): os._exit(0)
def exits_as_certified(): sys.exit(0)
def crashes(): os.kill(os.getpid(), signal.SIGSEGV)
def is_killed(): os.kill(os.getpid(), signal.SIGKILL)
def terminates(): os.kill(os.getpid(), signal.SIGTERM)
def closes_everything():
    os.closerange(3, 1000)
    return calm()
def sleeps():
    if "BEGUN" in os.environ: open(os.environ["BEGUN"], "w").close()
    time.sleep(600)
def computes(): re.match("(a+)+$", "a" * 60 + "b")
def raises_weird(): raise Weird("no\\\\x1b[31m exception\\\\nsecond line")
def raises_mute(): raise Mute
def raises_group(): raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
def raises_exit(): raise GeneratorExit
def recurses(): return recurses()
def allocates(): return [0] * 10**15
async def waits(): return calm()
def yields(): yield calm()
def nothing(): return None
def a_class(): return nn.RNN
def a_tensor(): return torch.zeros(3)
def on_meta(): return nn.RNN(2, 3, device="meta")
def leaves_later(): return Leaver(2, 3)
"""
GOOD = "prints forks leaves_a_child starts_a_program thread_without_end unsettles"
BAD = {
    "exits_at_once": "it ended the program (exit code 0) before there was an answer",
    "exits_as_certified": "sys.exit(0)",
    "crashes": "SIGSEGV",
    "is_killed": "SIGKILL, perhaps for want of memory",
    "terminates": "SIGTERM",
    "closes_everything": "ended the program",
    "sleeps": "did not come back within 2 s (set STABILITY_FACTORY_SECONDS",
    "computes": "did not come back within 2 s",
    "raises_weird": "Weird: no\\x1b[31m exception",
    "raises_mute": "Mute (whose text cannot be shown)",
    "raises_group": "ExceptionGroup: several (2 sub-exceptions)",
    "raises_exit": "GeneratorExit",
    "recurses": "RecursionError",
    "allocates": "MemoryError",
    "waits": "it gives a coroutine (async def)",
    "yields": "it gives a generator",
    "nothing": "it gives a value of type NoneType",
    "a_class": "the class RNN instead of an instance",
    "a_tensor": "a value of type Tensor",
    "on_meta": "meta device",
    "leaves_later": "unexpected SystemExit: 0",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code") / "work"
    folder.mkdir()
    (folder / "codes_of_a_user.py").write_text(CODE)
    (folder / "hangs_when_imported.py").write_text("import time\ntime.sleep(600)\n")
    return folder


def test_the_code_is_what_it_looks_like():
    compile(CODE, "codes_of_a_user.py", "exec")


@pytest.mark.parametrize("name", GOOD.split())
def test_a_model_is_certified_whatever_else_its_factory_does(name, here):
    before = set(os.listdir(here))
    answer = command(["certify", f"codes_of_a_user:{name}", "--json", "-o", "c.json"], here, limit=120)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["verdict"] == "certified"  # one result, nothing else
    assert ("from a child" in answer.err) == (name == "prints")
    assert (here / "c.json").is_file()
    assert (here / "c.json").stat().st_mode & 0o400  # the mask of the process, not the factory's
    assert set(os.listdir(here)) - before <= {"c.json", "__pycache__"}
    (here / "c.json").unlink()
    assert not [p for p in _programs() if p == ["sleep", "600"]]


def _programs() -> list[list[str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace").rstrip("\0").split("\0"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", BAD)
def test_no_model_is_one_line_and_exit_code_two(name, here):
    settings = {"STABILITY_FACTORY_SECONDS": "2"} if name in ("sleeps", "computes") else {}
    answer = command(["certify", f"codes_of_a_user:{name}", "--json"], here, limit=120, settings=settings)
    faults = [f for f in answer.faults() if not (name == "leaves_later" and f.startswith("a traceback"))]
    assert not faults
    assert answer.code == 2
    told = json.loads(answer.out)  # one object, nothing else
    assert told.keys() == {"error", "exit_code"}
    assert told["exit_code"] == 2
    assert BAD[name] in answer.err


def test_a_module_that_hangs_when_imported(here):
    settings = {"STABILITY_FACTORY_SECONDS": "2"}
    answer = command(["noise", "hangs_when_imported:net"], here, limit=120, settings=settings)
    assert answer.faults() == []
    assert "hangs_when_imported:net cannot be used as a factory: it did not come back within 2 s" in answer.err


@pytest.mark.parametrize("text", ["soon", "0", "-3", "nan"])
def test_the_limit_is_a_number(text, here):
    answer = command(["certify", "codes_of_a_user:calm"], here, limit=60, settings={"STABILITY_FACTORY_SECONDS": text})
    assert answer.code == 2
    assert f"STABILITY_FACTORY_SECONDS must be a number of seconds above 0, got '{text}'" in answer.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_the_command_behind_its_watcher(number, here, tmp_path):
    """Interrupted is interrupted, terminated is terminated, and nothing stays behind."""
    begun = tmp_path / "begun"
    environment = {**os.environ, "PYTHONPATH": str(here), "OMP_NUM_THREADS": "1", "BEGUN": str(begun)}
    process = subprocess.Popen(
        [sys.executable, "-m", "stability", "certify", "codes_of_a_user:sleeps"],
        cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip
    try:
        while not begun.exists() and process.poll() is None:
            time.sleep(0.05)
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
        assert child
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert out == ""
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err.startswith("stability: interrupted")
    else:
        assert process.returncode == -number
        assert err == ""
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()


def test_a_result_that_cannot_be_written_is_no_success(monkeypatch, capsys):
    """A full disk behind standard output: what nobody can read is not "certified"."""
    from stability.errors import FileFormatError
    from stability.reports.cli import console

    with open("/dev/full", "w") as full:
        monkeypatch.setattr(console, "OUTPUT", full)
        with pytest.raises(FileFormatError, match="cannot write the result to standard output: No space left"):
            console.say("certified")
        monkeypatch.setattr(console, "OUTPUT", None)
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
