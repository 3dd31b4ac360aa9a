"""Examples of the README, the tutorial and the other pages run and print what they promise."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.sweep import Sweep
from stability.reports.cli import COMMANDS, run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {p.stem: p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").glob("*.md"))}
BLOCKS = re.findall(
    r"```python\n(.*?)```", "\n".join([README, *(t for n, t in PAGES.items() if n != "tutorial")]), flags=re.DOTALL
)
SMALL = {
    "train": ["--epochs=2", "--hidden=16", "--track-every=0", "--task-set=limit=800", "--task-set=test_limit=40"],
    "radius": ["--samples=4"],
    "compare": ["--samples=4", "--factor=2"],
    "report": ["--quick"],
}
MODEL = """
import torch

class Sensor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = torch.nn.RNN(3, 6, batch_first=True), torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])

def load():
    torch.manual_seed(0)
    return Sensor()
"""


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=[pytest.mark.slow] * ("report(" in code)) for code in BLOCKS],
    ids=lambda code: code.strip().splitlines()[-1][:40],
)
def test_python_runs_and_prints_what_its_comments_say(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    promised = [c.strip() for c in re.findall(r"^print\(.*\) +# (.*)$", code, flags=re.MULTILINE)]
    assert [line for line in printed if line in promised] == promised


def _steps(text: str) -> list[str]:
    """Return the shown commands and Python blocks of a page, in its order."""
    return re.findall(r"^    stability .*$|^```python\n(?:.*\n)*?(?=```)", text, flags=re.MULTILINE)


def _run(line: str, small: bool) -> None:
    """Run a command, and compare its exit code with that of its comment (0 without one)."""
    words, code = shlex.split(line, comments=True)[1:], re.search(r"# exit code (\d)", line)
    options = SMALL.get(words[0], []) if small else []
    if {"--data", "--from"} & set(words):  # these have no embedded data to cut down
        options = [option for option in options if "task-set" not in option]
    assert run([*words, *options, "--quiet"]) == (int(code[1]) if code else 0), line


@pytest.mark.parametrize("reports", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_commands_of_the_readme_run(reports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mymodel.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(40, 8, 3)).astype("float32")
    np.savez(tmp_path / "sensor.npz", x=x, y=(x.sum(axis=(1, 2)) > 0).astype("int64"))
    commands = [line for line in _steps(README) if "stability " in line.split("\n")[0]]
    assert len(commands) >= 8
    for line in commands:
        if reports or line.split()[1] not in ("report", "study"):
            _run(line, small=True)
    sys.modules.pop("mymodel", None)


@pytest.mark.parametrize("reports", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_tutorial_runs_as_it_is_shown(
    reports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in dict.fromkeys(_steps(PAGES["tutorial"])):
        if step.startswith("```"):
            code = step.removeprefix("```python\n")
            exec(compile(code, "tutorial.md", "exec"), {"__name__": "example"})
            promised = re.findall(r"^print\(.*\) +# (.*)$", code, flags=re.MULTILINE)
            assert capsys.readouterr().out.splitlines() == promised
        elif reports or step.split()[1] != "report":
            _run(step, small=step.split()[1] in ("radius", "compare", "report"))


def test_the_sweep_that_is_shown_is_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    np.savez(tmp_path / "trained" / "net.npz", A=-np.eye(2), W=np.eye(2))
    np.savez(tmp_path / "own.npz", x=np.zeros((10, 3, 1)), y=np.arange(10) % 2)
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGES["sweeps"], flags=re.DOTALL)
    (tmp_path / "sweep.toml").write_text(shown)
    assert len({job.id for job in Sweep.read(tmp_path / "sweep.toml").jobs()}) == 2 * 3 * 4 * 5 * (1 + 5 + 10) + 1


def test_every_command_has_a_line() -> None:
    section = README[README.index("## Commands") : README.index("## Limits")]
    assert {n for n in COMMANDS if f"`stability {n}" not in section and f"`{n}`" not in section} == set()
