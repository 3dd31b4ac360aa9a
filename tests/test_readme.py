"""Examples of the README work as shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.sweep import Sweep
from stability.reports.cli import COMMANDS, run

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = re.findall(
    r"```python\n(.*?)```", TEXT + "".join(p.read_text(encoding="utf-8") for p in PAGES), flags=re.DOTALL
)


LONG = [pytest.param(code, marks=[pytest.mark.slow] * ("report(" in code)) for code in BLOCKS]


@pytest.mark.parametrize("code", LONG, ids=lambda code: code.strip().splitlines()[-1][:40])
def test_python_runs_and_prints_what_its_comments_say(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    promised = [c.strip() for c in re.findall(r"^print\(.*\) +# (.*)$", code, flags=re.MULTILINE)]
    assert [line for line in printed if line in promised] == promised


def test_sweeps_that_are_shown_are_sweeps(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    np.savez(tmp_path / "trained" / "net.npz", A=-np.eye(2), W=np.eye(2))
    np.savez(tmp_path / "own.npz", x=np.zeros((10, 3, 1)), y=np.arange(10) % 2)
    jobs = []
    for text in (TEXT, (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")):
        (shown,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
        (tmp_path / "sweep.toml").write_text(shown)
        jobs.append(len({job.id for job in Sweep.read(tmp_path / "sweep.toml").jobs()}))
    assert f": {jobs[0]} jobs, one table" in TEXT
    assert jobs[1] == 2 * 3 * 4 * 5 * (1 + 5 + 10) + 1


def test_every_command_is_told() -> None:
    section = TEXT[TEXT.index("## Commands") : TEXT.index("## Measured")]
    assert {n for n in COMMANDS if f"`stability {n}" not in section and f"`{n}`" not in section} == set()


@pytest.mark.slow
def test_commands_that_are_shown_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = TEXT + (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    commands = dict.fromkeys(line.strip() for line in shown.splitlines() if line.startswith("    "))
    lines = [shlex.split(c)[1:] for c in commands if c.startswith("stability ") and "report" not in c]
    assert len(lines) >= 3
    for line in lines:
        small = ["limit=50", "test_limit=20"] + ["size=7"] * (
            "--preset" not in line
        )  # a preset's pixels come in eights
        own = [f"--task-set={s}" for s in small if not any(word.startswith(s.split("=")[0] + "=") for word in line)]
        assert run([*line, *([*own, "--epochs", "1"] if line[0] == "train" else []), "--quiet"]) == 0
